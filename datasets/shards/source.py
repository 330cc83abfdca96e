"""Our shards as a source: photographs by sample id, from as many shards as there are."""

import os
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.datasets.names import printable
from augpipe.datasets.sample_ids import check_sample_id
from augpipe.datasets.shards.descriptors import FileSet, most_descriptors
from augpipe.datasets.shards.index import Record, ShardIndex, index_path
from augpipe.datasets.shards.manifest import Manifest, ShardInfo
from augpipe.datasets.shards.ustar import BLOCK_BYTES, is_header_of
from augpipe.datasets.shards.writer import MAX_JPEG_BYTES


class ShardSource:
    """One scale of a data set that `augpipe prepare` wrote; sample ids count through its shards in order.

    Opening it takes time and memory for the shards, not for the samples: indices are memory-mapped, and few tar files
    are open at once. Any number of threads may read; a copy made by pickle opens the shards anew.

    Each read checks the index against the tar header before the photograph, which names it and its length, so that an
    index that lies gives an error and never another sample's bytes.

    Args:
        folder: the data set's, which holds manifest.json.
        scale: the scale's folder, e.g. 256 or "full"; the largest if left out.

    Raises:
        ValueError: the manifest or an index cannot be used, a shard has not the manifest's length, or no such scale.
        OSError: one of them cannot be read.
    """

    def __init__(self, folder: str | os.PathLike[str], scale: str | int | None = None) -> None:
        self.folder = os.fspath(folder)
        self.manifest = Manifest.load(self.folder)
        chosen = self.manifest.scale(scale)
        self.scale = chosen.name
        """The scale's folder."""
        self.classes: Sequence[str] = self.manifest.classes
        self._paths = [os.path.join(self.folder, chosen.name, shard.name) for shard in chosen.shards]
        self._indices = [_open_index(path, shard) for path, shard in zip(self._paths, chosen.shards, strict=True)]
        self._ends = list(accumulate(index.num_samples for index in self._indices))
        self._files = FileSet(self._paths, most_descriptors())

    def __len__(self) -> int:
        return self._ends[-1]

    def read(self, sample_id: int) -> bytes:
        """The JPEG's bytes, copied out of the shard.

        Raises:
            IndexError: no such sample.
            ValueError: the shard or its index is damaged there; the reason without the sample's name.
            OSError: the shard cannot be read.
        """
        shard, position = self._find(sample_id)
        index = self._indices[shard]
        record, key = index[position], index.key(position)
        end = record.offset + record.length
        if record.offset < BLOCK_BYTES or record.length > MAX_JPEG_BYTES or end > index.shard_bytes:
            raise ValueError(
                f"the index is damaged: it places {record.length} bytes at {record.offset} of {index.shard_bytes}"
            )
        self._check_label(record)
        block = self._files.read(shard, BLOCK_BYTES, record.offset - BLOCK_BYTES)
        if not is_header_of(block, f"{key}.jpg", record.length):
            raise ValueError(
                f"the index and the shard differ: the index places {key}.jpg of {record.length} bytes at "
                f"{record.offset}, and the tar header before it says otherwise"
            )
        data = self._files.read(shard, record.length, record.offset)
        if len(data) != record.length:
            raise ValueError(f"the shard ends after {len(data)} of its {record.length} bytes")
        return data

    def label(self, sample_id: int) -> int:
        """The class, or -1 where there is none.

        Raises:
            IndexError: no such sample.
            ValueError: the index is damaged there.
        """
        shard, position = self._find(sample_id)
        record = self._indices[shard][position]
        self._check_label(record)
        return record.label

    def labels(self) -> npt.NDArray[np.int64]:
        """All labels as the indices have them, unchecked; int64 of shape (N,), a copy."""
        return np.concatenate([index.records["label"].astype(np.int64) for index in self._indices])

    def size(self, sample_id: int) -> tuple[int, int]:
        """(height, width) in pixels as the index has them, without reading the photograph.

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
            member = f"{self._indices[shard].key(position)}.jpg"
        except ValueError:
            member = f"sample {position}"
        return f"{printable(self._paths[shard])}/{member}"

    def _find(self, sample_id: int) -> tuple[int, int]:
        """The shard that a sample lies in, and its place there."""
        check_sample_id(sample_id, len(self))
        shard = bisect_right(self._ends, sample_id)
        return shard, sample_id - (self._ends[shard - 1] if shard else 0)

    def _check_label(self, record: Record) -> None:
        if not -1 <= record.label < len(self.classes):
            raise ValueError(
                f"the index is damaged: label {record.label} is none of the manifest's {len(self.classes)} classes"
            )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.folder, self.scale)

    def __repr__(self) -> str:
        return (
            f"ShardSource({printable(self.folder)!r}, {self.scale!r}: {len(self)} photographs in "
            f"{len(self._paths)} shards, {len(self.classes)} classes)"
        )


def _open_index(path: str, shard: ShardInfo) -> ShardIndex:
    """The index of a shard, once it, the manifest and the tar file's length agree."""
    index = ShardIndex.open(index_path(path))
    found = index.num_samples, index.shard_bytes, index.shard_sha256
    if found != (shard.num_samples, shard.num_bytes, shard.sha256):
        raise ValueError(
            f"{printable(index.path)} belongs to another shard than the manifest's {shard.name}: it has "
            f"{index.num_samples} samples in {index.shard_bytes} bytes, and the manifest {shard.num_samples} in "
            f"{shard.num_bytes}. augpipe verify lists all that is damaged."
        )
    num_bytes = os.stat(path).st_size
    if num_bytes != shard.num_bytes:
        raise ValueError(
            f"{printable(path)} has {num_bytes} bytes, and the manifest says {shard.num_bytes}: it was cut short or "
            "changed. augpipe verify lists all that is damaged."
        )
    return index
