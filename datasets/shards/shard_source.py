"""Our shards as a source: images by sample id, from as many shards as there are."""

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.datasets.files.descriptors import FileSet, absolute
from augpipe.datasets.metadata.labelled_source import find_sample
from augpipe.datasets.metadata.names import printable
from augpipe.datasets.remote.blocks import store_for
from augpipe.datasets.remote.file_set import RemoteFileSet
from augpipe.datasets.remote.settings import RemoteSettings
from augpipe.datasets.remote.urls import as_url, join, shown
from augpipe.datasets.shards.index import Record, ShardIndex, index_path
from augpipe.datasets.shards.manifest import Manifest, Scale, ShardInfo
from augpipe.datasets.shards.remote_shards import fetch_heads, read_checked, remote_indices, remote_shards
from augpipe.datasets.shards.ustar import BLOCK_BYTES, END, is_header_of
from augpipe.datasets.shards.writer import MAX_IMAGE_BYTES, MAX_NOTE_BYTES
from augpipe.sources.protocol import Labels, as_label_rows
from augpipe.validation.plural import count

_MAX_GROUP_BYTES = MAX_IMAGE_BYTES + MAX_NOTE_BYTES + 16 * BLOCK_BYTES
"""What a sample may take in a tar file."""
_NUM_OPENERS = 16
"""Threads that open indices: a disk, and a network drive even more, has most of them waiting."""
_SHARDS_A_TASK = 64


class ShardSource:
    """One scale of a data set that `augpipe prepare` wrote; sample ids count through its shards in order.

    Opening it takes time and memory for the shards, not for the samples: indices are memory-mapped, and few tar files
    are open at once. Any number of threads may read; a copy made by pickle opens the shards again.

    Each read checks the index against the tar header before the image, which names it and its length, so that an
    index that lies gives an error and never another sample's bytes.

    At a URL, the manifest is asked for, and the indices' heads where they are not kept from an earlier time. A read
    asks for all that a sample takes in its shard at once, and compares it with the index's CRC-32.

    Args:
        folder: the data set's, which holds manifest.json; a path or a URL.
        scale: the scale's folder, e.g. 256 or "full"; the largest if left out.
        remote: limits and the cache for a URL; the environment's if left out.

    Raises:
        ValueError: the manifest or an index cannot be used, a shard has not the manifest's length, or no such scale.
        OSError: one of them cannot be read; `RemoteError` where no usable answer came.
        ImportError: a package for its URL is missing.
    """

    knows_sizes = True
    """That `size` is what the images show: a loader plans its batches without reading them."""

    def __init__(
        self,
        folder: str | os.PathLike[str],
        scale: str | int | None = None,
        *,
        remote: RemoteSettings | None = None,
    ) -> None:
        url = as_url(folder)
        self.folder = os.fspath(folder) if url is None else url
        self._place = absolute(self.folder) if url is None else url
        self.manifest = Manifest.load(self.folder, remote)
        chosen = self.manifest.scale(scale)
        self.scale = chosen.name
        """The scale's folder."""
        self.classes: Sequence[str] = self.manifest.classes
        self._remote: RemoteFileSet | None = None
        self._remote_rows: RemoteFileSet | None = None
        if url is None:
            self._paths = [os.path.join(self.folder, chosen.name, shard.name) for shard in chosen.shards]
            self._files = FileSet(self._paths)
            self._index_files = _index_files(self._paths)
            self._indices = _open_indices(self._paths, chosen.shards)
        else:
            self._settings = remote or RemoteSettings()
            urls = [join(url, chosen.name, shard.name) for shard in chosen.shards]
            self._paths = [shown(name) for name in urls]
            index_urls = [join(url, chosen.name, index_path(shard.name)) for shard in chosen.shards]
            self._indices = _open_remote_indices(index_urls, chosen, self._settings)
            self._remote = remote_shards(urls, chosen.shards, self._settings)
            self._remote_rows = remote_indices(index_urls, chosen.shards, self._settings)
        self._ends = list(accumulate(index.num_samples for index in self._indices))
        self._rows = [self._label_rows(path, index) for path, index in zip(self._paths, self._indices, strict=True)]

    def __len__(self) -> int:
        return self._ends[-1]

    def read(self, sample_id: int) -> bytes:
        """The image file's bytes, copied out of the shard.

        Raises:
            IndexError: no such sample.
            ValueError: the shard or its index is damaged there; the reason without the sample's name.
            OSError: the shard cannot be read.
        """
        shard, position = self._find(sample_id)
        index = self._indices[shard]
        record, name = index[position], index.name(position)
        end = record.offset + record.length
        if record.offset < BLOCK_BYTES or record.length > MAX_IMAGE_BYTES or end > index.shard_bytes:
            raise ValueError(
                f"the index is damaged: it places {record.length} bytes at {record.offset} of {index.shard_bytes}"
            )
        self._check_label(record)
        # header and image in one read: a second one would give the GIL away once more
        if self._remote is not None:
            found = self._fetch(self._remote, shard, position, record)
        else:
            found = self._files.read(shard, BLOCK_BYTES + record.length, record.offset - BLOCK_BYTES)
        if not is_header_of(found, name, record.length):
            self.check_unchanged()
            raise ValueError(
                f"the index and the shard differ: the index places {name} of {record.length} bytes at "
                f"{record.offset}, and the tar header before it says otherwise"
            )
        data = found[BLOCK_BYTES:]
        if len(data) != record.length:
            raise ValueError(f"the shard ends after {len(data)} of its {record.length} bytes")
        return data

    def _fetch(self, files: RemoteFileSet, shard: int, position: int, record: Record) -> bytes:
        """The header before an image, and the image, of a sample whose CRC-32 is right."""
        index = self._indices[shard]
        start = record.offset - BLOCK_BYTES
        end = index.shard_bytes - len(END)
        if position + 1 < index.num_samples:
            end = index[position + 1].offset - BLOCK_BYTES
        if not BLOCK_BYTES + record.length <= end - start <= _MAX_GROUP_BYTES or end > index.shard_bytes:
            raise ValueError(f"the index is damaged: it gives a sample the bytes {start} to {end}")
        group = read_checked(files, shard, start, end - start, record.crc)
        return group[: BLOCK_BYTES + record.length]

    def row_index(self, sample_id: int) -> bytes | memoryview:
        """Where the rows of a JPEG begin (`augpipe.decoding.row_index`); empty for images that have none.

        It may be damaged, as it has sums of its own that say so: they are for whoever uses it to check.

        Raises:
            IndexError: no such sample.
            ValueError: the index is damaged there; the reason without the sample's name.
            RemoteError: no usable answer came.
        """
        shard, position = self._find(sample_id)
        if self._remote_rows is None:
            return self._indices[shard].row_index(position)
        start, stop = self._indices[shard].row_index_at(position)
        return self._remote_rows.read(shard, stop - start, start)

    @property
    def label_width(self) -> int:
        """How many numbers each label is; 0 where it is a class."""
        return self.manifest.label_width

    def label(self, sample_id: int) -> int | Labels:
        """The class, or -1 where there is none; (k,) numbers where labels are such.

        Raises:
            IndexError: no such sample.
            ValueError: the index is damaged there.
        """
        shard, position = self._find(sample_id)
        if self.label_width:
            return as_label_rows(self._rows[shard][position])
        record = self._indices[shard][position]
        self._check_label(record)
        return record.label

    def labels_of(self, sample_ids: npt.NDArray[np.int64]) -> Labels:
        """(B,) int64, or (B, k) numbers: what `label` says of each."""
        if not self.label_width:
            return np.array([self.label(sample_id) for sample_id in sample_ids.tolist()], np.int64)
        found = np.empty((len(sample_ids), self.label_width), self.manifest.label_dtype)
        for place, sample_id in enumerate(sample_ids.tolist()):
            shard, position = self._find(sample_id)
            found[place] = self._rows[shard][position]
        return found

    def labels(self) -> Labels:
        """All labels as the indices have them, unchecked; (N,) int64 or (N, k), a copy."""
        if self.label_width:
            return as_label_rows(np.concatenate(self._rows))
        labels = np.empty(len(self), np.int64)
        first = 0
        for index, end in zip(self._indices, self._ends, strict=True):  # joined at the end they would be there twice
            labels[first:end] = index.records["label"]
            first = end
        return labels

    def size(self, sample_id: int) -> tuple[int, int]:
        """(height, width) in pixels as the index has them, without reading the image.

        Raises:
            IndexError: no such sample.
        """
        shard, position = self._find(sample_id)
        record = self._indices[shard][position]
        return record.height, record.width

    def name(self, sample_id: int) -> str:
        """The path of the shard and the file's name in it; its place in the shard where the index is damaged.

        Raises:
            IndexError: no such sample.
        """
        shard, position = self._find(sample_id)
        try:
            member = self._indices[shard].name(position)
        except ValueError:
            member = f"sample {position}"
        return f"{printable(self._paths[shard])}/{member}"

    def check_unchanged(self) -> None:
        """Look whether shards and indices are those that were opened, by size and time of writing.

        At a URL, the sums of the manifest and of indices tell when a sample is read.

        Raises:
            SourceChangedError: one is not; names it.
        """
        if self._remote is None:
            self._files.check_unchanged()
            self._index_files.check_unchanged()

    def content_digest(self) -> str:
        """A digest of the sums of the scale's shards, as the manifest has them."""
        sums = "".join(shard.sha256 for shard in self.manifest.scale(self.scale).shards)
        return hashlib.blake2b(sums.encode(), digest_size=16).hexdigest()

    def _find(self, sample_id: int) -> tuple[int, int]:
        """The shard that a sample lies in, and its place there."""
        return find_sample(sample_id, self._ends)

    def _label_rows(self, path: str, index: ShardIndex) -> Labels:
        """The shard's labels of several numbers, (N, k); (0, 0) where labels are classes."""
        if not self.label_width:
            return np.empty((0, 0), np.int64)
        try:
            return index.label_rows(self.label_width, self.manifest.label_dtype)
        except ValueError as error:
            raise ValueError(f"{path}: {error}. augpipe verify lists all that is damaged.") from error

    def _check_label(self, record: Record) -> None:
        if not -1 <= record.label < len(self.classes):
            raise ValueError(
                f"the index is damaged: label {record.label} is none of the manifest's {len(self.classes)} classes"
            )

    def __reduce__(self) -> tuple[Any, ...]:
        if self._remote is not None:
            return partial(type(self), remote=self._settings), (self.folder, self.scale)
        shown = {"folder": self.folder, "_paths": self._paths}
        return type(self), (self._place, self.scale), shown

    def __repr__(self) -> str:
        return (
            f"ShardSource({shown(self.folder)!r}, {self.scale!r}: {count(len(self), 'photograph')} in "
            f"{count(len(self._paths), 'shard')}, {count(len(self.classes), 'class')})"
        )


def _index_files(paths: Sequence[str]) -> FileSet:
    """The indices next to shards that are there."""
    try:
        return FileSet([index_path(path) for path in paths])
    except FileNotFoundError as error:
        path = next(path for path in paths if absolute(index_path(path)) == error.filename)
        raise ValueError(
            f"{printable(path)} has no index: {printable(os.path.basename(index_path(path)))} is not next to it. Copy "
            "it there, or prepare the data set again; augpipe prepare "
            f"'{printable(os.path.dirname(path))}/*.tar' NEW --keep makes one of the tar files as they are, whose "
            "classes are numbers."
        ) from error


def _open_remote_indices(urls: Sequence[str], scale: Scale, settings: RemoteSettings) -> list[ShardIndex]:
    indices = [ShardIndex.open(path, is_head=True) for path in fetch_heads(store_for(settings), urls, scale.shards)]
    for url, index, shard in zip(urls, indices, scale.shards, strict=True):
        _check_agree(shown(url), index, shard)
    return indices


def _check_agree(path: str, index: ShardIndex, shard: ShardInfo) -> None:
    found = index.num_samples, index.shard_bytes, index.shard_sha256
    if found != (shard.num_samples, shard.num_bytes, shard.sha256):
        raise ValueError(
            f"{printable(path)} belongs to another shard than the manifest's {shard.name}: it has "
            f"{count(index.num_samples, 'sample')} in {index.shard_bytes} bytes, and the manifest {shard.num_samples} "
            f"in {shard.num_bytes}. augpipe verify lists all that is damaged."
        )


def _open_indices(paths: Sequence[str], shards: Sequence[ShardInfo]) -> list[ShardIndex]:
    """The indices of all shards; an error is the first shard's, however many there are."""
    if len(paths) <= _SHARDS_A_TASK:
        return [_open_index(path, shard) for path, shard in zip(paths, shards, strict=True)]

    def opened(first: int) -> list[ShardIndex]:
        some = slice(first, first + _SHARDS_A_TASK)
        return [_open_index(path, shard) for path, shard in zip(paths[some], shards[some], strict=True)]

    with ThreadPoolExecutor(_NUM_OPENERS) as pool:
        return [index for part in pool.map(opened, range(0, len(paths), _SHARDS_A_TASK)) for index in part]


def _open_index(path: str, shard: ShardInfo) -> ShardIndex:
    """The index of a shard, once it, the manifest and the tar file's length agree."""
    index = ShardIndex.open(index_path(path))
    _check_agree(index.path, index, shard)
    num_bytes = os.stat(path).st_size
    if num_bytes != shard.num_bytes:
        raise ValueError(
            f"{printable(path)} has {num_bytes} bytes, and the manifest says {shard.num_bytes}: it was cut short or "
            "changed. augpipe verify lists all that is damaged."
        )
    return index
