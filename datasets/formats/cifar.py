"""The binary version of CIFAR-10 and CIFAR-100: images and labels in records of one length."""

import os
from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from typing import Any, Literal, NamedTuple

import numpy as np

from augpipe.datasets.files.descriptors import FileSet
from augpipe.datasets.formats.container import ContainerSource, Paths, container_files
from augpipe.datasets.metadata.names import listed, printable
from augpipe.sources.protocol import Pixels

Kind = Literal["cifar10", "cifar100"]

_SIDE = 32
_IMAGE_BYTES = 3 * _SIDE * _SIDE
_PICKLED = (
    "a pickle, as in the Python version of CIFAR. Reading a pickle can run any program hidden in it, so augpipe reads "
    "none. Download the binary version: cifar-10-binary.tar.gz or cifar-100-binary.tar.gz from "
    "https://www.cs.toronto.edu/~kriz/cifar.html"
)


class _Layout(NamedTuple):
    label_bytes: tuple[str, ...]
    names_files: tuple[str, ...]
    """The file of class names, for each byte of labels."""
    num_classes: tuple[int, ...]

    @property
    def record_bytes(self) -> int:
        return len(self.label_bytes) + _IMAGE_BYTES


_LAYOUTS: dict[Kind, _Layout] = {
    "cifar10": _Layout(("fine",), ("batches.meta.txt",), (10,)),
    "cifar100": _Layout(("coarse", "fine"), ("coarse_label_names.txt", "fine_label_names.txt"), (20, 100)),
}
SPLITS: dict[Kind, dict[str, tuple[str, ...]]] = {
    "cifar10": {"train": tuple(f"data_batch_{number}.bin" for number in range(1, 6)), "test": ("test_batch.bin",)},
    "cifar100": {"train": ("train.bin",), "test": ("test.bin",)},
}
"""The files of each split, as distributed."""


class CifarSource(ContainerSource):
    """The images of CIFAR's binary files, uint8 of shape (32, 32, 3), file after file in the order given.

    One byte a sample is held in memory, its label. Class names are read from `batches.meta.txt` (CIFAR-10) or
    `fine_label_names.txt` and `coarse_label_names.txt` (CIFAR-100) next to the first file; without them the classes are
    "0", "1", .... Any number of threads may read; a copy made by pickle opens the files again.

    Args:
        paths: a file, a pattern such as `data_batch_{1..5}.bin`, a sequence of files, or the folder of the data set.
        split: "train" or "test"; for a folder, and only then.
        kind: "cifar10" or "cifar100"; if left out, the file of class names next to it or the files' lengths decide.
        labels: "fine" or "coarse", of CIFAR-100.

    Raises:
        ValueError: no such file, a pickle, a length that is not a whole number of records, a label that is none of the
            classes, or arguments that do not go together.
        OSError: a file cannot be read.
    """

    def __init__(
        self,
        paths: Paths,
        split: str | None = None,
        *,
        kind: Kind | None = None,
        labels: Literal["fine", "coarse"] = "fine",
    ) -> None:
        super().__init__(_files(paths, split))
        for path in self._paths:
            refuse_pickle(path)
        self._files: FileSet = FileSet(self._paths)
        sizes = [self._files.num_bytes(number) for number in range(len(self._paths))]
        if kind is not None and kind not in _LAYOUTS:
            raise ValueError(f"kind={kind!r} is not known. Valid: {', '.join(_LAYOUTS)}.")
        self.kind: Kind = kind or _kind_of(self._paths, sizes)
        layout = _LAYOUTS[self.kind]
        if labels not in layout.label_bytes:
            raise ValueError(f"labels={labels!r} is not in {self.kind}. Valid: {', '.join(layout.label_bytes)}.")
        self._which = labels
        byte = layout.label_bytes.index(labels)
        self._layout = layout
        columns = [
            _label_column(path, size, layout.record_bytes, byte) for path, size in zip(self._paths, sizes, strict=True)
        ]
        self._ends = list(accumulate(map(len, columns)))
        self._labels = np.concatenate(columns)
        self.classes: Sequence[str] = _class_names(self._paths[0], layout, byte)
        wrong = np.flatnonzero(self._labels >= len(self.classes))
        if len(wrong):
            raise ValueError(
                f"{self.name(int(wrong[0]))}: label {self._labels[wrong[0]]} is none of the {len(self.classes)} "
                f"classes of {self.kind}: the file is damaged, or of another kind. Pass kind=, or copy it again."
            )

    def read(self, sample_id: int) -> Pixels:
        """The image, uint8 of shape (32, 32, 3), RGB; a copy.

        Raises:
            ValueError: the file was cut short meanwhile.
            OSError: it cannot be read.
        """
        file, row = self._find(sample_id)
        begin = row * self._layout.record_bytes + len(self._layout.label_bytes)
        data = self._files.read(file, _IMAGE_BYTES, begin)
        if len(data) != _IMAGE_BYTES:
            raise ValueError(f"the file ends after {len(data)} of {_IMAGE_BYTES} bytes: it was cut short meanwhile")
        planes = np.frombuffer(data, np.uint8).reshape(3, _SIDE, _SIDE)
        return np.ascontiguousarray(planes.transpose(1, 2, 0))

    def name(self, sample_id: int) -> str:
        """The file's path and the image's place in it, from 0."""
        file, row = self._find(sample_id)
        return f"{printable(self._paths[file])}, image {row}"

    def __reduce__(self) -> tuple[Any, ...]:
        paths = [self._files.path(number) for number in range(len(self._paths))]
        shown = {"_paths": self._paths, "_where": self._where}
        return partial(type(self), kind=self.kind, labels=self._which), (paths,), shown


def kind_in(folder: str) -> Kind | None:
    """What CIFAR a folder holds, by the files that are distributed together; None if none."""
    for kind, splits in SPLITS.items():
        is_named = any(os.path.isfile(os.path.join(folder, name)) for name in _LAYOUTS[kind].names_files)
        if is_named and any(os.path.isfile(os.path.join(folder, name)) for names in splits.values() for name in names):
            return kind
    return None


def refuse_pickle(path: str) -> None:
    """Refuse a file that begins as a pickle of protocol 2 to 5 does; nothing is said of what is not a file.

    Raises:
        ValueError: it does; says what to download instead.
        OSError: it cannot be read.
    """
    if not os.path.isfile(path):
        return
    with open(path, "rb") as file:
        start = file.read(4)
    if len(start) >= 3 and start[0] == 0x80 and 2 <= start[1] <= 5 and start[2:3] in (b"}", b"\x95", b"c", b"]", b"("):
        raise ValueError(f"{printable(path)} is {_PICKLED}.")


def _files(paths: Paths, split: str | None) -> list[str]:
    if isinstance(paths, (str, os.PathLike)) and os.path.isdir(folder := os.fspath(paths)):
        return _split_files(folder, split)
    if split is not None:
        raise ValueError(f"split={split!r} chooses from a folder, and files are given. Leave it out.")
    return container_files(paths, "CIFAR")


def _split_files(folder: str, split: str | None) -> list[str]:
    kind = kind_in(folder)
    if kind is None:
        for name in ("data_batch_1", "test_batch", "train", "test"):
            refuse_pickle(os.path.join(folder, name))
        raise ValueError(
            f"{printable(folder)} holds no CIFAR in its binary version, which is data_batch_1.bin ... test_batch.bin "
            "and batches.meta.txt, or train.bin, test.bin and fine_label_names.txt. Give the folder that they lie in."
        )
    splits = SPLITS[kind]
    if split is None:
        e_g = {"cifar10": "data_batch_{1..5}.bin", "cifar100": "train.bin"}[kind]
        raise ValueError(
            f'{printable(folder)} holds {len(splits)} splits: {listed(splits)}. Give split="train", or the '
            f"files of one, e.g. {printable(os.path.join(folder, e_g))}"
        )
    if split not in splits:
        raise ValueError(f"split={split!r} is not in {kind}. Valid: {', '.join(splits)}.")
    missing = [name for name in splits[split] if not os.path.isfile(os.path.join(folder, name))]
    if missing:
        raise ValueError(f"{printable(folder)} lacks {listed(missing)} of the split {split!r}. Copy all files there.")
    return [os.path.join(folder, name) for name in splits[split]]


def _kind_of(paths: Sequence[str], sizes: Sequence[int]) -> Kind:
    folder = os.path.dirname(paths[0])
    named: list[Kind] = [
        kind
        for kind, layout in _LAYOUTS.items()
        if any(os.path.isfile(os.path.join(folder, name)) for name in layout.names_files)
    ]
    if len(named) == 1:
        return named[0]
    fitting: list[Kind] = [
        kind for kind, layout in _LAYOUTS.items() if all(size > 0 and size % layout.record_bytes == 0 for size in sizes)
    ]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise ValueError(f"{listed(paths)} could be cifar10 or cifar100, by length. Pass kind=.")
    raise ValueError(
        f"{listed(paths)} of {', '.join(map(str, sizes[:3]))} bytes: neither records of 3073 bytes (CIFAR-10) nor of "
        "3074 (CIFAR-100). It is truncated, or no CIFAR in its binary version. Copy it again."
    )


def _label_column(path: str, size: int, record_bytes: int, byte: int) -> Pixels:
    """One byte of each record."""
    if size == 0 or size % record_bytes:
        raise ValueError(
            f"{printable(path)} has {size} bytes, which is not a whole number of records of {record_bytes}: it is "
            "truncated, or of another kind. Copy it again."
        )
    records = np.fromfile(path, np.uint8, size).reshape(-1, record_bytes)
    return records[:, byte].copy()


def _class_names(path: str, layout: _Layout, byte: int) -> tuple[str, ...]:
    num_classes = layout.num_classes[byte]
    names_path = os.path.join(os.path.dirname(path), layout.names_files[byte])
    if not os.path.isfile(names_path):
        return tuple(str(number) for number in range(num_classes))
    with open(names_path, encoding="utf-8", errors="backslashreplace") as file:
        names = tuple(line.strip() for line in file.read(1 << 16).splitlines() if line.strip())
    if len(names) != num_classes:
        raise ValueError(
            f"{printable(names_path)} holds {len(names)} class names, and there are {num_classes} classes. "
            "Copy the official file."
        )
    return names
