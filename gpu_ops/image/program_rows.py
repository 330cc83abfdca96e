"""What follows a `KERNEL_ROW` where a recipe does more to the rendered image than cast, vignette and normalisation.

A row holds only what its view's ops may need: a header, then as many steps and tables. All lie at offsets in bytes that
CPU and GPU share.
"""

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from augpipe.gpu_ops.image.rows import KERNEL_ROW

HEADER = np.dtype(
    [
        ("scale", np.float32, (3,)),
        ("bias", np.float32, (3,)),
        ("inverse_corner_r2", np.float32),
        ("num_steps", np.int32),
        # bytes from the header's start
        ("at_tables", np.int32),
    ]
)
"""What every such row begins with."""

COLOUR_STEP = np.dtype(
    [("kind", np.int32), ("table", np.int32), ("numbers", np.float32, (12,)), ("key", np.uint32, (2,))]
)
"""A step of a row's program: its kind, which of the row's tables it takes, the key of its noise, and its numbers:

- `MATRIX`: three rows of four; each channel becomes the sum over R, G, B and 1 times a row, kept within 0..255.
- `TABLE`: none; the nearest level of each channel is looked up.
- `VIGNETTE`: the squared radius where it begins, 1 / (1 - that), and the loss at the corner.
- `NOISE`: the standard deviation of what is added, in levels, and as a part of the level; 1 where channels share it.
- `FILL`: left, top, right, bottom in output pixels, the last two excluded; levels of R, G and B, and the standard
  deviation of the noise about each of them.
- `HSV`: sixths of a turn that are added to the hue, and what is added to the saturation, in 0..1, and to the value, in
  levels; each kept in its range; and the least chroma, in levels, from which on the saturation changes.
- `HAZE`: where the first ring of discs begins along x and along y, in pixels, and by how many each further one grows at
  either side; how many rings, and how many discs in the first one, of which the others have multiples; the side of the
  square that a ring has room for, a disc's radius, and the part of what is seen that a disc leaves.
- `GRAIN`: the standard deviation of the hue, in sixths of a turn; mean and standard deviation of what is added to the
  lightness of HLS, in levels.
- `HOLES`: along x, how many cells there are, how many pixels they take, the sum of a hole's sides in a smaller cell and
  in one a pixel wider, and after how many pixels of a cell its hole begins, below 0 where a word draws it for each; the
  same along y; levels of R, G and B.
- `DROP`: of 2^24 words how many drop a pixel; 1 where channels share them; levels of R, G and B.
- `SHADE`: how many polygons there are, and how many edges each has; 1 where the lightness of HLS is less, once where
  several lie, and 0 where all levels are; then, for each polygon, the part that it leaves. Its table holds the edges:
  column and row of the upper end and of the lower one, in 16 bits each.
- `CONTRAST`, `SHARPNESS`: the factor. `AUTO_CONTRAST`, `EQUALIZE`: none.
- `CLAHE`: the clip limit, and how many tiles lie along y and along x.
- `MEDIAN`: the side of the square that it looks at.
- `SEPARABLE`: the radius; its table holds as many float32 and one more: the weights of a column and of a row, from the
  middle outwards.
- `CONVOLVE`: the side of the square, and 0: its table holds the weights in float32, row by row; or one weight of all
  pixels for which its table holds a byte of 1.
- `JPEG`: the quality, 1..100.
- `SHUFFLE`: how many cells lie along y and along x; its table holds the number of the cell that each one shows.
- `COARSEN`: how many rows and columns the image has in between, and how far apart they lie.
"""

NONE, MATRIX, TABLE, VIGNETTE, NOISE, FILL, HSV, AUTO_CONTRAST, EQUALIZE, CONTRAST, SHARPNESS = range(11)
CLAHE, MEDIAN, SEPARABLE, CONVOLVE, JPEG, SHUFFLE, COARSEN = range(11, 18)
HAZE, GRAIN, HOLES, DROP, SHADE = -1, -2, -3, -4, -5
"""Patterns. Below `FIRST_LOOK`, as all that change pixels one by one; saved plans hold the numbers above."""
FIRST_LOOK = AUTO_CONTRAST
"""From this kind on, a step looks at other pixels of the rendered image, so it waits until all of them have come."""
FIRST_FILTER = CLAHE
"""From this kind on, a step is a filter: kernels of their own take them, and what stands before them."""
FINISHED = -1
"""In place of the number of the step that comes next."""
OF_LEVELS = (TABLE, AUTO_CONTRAST, EQUALIZE, CONTRAST, SHARPNESS, CLAHE, MEDIAN, JPEG)
"""Kinds that take the nearest of 256 levels."""


def _offset(name: str) -> int:
    assert HEADER.fields is not None
    return int(HEADER.fields[name][1])


SCALE, BIAS, INVERSE_CORNER_R2 = _offset("scale"), _offset("bias"), _offset("inverse_corner_r2")
NUM_STEPS, AT_TABLES = _offset("num_steps"), _offset("at_tables")
AT_STEPS = HEADER.itemsize
STEP_BYTES, STEP_TABLE, STEP_NUMBERS, STEP_KEY = COLOUR_STEP.itemsize, 4, 8, 56
TABLE_BYTES = 256
MAX_RADIUS = TABLE_BYTES // 4 - 1
"""The largest radius of a `SEPARABLE` step, in pixels."""
MAX_SIDE = 7
"""The largest side of the square of a `MEDIAN` or `CONVOLVE` step, in pixels."""
MAX_LINE = 15
"""That of a `CONVOLVE` step of one weight."""
MAX_EDGES = TABLE_BYTES // 8
"""Of all polygons of a `SHADE` step."""
MAX_TILES = 16
"""Of a `CLAHE` step along an axis, and cells of a `SHUFFLE` step."""


@lru_cache
def row_dtype(num_steps: int, num_tables: int) -> np.dtype[np.void]:
    """A `KERNEL_ROW`'s fields, then `header`, `steps` and `tables` as far as there are any."""
    assert KERNEL_ROW.names is not None and KERNEL_ROW.fields is not None
    fields = {name: (KERNEL_ROW.fields[name][0], int(KERNEL_ROW.fields[name][1])) for name in KERNEL_ROW.names}
    end = KERNEL_ROW.itemsize
    for name, kind in (
        ("header", HEADER),
        ("steps", np.dtype((COLOUR_STEP, (num_steps,)))),
        ("tables", np.dtype((np.uint8, (num_tables, TABLE_BYTES)))),
    ):
        if kind.itemsize:
            fields[name] = (kind, end)
            end += kind.itemsize
    kinds, offsets = zip(*fields.values(), strict=True)
    return np.dtype({"names": list(fields), "formats": kinds, "offsets": offsets, "itemsize": end})


def are_filters(steps: npt.NDArray[np.void]) -> bool:
    """Whether any of some `COLOUR_STEP`s is one."""
    return bool((steps["kind"] >= FIRST_FILTER).any())


def as_bytes(rows: npt.NDArray[np.void]) -> npt.NDArray[np.uint8]:
    """(B, bytes of a row): the same memory."""
    return rows.view(np.uint8).reshape(len(rows), rows.itemsize)


def copied(rows: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
    """(B,) in memory of their own: numpy copies records field by field, which takes several times as long."""
    whole: npt.NDArray[np.void] = as_bytes(rows).copy().view(rows.dtype).reshape(-1)
    return whole


def parts(rows: npt.NDArray[np.void], dtype: np.dtype[np.void], at: int) -> npt.NDArray[np.void]:
    """(B,) copies of what lies at a byte of each row."""
    found: npt.NDArray[np.void] = np.ascontiguousarray(as_bytes(rows)[:, at : at + dtype.itemsize]).view(dtype)
    return found.reshape(-1)


def first_parts(rows: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
    """(B,) `KERNEL_ROW`: the rows themselves where they are nothing more, else copies of what they begin with."""
    return rows if rows.dtype == KERNEL_ROW else parts(rows, KERNEL_ROW, 0)
