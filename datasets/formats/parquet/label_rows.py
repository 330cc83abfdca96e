"""Labels of several numbers each in Parquet: a column of lists of one length, or several columns of numbers."""

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.datasets.metadata.label_names import LabelArgument, columns_of_numbers
from augpipe.datasets.metadata.names import listed
from augpipe.sources.protocol import Labels, as_label_rows
from augpipe.validation.plural import count


def is_list_of_numbers(arrow: ModuleType, kind: Any) -> bool:
    """Whether a column of this type can hold rows of numbers."""
    kinds = arrow.types
    is_list = kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind)
    return is_list and is_number(arrow, kind.value_type)


def is_row(arrow: ModuleType, kind: Any) -> bool:
    """Whether a column of this type, alone, is labels of numbers: lists, floats, booleans."""
    return is_list_of_numbers(arrow, kind) or (is_number(arrow, kind) and not arrow.types.is_integer(kind))


def is_number(arrow: ModuleType, kind: Any) -> bool:
    """Whether a column of this type holds numbers, or booleans."""
    kinds = arrow.types
    return bool(kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_boolean(kind))


def label_columns(arrow: ModuleType, schema: Any, label: LabelArgument) -> tuple[str, ...]:
    """The columns that labels of several numbers lie in; none where labels are classes, or there are none.

    Args:
        arrow: pyarrow.
        schema: the file's.
        label: what the user named: a column of lists, of floats or booleans, or several columns.

    Raises:
        ValueError: a column is missing, or holds no numbers; the reason alone.
    """
    if label is None or label is False:
        return ()
    if isinstance(label, str):
        found = schema.field(label).type if label in schema.names else None
        return (label,) if found is not None and is_row(arrow, found) else ()
    return columns_of_numbers(label, [field.name for field in schema if is_number(arrow, field.type)])


def read_label_rows(arrow: ModuleType, file: Any, names: Sequence[str]) -> Labels:
    """(rows, k) of one file.

    Raises:
        ValueError: a row is empty, of another length than the first, or not of finite numbers; the reason alone.
    """
    table = file.read(columns=list(names), use_threads=False)
    columns = [table.column(name).combine_chunks() for name in names]
    for name, column in zip(names, columns, strict=True):
        if column.null_count:
            raise ValueError(f"column {name!r} holds no label in {column.null_count} rows. Fill them, or drop the rows")
    if not is_list_of_numbers(arrow, columns[0].type):
        return _finite(as_label_rows(np.stack([_numbers(column) for column in columns], axis=1)), names)
    (column,) = columns
    flat = column.flatten()
    if flat.null_count:
        raise ValueError(f"column {names[0]!r} holds lists with a gap. Fill it")
    lengths = _lengths(arrow, column)
    if lengths.size and (lengths.min() != lengths.max() or not lengths.min()):
        raise ValueError(
            f"column {names[0]!r} holds lists of {lengths.min()} to {lengths.max()} numbers, and labels are of one "
            "length. Write lists of class numbers as rows of 0 and 1 (multi-hot)"
        )
    rows = _numbers(flat).reshape(len(lengths), lengths[0] if len(lengths) else 0)
    return _finite(as_label_rows(rows), names)


def _finite(labels: Labels, names: Sequence[str]) -> Labels:
    wrong = ~np.isfinite(labels).all(axis=1)
    if wrong.any():
        raise ValueError(
            f"the labels ({listed(names)}) of {count(int(wrong.sum()), 'row')}, the first of them row "
            f"{int(wrong.argmax())}, are NaN or beyond float32, and labels are finite. Fill them, or drop the rows"
        )
    return labels


def _lengths(arrow: ModuleType, column: Any) -> npt.NDArray[np.int64]:
    if arrow.types.is_fixed_size_list(column.type):
        return np.full(len(column), column.type.list_size, np.int64)
    lengths: npt.NDArray[np.int64] = column.value_lengths().to_numpy(zero_copy_only=False).astype(np.int64)
    return lengths


def _numbers(column: Any) -> npt.NDArray[Any]:
    numbers: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return numbers
