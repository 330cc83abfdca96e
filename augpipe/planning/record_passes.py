"""Views of several passes: the plan record and the kernel row of the last pass hold those of the passes before it."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from augpipe.gpu_ops.image.program_rows import copied, first_parts, parts
from augpipe.gpu_ops.image.rows import KERNEL_ROW

Rows = npt.NDArray[np.void]

EARLIER = "earlier"
"""The field of a plan record that holds the records of all passes but the last; records of one pass have none."""
FIRST = "pass_1"
"""The first field of a kernel row of several passes: each has a field with its `row` and the `size` of its output."""


def has_passes(rows: Rows) -> bool:
    """Whether plan records are of several passes."""
    return EARLIER in (rows.dtype.names or ())


def earlier_dtype(passes: Sequence[np.dtype[np.void]]) -> np.dtype[np.void]:
    """The field `EARLIER`, of the records of those passes."""
    return np.dtype([(f"pass_{nth + 1}", dtype) for nth, dtype in enumerate(passes)])


def passes_of(rows: Rows) -> list[Rows]:
    """The (B,) records of each pass, in which `height` and `width` are those of the image that it looks at."""
    if not has_passes(rows):
        return [rows]
    passes = [rows[EARLIER][name] for name in rows[EARLIER].dtype.names or ()]
    last = copied(np.ascontiguousarray(rows)).view(_of_last_pass(rows.dtype))
    last["height"], last["width"] = passes[-1]["out_height"], passes[-1]["out_width"]
    return [*passes, last]


@lru_cache
def _of_last_pass(dtype: np.dtype[np.void]) -> np.dtype[np.void]:
    """Plan records without `EARLIER`, whose memory stays."""
    return np.empty(0, dtype)[[name for name in dtype.names or () if name != EARLIER]].dtype


def first_pass(rows: Rows) -> Rows:
    """The (B,) records of the pass that looks at the image itself."""
    return rows[EARLIER][FIRST] if has_passes(rows) else rows


def joined_tables(tables: Sequence[Rows], records: Sequence[Rows]) -> Rows:
    """(B,) kernel rows of several passes, of the (B,) rows and the plan records of each."""
    joined: Rows = np.zeros(len(tables[0]), _joined_dtype(tuple(table.dtype for table in tables)))
    for name, table, record in zip(joined.dtype.names or (), tables, records, strict=True):
        joined[name]["row"] = table
        joined[name]["size"] = np.stack([record["out_height"], record["out_width"]], axis=1)
    return joined


@lru_cache
def _joined_dtype(rows: tuple[np.dtype[np.void], ...]) -> np.dtype[np.void]:
    return np.dtype(
        [(f"pass_{nth + 1}", np.dtype([("size", np.int32, (2,)), ("row", row)])) for nth, row in enumerate(rows)]
    )


def is_joined(table: Rows) -> bool:
    """Whether kernel rows are of several passes."""
    names = table.dtype.names
    return names is not None and names[0] == FIRST


def first_tables(table: Rows) -> Rows:
    """(B,) `KERNEL_ROW`s of the pass that looks at the image itself."""
    return parts(table, KERNEL_ROW, _place_of(table.dtype, FIRST)[1]) if is_joined(table) else first_parts(table)


def parted_tables(table: Rows) -> list[tuple[Rows, npt.NDArray[np.int32]]]:
    """(B,) kernel rows of each pass, in memory of their own, and the (B, 2) heights and widths of its outputs.

    The table is contiguous.
    """
    names = table.dtype.names or ()
    return [(parts(table, *_place_of(table.dtype, name)), table[name]["size"]) for name in names]


def _place_of(joined: np.dtype[np.void], name: str) -> tuple[np.dtype[np.void], int]:
    """What kind of row a pass has, and at which byte it begins."""
    assert joined.fields is not None
    one, at = joined.fields[name][:2]
    assert one.fields is not None
    row, further = one.fields["row"][:2]
    return row, at + further
