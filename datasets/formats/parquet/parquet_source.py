"""Parquet files with a column of encoded images, as Hugging Face stores its data sets."""

import hashlib
import os
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from types import ModuleType
from typing import Any, BinaryIO, Literal

import numpy as np
import numpy.typing as npt

from augpipe.datasets.files.descriptors import FileSet
from augpipe.datasets.formats.container import ContainerSource, Paths, container_files
from augpipe.datasets.formats.hugging_face_features import Columns, Kind, choose_columns, parse_features
from augpipe.datasets.formats.parquet.label_rows import is_row, label_columns, read_label_rows
from augpipe.datasets.formats.parquet.row_groups import GroupCache
from augpipe.datasets.metadata.label_names import LabelArgument
from augpipe.datasets.metadata.label_rows import checked_names
from augpipe.datasets.metadata.labels import LabelColumn, checked_numbers
from augpipe.datasets.metadata.names import listed, printable
from augpipe.datasets.remote.file_set import RemoteFileSet
from augpipe.datasets.remote.patterns import remote_files
from augpipe.datasets.remote.settings import RemoteSettings
from augpipe.datasets.remote.urls import shown
from augpipe.sources.protocol import Labels, as_label_rows
from augpipe.sources.subset import check_id

CACHE_BYTES = 256 << 20
_END_BYTES = 12


class ParquetSource(ContainerSource):
    """The images of one Parquet file or of many, row after row; read a row group at a time.

    The column of images is found by the features that Hugging Face writes into the schema, else by its type and name:
    struct<bytes: binary, path: string>, or plain binary. Labels are integers (with the class names of the features
    where they have some) or texts, which are sorted by their bytes.

    Parquet has no way to read one row alone: a read decodes the whole row group, and the groups read last are kept. In
    order, that costs nothing; in the shuffled order of training every read may cost a group. Prepare a data set that
    is larger than `cache_bytes` before training.

    Opening reads the footers and the column of labels, and keeps 4 bytes a sample. Any number of threads may read; a
    copy made by pickle opens the files again and has a cache of its own.

    Args:
        paths: a Parquet file, a folder whose `*.parquet` are taken sorted by name, a pattern such as
            `data/train-*.parquet`, or a sequence of files; paths or URLs.
        image: the column of images; found if left out.
        label: the column of labels; found if left out, False for none. A column of lists of one length, of floats or
            booleans, or several columns of numbers, is named: each label is that many numbers then, for several classes
            at once, soft labels or regression.
        classes: label -> class name, instead of those that the features name.
        split: "train" or another, for a folder that holds the files of several, as their names say.
        cache_bytes: how much of decoded row groups is kept.
        remote: limits and the cache of files at URLs; the environment's if left out.

    Raises:
        ImportError: pyarrow is not installed, or a package for a URL.
        ValueError: no such file, one that is not Parquet or damaged, files of different columns, a folder of several
            splits, no column that fits, labels that do not, or a column that looks like the label and cannot be used.
        OSError: a file cannot be read; `RemoteError` where no usable answer came.
    """

    def __init__(
        self,
        paths: Paths,
        *,
        image: str | None = None,
        label: LabelArgument = None,
        classes: Sequence[str] | None = None,
        split: str | None = None,
        cache_bytes: int = CACHE_BYTES,
        remote: RemoteSettings | None = None,
    ) -> None:
        arrow, parquet = _pyarrow()
        urls = remote_files(paths, ".parquet", remote, split)
        super().__init__(
            container_files(paths, "Parquet", ".parquet", split) if urls is None else [shown(url) for url in urls]
        )
        self._files = FileSet(self._paths) if urls is None else RemoteFileSet(urls, remote)
        footers = hashlib.blake2b(digest_size=16)
        self._cache_bytes = cache_bytes
        self._first_groups = [0]  # file -> its first row group among all
        self._groups: list[int] = []  # rows of each row group
        labels = LabelColumn("the column")
        numbers: list[npt.NDArray[np.int64]] = []
        rows: list[Labels] = []
        row_columns: tuple[str, ...] = ()
        columns: Columns | None = None
        for file_number, path in enumerate(self._paths):
            try:
                with self._files.open(file_number) as plain:
                    num_bytes = _check_ends(plain)
                    footers.update(_footer(plain, num_bytes))
                with parquet.ParquetFile(self._given(file_number), memory_map=False) as file:
                    schema = file.schema_arrow
                    row_columns = label_columns(arrow, schema, label)
                    named = label if (isinstance(label, str) or label is False) and not row_columns else None
                    found = _columns(arrow, schema, image, False if row_columns else named)
                    columns = columns or found
                    if found[:2] != columns[:2] or found.classes != columns.classes:
                        raise ValueError(
                            f"its columns or classes differ from those of {printable(self._paths[0])}: the files are "
                            "not of one data set. Give one split, and pass image= and label="
                        )
                    self._groups += _row_counts(file, num_bytes)
                    self._first_groups.append(len(self._groups))
                    if row_columns:
                        rows.append(read_label_rows(arrow, file, row_columns))
                    elif found.label is not None:
                        _read_labels(arrow, file, found.label, labels, numbers)
            except (arrow.ArrowException, OSError) as error:
                if isinstance(error, OSError) and error.errno is not None:
                    raise
                raise ValueError(f"{printable(path)}: {_reason(error)}. It is damaged: copy it again.") from error
            except ValueError as error:
                raise ValueError(f"{printable(path)}: {str(error).rstrip('.')}.") from error
        assert columns is not None
        self._columns = columns
        self._footers = footers.digest()
        self.notes, self.left_out = columns.notes, columns.left_out
        self._group_ends = list(accumulate(self._groups, initial=0))
        self._ends = [self._group_ends[last] for last in self._first_groups[1:]]
        if not len(self):
            raise ValueError(f"{listed(self._paths)}: no rows. Give files that hold some.")
        if row_columns:
            self._labels, self.classes = self._stacked(rows, row_columns, classes)
        else:
            self._labels, self.classes = self._numbered(labels, numbers, classes)
        self._cache = GroupCache(self._load, cache_bytes)

    def read(self, sample_id: int) -> bytes:
        """The image's bytes as they stand in the row; its row group is decoded if it is not kept.

        Raises:
            ValueError: the row holds no image, or the file is damaged there; the reason alone.
            OSError: the file cannot be read.
        """
        check_id(sample_id, len(self))
        group = bisect_right(self._group_ends, sample_id) - 1
        value = self._cache.get(group)[sample_id - self._group_ends[group]].as_py()
        if value is None:
            raise ValueError(
                f"column {self._columns.image!r} holds no bytes in this row; a path alone names a file that is "
                "elsewhere. Write the data set with its images in it"
            )
        data: bytes = value
        return data

    def name(self, sample_id: int) -> str:
        """The file's path and the row in it, from 0."""
        file, row = self._find(sample_id)
        return f"{printable(self._paths[file])}, row {row}"

    def _numbered(
        self, labels: LabelColumn, numbers: list[npt.NDArray[np.int64]], classes: Sequence[str] | None
    ) -> tuple[npt.NDArray[Any] | None, tuple[str, ...]]:
        """All labels (None where there are none) and the classes, once they fit one another."""
        names = self._columns.classes if classes is None else tuple(classes)
        if self._columns.label is None:
            return None, names or ()
        num_read = len(labels) + sum(map(len, numbers))
        if num_read != len(self) or (len(labels) and numbers):
            raise ValueError(
                f"{listed(self._paths)}: {num_read} labels of {len(self)} rows are there, {len(labels)} of them texts. "
                "The files are damaged, or not of one data set."
            )
        if len(labels):
            numbered = labels.numbered(names, self.name)
            self.notes, self.cautions = (*self.notes, *labels.notes), labels.cautions
            return numbered
        return checked_numbers(np.concatenate(numbers), names, self.name)

    def _stacked(
        self, rows: list[Labels], columns: Sequence[str], classes: Sequence[str] | None
    ) -> tuple[Labels, tuple[str, ...]]:
        """The labels of all files, and what their numbers stand for."""
        shapes = {part.shape[1] for part in rows if len(part)}
        if len(shapes) != 1 or sum(map(len, rows)) != len(self):
            raise ValueError(
                f"{listed(self._paths)}: labels are of {sorted(shapes)} numbers. Give one data set's files."
            )
        labels = as_label_rows(np.concatenate([part for part in rows if len(part)]))
        names = columns if len(columns) > 1 else ()
        return labels, checked_names(names or None if classes is None else classes, labels.shape[1])

    def _given(self, number: int) -> str | BinaryIO:
        """What pyarrow reads: by itself where it can."""
        return self._files.path(number) if isinstance(self._files, FileSet) else self._files.open(number)

    def _known_content(self) -> bytes:
        return self._footers

    def _load(self, group: int) -> tuple[Any, int]:
        """The column of images of one row group, and its bytes."""
        arrow, parquet = _pyarrow()
        number = bisect_right(self._first_groups, group) - 1
        if isinstance(self._files, FileSet):
            self._files.check_unchanged(number)
        try:
            with parquet.ParquetFile(self._given(number), memory_map=False) as file:
                name = self._columns.image
                is_struct = arrow.types.is_struct(file.schema_arrow.field(name).type)
                wanted = [f"{name}.bytes"] if is_struct else [name]
                table = file.read_row_group(group - self._first_groups[number], columns=wanted, use_threads=False)
                column = table.column(name)
                if is_struct:
                    column = arrow.chunked_array([chunk.field("bytes") for chunk in column.chunks], arrow.binary())
                if len(column) != self._groups[group]:
                    raise ValueError(f"the row group has {len(column)} rows, and had {self._groups[group]} when opened")
                return column, column.nbytes
        except (arrow.ArrowException, KeyError, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise ValueError(f"the Parquet file is damaged there: {_reason(error)}") from error

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_cache"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._cache = GroupCache(self._load, self._cache_bytes)


def _pyarrow() -> tuple[ModuleType, ModuleType]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError('Parquet files are read with pyarrow: pip install "augpipe[parquet]"') from error
    return pyarrow, pyarrow.parquet


def _columns(arrow: ModuleType, schema: Any, image: str | None, label: str | Literal[False] | None) -> Columns:
    kinds = arrow.types
    images: list[str] = []
    others: dict[str, Kind] = {}
    for field in schema:
        kind = field.type
        if kinds.is_struct(kind):
            inner = {kind.field(i).name: kind.field(i).type for i in range(kind.num_fields)}
            if "bytes" in inner and (kinds.is_binary(inner["bytes"]) or kinds.is_large_binary(inner["bytes"])):
                images.append(field.name)
                continue
        elif kinds.is_binary(kind) or kinds.is_large_binary(kind):
            images.append(field.name)
            continue
        is_class = kinds.is_integer(kind) or _is_text(arrow, kind)
        others[field.name] = Kind(str(kind), is_class, is_row(arrow, kind))
    return choose_columns(parse_features(schema.metadata), images, others, image=image, label=label)


def _is_text(arrow: ModuleType, kind: Any) -> bool:
    if arrow.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(arrow.types.is_string(kind) or arrow.types.is_large_string(kind))


def _row_counts(file: Any, num_bytes: int) -> list[int]:
    counts = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
    if any(count < 0 for count in counts) or sum(counts) != file.metadata.num_rows:
        raise ValueError(f"its row groups hold {counts} rows, and its footer speaks of {file.metadata.num_rows}")
    if sum(counts) > num_bytes:  # one byte a row is less than any image has
        raise ValueError(f"its footer speaks of {sum(counts)} rows, and the file has {num_bytes} bytes")
    return counts


def _read_labels(
    arrow: ModuleType, file: Any, label: str, texts: LabelColumn, numbers: list[npt.NDArray[np.int64]]
) -> None:
    """Add one file's labels to `texts`, or to `numbers` where they are integers; null becomes -1 or no label."""
    for batch in file.iter_batches(batch_size=1 << 16, columns=[label], use_threads=False):
        column = batch.column(0)
        if not arrow.types.is_integer(column.type):
            for text in column.to_pylist():
                texts.append(text)
            continue
        try:
            # signed first: uint8 cannot hold the -1 of what is missing
            numbers.append(column.cast(arrow.int64()).fill_null(-1).to_numpy(zero_copy_only=False))
        except arrow.ArrowInvalid as error:
            raise ValueError(f"column {label!r} holds numbers that are not class numbers: {_reason(error)}") from error


def _check_ends(file: BinaryIO) -> int:
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    begins = file.read(4)
    file.seek(max(size - 4, 0))
    ends = file.read(4)
    if b"PARE" in (begins, ends):
        raise ValueError("it is encrypted, and only plain Parquet is read")
    if begins != b"PAR1":
        raise ValueError(f"it is not a Parquet file: it begins with {begins!r}, and not with b'PAR1'")
    if ends != b"PAR1" or size < _END_BYTES:
        raise ValueError(f"it is truncated: of {size} bytes the last are {ends!r}, and not b'PAR1'. Copy it again")
    return size


def _footer(file: BinaryIO, num_bytes: int) -> bytes:
    """What stands at the end of a file: columns, row groups, their lengths and what is known of their values."""
    file.seek(num_bytes - 8)
    length = int.from_bytes(file.read(4), "little")
    file.seek(max(num_bytes - 8 - length, 0))
    return file.read(min(length, num_bytes))


def _reason(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
