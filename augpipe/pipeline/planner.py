"""The stage that plans a batch once the sizes of its images are known, and an item again where it is another one."""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from augpipe.cache import PixelCache
from augpipe.pipeline.blocks import Block, PlannedSamples
from augpipe.pipeline.items import BatchInProgress, Item, Settings
from augpipe.pipeline.objects_of_crops import objects_of
from augpipe.planning.kernel_rows import dct_factors, kernel_rows
from augpipe.planning.mosaic_draws import write_places
from augpipe.planning.plan import plan
from augpipe.planning.regions import source_regions

Ints = npt.NDArray[np.int64]
Rows = npt.NDArray[np.void]


class Planner:
    """Plans batches, looks up what the cache holds of them, and has memory made for them.

    Args:
        settings: the loader's.
        cache: where pixels may be.
        begin: gives a planned batch the memory for its images.
        decodes: whether images are decoded, so that regions are worth knowing.
        wants_regions: whether every image's is, as where DALI decodes regions of any JPEG.
        narrow: have less decoded of images that are looked at in part only.
    """

    def __init__(
        self,
        settings: Settings,
        cache: PixelCache | None,
        begin: Callable[[BatchInProgress], None],
        *,
        decodes: bool,
        wants_regions: bool,
        narrow: Sequence[Callable[[BatchInProgress], None]] = (),
    ) -> None:
        self._settings = settings
        self._cache = cache
        self._narrow = narrow
        self._begin = begin
        self._decodes = decodes
        self._wants_regions = wants_regions

    def plan(self, batch: BatchInProgress, items: Sequence[Item]) -> None:
        """Fill in the batch's plan, tables and sizes, and each item's factor, region and pixels that the cache holds.

        Raises:
            ValueError: the recipe keeps whole images and they differ in size.
        """
        block, cut = batch.request.block, batch.request.cut
        if items and block.sizes is not None and block.sizes.heights[cut].all():
            self._begin_planned(batch, items, self._planned_block(block).copy_of(cut), block)
        else:
            self._begin_planned(batch, items, self._planned_items(batch, items))

    def plan_again(self, batch: BatchInProgress, items: Sequence[Item]) -> None:
        """Plan items by themselves that have become other images, in a batch that is planned.

        Raises:
            ValueError: the batch holds whole images, and one of these is of another size.
        """
        if len(batch.items) == 1:
            self._begin_planned(batch, items, self._planned_items(batch, items))
            return
        assert batch.plan is not None
        batch.pasted = ()  # by other images
        for item in items:
            planned = self._planned_items(batch, [item])
            for view, rows in enumerate(planned.plan.views):
                self._check_size(batch, view, rows[0], item)
                batch.plan.views[view][item.position] = rows[0]
                batch.tables[view][item.position] = planned.tables[view][0]
                batch.whole_tables[view][item.position] = planned.tables[view][0]
            item.factor = int(planned.factors[0])
            # also where the cache knows the size: it may have to be read after all
            item.region = source_regions(planned.tables, batch.sizes)[0].tolist()
            if self._cache is not None:
                item.pixels = self._cache.find(item.opened.sample_id, item.factor)
                item.is_cached = item.pixels is not None

    def moved(self, batch: BatchInProgress) -> list[Item]:
        """The items of a planned batch that lie elsewhere in their mosaics than they are planned to."""
        placed = self._placed(batch)
        if placed is None:
            return []
        assert batch.plan is not None
        differs = (placed["place"] != batch.plan.rows["mosaic"]["place"]).any(axis=1)
        return [batch.items[position] for position in np.flatnonzero(differs)]

    def _placed(self, batch: BatchInProgress) -> Rows | None:
        """(B,) where the batch's images stand in mosaics, as they are now; None where the recipe makes none."""
        recipe, mosaic, cut = self._settings.recipe, batch.request.block.mosaic, batch.request.cut
        if recipe.mosaic is None or mosaic is None:
            return None
        sizes = np.array([item.opened.size for item in batch.items], np.int64).reshape(-1, 2)
        return write_places(recipe.mosaic, mosaic.placed[cut], mosaic.owners[cut], sizes)

    def _begin_planned(
        self, batch: BatchInProgress, items: Sequence[Item], planned: PlannedSamples, block: Block | None = None
    ) -> None:
        """Hand a batch its plan, of a `block` or its own, and whatever follows from that."""
        batch.plan, batch.tables, batch.whole_tables = planned.plan, planned.tables, planned.tables
        batch.sizes = tuple(
            view.out_size or self._common_size(rows, items)
            for view, rows in zip(self._settings.recipe.all_views, batch.plan.views, strict=True)
        )
        for item, factor in zip(items, planned.factors.tolist(), strict=True):
            item.factor = factor
        if self._cache is not None:
            held = self._cache.find_all(batch.plan.sample_ids, planned.factors)
            for position, pixels in held.items():
                items[position].pixels, items[position].is_cached = pixels, True
        if self._decodes and any(map(self._wants_region, items)):
            for item, region in zip(items, self._regions(batch, block).tolist(), strict=True):
                item.region = region
            for work in self._narrow:
                work(batch)
        self._begin(batch)

    def _regions(self, batch: BatchInProgress, block: Block | None) -> npt.NDArray[np.int32]:
        sizes = [size for view in self._settings.recipe.all_views if (size := view.out_size) is not None]
        if block is None or len(sizes) < len(batch.sizes):
            return source_regions(batch.tables, batch.sizes)
        with block.lock:
            if block.regions is None:
                assert block.planned is not None
                block.regions = source_regions(block.planned.tables, sizes)
            return block.regions[batch.request.cut]

    def _wants_region(self, item: Item) -> bool:
        image = item.opened
        return item.pixels is None and (self._wants_regions or image.may_crop or image.content is None)

    def _planned_items(self, batch: BatchInProgress, items: Sequence[Item]) -> PlannedSamples:
        images = [item.opened for item in items]
        places = np.array([item.position for item in items], np.int64)
        positions, mosaic, cut = batch.request.positions, batch.request.block.mosaic, batch.request.cut
        placed = self._placed(batch)
        return self._planned(
            batch.request.epoch,
            np.array([image.sample_id for image in images], np.int64),
            None if positions is None else positions[places],
            np.array([image.size for image in images], np.int64),
            np.array([image.may_scale for image in images], np.bool_),
            placed=None if placed is None else placed[places],
            drawn_by=None if mosaic is None else mosaic.drawn_by[cut][places],
        )

    def _planned_block(self, block: Block) -> PlannedSamples:
        with block.lock:
            if block.planned is None:
                assert block.sizes is not None
                sizes = np.stack([block.sizes.heights, block.sizes.widths], axis=1)
                is_known = sizes[:, 0] > 0
                sizes[~is_known] = sizes[is_known.argmax()]  # one that the recipe takes, for rows that nobody looks at
                recipe, mosaic = self._settings.recipe, block.mosaic
                placed = None
                if recipe.mosaic is not None and mosaic is not None:
                    placed = write_places(recipe.mosaic, mosaic.placed, mosaic.owners, sizes)
                block.planned = self._planned(
                    block.epoch,
                    block.sample_ids,
                    block.positions,
                    sizes,
                    block.sizes.may_scale,
                    is_known,
                    placed=placed,
                    drawn_by=None if mosaic is None else mosaic.drawn_by,
                )
            return block.planned

    def _planned(
        self,
        epoch: int,
        sample_ids: Ints,
        positions: Ints | None,
        sizes: Ints,
        may_scale: npt.NDArray[np.bool_],
        is_known: npt.NDArray[np.bool_] | None = None,
        placed: Rows | None = None,
        drawn_by: Ints | None = None,
    ) -> PlannedSamples:
        """Plan samples; `is_known` says whose `sizes` are, where not all are, and the rest is as of `plan`."""
        settings = self._settings
        known = objects_of(settings.source, sample_ids, is_known) if settings.recipe.keeping else None
        made = plan(
            settings.recipe,
            sample_ids,
            sizes=sizes,
            epoch=epoch,
            seed=settings.seed,
            positions=positions,
            objects=known,
            placed=placed,
            drawn_by=drawn_by,
        )
        factors = np.where(may_scale, dct_factors(made.views), 1)
        tables = tuple(kernel_rows(rows, factors) for rows in made.views)
        return PlannedSamples(plan=made, factors=factors, tables=tables)

    def _common_size(self, rows: Rows, items: Sequence[Item]) -> tuple[int, int]:
        """The one size of the output images of a view that keeps whole images."""
        if not len(rows):
            return (0, 0)
        height, width = int(rows["out_height"][0]), int(rows["out_width"][0])
        other = np.flatnonzero((rows["out_height"] != height) | (rows["out_width"] != width))
        if len(other):
            row = rows[other[0]]
            names = [self._settings.source.name(items[i].sample_id) for i in (0, int(other[0]))]
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
