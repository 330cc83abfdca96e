"""From plan records to the table that the fused kernel reads, at the scale at which an image was decoded."""

import numpy as np
import numpy.typing as npt

from augpipe.gpu_ops.image.filled_rows import fill_kernel_rows, write_displacements
from augpipe.gpu_ops.image.plan_records import MAX_DCT_FACTOR
from augpipe.gpu_ops.image.program_rows import AT_STEPS, STEP_BYTES, copied, row_dtype
from augpipe.gpu_ops.image.rows import KERNEL_ROW
from augpipe.planning.record_passes import FIRST, first_pass, has_passes, is_joined, joined_tables, passes_of

Rows = npt.NDArray[np.void]
Float = npt.NDArray[np.float64]

MIN_DCT_SIDE = 64
"""Images with a shorter side are decoded whole: a DCT scale would save nothing."""


def dct_factors(views: tuple[Rows, ...]) -> npt.NDArray[np.int64]:
    """(B,) of 1, 2, 4 or 8: the coarsest DCT scale that still holds a source pixel for every output pixel.

    It depends on the plan alone: the least filter support over both axes and all views of the sample, rounded down to
    a power of two, for images of at least `MIN_DCT_SIDE` pixels a side.
    """
    support = np.min([first_pass(rows)["support"].min(axis=1) for rows in views], axis=0)
    factor = np.exp2(np.floor(np.log2(np.clip(support, 1.0, MAX_DCT_FACTOR)))).astype(np.int64)
    side = np.minimum(views[0]["height"], views[0]["width"])
    return np.where(side < MIN_DCT_SIDE, 1, factor)


def kernel_rows(rows: Rows, factors: npt.NDArray[np.int64] | None = None) -> Rows:
    """(B,) `gpu_ops.image.rows.KERNEL_ROW` for (B,) plan records of images decoded at 1/factor of their size.

    Where colours take more steps, each is followed by what `gpu_ops.image.program_rows` holds. Records of several
    passes become `record_passes.joined_tables`, of which the first pass alone looks at the decoded image.
    """
    if has_passes(rows):
        first, *others = passes = passes_of(rows)
        return joined_tables([kernel_rows(first, factors), *map(kernel_rows, others)], passes)
    table: Rows = np.zeros(len(rows), _table_dtype(rows))
    if len(rows):
        _fill(table, rows, factors)
    if table.dtype != KERNEL_ROW:
        table["header"]["at_tables"] = AT_STEPS + table["steps"].shape[1] * STEP_BYTES
        table["steps"] = rows["steps"]
        if "tables" in (rows.dtype.names or ()):
            table["tables"] = rows["tables"]
    return table


def resized_rows(rows: Rows, like: Rows, factors: npt.NDArray[np.int64]) -> Rows:
    """(B,) `kernel_rows`, given those of the same samples for images of other sizes: see `PlannedView.resized`."""
    table = copied(like)
    _fill(table[FIRST]["row"] if is_joined(table) else table, first_pass(rows), factors)
    return table


def _table_dtype(rows: Rows) -> np.dtype[np.void]:
    names = rows.dtype.names or ()
    if "steps" not in names:
        return KERNEL_ROW
    return row_dtype(rows["steps"].shape[1], rows["tables"].shape[1] if "tables" in names else 0)


def _fill(table: Rows, rows: Rows, factors: npt.NDArray[np.int64] | None) -> None:
    """Fill in what does not depend on the program alone."""
    names = rows.dtype.names or ()
    num_steps = np.ascontiguousarray(rows["num_steps"]) if "num_steps" in names else np.zeros(len(rows), np.int32)
    fill_kernel_rows(
        *(rows.ctypes.data, rows.strides[0], "field" in names, num_steps),
        np.ones(len(rows)) if factors is None else factors.astype(np.float64),
        *(table.ctypes.data, table.strides[0], table.dtype != KERNEL_ROW),
    )


def displacements(table: Rows) -> tuple[Float, Float]:
    """(B, 2) least and largest displacement of kernel rows, along x and y, in source pixels."""
    found = np.empty((len(table), 4))
    if len(table):
        write_displacements(table.ctypes.data, table.strides[0], found)
    return found[:, 0::2], found[:, 1::2]
