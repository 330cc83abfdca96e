"""What is wrong with one shard and its index: sums, lengths, and every sample in one pass over the tar file."""

import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import BinaryIO

import numpy as np

from augpipe.datasets.files.descriptors import open_regular
from augpipe.datasets.shards.check_sample import (
    FILES_OF_A_SAMPLE,
    Contents,
    check_crc,
    check_image,
    compare,
    follow_each_other,
    read_sample,
)
from augpipe.datasets.shards.index import ShardIndex, index_path
from augpipe.datasets.shards.manifest import Manifest, ShardInfo
from augpipe.datasets.shards.shard_targets import DAMAGED, HEAD, ShardTargets, table_bytes_of, targets_path, unpack_map
from augpipe.datasets.shards.ustar import BLOCK_BYTES, END, padded, parse_header
from augpipe.datasets.shards.writer import MAX_IMAGE_BYTES, MAX_NOTE_BYTES
from augpipe.sources.protocol import Labels
from augpipe.validation.plural import count

_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One thing that is damaged."""

    path: str
    """The file in the data set's folder, e.g. `256/000003.tar`."""
    reason: str
    key: str | None = None
    """The sample's, where one sample is damaged; None where it is the file as a whole, or the key cannot be read."""
    sample_id: int | None = None
    """The sample's id in its scale, where one sample is damaged."""

    def __str__(self) -> str:
        place = self.path if self.key is None else f"{self.path}/{self.key}"
        sample = "" if self.sample_id is None else f", sample {self.sample_id}"
        return f"{place}{sample}: {self.reason}"


@dataclass(kw_only=True)
class ShardReport:
    """What the check of one shard found."""

    faults: list[Fault]
    label_counts: dict[int, int]
    """Label -> samples, of those that could be read."""


class ShardCheck:
    """The check of one shard.

    Args:
        folder: the data set's.
        scale: the scale's folder.
        shard: what the manifest says of it.
        first_id: the sample id of its first sample.
        manifest: of the data set, which says what labels are.
        deep: decode every image.
        progress: told of the bytes read since it was told last; what it raises ends the check.
    """

    def __init__(
        self,
        folder: str,
        scale: str,
        shard: ShardInfo,
        *,
        first_id: int,
        manifest: Manifest,
        deep: bool,
        progress: Callable[[int], None],
    ) -> None:
        self._tar = os.path.join(folder, scale, shard.name)
        self._tar_name = f"{scale}/{shard.name}"
        self._index_name = index_path(self._tar_name)
        self._shard = shard
        self._first_id = first_id
        self._num_classes = len(manifest.classes)
        self._label_width, self._label_dtype = manifest.label_width, manifest.label_dtype
        self._label_rows: Labels | None = None
        self._deep = deep
        self._progress = progress
        self._faults: list[Fault] = []
        self._label_counts: dict[int, int] = {}
        self._sum = hashlib.sha256()
        self._is_lost = False
        """Whether a header could not be read, so that nothing behind it could."""

    def run(self) -> ShardReport:
        """Check index and tar file; whatever is wrong with them is in the report, in the order of the samples."""
        index, is_trusted = self._check_index()
        if self._shard.targets_bytes is not None:
            self._check_targets()
        try:
            with open(open_regular(self._tar), "rb", buffering=_CHUNK_BYTES) as file:
                self._check_tar(file, index, is_trusted)
        except FileNotFoundError:
            self._add(self._tar_name, f"is missing, with its {count(self._shard.num_samples, 'sample')}")
        except OSError as error:
            self._add(self._tar_name, f"cannot be read: {error.strerror or error}")
        except ValueError as error:
            self._add(self._tar_name, str(error))
        return ShardReport(faults=self._faults, label_counts=self._label_counts)

    def _add(self, path: str, reason: str) -> None:
        self._faults.append(Fault(path=path, reason=reason))

    def _check_index(self) -> tuple[ShardIndex | None, bool]:
        """The index, where it can be opened, and whether it is the one that the manifest knows."""
        path, name, shard = index_path(self._tar), self._index_name, self._shard
        try:
            with open(open_regular(path), "rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
                file.seek(0)
                head = file.read(shard.head_bytes)
            if found != shard.index_sha256:
                self._add(name, _sums_differ(found, shard.index_sha256))
            index = ShardIndex.open(path)
        except FileNotFoundError:
            self._add(name, "is missing")
            return None, False
        except OSError as error:
            self._add(name, f"cannot be read: {error.strerror or error}")
            return None, False
        except ValueError as error:
            self._add(name, str(error))
            return None, False
        is_trusted = found == shard.index_sha256
        if not index.is_whole():
            self._add(name, "its records or keys are damaged: their CRC-32 differs")
            is_trusted = False
        if not index.has_sound_row_indexes():
            self._add(name, "its row indexes are damaged: their CRC-32 differs")
        if index.num_samples != shard.num_samples:
            self._add(name, f"holds {count(index.num_samples, 'sample')}, and the manifest says {shard.num_samples}")
        known = shard.index_bytes, shard.head_bytes, shard.head_sha256
        if found == shard.index_sha256 and known != (index.num_bytes, len(head), hashlib.sha256(head).hexdigest()):
            self._add(name, "has another head than the manifest says, which readers at a distance ask for")
        if (index.shard_bytes, index.shard_sha256) != (shard.num_bytes, shard.sha256):
            self._add(name, "belongs to another tar file than the manifest's")
            is_trusted = False
        if self._label_width:
            try:
                self._label_rows = index.label_rows(self._label_width, self._label_dtype)
            except ValueError as error:
                self._add(name, str(error))
                is_trusted = False
        if not follow_each_other(index.records, index.shard_bytes, len(END)):
            self._add(name, "its samples do not follow each other from the tar file's begin to its end")
            is_trusted = False
        return index, is_trusted

    def _check_targets(self) -> None:
        """The targets' file: its sum, and that all in it can be read."""
        name = targets_path(self._tar_name)
        try:
            with open(open_regular(targets_path(self._tar)), "rb") as file:
                content = file.read()
            found = hashlib.sha256(content).hexdigest()
            if found != self._shard.targets_sha256:
                self._add(name, _sums_differ(found, str(self._shard.targets_sha256)))
            start = HEAD.size + table_bytes_of(name, content[: HEAD.size])
            table = ShardTargets(name, content[HEAD.size : start], self._shard.num_samples)
            for begin, end in pairwise([0, *table.map_ends.tolist()]):
                unpack_map(content[start + begin : start + end])
        except FileNotFoundError:
            self._add(name, "is missing")
        except OSError as error:
            self._add(name, f"cannot be read: {error.strerror or error}")
        except ValueError as error:
            self._add(name, str(error).removeprefix(f"{name} ").removesuffix(f" {DAMAGED}"))

    def _check_tar(self, file: BinaryIO, index: ShardIndex | None, is_trusted: bool) -> None:
        num_bytes = os.fstat(file.fileno()).st_size
        if num_bytes != self._shard.num_bytes:
            self._add(self._tar_name, f"has {num_bytes} bytes, and the manifest says {self._shard.num_bytes}")
        seen: set[str] = set()
        position = 0
        groups = self._by_index(file, index) if index is not None and is_trusted else self._by_headers(file, num_bytes)
        for position, group in enumerate(groups, start=1):
            self._check_group(position - 1, group, index, is_trusted, seen)
        if not is_trusted and position != self._shard.num_samples:
            self._add(
                self._tar_name,
                f"{count(position, 'sample')} can be read, and the manifest says {self._shard.num_samples}",
            )
        if self._read(file, len(END)) != END and not self._is_lost:
            self._add(self._tar_name, "does not end with two blocks of zeros as a tar file does")
        while self._read(file, _CHUNK_BYTES):
            pass
        found = self._sum.hexdigest()
        if found != self._shard.sha256:
            self._add(self._tar_name, _sums_differ(found, self._shard.sha256))

    def _by_index(self, file: BinaryIO, index: ShardIndex) -> Iterator[bytes]:
        """The samples where the index has them: one that is damaged does not hide those after it."""
        starts = index.records["offset"].astype(np.int64) - BLOCK_BYTES
        for length in np.diff(np.append(starts, index.shard_bytes - len(END))).tolist():
            yield self._read(file, length)

    def _by_headers(self, file: BinaryIO, num_bytes: int) -> Iterator[bytes]:
        """The samples as the tar headers have them, up to the first header that is damaged."""
        at = 0
        while True:
            parts: list[bytes] = []
            for _ in FILES_OF_A_SAMPLE:
                block = _peek(file, BLOCK_BYTES)
                if not parts and (block == bytes(BLOCK_BYTES) or not block):
                    return
                try:
                    member = parse_header(block)
                    most = MAX_NOTE_BYTES if parts else MAX_IMAGE_BYTES
                    if member.num_bytes > min(most, num_bytes):
                        raise ValueError(f"{member.name!r} claims {member.num_bytes} bytes")
                except ValueError as error:
                    self._add(self._tar_name, f"cannot be read from byte {at} on: {error}")
                    self._is_lost = True
                    return
                parts.append(self._read(file, BLOCK_BYTES + padded(member.num_bytes)))
                at += len(parts[-1])
            yield b"".join(parts)

    def _read(self, file: BinaryIO, num_bytes: int) -> bytes:
        data = file.read(num_bytes)
        self._sum.update(data)
        self._progress(len(data))
        return data

    def _check_group(
        self, position: int, group: bytes, index: ShardIndex | None, is_trusted: bool, seen: set[str]
    ) -> None:
        key: str | None = None
        sample: Contents | None = None
        row_index = memoryview(b"")
        try:
            if index is not None and position < index.num_samples:
                record = index[position]
                if is_trusted:
                    key = index.key(position)
                    check_crc(group, record)
                sample = read_sample(group)
                rows = self._label_rows
                compare(sample, record, index.key(position), None if rows is None else rows[position].tolist())
                row_index = index.row_index(position)
            else:
                sample = read_sample(group)
            key = sample.key
            if key in seen:
                raise ValueError("another sample of the shard has the same key")
            if not -1 <= sample.label < self._num_classes:
                raise ValueError(f"its label {sample.label} is none of the {count(self._num_classes, 'class')}")
            if self._deep:
                check_image(sample, row_index)
        except ValueError as error:
            key = sample.key if sample is not None else key
            id_ = self._first_id + position
            self._faults.append(Fault(path=self._tar_name, key=key, sample_id=id_, reason=str(error)))
        if sample is not None:
            seen.add(sample.key)
            self._label_counts[sample.label] = self._label_counts.get(sample.label, 0) + 1


def _peek(file: BinaryIO, num_bytes: int) -> bytes:
    at = file.tell()
    data = file.read(num_bytes)
    file.seek(at)
    return data


def _sums_differ(found: str, expected: str) -> str:
    return f"its SHA-256 is {found}, and the manifest says {expected}"
