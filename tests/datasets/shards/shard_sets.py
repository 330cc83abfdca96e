"""Small data sets in shards for tests, and ways to damage them."""

import hashlib
import struct
import zlib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from augpipe.datasets.shards.index import HEADER, HEADER_BYTES, RECORD, Record, ShardIndex, pack_index
from augpipe.datasets.shards.manifest import Manifest, Scale, ShardInfo
from augpipe.datasets.shards.ustar import sample_key
from augpipe.datasets.shards.writer import ShardWriter
from augpipe.decoding.row_index import row_index_of
from tests.augpipe.decoding.image_files import encoded, scene

CLASSES = ("cat", "dog")
NUM_SHARDS, PER_SHARD = 3, 4
NUM = NUM_SHARDS * PER_SHARD


def original(sample_id: int) -> str:
    """The name of a sample in the source."""
    return f"pets/{CLASSES[sample_id % 2]}/photo {sample_id}.v2.JPG"


def key(sample_id: int) -> str:
    return sample_key(sample_id, original(sample_id))


def label(sample_id: int) -> int:
    """0, 1, -1, 0, ..."""
    return (sample_id + 1) % 3 - 1 if sample_id % 3 != 2 else -1


@cache
def jpeg(sample_id: int, side: int = 32) -> bytes:
    return encoded(scene(side, side + sample_id, sample_id), "JPEG", quality=80)


def note(sample_id: int, side: int = 32) -> dict[str, Any]:
    return {"name": original(sample_id), "height": side, "width": side + sample_id}


def row_index(sample_id: int, side: int = 32) -> bytes:
    return row_index_of(jpeg(sample_id, side), side, side + sample_id)


def some_bytes(sample_id: int, side: int = 32) -> bytes:
    """In the place of a row index, where nothing looks into it; every third sample has none."""
    return bytes([sample_id]) * (sample_id % 3 * 20)


def write_shard(
    path: Path, sample_ids: Sequence[int], side: int = 32, row_index: Callable[[int, int], bytes] = row_index
) -> ShardInfo:
    with ShardWriter(path) as writer:
        for i in sample_ids:
            writer.add(key(i), jpeg(i, side), label(i), note(i, side), row_index(i, side))
        return writer.close()


def manifest_of(scales: dict[str, Sequence[ShardInfo]], **changes: Any) -> Manifest:
    """The manifest of shards that hold the samples 0, 1, ...."""
    num = sum(shard.num_samples for shard in next(iter(scales.values())))
    fields: dict[str, Any] = {
        "num_samples": num,
        "scales": tuple(Scale(name=name, shards=tuple(shards)) for name, shards in scales.items()),
        "classes": CLASSES,
        "class_counts": tuple(sum(label(i) == number for i in range(num)) for number in range(len(CLASSES))),
    }
    return Manifest(**{**fields, **changes})


def build(folder: Path, sides: Sequence[int] = (32,)) -> Path:
    """A data set of NUM samples; returns `folder`."""
    scales = {}
    for side in sides:
        (folder / str(side)).mkdir(parents=True)
        scales[str(side)] = [
            write_shard(folder / f"{side}/{s:06}.tar", range(s * PER_SHARD, (s + 1) * PER_SHARD), side)
            for s in range(NUM_SHARDS)
        ]
    manifest_of(scales).save(folder)
    return folder


def flip(path: Path, at: int, mask: int = 0xFF) -> None:
    """Change one byte of a file."""
    data = bytearray(path.read_bytes())
    data[at] ^= mask
    path.write_bytes(data)


def forge_index(path: Path, position: int, **changes: int) -> None:
    """Let a record lie, with every sum of the index right again."""
    index = ShardIndex.open(path)
    records = [index[i] for i in range(len(index))]
    keys = [index.key(i) for i in range(len(index))]
    records[position] = records[position]._replace(**changes)
    _replace(path, records, keys, index)


def forge_keys(path: Path, keys: Sequence[str]) -> None:
    """Give the samples other keys, with every sum of the index right again."""
    index = ShardIndex.open(path)
    records, end = [], 0
    for i, name in enumerate(keys):
        end += len(name.encode())
        records.append(index[i]._replace(key_end=end))
    _replace(path, records, keys, index)


def _replace(path: Path, records: Sequence[Record], keys: Sequence[str], index: ShardIndex) -> None:
    rows = b"".join(bytes(index.row_index(i)) for i in range(len(index)))
    packed = pack_index(
        [RECORD.pack(*record) for record in records], keys, rows, index.shard_bytes, bytes.fromhex(index.shard_sha256)
    )
    path.unlink()  # a new file: the old one may be mapped
    path.write_bytes(packed.head + packed.rows)


def forge_header(path: Path, **changes: int) -> None:
    """Let the header of an index lie, with its sum right again."""
    names = ("magic", "version", "record_bytes", "num_samples", "key_bytes", "row_bytes", "shard_bytes")
    names += ("sha256", "crc", "row_crc")
    data = path.read_bytes()
    fields = dict(zip(names, HEADER.unpack_from(data), strict=True)) | changes
    head = HEADER.pack(*(fields[name] for name in names))
    path.unlink()
    path.write_bytes(head + struct.pack("<I", zlib.crc32(head)) + data[HEADER_BYTES:])


def sums_of(index: bytes) -> dict[str, Any]:
    """What `ShardInfo` says of an index file."""
    num_samples, key_bytes = HEADER.unpack_from(index)[3:5]
    head = index[: HEADER_BYTES + num_samples * RECORD.size + key_bytes]
    return {
        "index_bytes": len(index),
        "index_sha256": hashlib.sha256(index).hexdigest(),
        "head_bytes": len(head),
        "head_sha256": hashlib.sha256(head).hexdigest(),
    }


def forge_shard(folder: Path, tar: bytes, positions: Sequence[tuple[int, int]] = (), keys: Sequence[str] = ()) -> None:
    """A data set of one shard whose bytes, index and sums are given by an enemy.

    Args:
        folder: a new folder.
        tar: the tar file.
        positions: offset and length of each sample.
        keys: one a sample.
    """
    (folder / "32").mkdir(parents=True)
    (folder / "32/000000.tar").write_bytes(tar)
    ends = [sum(len(name) for name in keys[: i + 1]) for i in range(len(keys))]
    records = [RECORD.pack(offset, length, 0, 32, 32, ends[i], 0, 0, 0) for i, (offset, length) in enumerate(positions)]
    index = pack_index(records, keys, b"", len(tar), hashlib.sha256(tar).digest()).head
    (folder / "32/000000.idx").write_bytes(index)
    shard = ShardInfo(
        name="000000.tar",
        num_samples=len(records),
        num_bytes=len(tar),
        sha256=hashlib.sha256(tar).hexdigest(),
        **sums_of(index),
    )
    manifest_of({"32": [shard]}, class_counts=(len(records), 0)).save(folder)
