"""Plans of the ids of the next calls, several at once: planning many takes little longer than planning one."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from augpipe.gpu_ops.random.philox import MAX_WORD
from augpipe.planning.kernel_rows import dct_factors, kernel_rows, resized_rows
from augpipe.planning.plan import Plan
from augpipe.planning.planned_view import PlannedView
from augpipe.planning.regions import source_regions
from augpipe.recipes.recipe import Recipe

Rows = npt.NDArray[np.void]
Sizes = list[tuple[int, int]]
"""Height and width of images, in pixels."""
Draw = Callable[..., list[PlannedView]]

MOST_AHEAD = 256
"""Ids that are planned at once, at most."""
FREQUENT = 64
"""A size that one in so many images of a block has: the next block is fitted to it as a whole, which takes less time
than four images by themselves."""
WORTH_A_REGION = 2**20
"""Pixels of a call's arrays from which on looking for what is seen of them takes less time than packing them whole."""


class Looks(NamedTuple):
    """What a plan is for the kernel."""

    factors: npt.NDArray[np.int64]
    """(B,) DCT factors that images are decoded at."""
    tables: list[Rows]
    """For each view, (B,) `kernel_rows`."""
    regions: npt.NDArray[np.int32] | None
    """(B, 4) `source_regions`, where they were asked for."""

    def of(self, own: slice) -> "Looks":
        """Those of some samples."""
        regions = None if self.regions is None else self.regions[own]
        return Looks(self.factors[own], [table[own] for table in self.tables], regions)

    def with_regions(self, views: Sequence[Rows]) -> "Looks":
        """With the regions that the plan's views look at."""
        sizes = [np.stack([rows["out_height"], rows["out_width"]], axis=1) for rows in views]
        return self._replace(regions=source_regions(self.tables, sizes))


def looks_of(
    views: tuple[Rows, ...], may_scale: list[bool], *, wants_regions: bool, like: Looks | None = None
) -> Looks:
    """What a plan is for the kernel.

    Args:
        views: of the plan, of B samples.
        may_scale: of each image, or of one for all, whether it may be decoded at a DCT scale.
        wants_regions: whether any image is of a kind of which a part can be taken.
        like: those of the same samples for images of other sizes, which differ only as `PlannedView.resized` says.
    """
    ones = np.ones(len(views[0]), np.int64)
    factors = np.where(may_scale, dct_factors(views), ones) if any(may_scale) else ones
    if like is None:
        tables = [kernel_rows(rows, factors) for rows in views]
    else:
        tables = [resized_rows(rows, table, factors) for rows, table in zip(views, like.tables, strict=True)]
    looks = Looks(factors, tables, None)
    return looks.with_regions(views) if wants_regions else looks


class PlannedBlock:
    """Ids in a row, planned for images of some sizes."""

    def __init__(self, views: list[PlannedView], first: int, sizes: Sizes) -> None:
        self.views = views
        self.first = first
        self.sizes = sizes
        self._looks: dict[tuple[bool, bool], Looks] = {}

    @property
    def num(self) -> int:
        """Of ids."""
        return len(self.sizes)

    def of(self, sample_id: int, num: int) -> slice | None:
        """Where ids from this one on are planned."""
        own = slice(sample_id - self.first, sample_id - self.first + num)
        return None if own.start < 0 or own.stop > self.num else own

    def resized(self, sizes: Sizes) -> "PlannedBlock":
        """What was planned, for images of other sizes, given `Recipe.sized_ops`."""
        everywhere = slice(0, self.num)
        views = [replace(view, rows=view.resized(everywhere, np.array(sizes))) for view in self.views]
        return PlannedBlock(views, self.first, sizes)

    def looks(self, may_scale: bool, wants_regions: bool) -> Looks:
        """What the plan is for the kernel."""
        kind, views = (may_scale, wants_regions), tuple(view.rows for view in self.views)
        if kind not in self._looks and wants_regions:
            self._looks[kind] = self.looks(may_scale, False).with_regions(views)
        elif kind not in self._looks:
            self._looks[kind] = looks_of(views, [may_scale], wants_regions=False)
        return self._looks[kind]


class PlanAhead:
    """The plan of a call's images, of a block of ids."""

    def __init__(self, block: PlannedBlock, own: slice, sizes: Sizes, recipe: Recipe, seed: int) -> None:
        self._block = block
        self._own = own
        self._has_its_sizes = block.sizes[own] == sizes
        if self._has_its_sizes:
            rows = [view.rows[own] for view in block.views]
        else:
            rows = [view.resized(own, np.array(sizes)) for view in block.views]
        self.plan = Plan(recipe=recipe, seed=seed, views=tuple(rows))

    @property
    def num_regions(self) -> int:
        """With how many others it is found out which regions of images are seen."""
        return self._block.num if self._has_its_sizes else len(self.plan)

    def looks(self, may_scale: list[bool], wants_regions: bool) -> Looks:
        """What the plan is for the kernel; the arguments are those of `looks_of`."""
        if self._has_its_sizes and all(may_scale) == any(may_scale):
            return self._block.looks(may_scale[0], wants_regions).of(self._own)
        like = self._block.looks(False, False).of(self._own)
        return looks_of(self.plan.views, may_scale, wants_regions=wants_regions, like=like)

    def with_regions(self, looks: Looks) -> Looks:
        """`Looks.with_regions`, of images that may not be scaled."""
        if self._has_its_sizes:
            return self._block.looks(False, True).of(self._own)
        return looks.with_regions(self.plan.views)


class PlansAhead:
    """Plans ids that are asked for one after the other. The more of a block are used, the longer the next."""

    def __init__(self) -> None:
        self._block: PlannedBlock | None = None
        self._fitted: dict[tuple[int, int], PlannedBlock] = {}
        """The block for images of another size, each of which comes often."""
        self._num_used = 0
        self._num_of: Counter[tuple[int, int]] = Counter()
        """How many of the block's ids were of images of a size."""
        self._frequent: set[tuple[int, int]] = set()
        self._drawn_by: tuple[int, int, int] | None = None

    def block(
        self, sample_id: int, sizes: Sizes, recipe: Recipe, draw: Draw, epoch: int, seed: int
    ) -> tuple[PlannedBlock, slice]:
        """The block that a call's ids are planned in, and where.

        Args:
            sample_id: the first.
            sizes: of the images.
            recipe: what is planned.
            draw: `planning.plan.plan_ahead`.
            epoch: that it draws by.
            seed: that it draws by.
        """

        def drawn(first: int, sizes: Sizes) -> PlannedBlock:
            ids = np.arange(first, first + len(sizes)) % (MAX_WORD + 1)
            return PlannedBlock(draw(recipe, ids, sizes=np.array(sizes), epoch=epoch, seed=seed), first, sizes)

        num, size = len(sizes), sizes[0]
        is_even = sizes.count(size) == num
        is_for_any = None not in recipe.sized_ops  # what is planned for images of one size can be had for others
        drawn_by = epoch, seed, id(recipe)  # which the block's views keep
        block = self._block if self._drawn_by == drawn_by else None
        own = None if block is None else block.of(sample_id, num)
        if block is None or own is None:
            ahead = self._num_next() if block is not None and (is_for_any or is_even) else 0
            ahead = min(ahead, MAX_WORD - sample_id + 1)
            block, own = drawn(sample_id, sizes if ahead <= num else [size] * ahead), slice(0, num)
            self._begin(block, drawn_by)
        if is_even:
            self._num_of[size] += num
        self._num_used += num
        if block.sizes[own] != sizes:
            if is_even and size in self._frequent:
                if size not in self._fitted:
                    tiled = [size] * block.num
                    self._fitted[size] = block.resized(tiled) if is_for_any else drawn(block.first, tiled)
                block = self._fitted[size]
            elif not is_for_any:
                return drawn(sample_id, sizes), slice(0, num)
        return block, own

    def _num_next(self) -> int:
        """Of ids in the next block."""
        assert self._block is not None
        num = self._block.num
        return min(2 * num, MOST_AHEAD) if 2 * self._num_used > num else num // 2

    def _begin(self, block: PlannedBlock, drawn_by: tuple[int, int, int]) -> None:
        if self._block is not None:
            self._frequent = {size for size, num in self._num_of.items() if FREQUENT * num >= self._block.num}
        self._block, self._drawn_by = block, drawn_by
        self._fitted, self._num_used = {}, 0
        self._num_of.clear()
