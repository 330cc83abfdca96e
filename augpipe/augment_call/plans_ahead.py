"""Plans of the next ids of calls with one image each, several at once: planning many takes little longer than one."""

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from augpipe.planning.kernel_rows import dct_factors, kernel_rows
from augpipe.planning.plan import Plan
from augpipe.planning.regions import source_regions

Rows = npt.NDArray[np.void]
Draw = Callable[[npt.NDArray[np.int64], tuple[int, int]], Plan]
Key = tuple[int, int, int]

MOST_AHEAD = 64
"""Ids that are planned at once, at most."""
MOST_SIZES = 8
"""Sizes of images that are planned for at a time: those that came last."""
WORTH_A_REGION = 2**20
"""Pixels of a call's arrays from which on looking for what is seen of them takes less time than packing them whole."""


class Looks(NamedTuple):
    """What a plan is for the kernel."""

    factors: npt.NDArray[np.int64]
    """(B,) DCT factors that images are decoded at."""
    tables: list[Rows]
    """For each view, (B,) `kernel_rows`."""
    regions: npt.NDArray[np.int32] | None
    """(B, 4) `source_regions`, where all outputs of a view have one size."""

    def of(self, position: int) -> "Looks":
        """Those of one sample."""
        own = slice(position, position + 1)
        regions = None if self.regions is None else self.regions[own]
        return Looks(self.factors[own], [table[own] for table in self.tables], regions)


def looks_of(plan: Plan, may_scale: npt.NDArray[np.bool_], *, wants_regions: bool) -> Looks:
    """What a plan is for the kernel.

    Args:
        plan: of B samples.
        may_scale: (B,) or (1,), whether an image may be decoded at a DCT scale.
        wants_regions: whether any image is of a kind of which a part can be taken.
    """
    factors = np.where(may_scale, dct_factors(plan.views) if may_scale.any() else 1, np.ones(len(plan), np.int64))
    tables = [kernel_rows(rows, factors) for rows in plan.views]
    sizes = [_common_size(rows) for rows in plan.views]
    known = [size for size in sizes if size is not None]
    has_regions = wants_regions and len(known) == len(sizes)
    return Looks(factors, tables, source_regions(tables, known) if has_regions else None)


def _common_size(rows: Rows) -> tuple[int, int] | None:
    """Height and width of all outputs of a view; None where they differ."""
    heights, widths = rows["out_height"], rows["out_width"]
    if len(rows) == 0 or (heights != heights[0]).any() or (widths != widths[0]).any():
        return None
    return int(heights[0]), int(widths[0])


class PlannedBlock:
    """Ids in a row, planned for images of one size."""

    def __init__(self, plan: Plan, first: int, key: Key) -> None:
        self.plan = plan
        self.first = first
        self.key = key
        """What it was drawn by, apart from its ids and size."""
        self.num_used = 0
        self._looks: dict[tuple[bool, bool], Looks] = {}

    def looks(self, position: int, may_scale: bool, wants_regions: bool) -> Looks:
        """What the plan of one of them is for the kernel."""
        kind = may_scale, wants_regions
        if kind not in self._looks:
            self._looks[kind] = looks_of(self.plan, np.array([may_scale]), wants_regions=wants_regions)
        return self._looks[kind].of(position)


class PlansAhead:
    """Plans ids that are asked for one after the other. The more of a block of a size are used, the longer the next."""

    def __init__(self) -> None:
        self._blocks: OrderedDict[tuple[int, int], PlannedBlock] = OrderedDict()

    def take(
        self, sample_id: int, size: tuple[int, int], key: Key, draw: Draw, most_id: int
    ) -> tuple[PlannedBlock, int]:
        """The block that an id is planned in, and its position there.

        Args:
            sample_id: the next id.
            size: height and width of its image, in pixels.
            key: what `draw` draws by: the epoch, the seed and which recipe.
            draw: plans (n,) ids for images of that size.
            most_id: the largest id.
        """
        block = self._blocks.pop(size, None)
        if block is None or block.key != key or not 0 <= sample_id - block.first < len(block.plan):
            num = 1
            if block is not None and block.key == key:
                num = 2 * len(block.plan) if 2 * block.num_used >= len(block.plan) else len(block.plan) // 2
            num = max(1, min(num, MOST_AHEAD, most_id - sample_id + 1))
            ids = np.arange(sample_id, sample_id + num)
            block = PlannedBlock(draw(ids, size), sample_id, key)
            if len(self._blocks) >= MOST_SIZES:
                self._blocks.popitem(last=False)
        self._blocks[size] = block
        block.num_used += 1
        return block, sample_id - block.first
