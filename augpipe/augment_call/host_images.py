"""Images of files and arrays, on the CPU: one image after another, on a few threads during the call."""

from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.augment_call.inputs import Images
from augpipe.augment_call.plans_ahead import WORTH_A_REGION, Looks, PlanAhead, looks_of
from augpipe.decoding.jpeg import decoder_overloads
from augpipe.errors import SampleError
from augpipe.gpu_ops.compiled import background
from augpipe.native.cpu_render import Scratch, render
from augpipe.native.functions import Functions
from augpipe.native.workers import run_each
from augpipe.pipeline.stored_image import Decodable, StoredImage
from augpipe.planning.output_format import OutputFormat
from augpipe.planning.plan import Plan

Rows = npt.NDArray[np.void]


class HostTransform:
    """Renders plans on the CPU; safe from several threads. Of files it decodes what a loader decodes of them."""

    def __init__(self) -> None:
        self._scratch = Scratch()
        self._has_met_files = False

    def render(
        self, images: Images, plan: Plan, form: OutputFormat, num_threads: int, ahead: PlanAhead | None = None
    ) -> list[Any]:
        """The images of each view: a batch, or a list where their sizes differ.

        Args:
            images: of the call.
            plan: of these images.
            form: of what is made of them.
            num_threads: that render.
            ahead: the plan, where it is of a block of ids.

        Raises:
            SampleError: a file is damaged.
        """
        stored: list[StoredImage] = images.items
        if not self._has_met_files and any(image.may_crop for image in stored):
            self._has_met_files = True
            background.start([decoder_overloads(None)])  # libjpeg-turbo decodes until it is compiled
        num_planned = len(stored) if ahead is None else ahead.num_regions
        may_crop = [image.may_crop or image.is_array_above(WORTH_A_REGION // num_planned) for image in stored]
        may_scale = np.array([image.may_scale for image in stored], np.bool_)
        if ahead is None:
            looks = looks_of(plan.views, may_scale, wants_regions=any(may_crop))
        else:
            looks = ahead.looks(may_scale, any(may_crop))
        functions = [Functions.of(plan, view, images.names.__getitem__) for view in range(len(plan.views))]
        views = [_View(rows, view.out_size, form) for rows, view in zip(plan.views, plan.recipe.all_views, strict=True)]

        def work(position: int) -> None:
            own = looks.of(slice(position, position + 1))
            sizes = [view.sizes[position] for view in views]
            try:
                pixels = stored[position].in_place()
                if pixels is None:
                    decodable = _decodable(stored[position], own, may_crop[position])
                    pixels = decodable.decode_into(self._scratch.pixels(decodable.num_bytes))
            except ValueError as problem:
                raise SampleError(images.names[position], str(problem)) from problem
            for view, row, size, called in zip(views, own.tables, sizes, functions, strict=True):
                called = called and called.starting_at(position)
                render([pixels], row, view.memory_of(position), size, form, self._scratch, called)

        run_each(work, len(stored), num_threads)
        return [view.wrapped(form) for view in views]


def _decodable(image: StoredImage, looks: Looks, may_crop: bool) -> Decodable:
    """What the views look at, or all of the image."""
    (factor,) = looks.factors.tolist()
    if not may_crop:
        return image.whole(factor)
    assert looks.regions is not None
    return image.region(factor, looks.regions[0].tolist(), None)


class _View:
    """One view's images in memory, one behind the other."""

    def __init__(self, rows: Rows, out_size: tuple[int, int] | None, form: OutputFormat) -> None:
        self.sizes = [(int(row["out_height"]), int(row["out_width"])) for row in rows]
        """Height and width of each, in pixels."""
        self._common = self.sizes[0] if self.sizes else out_size or (0, 0)
        self._ends = list(accumulate((height * width * 3 for height, width in self.sizes), initial=0))
        self._memory: npt.NDArray[np.generic] = np.empty(self._ends[-1], form.held_as)

    def memory_of(self, position: int) -> npt.NDArray[np.generic]:
        """(height * width * 3,) of one image."""
        return self._memory[self._ends[position] : self._ends[position + 1]]

    def wrapped(self, form: OutputFormat) -> Any:
        """A batch, or a list of images where their sizes differ."""
        if len(set(self.sizes)) <= 1:
            return form.wrap(self._memory, len(self.sizes), *self._common)
        return [form.wrap(self.memory_of(i), 1, *size)[0] for i, size in enumerate(self.sizes)]
