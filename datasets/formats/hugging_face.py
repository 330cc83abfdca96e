"""A `Dataset` of Hugging Face's library as a source: the encoded files, not decoded by the library."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.datasets.formats.hugging_face_features import Columns, Kind, choose_columns
from augpipe.datasets.metadata.label_names import LabelArgument, columns_of_numbers
from augpipe.datasets.metadata.label_rows import NumberRows
from augpipe.datasets.metadata.labelled_source import LabelledSource
from augpipe.datasets.metadata.labels import LabelColumn, checked_numbers
from augpipe.datasets.metadata.names import listed
from augpipe.sources.subset import check_id

_INTERFACE = ("features", "column_names", "cast_column", "select_columns", "with_format")


class HuggingFaceSource(LabelledSource):
    """The images of a `datasets.Dataset`, row after row.

    The column of images is cast to `Image(decode=False)`, so each file is decoded once, by augpipe. The library itself
    is never imported here: whatever has the interface of a `Dataset` is taken. Any number of threads may read; pickling
    pickles the `Dataset`, which maps its files again.

    Args:
        dataset: one split, held in memory or on disk; not streaming.
        image: the column of images; found by its feature if left out.
        label: the column of labels; the first `ClassLabel`, or one named "label", if left out; False for none. A column
            of lists of numbers, of floats or booleans, or several columns of numbers, is named: each label is those
            numbers then, for several classes at once, soft labels or regression.
        columns: further columns, as a caption, which go along as `Batch.columns`.

    Raises:
        ValueError: it is a dictionary of splits or a stream, no column fits, labels do not fit its classes, or a
            column that looks like the label cannot be used.
    """

    def __init__(
        self, dataset: Any, *, image: str | None = None, label: LabelArgument = None, columns: Sequence[str] = ()
    ) -> None:
        refuse_other_kinds(dataset)
        features = {name: _as_json(feature) for name, feature in dataset.features.items()}
        images = [name for name, feature in features.items() if _is_image(feature)]
        others = {name: _kind(feature) for name, feature in features.items() if name not in images}
        if isinstance(columns, str) or not set(columns) <= others.keys():
            there = listed(others, most=20)
            raise ValueError(f"{_shown(dataset)}: columns={columns!r:.100} must be a list of names among {there}.")
        try:
            row_columns = _row_columns(features, label)
            named = label if isinstance(label, str) or label is False else None
            chosen = choose_columns(features, images, others, image=image, label=False if row_columns else named)
        except ValueError as error:
            raise ValueError(f"{_shown(dataset)}: {error}.") from error
        plain = dataset.with_format(None)
        self._image = chosen.image
        self._others = plain.select_columns(list(columns)) if columns else None
        self._rows = plain.select_columns([chosen.image])
        if features[chosen.image]["_type"] == "Image":
            feature = dataset.features[chosen.image]
            self._rows = self._rows.cast_column(chosen.image, type(feature)(decode=False))
        self._where = _shown(dataset)
        if not len(self):
            raise ValueError(f"{self._where}: no rows. Give one that holds some.")
        self._labels: npt.NDArray[Any] | None = None
        self.classes: Sequence[str] = chosen.classes or ()
        self.notes, self.left_out = chosen.notes, chosen.left_out
        if row_columns:
            held = plain.select_columns(list(row_columns))[:]
            self._labels = _rows([held[column] for column in row_columns], self.name)
            self.classes = row_columns if len(row_columns) > 1 else ()
        elif chosen.label is not None:
            values = plain.select_columns([chosen.label])[:][chosen.label]
            self._labels, self.classes = self._numbered(values, chosen)

    def _numbered(
        self, values: Sequence[int | str | None], columns: Columns
    ) -> tuple[npt.NDArray[Any], tuple[str, ...]]:
        if any(isinstance(value, str) for value in values):
            texts = LabelColumn(f"column {columns.label!r}")
            for value in values:
                texts.append(None if value is None else str(value))
            numbered = texts.numbered(columns.classes, self.name)
            self.notes, self.cautions = (*self.notes, *texts.notes), texts.cautions
            return numbered
        numbers = np.array([-1 if value is None else value for value in values], dtype=np.int64)
        return checked_numbers(numbers, columns.classes, self.name)

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, sample_id: int) -> bytes:
        """The encoded file: from the row, or from the local path that stands in it.

        Raises:
            ValueError: the row holds neither; the reason alone.
            OSError: the path cannot be read.
        """
        check_id(sample_id, len(self))
        value = self._rows[sample_id][self._image]
        if isinstance(value, dict):
            data, path = value.get("bytes"), value.get("path")
            if data is None and path is not None and os.path.isfile(path):
                with open(path, "rb", buffering=0) as file:
                    return file.readall()
            if data is None:
                raise ValueError(f"column {self._image!r} holds no bytes in this row, and no local file is at {path!r}")
            value = data
        if not isinstance(value, bytes):
            raise ValueError(f"column {self._image!r} gives a {type(value).__name__}, and an encoded file is wanted")
        return value

    def columns_of(self, sample_ids: npt.NDArray[np.int64]) -> Mapping[str, Any]:
        """Column -> (B,) values of the columns that were named."""
        found: dict[str, Any] = {} if self._others is None else self._others[sample_ids.tolist()]
        return found

    def name(self, sample_id: int) -> str:
        """The data set's own name, as far as it has one, and the row."""
        check_id(sample_id, len(self))
        return f"{self._where}, row {sample_id}"


def is_hugging_face(thing: Any) -> bool:
    """Whether this is a `Dataset`, or another of the library's kinds that `refuse_other_kinds` has an answer to."""
    if isinstance(thing, dict):
        return bool(thing) and all(is_hugging_face(part) for part in thing.values())
    return all(hasattr(thing, name) for name in _INTERFACE)


def refuse_other_kinds(thing: Any) -> None:
    """Refuse a dictionary of splits and a stream.

    Raises:
        ValueError: it is one of these, or none of the library's kinds.
    """
    kind = type(thing).__name__
    if isinstance(thing, dict):
        splits: Sequence[str] = [str(name) for name in thing]
        raise ValueError(
            f"a {kind} holds several splits: {', '.join(splits)}. Give one of them, e.g. dataset[{splits[0]!r}]."
            if splits
            else f"the {kind} is empty. Give a Dataset."
        )
    if not is_hugging_face(thing):
        raise ValueError(f"a {kind} is not a datasets.Dataset: it lacks {', '.join(_INTERFACE)}.")
    if not hasattr(thing, "__len__") or not hasattr(thing, "__getitem__"):
        raise ValueError(
            f"a {kind} is a stream: its samples have no numbers, and a shuffled order needs them. "
            "Load it without streaming=True."
        )
    if thing.features is None:
        raise ValueError(f"the {kind} has no features, so nothing says which column holds images. Cast it first.")


def _row_columns(features: dict[str, dict[str, Any]], label: LabelArgument) -> tuple[str, ...]:
    """The columns that labels of several numbers lie in; none where labels are classes, or there are none.

    Raises:
        ValueError: a column is missing, or holds no numbers; the reason alone.
    """
    if label is None or label is False:
        return ()
    if isinstance(label, str):
        return (label,) if label in features and _is_row(features[label]) else ()
    return columns_of_numbers(label, [name for name, feature in features.items() if _is_number(feature)])


def _rows(columns: Sequence[Sequence[Any]], name: Callable[[int], str]) -> npt.NDArray[Any]:
    """(N, k) labels of one column of lists, or of several columns of numbers."""
    rows = NumberRows()
    for sample_id, values in enumerate(zip(*columns, strict=True)):
        is_list = isinstance(values[0], (list, tuple, np.ndarray))
        try:
            rows.append(list(values[0]) if is_list else values)
        except ValueError as error:
            raise ValueError(f"{name(sample_id)}: {error}.") from error
    return rows.numbered()


def _as_json(feature: Any) -> dict[str, Any]:
    """The feature as it would stand in a Parquet file's metadata, as far as we look at it."""
    # a list of one feature is what older versions of the library write for a column of lists
    inner = feature[0] if isinstance(feature, list) and feature else getattr(feature, "feature", None)
    return {
        "_type": getattr(feature, "_type", type(feature).__name__),
        "names": getattr(feature, "names", None),
        "dtype": getattr(feature, "dtype", None),
        "inner": _as_json(inner) if inner is not None else None,
    }


def _is_image(feature: dict[str, Any]) -> bool:
    return feature["_type"] == "Image" or (feature["_type"] == "Value" and "binary" in str(feature["dtype"]))


def _is_label(feature: dict[str, Any]) -> bool:
    integers_or_text = ("int", "uint", "string", "large_string")
    return feature["_type"] == "ClassLabel" or (
        feature["_type"] == "Value" and str(feature["dtype"]).startswith(integers_or_text)
    )


def _is_row(feature: dict[str, Any]) -> bool:
    """Whether a column of this feature, alone, is labels of numbers: lists, floats, booleans."""
    inner = feature["inner"]
    return _is_number(inner) if inner is not None else _is_number(feature) and not _is_label(feature)


def _kind(feature: dict[str, Any]) -> Kind:
    holds = feature["dtype"] if feature["_type"] == "Value" else feature["_type"]
    return Kind(str(holds), _is_label(feature), _is_row(feature))


def _is_number(feature: dict[str, Any]) -> bool:
    numbers = ("int", "uint", "float", "bool")
    return feature["_type"] == "Value" and str(feature["dtype"]).startswith(numbers)


def _shown(dataset: Any) -> str:
    named = getattr(getattr(dataset, "info", None), "dataset_name", None), getattr(dataset, "split", None)
    parts = [str(part) for part in named if part]
    return f"Dataset {'/'.join(parts)}" if parts else "Dataset"
