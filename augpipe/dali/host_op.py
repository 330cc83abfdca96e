"""The recipe on a batch in host memory: the body of DALI's CPU operator."""

import numpy as np
import numpy.typing as npt

from augpipe.dali.samples import Numbers, SampleNumbers, plan_batch
from augpipe.native.cpu_render import Scratch, as_rgbx, check_image, render
from augpipe.native.functions import Functions
from augpipe.native.workers import run_each
from augpipe.planning.kernel_rows import kernel_rows
from augpipe.planning.output_format import OutputFormat
from augpipe.planning.regions import source_regions
from augpipe.recipes.recipe import Recipe
from augpipe.sources.protocol import Pixels

Images = list[npt.NDArray[np.generic]]
Rows = npt.NDArray[np.void]


class HostAugment:
    """Augments a batch a call; DALI's Python operators share a lock, so there is one call at a time."""

    def __init__(self, recipe: Recipe, seed: int, form: OutputFormat, numbers: SampleNumbers, num_threads: int) -> None:
        self._recipe = recipe
        self._seed = seed
        self._form = form
        self._numbers = numbers
        self._num_threads = num_threads
        self._memory: list[npt.NDArray[np.generic]] = [np.empty(0, form.held_as) for _ in recipe.all_views]
        self._scratch = Scratch()

    def __call__(self, images: list[Pixels], *given: list[Numbers]) -> Images | tuple[Images, ...]:
        """Augment one batch.

        Args:
            images: HWC uint8 views of DALI's memory, valid during the call and only read.
            given: see `SampleNumbers.next`.

        Returns:
            For each view one array a sample; for a single view that list itself. They lie in memory that the next call
            writes to: DALI copies the result before it calls again.

        Raises:
            ValueError: an image is not one, or cannot be used with the recipe; the message names the sample.
        """
        ids, epochs = self._numbers.next(len(images), given)
        for sample_id, image in zip(ids, images, strict=True):
            try:
                check_image(image)
            except ValueError as problem:
                raise ValueError(f"sample {sample_id}: {problem}.") from None
        made = plan_batch(self._recipe, self._seed, ids, epochs, [(image.shape[0], image.shape[1]) for image in images])
        tables = [kernel_rows(rows) for rows in made.views]
        targets = [self._targets(view, rows) for view, rows in enumerate(made.views)]
        regions = self._regions(images, tables)

        functions = [Functions.of(made, view, lambda _: "an image of DALI's") for view in range(len(tables))]

        def work(position: int) -> None:
            left, top, right, bottom = regions[position]
            pixels = as_rgbx(images[position][top:bottom, left:right], self._scratch, left, top)
            for table, views_targets, called in zip(tables, targets, functions, strict=True):
                out, size = views_targets[position]
                row = table[position : position + 1]
                called = called and called.starting_at(position)
                render([pixels], row, out, size, self._form, self._scratch, called)

        run_each(work, len(images), self._num_threads)
        finished = tuple(
            [self._form.wrap(out, 1, height, width)[0] for out, (height, width) in views_targets]
            for views_targets in targets
        )
        return finished if len(finished) > 1 else finished[0]

    def _regions(self, images: list[Pixels], tables: list[Rows]) -> list[list[int]]:
        """Left, top, right and bottom of what the views look at in each image: only that is packed."""
        sizes = [view.out_size for view in self._recipe.all_views]
        cropped = [size for size in sizes if size is not None]
        if len(cropped) < len(sizes):  # a view keeps whole images
            return [[0, 0, image.shape[1], image.shape[0]] for image in images]
        regions: list[list[int]] = source_regions(tables, cropped).tolist()
        return regions

    def _targets(self, view: int, rows: Rows) -> list[tuple[npt.NDArray[np.generic], tuple[int, int]]]:
        """For each sample the memory of its image of a view, and its height and width."""
        sizes = [(int(row["out_height"]), int(row["out_width"])) for row in rows]
        ends = np.cumsum([0] + [height * width * 3 for height, width in sizes])
        if len(self._memory[view]) < ends[-1]:
            self._memory[view] = np.empty(int(ends[-1]), self._form.held_as)
        memory = self._memory[view]
        return [(memory[ends[i] : ends[i + 1]], size) for i, size in enumerate(sizes)]
