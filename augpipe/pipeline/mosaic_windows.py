"""The part of an output that shows an image of a mosaic: no more of it is rendered where an op allows that."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.decoding.decoded_pixels import LocatedPixels
from augpipe.gpu_ops.image.program_rows import HSV, MATRIX, NONE, TABLE, copied
from augpipe.native.cpu_render import Scratch, render
from augpipe.pipeline.blocks import Rows
from augpipe.planning.output_format import OutputFormat

Window = tuple[int, int, int, int]
"""Left, top, right and bottom in output pixels, the last two excluded."""

OF_ONE_PIXEL = {NONE, MATRIX, TABLE, HSV}
"""Steps that do the same to a level wherever it stands."""
FAR = 1e6
"""Pixels from an image of one pixel, where nothing but its fill is seen."""


def window_of(table: Rows, size: tuple[int, int]) -> Window | None:
    """What shows an image, and a pixel more on each side, of an output of (height, width) `size`, by the (1,) kernel
    row; None: it takes the whole output, which bends it or changes levels by where they stand."""
    row = table[0]  # one number after the other: for each image, arrays of one took as long as its decoding
    if row["has_lens"] or row["has_projection"] or row["field"] or row["vignette_strength"]:
        return None
    if "steps" in (table.dtype.names or ()) and not OF_ONE_PIXEL.issuperset(row["steps"]["kind"].tolist()):
        return None
    xx, xy, yx, yy = (float(row[f"after_{name}"]) for name in ("xx", "xy", "yx", "yy"))
    ends_x = [float(row["low_x"] - row["offset_x"]), float(row["high_x"] + 1 - row["offset_x"])]
    ends_y = [float(row["low_y"] - row["offset_y"]), float(row["high_y"] + 1 - row["offset_y"])]
    determinant, edges = xx * yy - xy * yx, []
    for by_x, by_y, side in ((yy, -xy, size[1]), (-yx, xx, size[0])):
        seen = [(by_x * x + by_y * y) / determinant + 0.5 * side for x in ends_x for y in ends_y]
        first = min(max(math.floor(min(seen)) - 1, 0), side - 1)
        edges += [first, max(min(math.ceil(max(seen)) + 1, side), first + 1)]
    left, right, top, bottom = edges
    return left, top, right, bottom


def render_window(
    pixels: LocatedPixels,
    table: Rows,
    window: Window,
    size: tuple[int, int],
    out: npt.NDArray[np.generic],
    form: OutputFormat,
    scratch: Scratch,
) -> None:
    """Write the window of an output to the beginning of `out`, as an image of its own.

    Args:
        pixels: of the image.
        table: its (1,) kernel row.
        window: of `window_of`.
        size: height and width of the output.
        out: of the output at least, in the type that `form` holds it as.
        form: dtype and layout.
        scratch: of the calling thread.
    """
    left, top, right, bottom = window
    moved = copied(table)
    by_x, by_y = 0.5 * (left + right - size[1]), 0.5 * (top + bottom - size[0])
    for axis in "xy":
        along_x, along_y = moved[f"after_{axis}x"].astype(np.float64), moved[f"after_{axis}y"].astype(np.float64)
        moved[f"offset_{axis}"] += along_x * by_x + along_y * by_y
    num = (right - left) * (bottom - top) * 3
    render([pixels], moved, out[:num], (bottom - top, right - left), form, scratch)


def fill_around(table: Rows, form: OutputFormat, scratch: Scratch) -> npt.NDArray[Any]:
    """(3,) what an output shows around its image, by the (1,) kernel row."""
    alone = copied(table)
    for axis in "xy":
        for name in (f"after_{axis}x", f"after_{axis}y", f"low_{axis}", f"high_{axis}", f"origin_{axis}"):
            alone[name] = 0
        alone[f"offset_{axis}"], alone[f"support_{axis}"] = FAR, 1.0
    shown = np.empty(3, form.held_as)
    render([LocatedPixels.of(np.zeros((1, 1, 4), np.uint8))], alone, shown, (1, 1), form, scratch)
    return shown
