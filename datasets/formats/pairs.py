"""Pairs of (photograph, label) that a program holds: a list of them, torchvision's folders, any map-style data set."""

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.datasets.files.image_files import FileSource, read_file
from augpipe.datasets.metadata.label_rows import NumberRows, checked_names
from augpipe.datasets.metadata.labelled_source import LabelledSource
from augpipe.datasets.metadata.labels import LabelColumn, checked_numbers
from augpipe.datasets.metadata.names import NameTable, printable
from augpipe.sources.protocol import Labels, Pixels
from augpipe.sources.subset import check_id

_UNSEEN = -2
"""In place of a label that the data set was not asked for yet."""


class PairSource(FileSource):
    """Photographs that are files, given as (path, label) pairs; `read` opens a file again at each call.

    Args:
        pairs: the path of each photograph, and its class: all integers (-1 for none), or all names, which are sorted
            (by bytes) into `classes`; or k numbers, as a list or an array.
        classes: the classes and their order; "0", "1", ... or the names themselves if left out. For k numbers a label:
            what each stands for.

    Raises:
        ValueError: there is none, an item is not such a pair, or a label is none of the classes.
    """

    def __init__(
        self, pairs: Sequence[tuple[str | os.PathLike[str], Any]], *, classes: Sequence[str] | None = None
    ) -> None:
        if not len(pairs):
            raise ValueError("pairs is empty: a source holds at least one photograph. Give one (path, label) or more.")
        names, labels = NameTable(), []
        for place, pair in enumerate(pairs):
            if not _is_pair(pair) or not isinstance(pair[0], str | os.PathLike):
                raise ValueError(
                    f"pairs[{place}] is {pair!r:.100}, and must be (path, label), the path a text or Path."
                )
            names.extend([os.fsencode(pair[0])])
            labels.append(pair[1])
        numbers, found = _numbered(labels, classes, lambda place: printable(names[place]))
        super().__init__("", names, numbers, found)


class MapStyleSource(LabelledSource):
    """A data set with `__len__` and `__getitem__` that gives (photograph, label), as torch's map-style data sets do.

    A photograph is a path, an encoded file (bytes), a PIL image, an uint8 array (H, W, C), or an uint8 tensor,
    (H, W, C) or (C, H, W). The recipe takes the place of the data set's own transforms: make it without. Items
    are asked for by several threads at once.

    Labels are integers. Where the data set lists them as `targets` or `labels`, as torchvision's do, they are taken
    from there; else each is known once its item was asked for, and `state_dict` of a `Loader` asks for all.

    Args:
        dataset: the data set.
        classes: label -> class name; if left out those of `dataset.classes`, or "0", "1", ... where all labels are
            known.

    Raises:
        ValueError: it is empty, or its labels are none of the classes.
    """

    def __init__(self, dataset: Any, *, classes: Sequence[str] | None = None) -> None:
        self._dataset = dataset
        self._where = type(dataset).__name__
        if not len(dataset):
            raise ValueError(f"the {self._where} is empty: a source holds at least one photograph.")
        refuse_target_transform(dataset)
        if getattr(dataset, "transform", None) is not None:
            self.cautions = ("its own transform acts before the recipe: make the data set without one",)
        names = getattr(dataset, "classes", None) if classes is None else classes
        named = tuple(map(str, names)) if isinstance(names, list | tuple) and len(names) else None
        self._labels: npt.NDArray[Any] = np.full(len(dataset), _UNSEEN, np.int64)
        self._listed_as = next((name for name in ("targets", "labels") if _integers(dataset, name) is not None), "")
        if self._listed_as:
            listed = _integers(dataset, self._listed_as)
            assert listed is not None
            self._labels, named = checked_numbers(listed, named, self.name)
        self.classes: Sequence[str] = named or ()

    def __len__(self) -> int:
        return len(self._labels)

    def read(self, sample_id: int) -> bytes | Pixels:
        """The encoded file, or the pixels, uint8 (H, W, C) or (H, W).

        Raises:
            ValueError: the data set gives no photograph and label; the reason alone.
            OSError: a path cannot be read.
        """
        check_id(sample_id, len(self))
        image = self._item(sample_id)[0]
        if isinstance(image, str | os.PathLike):
            return read_file(os.fspath(image))
        if isinstance(image, bytes | bytearray | memoryview):
            return bytes(image)
        from augpipe.augment_call.inputs import as_array, as_known  # the kernels come with it: not for opening alone

        try:
            return as_array(as_known(image, sample_id), sample_id)
        except ValueError as error:
            raise ValueError(f"{error} Make the data set without a transform: the recipe takes its place.") from error

    def label(self, sample_id: int) -> int | Labels:
        """The class; the item is asked for where it is not known yet."""
        check_id(sample_id, len(self))
        if self._labels[sample_id] == _UNSEEN:
            self._item(sample_id)
        return int(self._labels[sample_id])

    def labels(self) -> Labels:
        """All labels, (N,) int64; items whose labels are not known yet are asked for."""
        return self.labels_of(np.arange(len(self), dtype=np.int64))

    def name(self, sample_id: int) -> str:
        """`CIFAR10[7]` and the like."""
        check_id(sample_id, len(self))
        return f"{self._where}[{sample_id}]"

    def _item(self, sample_id: int) -> tuple[Any, Any]:
        item = self._dataset[sample_id]
        if not _is_pair(item):
            what = f"{type(item).__name__} of {len(item)}" if isinstance(item, list | tuple) else type(item).__name__
            raise ValueError(f"the data set gives a {what}, and (photograph, label) is needed. Return those two")
        known = self._labels[sample_id]
        if known == _UNSEEN:
            label = np.asarray(item[1])
            if label.ndim or label.dtype.kind not in "iu":
                raise ValueError(
                    f"its label is {item[1]!r:.100}, and an integer is needed. Return the class's number, or give "
                    "pairs of path and numbers"
                )
            if label < -1 or (self.classes and label >= len(self.classes)):
                most = f"0..{len(self.classes) - 1}" if self.classes else "0, 1, ..."
                raise ValueError(f"its label is {label}, which is not a class number ({most}; -1 for none)")
            self._labels[sample_id] = label
        elif self._listed_as and _differs(item[1], known):
            raise ValueError(
                f"its item has the label {item[1]!r:.100}, and the data set's list {self._listed_as!r} has {known} for "
                "it. Return that one, or give the list another name"
            )
        return item[0], item[1]


def is_pairs(thing: Any) -> bool:
    """Whether it is a list of (path, label), by its first item."""
    is_list = isinstance(thing, list | tuple) and bool(thing)
    return is_list and _is_pair(thing[0]) and isinstance(thing[0][0], str | os.PathLike)


def is_image_folder(thing: Any) -> bool:
    """Whether it is torchvision's `ImageFolder` or another `DatasetFolder`: a list of files, with their classes.

    One with a `__getitem__` or a `loader` of its own is not: its items may be others than its files and their labels.
    """
    if not all(hasattr(thing, name) for name in ("samples", "classes", "class_to_idx", "loader")):
        return False
    reads = (getattr(type(thing), "__getitem__", None), thing.loader)
    return all(getattr(read, "__module__", None) == "torchvision.datasets.folder" for read in reads)


def open_image_folder(dataset: Any, classes: Sequence[str] | None = None) -> PairSource:
    """The files of torchvision's `ImageFolder`, in its order and with its labels; they are not decoded by it.

    Raises:
        ValueError: it changes labels; or its classes are none.
    """
    refuse_target_transform(dataset)
    source = PairSource(dataset.samples, classes=list(dataset.classes) if classes is None else classes)
    if getattr(dataset, "transform", None) is not None:
        source.cautions = ("its transform is not applied: the recipe takes its place",)
    return source


def is_map_style(thing: Any) -> bool:
    """Whether items can be asked for by their numbers."""
    return hasattr(thing, "__len__") and hasattr(thing, "__getitem__") and not isinstance(thing, dict | str | bytes)


def refuse_target_transform(dataset: Any) -> None:
    """Raise ValueError where a data set of torchvision changes labels on their way."""
    if getattr(dataset, "target_transform", None) is not None:
        raise ValueError(
            f"the {type(dataset).__name__} has a target_transform, which is not applied here. Make it without, and map "
            "the labels of batches; or pass the pairs: [(path, label), ...]."
        )


def _differs(label: Any, listed: np.int64) -> bool:
    """Whether what an item says is a number, or several, and not the one that the data set lists."""
    if not isinstance(label, int | float) and not hasattr(label, "__array__"):
        return False
    array = np.asarray(label)
    return array.dtype.kind in "iufb" and bool(array.ndim or array != listed)


def _is_pair(item: Any) -> bool:
    return isinstance(item, list | tuple) and len(item) == 2


def _integers(dataset: Any, name: str) -> npt.NDArray[np.int64] | None:
    """A list of one integer for each item, or None."""
    there = getattr(dataset, name, None)
    if there is None or callable(there):
        return None
    try:
        numbers = np.asarray(there)
    except ValueError:  # ragged
        return None
    if numbers.shape != (len(dataset),) or numbers.dtype.kind not in "iu":
        return None
    return numbers.astype(np.int64)


def _numbered(
    labels: Sequence[Any], classes: Sequence[str] | None, name: Callable[[int], str]
) -> tuple[npt.NDArray[Any], tuple[str, ...]]:
    if all(isinstance(label, str) for label in labels):
        column = LabelColumn()
        for label in labels:
            column.append(label)
        return column.numbered(classes, name)
    rows, ndim = NumberRows(), np.asarray(labels[0]).ndim
    is_named = isinstance(labels[0], str)
    for place, label in enumerate(labels):
        array = np.asarray(label)
        if is_named and isinstance(label, str):
            continue
        if array.ndim != ndim or (not array.ndim and array.dtype.kind not in "iu") or is_named:
            raise ValueError(
                f"pairs[{place}] has the label {label!r:.100}. Give all labels as integers, all as names, or all as "
                "lists of numbers, as [0.5]."
            )
        if array.ndim:
            try:
                rows.append(array.tolist())
            except ValueError as error:
                raise ValueError(f"pairs[{place}]: {error}.") from error
    if len(rows):
        numbers = rows.numbered()
        return numbers, checked_names(classes, numbers.shape[1])
    return checked_numbers(np.array([int(label) for label in labels], np.int64), classes, name)
