"""Plans of the next ids of calls with one image each, several at once: planning many takes little longer than one."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from augpipe.planning.kernel_rows import dct_factors, kernel_rows, resized_rows
from augpipe.planning.plan import Plan
from augpipe.planning.planned_view import PlannedView
from augpipe.planning.regions import source_regions
from augpipe.recipes.recipe import Recipe

Rows = npt.NDArray[np.void]
Draw = Callable[[npt.NDArray[np.int64], tuple[int, int]], list[PlannedView]]
Key = tuple[int, int, int]

MOST_AHEAD = 64
"""Ids that are planned at once, at most."""
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

    def of(self, position: int) -> "Looks":
        """Those of one sample."""
        own = slice(position, position + 1)
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
    """Ids in a row, planned for images of one size."""

    def __init__(self, views: list[PlannedView], first: int, size: tuple[int, int], key: Key) -> None:
        self.views = views
        self.first = first
        self.size = size
        """Height and width, in pixels."""
        self.key = key
        """What it was drawn by, apart from its ids and size."""
        self.num = len(views[0].rows)
        self.num_used = 0
        self._looks: dict[tuple[bool, bool], Looks] = {}

    def holds(self, sample_id: int, size: tuple[int, int]) -> bool:
        """Whether an id is planned for images of a size, or can be for any size."""
        is_for_any = None not in self.views[0].recipe.sized_ops
        return 0 <= sample_id - self.first < self.num and (size == self.size or is_for_any)

    def looks(self, may_scale: bool, wants_regions: bool) -> Looks:
        """What the plan is for the kernel."""
        kind = may_scale, wants_regions
        if kind not in self._looks:
            views = tuple(view.rows for view in self.views)
            self._looks[kind] = looks_of(views, np.array([may_scale]), wants_regions=wants_regions)
        return self._looks[kind]


class PlanAhead:
    """The plan of one image, of a block of ids."""

    def __init__(self, block: PlannedBlock, position: int, size: tuple[int, int], recipe: Recipe, seed: int) -> None:
        self._block = block
        self._position = position
        self._has_its_size = size == block.size
        own = slice(position, position + 1)
        rows = [view.rows[own] if self._has_its_size else view.resized(position, *size) for view in block.views]
        self.plan = Plan(recipe=recipe, seed=seed, views=tuple(rows))

    @property
    def num_regions(self) -> int:
        """With how many others it is found out which regions of images are seen."""
        return self._block.num if self._has_its_size else 1

    def looks(self, may_scale: bool, wants_regions: bool) -> Looks:
        """What the plan is for the kernel."""
        if self._has_its_size:
            return self._block.looks(may_scale, wants_regions).of(self._position)
        like = self._block.looks(False, False).of(self._position)
        return looks_of(self.plan.views, np.array([may_scale]), wants_regions=wants_regions, like=like)


class PlansAhead:
    """Plans ids that are asked for one after the other. The more of a block are used, the longer the next."""

    def __init__(self) -> None:
        self._block: PlannedBlock | None = None

    def block(self, sample_id: int, size: tuple[int, int], key: Key, draw: Draw, most_id: int) -> PlannedBlock:
        """The block that an id is planned in.

        Args:
            sample_id: the next id.
            size: height and width of its image, in pixels.
            key: what `draw` draws by: the epoch, the seed and which recipe.
            draw: plans (n,) ids for images of that size.
            most_id: the largest id.
        """
        block = self._block
        if block is None or block.key != key or not block.holds(sample_id, size):
            num = 1
            if block is not None and block.key == key:
                num = 2 * block.num if 2 * block.num_used > block.num else block.num // 2
            num = max(1, min(num, MOST_AHEAD, most_id - sample_id + 1))
            ids = np.arange(sample_id, sample_id + num)
            block = self._block = PlannedBlock(draw(ids, size), sample_id, size, key)
        block.num_used += 1
        return block
