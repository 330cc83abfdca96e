"""The stage that plans a batch once the sizes of its images are known, and an item anew where it is another one."""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from augpipe.cache import PixelCache
from augpipe.pipeline.items import BatchInProgress, Item, Settings
from augpipe.planning.kernel_rows import dct_factors, kernel_rows
from augpipe.planning.plan import Plan, plan
from augpipe.planning.regions import source_regions

Rows = npt.NDArray[np.void]


class Planner:
    """Plans batches, looks up what the cache holds of them, and has memory made for them.

    Args:
        settings: the loader's.
        cache: where pixels may be.
        begin: gives a planned batch the memory for its images.
        wants_regions: whether every image's region is worth knowing, as where DALI decodes regions of any JPEG.
    """

    def __init__(
        self,
        settings: Settings,
        cache: PixelCache | None,
        begin: Callable[[BatchInProgress], None],
        *,
        wants_regions: bool,
    ) -> None:
        self._settings = settings
        self._cache = cache
        self._begin = begin
        self._wants_regions = wants_regions

    def plan(self, batch: BatchInProgress, items: Sequence[Item]) -> None:
        """Fill in the batch's plan, tables and sizes, and each item's factor, region and pixels that the cache holds.

        Raises:
            ValueError: the recipe keeps whole images and they differ in size.
        """
        batch.plan, factors, batch.tables = self._planned(batch, items)
        batch.sizes = tuple(
            view.out_size or self._common_size(rows, items)
            for view, rows in zip(self._settings.recipe.all_views, batch.plan.views, strict=True)
        )
        for item, factor in zip(items, factors.tolist(), strict=True):
            item.factor = factor
        if self._cache is not None:
            held = self._cache.find_all(batch.plan.sample_ids, factors)
            for position, pixels in held.items():
                items[position].pixels, items[position].is_cached = pixels, True
        if any(map(self._wants_region, items)):
            for item, region in zip(items, source_regions(batch.tables, batch.sizes).tolist(), strict=True):
                item.region = region
        self._begin(batch)

    def plan_again(self, batch: BatchInProgress, items: Sequence[Item]) -> None:
        """Plan items by themselves that have become other images, in a batch that is planned.

        Raises:
            ValueError: the batch holds whole images, and one of these is of another size.
        """
        if len(batch.items) == 1:
            self.plan(batch, items)
            return
        assert batch.plan is not None
        for item in items:
            made, factors, tables = self._planned(batch, [item])
            for view, rows in enumerate(made.views):
                self._check_size(batch, view, rows[0], item)
                batch.plan.views[view][item.position] = rows[0]
                batch.tables[view][item.position] = tables[view][0]
            item.factor = int(factors[0])
            # also where the cache knows the size: it may have to be read after all
            item.region = source_regions(tables, batch.sizes)[0].tolist()
            if self._cache is not None:
                item.pixels = self._cache.find(item.opened.sample_id, item.factor)
                item.is_cached = item.pixels is not None

    def _wants_region(self, item: Item) -> bool:
        image = item.opened
        return item.pixels is None and (self._wants_regions or image.may_crop(item.factor) or image.content is None)

    def _planned(
        self, batch: BatchInProgress, items: Sequence[Item]
    ) -> tuple[Plan, npt.NDArray[np.int64], tuple[Rows, ...]]:
        images = [item.opened for item in items]
        made = plan(
            self._settings.recipe,
            [image.sample_id for image in images],
            sizes=[image.size for image in images],
            epoch=batch.request.epoch,
            seed=self._settings.seed,
        )
        may_scale = np.array([image.may_scale for image in images], np.bool_)
        factors = np.where(may_scale, dct_factors(made.views), 1)
        return made, factors, tuple(kernel_rows(rows, factors) for rows in made.views)

    def _common_size(self, rows: Rows, items: Sequence[Item]) -> tuple[int, int]:
        """The one size of the output images of a view that keeps whole images."""
        if not len(rows):
            return (0, 0)
        height, width = int(rows["out_height"][0]), int(rows["out_width"][0])
        other = np.flatnonzero((rows["out_height"] != height) | (rows["out_width"] != width))
        if len(other):
            row = rows[other[0]]
            names = [self._settings.source.name(items[i].opened.sample_id) for i in (0, int(other[0]))]
            raise ValueError(
                f"one batch cannot hold images of several sizes: {names[0]} is {height}x{width} and {names[1]} "
                f"{row['out_height']}x{row['out_width']}. Add a crop to the recipe, or use batch_size=1."
            )
        return height, width

    def _check_size(self, batch: BatchInProgress, view: int, row: np.void, item: Item) -> None:
        size = int(row["out_height"]), int(row["out_width"])
        if size != batch.sizes[view]:
            height, width = batch.sizes[view]
            raise ValueError(
                f"one batch cannot hold images of several sizes: {self._settings.source.name(item.opened.sample_id)}, "
                f"which replaces an unusable photograph, is {size[0]}x{size[1]} and the others {height}x{width}. "
                "Add a crop to the recipe, or use batch_size=1."
            )
