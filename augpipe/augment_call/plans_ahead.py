"""Plans of the ids of the next calls, several at once: planning many takes little longer than planning one."""

from collections import Counter
from collections.abc import Callable
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
Sizes = npt.NDArray[np.int64]
Key = tuple[int, int, int]
Draw = Callable[..., list[PlannedView]]

MOST_AHEAD = 256
"""Ids that are planned at once, at most."""
FREQUENT = 16
"""A size that one in so many images of a block has: the next block is fitted to it as a whole."""
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


def looks_of(
    views: tuple[Rows, ...], may_scale: npt.NDArray[np.bool_], *, wants_regions: bool, like: Looks | None = None
) -> Looks:
    """What a plan is for the kernel.

    Args:
        views: of the plan, of B samples.
        may_scale: (B,) or (1,), whether an image may be decoded at a DCT scale.
        wants_regions: whether any image is of a kind of which a part can be taken.
        like: those of the same samples for images of other sizes, which differ only as `PlannedView.resized` says.
    """
    ones = np.ones(len(views[0]), np.int64)
    factors = np.where(may_scale, dct_factors(views), ones) if may_scale.any() else ones
    if like is None:
        tables = [kernel_rows(rows, factors) for rows in views]
    else:
        tables = [resized_rows(rows, table, factors) for rows, table in zip(views, like.tables, strict=True)]
    if not wants_regions:
        return Looks(factors, tables, None)
    sizes = [np.stack([rows["out_height"], rows["out_width"]], axis=1) for rows in views]
    return Looks(factors, tables, source_regions(tables, sizes))


class PlannedBlock:
    """Ids in a row, planned for images of some sizes."""

    def __init__(self, views: list[PlannedView], first: int, sizes: Sizes, key: Key) -> None:
        self.views = views
        self.first = first
        self.sizes = sizes
        """(num, 2) height and width, in pixels."""
        self.key = key
        """What it was drawn by, apart from its ids and sizes."""
        self.num_used = 0
        self.num_of: Counter[tuple[int, int]] = Counter()
        """How many of its ids were of images of a size."""
        self._looks: dict[tuple[bool, bool], Looks] = {}
        self._fitted: dict[tuple[int, int], PlannedBlock] = {}

    @property
    def num(self) -> int:
        """Of ids."""
        return len(self.sizes)

    def of(self, sample_id: int, sizes: Sizes) -> slice | None:
        """Where ids from this one on are planned, for images of these sizes or of any."""
        own = slice(sample_id - self.first, sample_id - self.first + len(sizes))
        if own.start < 0 or own.stop > self.num:
            return None
        return own if is_for_any(self.views[0].recipe) or (self.sizes[own] == sizes).all() else None

    def fitted(self, size: tuple[int, int]) -> "PlannedBlock":
        """What was planned, for images of a size."""
        if size not in self._fitted:
            everywhere, sizes = slice(0, self.num), np.tile(np.array(size, np.int64), (self.num, 1))
            views = [replace(view, rows=view.resized(everywhere, sizes)) for view in self.views]
            self._fitted[size] = PlannedBlock(views, self.first, sizes, self.key)
        return self._fitted[size]

    def looks(self, may_scale: bool, wants_regions: bool) -> Looks:
        """What the plan is for the kernel."""
        kind = may_scale, wants_regions
        if kind not in self._looks:
            views = tuple(view.rows for view in self.views)
            self._looks[kind] = looks_of(views, np.array([may_scale]), wants_regions=wants_regions)
        return self._looks[kind]


def is_for_any(recipe: Recipe) -> bool:
    """Whether what is planned for images of one size can be had for others."""
    return None not in recipe.sized_ops


class PlanAhead:
    """The plan of a call's images, of a block of ids."""

    def __init__(self, block: PlannedBlock, own: slice, sizes: Sizes, recipe: Recipe, seed: int) -> None:
        self._block = block
        self._own = own
        self._has_its_sizes = bool((block.sizes[own] == sizes).all())
        rows = [view.rows[own] if self._has_its_sizes else view.resized(own, sizes) for view in block.views]
        self.plan = Plan(recipe=recipe, seed=seed, views=tuple(rows))

    @property
    def num_regions(self) -> int:
        """With how many others it is found out which regions of images are seen."""
        return self._block.num if self._has_its_sizes else len(self.plan)

    def looks(self, may_scale: npt.NDArray[np.bool_], wants_regions: bool) -> Looks:
        """What the plan is for the kernel; the arguments are those of `looks_of`."""
        if self._has_its_sizes and may_scale.all() == may_scale.any():
            return self._block.looks(bool(may_scale[0]), wants_regions).of(self._own)
        like = self._block.looks(False, False).of(self._own)
        return looks_of(self.plan.views, may_scale, wants_regions=wants_regions, like=like)


class PlansAhead:
    """Plans ids that are asked for one after the other. The more of a block are used, the longer the next."""

    def __init__(self) -> None:
        self._block: PlannedBlock | None = None
        self._frequent: set[tuple[int, int]] = set()

    def block(
        self, sample_id: int, sizes: Sizes, recipe: Recipe, draw: Draw, epoch: int, seed: int
    ) -> tuple[PlannedBlock, slice]:
        """The block that a call's ids are planned in, and where.

        Args:
            sample_id: the first.
            sizes: (N, 2) height and width of the images, in pixels.
            recipe: what is planned.
            draw: `planning.plan.plan_ahead`.
            epoch: that it draws by.
            seed: that it draws by.
        """
        key = epoch, seed, id(recipe)  # which the block's views keep
        block = self._block
        own = None if block is None or block.key != key else block.of(sample_id, sizes)
        if block is None or own is None:
            num = len(sizes)
            if block is not None and block.key == key and (is_for_any(recipe) or (sizes == sizes[0]).all()):
                num = 2 * block.num if 2 * block.num_used > block.num else block.num // 2
                num = max(len(sizes), min(num, MOST_AHEAD, MAX_WORD - sample_id + 1))
            planned = sizes if num == len(sizes) else np.tile(sizes[:1], (num, 1))
            ids = np.arange(sample_id, sample_id + num) % (MAX_WORD + 1)
            views = draw(recipe, ids, sizes=planned, epoch=epoch, seed=seed)
            if block is not None:
                self._frequent = {size for size, num in block.num_of.items() if FREQUENT * num >= block.num}
            block, own = PlannedBlock(views, sample_id, planned, key), slice(0, len(sizes))
            self._block = block
        block.num_used += len(sizes)
        size = (int(sizes[0, 0]), int(sizes[0, 1]))
        if len(sizes) == 1 or (sizes == sizes[0]).all():
            block.num_of[size] += len(sizes)
            if size in self._frequent and is_for_any(recipe) and (block.sizes[own] != sizes).any():
                block = block.fitted(size)
        return block, own
