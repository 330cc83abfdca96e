"""Writing a shard: a WebDataset tar file whose bytes depend on its samples alone, and the index to it."""

import hashlib
import json
import os
import re
import zlib
from collections.abc import Mapping
from types import TracebackType
from typing import Any

import numpy as np

from augpipe.datasets.files.atomic import AtomicFile, write_atomically
from augpipe.datasets.metadata.names import printable
from augpipe.datasets.shards.index import EXTENSIONS, MAX_ROW_BYTES, RECORD, Record, format_code, index_path, pack_index
from augpipe.datasets.shards.manifest import SHARD_NAME, ShardInfo
from augpipe.datasets.shards.shard_targets import targets_path
from augpipe.datasets.shards.ustar import BLOCK_BYTES, END, check_key, header, padding
from augpipe.decoding.header import Format
from augpipe.decoding.probe import format_of
from augpipe.sources.protocol import Labels

MAX_IMAGE_BYTES = 1 << 28
"""A longer image is refused: it would have more pixels than are decoded (`augpipe.decoding.MAX_PIXELS`)."""
MAX_NOTE_BYTES = 1 << 20
"""The most bytes of a sample's .json."""
_MAX_LABEL = _MAX_SIDE = 2**31 - 1


class ShardWriter:
    """Writes `NUMBER.tar` and `NUMBER.idx`; neither is there before `close`, and the index comes after the tar.

    Use it with `with`: at its end, what was not closed is removed. For one thread; about 200 bytes a sample are held
    until `close`, and the row indexes.

    Args:
        path: of the tar file, `NUMBER.tar` with six digits or more; its folder must be there.

    Raises:
        ValueError: the name is not a shard's.
        OSError: the file cannot be made.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        if not re.fullmatch(SHARD_NAME, os.path.basename(self.path)):
            raise ValueError(
                f"{printable(self.path)} is not a shard's name. Write a number of six digits or more, as 000003.tar."
            )
        self._file = AtomicFile(self.path)
        self._sum = hashlib.sha256()
        self._records: list[bytes] = []
        self._keys: dict[str, None] = {}
        self._key_bytes = 0
        self._row_indexes = bytearray()
        self._label_rows: list[Labels] = []
        self._num_bytes = 0

    @property
    def num_samples(self) -> int:
        """Samples so far."""
        return len(self._records)

    @property
    def num_bytes(self) -> int:
        """Bytes of the tar file so far, without its 1,024 bytes of end marks."""
        return self._num_bytes

    def add(self, key: str, image: bytes, label: int | Labels, meta: Mapping[str, Any], row_index: bytes = b"") -> None:
        """Append a sample: `KEY.jpg` (or `.png`, ...), `KEY.cls` (the label in decimal digits) and `KEY.json` (`meta`).

        Args:
            key: as `ustar.sample_key` gives it, and no other sample of the shard has.
            image: the encoded image, in one of `formats.EXTENSIONS`.
            label: the class, or -1; or (k,) int64 or float32 numbers, as many for each sample: they go into `meta`, as
                "label", and `KEY.cls` is -1.
            meta: what JSON can hold; "height" and "width" in pixels (upright) must be there.
            row_index: of the image, where it has one.

        Raises:
            ValueError: one of them cannot be written; nothing is.
            OSError: the disk is full, or fails.
        """
        check_key(key)
        if key in self._keys:
            raise ValueError(f"key={key!r} is in the shard already: no two samples of a shard share a key.")
        kind = _checked_format(key, image)
        row: Labels | None = None
        if isinstance(label, np.ndarray):
            row, label = self._checked_row(key, label), -1
            meta = {**meta, "label": row.tolist()}
        elif self._label_rows:
            raise ValueError(f"{key}: label is of another kind than those before it: all are classes, or rows of k.")
        if not -1 <= label <= _MAX_LABEL:
            raise ValueError(f"{key}: label={label}, and a label is a class number from 0, or -1 for none.")
        height, width = meta.get("height"), meta.get("width")
        for side in (height, width):
            if type(side) is not int or not 1 <= side <= _MAX_SIDE:
                raise ValueError(
                    f"{key}: meta has height={height!r} and width={width!r}, and both are whole numbers of pixels, "
                    f"1 to {_MAX_SIDE}."
                )
        note = json.dumps(meta, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")
        if len(note) > MAX_NOTE_BYTES:
            raise ValueError(
                f"{key}: meta takes {len(note)} bytes as JSON, and {MAX_NOTE_BYTES} is the most. Leave some of it out."
            )
        group = b"".join(
            part
            for extension, content in ((EXTENSIONS[kind], image), ("cls", b"%d" % label), ("json", note))
            for part in (header(f"{key}.{extension}", len(content)), content, padding(len(content)))
        )
        self._key_bytes += len(key)
        if len(self._row_indexes) + len(row_index) <= MAX_ROW_BYTES:
            self._row_indexes += row_index
        assert height is not None and width is not None
        record = Record(
            offset=self._num_bytes + BLOCK_BYTES,
            length=len(image),
            label=label,
            height=height,
            width=width,
            key_end=self._key_bytes,
            crc=zlib.crc32(group),
            format=format_code(kind),
            row_end=len(self._row_indexes),
        )
        self._records.append(RECORD.pack(*record))
        self._keys[key] = None
        if row is not None:
            self._label_rows.append(row)
        self._write(group)

    def close(self, targets: bytes | None = None) -> ShardInfo:
        """End the tar file, put it on the disk under its name, then the index; returns what the manifest says of it.

        Args:
            targets: of its samples, as `pack_targets` made them: they come between the two. None: there are none.

        Raises:
            OSError: it cannot be written; what was written so far is removed.
        """
        with self._file:
            self._write(END)
            self._file.commit()
        rows = bytes(self._row_indexes)
        labels = b"".join(row.astype(row.dtype.newbyteorder("<")).tobytes() for row in self._label_rows)
        index = pack_index(self._records, tuple(self._keys), rows, self._num_bytes, self._sum.digest(), labels)
        whole = index.head + index.rows
        if targets is not None:
            write_atomically(targets_path(self.path), targets)
        write_atomically(index_path(self.path), whole)
        return ShardInfo(
            name=os.path.basename(self.path),
            num_samples=self.num_samples,
            num_bytes=self._num_bytes,
            sha256=self._sum.hexdigest(),
            index_bytes=len(whole),
            index_sha256=hashlib.sha256(whole).hexdigest(),
            head_bytes=len(index.head),
            head_sha256=hashlib.sha256(index.head).hexdigest(),
            targets_bytes=None if targets is None else len(targets),
            targets_sha256=None if targets is None else hashlib.sha256(targets).hexdigest(),
        )

    def abort(self) -> None:
        """Remove what was written so far, unless the shard is closed."""
        self._file.discard()

    def _checked_row(self, key: str, label: Labels) -> Labels:
        if label.ndim != 1 or not len(label) or label.dtype not in (np.int64, np.float32):
            raise ValueError(
                f"{key}: label has shape {label.shape} and dtype {label.dtype}, and labels of several numbers are (k,) "
                "int64 or float32."
            )
        if not np.isfinite(label).all():
            raise ValueError(f"{key}: label={label.tolist()!r:.100} is not finite, and JSON has no such numbers.")
        first = self._label_rows[0] if self._label_rows else label
        if len(self._label_rows) != self.num_samples or (first.shape, first.dtype) != (label.shape, label.dtype):
            raise ValueError(f"{key}: label is of another kind than those before it: all are classes, or rows of k.")
        return label

    def _write(self, data: bytes) -> None:
        self._file.write(data)
        self._sum.update(data)
        self._num_bytes += len(data)

    def __enter__(self) -> "ShardWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()


def _checked_format(key: str, image: bytes) -> Format:
    try:
        kind = format_of(image)
    except ValueError as error:
        raise ValueError(f"{key}: {error}. Encode the image.") from error
    if len(image) > MAX_IMAGE_BYTES:
        raise ValueError(f"{key}: {len(image)} bytes are more than the {MAX_IMAGE_BYTES} that an image may have.")
    return kind
