"""What is promised of a device's pixels (docs/gpu.md): one comparison with the CPU's, for programs with tables too.

A table, and a step that looks at the whole image, takes the nearest of 256 levels. CPU and device round in float32 in
another order, so a number next to half a level may become either neighbour, and a table may hold any two levels there.
So images are compared in parts: up to the first such step, and then from each to the next, where the CPU goes on from
the device's own levels. In between the two differ by rounding alone, whatever the tables hold.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from augpipe.gpu_ops.image.program import take_programs
from augpipe.gpu_ops.image.program_rows import OF_LEVELS
from augpipe.gpu_ops.image.rows import KERNEL_ROW
from augpipe.native.cpu_render import Scratch, as_rgbx, render
from augpipe.planning.output_format import OutputFormat

Rows = npt.NDArray[np.void]
Images = npt.NDArray[np.float32]
Renderer = Callable[[Rows], Images]
"""From (B,) `kernel_rows` of images that it knows to (B, 3, H, W)."""

MOST_LEVELS = 1.0
"""How far the two may be apart before a table, and behind the last one from the same levels."""

MOST_FROM_EDGE_LEVELS = 0.01
"""How near to half a level a number must lie before a table for the two to round it to different levels."""

MOST_ROUNDED_APART = 1e-3
"""The largest share of such numbers among those before tables, but for a single one."""

FLOAT32 = OutputFormat(dtype="float32", layout="NCHW", framework="numpy")


@dataclass(frozen=True, kw_only=True)
class Apart:
    """How far images of a device are from the CPU's."""

    levels: float
    """The greatest difference in any part, in 8-bit levels."""
    from_edge_levels: float
    """How far from half a level a number lay that the two round to different levels before a table; the greatest."""
    num_rounded_apart: int
    """How many such numbers there are."""
    num_before_tables: int
    """How many numbers were compared before tables, of all tables together."""

    @property
    def is_near(self) -> bool:
        """Whether the levels are what is promised, however many of them are rounded apart."""
        return self.levels <= MOST_LEVELS and self.from_edge_levels <= MOST_FROM_EDGE_LEVELS

    @property
    def is_promised(self) -> bool:
        """Whether docs/gpu.md allows it."""
        return self.is_near and self.num_rounded_apart <= 1 + MOST_ROUNDED_APART * self.num_before_tables


def compare(rows: Rows, on_cpu: Renderer, on_device: Renderer) -> Apart:
    """How far what a device makes of some rows is from what the CPU makes of them.

    Args:
        rows: (B,) `planning.kernel_rows.kernel_rows`.
        on_cpu, on_device: each renders those images for such rows, whose programs are cut short.
    """
    stops = [_stops(row) for row in rows]
    levels, from_edge, num_apart, num_before_tables = [0.0], [0.0], 0, 0
    start, before = np.zeros(len(rows), int), np.empty(0, np.float32)
    for part in range(max(map(len, stops))):
        stop = np.array([each[min(part, len(each) - 1)] for each in stops])
        still = np.array([part < len(each) for each in stops])
        is_last = np.array([part >= len(each) - 1 for each in stops])
        found = on_device(_cut(rows, np.zeros_like(stop), stop))
        expected = on_cpu(_cut(rows, start, stop)) if part == 0 else _continued(_cut(rows, start, stop), before)
        to_levels = np.where(is_last[:, None], _levels_of_one(rows), 1.0)[:, :, None, None]
        levels.append(float((np.abs(found.astype(np.float64) - expected) * to_levels)[still].max()))
        ours, theirs = expected[still & ~is_last], found[still & ~is_last]
        is_apart = _nearest_levels(ours) != _nearest_levels(theirs)
        from_edge += np.abs(ours[is_apart] - np.floor(ours[is_apart]) - 0.5).tolist()
        num_apart, num_before_tables = num_apart + int(is_apart.sum()), num_before_tables + ours.size
        start, before = stop, np.nan_to_num(found)  # tables know no NaN, which `levels` has kept
    return Apart(
        levels=float(np.max(levels)),  # NaN where any is
        from_edge_levels=float(np.max(from_edge)),
        num_rounded_apart=num_apart,
        num_before_tables=num_before_tables,
    )


def cpu_renderer(photographs: Sequence[npt.NDArray[np.uint8]], size: tuple[int, int]) -> Renderer:
    """The CPU's, for (H, W, 1 | 3 | 4) images and an output's height and width."""
    packed = [as_rgbx(image, Scratch()) for image in photographs]

    def rendered(rows: Rows) -> Images:
        out = np.empty(len(rows) * 3 * size[0] * size[1], np.float32)
        render(packed, rows, out, size, FLOAT32, Scratch())
        return out.reshape(len(rows), 3, *size)

    return rendered


def _stops(row: np.void) -> list[int]:
    """The places of the row's steps that take the nearest levels, and its program's end."""
    if row.dtype == KERNEL_ROW:
        return [0]
    num = int(row["header"]["num_steps"])
    are_whole = np.isin(row["steps"]["kind"][:num], OF_LEVELS)
    return [*np.flatnonzero(are_whole).tolist(), num]


def _cut(rows: Rows, start: npt.NDArray[np.int64], stop: npt.NDArray[np.int64]) -> Rows:
    """Rows whose programs are their steps `start`..`stop` - 1, and end in levels unless they end with the program."""
    cut = rows.copy()
    if rows.dtype != KERNEL_ROW:
        header = cut["header"]
        for i, (first, last) in enumerate(zip(start, stop, strict=True)):
            cut["steps"][i, : last - first] = rows["steps"][i, first:last]
            if last < header["num_steps"][i]:
                header["scale"][i], header["bias"][i] = 1.0, 0.0
            header["num_steps"][i] = last - first
    return cut


def _continued(rows: Rows, levels: Images) -> Images:
    """What the CPU's programs make of rendered levels."""
    out = np.empty(levels.size, np.float32)
    take_programs(rows, levels.ravel(), out, *levels.shape[2:], True)
    return out.reshape(levels.shape)


def _levels_of_one(rows: Rows) -> npt.NDArray[np.float64]:
    """(B, 3): how many levels a difference of 1 in the finished images is."""
    scale = rows["scale"] if rows.dtype == KERNEL_ROW else rows["scale"] * rows["header"]["scale"]
    return 1.0 / scale.astype(np.float64)


def _nearest_levels(levels: Images) -> Images:
    """What a table is asked for: `gpu_ops.image.tone.nearest_level`."""
    nearest: Images = np.floor(np.clip(levels, np.float32(0.0), np.float32(255.0)) + np.float32(0.5))
    return nearest
