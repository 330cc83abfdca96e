"""Files of safetensors, written from tensors in memory, and read by the pieces that are asked for.

Eight bytes with the header's length, the header in JSON, the tensors' bytes: any reader of the format takes them. Where
an entry is a part of a larger tensor, the header's `__metadata__` tells that tensor's shape and where the part begins.
"""

import hashlib
import json
import math
import os
import struct
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import BufferedReader
from itertools import cycle
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from augpipe.datasets.files.descriptors import open_regular
from augpipe.trainer.exchange.objects import parse_json
from augpipe.trainer.tensors.box import Box

CHUNK_BYTES = 2**24
"""Tensors are summed up, and parts of their rows read, by so many bytes, about."""
MAX_JSON_BYTES = 2**25
"""The longest header, and the longest other JSON of a checkpoint, that is written or read."""
_MAX_ELEMENTS = 2**56
_METADATA = "__metadata__"
DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U64": torch.uint64,
    "U32": torch.uint32,
    "U16": torch.uint16,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
"""The format's names; other dtypes are refused."""


class DamagedError(ValueError):
    """A checkpoint is not what was written; the message names the file and what is wrong with it."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A tensor, or a part of one, in a file."""

    dtype: torch.dtype
    box: Box
    start: int
    """Its first byte's place in the file."""
    num_bytes: int


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], boxes: Mapping[str, Box], *, may_hold_nan: bool = False
) -> dict[str, Any]:
    """Write contiguous tensors of the CPU and put them on the disk; returns the file's length and SHA-256 sum.

    Args:
        path: of the file.
        tensors: by name.
        boxes: where those that are parts lie in the whole tensor.
        may_hold_nan: write NaN, too.

    Raises:
        OSError: there is no room, or no right to.
        ValueError: a tensor holds NaN, or there are so many that the header is too long.
    """
    code_of = {dtype: code for code, dtype in DTYPES.items()}
    # as the format's own writer does: the widest numbers first, so that all are aligned
    names = sorted(tensors, key=lambda name: (-tensors[name].itemsize, name))
    parts = {name: json.dumps({"shape": box.shape, "offsets": box.offsets}) for name, box in boxes.items()}
    header: dict[str, Any] = {_METADATA: parts} if parts else {}
    place = 0
    for name in names:
        stop = place + tensors[name].nbytes
        dtype, shape = code_of[tensors[name].dtype], list(tensors[name].shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [place, stop]}
        place = stop
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > MAX_JSON_BYTES:
        raise ValueError(f"{path.name} would have a header of {len(text):,} bytes, and {MAX_JSON_BYTES:,} are the most")
    found = hashlib.sha256()
    with path.open("wb") as file:
        for data in (struct.pack("<Q", len(text)), text):
            found.update(data)
            file.write(data)
        for name in names:
            for chunk in torch.split(tensors[name].reshape(-1), CHUNK_BYTES // tensors[name].itemsize):
                if not may_hold_nan and _has_nan(chunk):
                    raise ValueError(f"{name} holds NaN")
                found.update(_bytes(chunk))
                file.write(_bytes(chunk))
        file.flush()
        os.fsync(file.fileno())
    return {"num_bytes": 8 + len(text) + place, "sha256": found.hexdigest()}


class TensorFile:
    """A file of safetensors, of which nothing is believed: its header is read and checked, its tensors when asked for.

    Raises:
        DamagedError: it cannot be read, or its header does not describe its bytes.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries: dict[str, Entry] = {}
        """By name, in the order of the file."""
        with open_file(self.path) as file:
            num_bytes = os.fstat(file.fileno()).st_size
            (length,) = struct.unpack("<Q", file.read(8).ljust(8, b"\xff"))
            if length > min(MAX_JSON_BYTES, num_bytes - 8):
                raise self._damaged(f"its header would have {length:,} bytes, and it has {num_bytes:,}")
            self._start = 8 + length
            try:
                header = parse_json(file.read(length))
                parts = header.pop(_METADATA, {})
                found = [_entry(name, about, parts, self._start) for name, about in header.items()]
            except KeyError as error:
                raise self._damaged(f"its header lacks {error}, or names a dtype that is not known") from error
            except (TypeError, AttributeError) as error:
                raise self._damaged("its header is not one of safetensors: it is not a table of tensors") from error
            except ValueError as error:
                raise self._damaged(f"its header is not one of safetensors: {error}") from error
        place = self._start
        for name, entry in sorted(found, key=lambda item: (item[1].start, item[1].num_bytes)):
            if entry.start != place:
                raise self._damaged(f"{name} begins at byte {entry.start:,}, and what is before it ends at {place:,}")
            place += entry.num_bytes
            self.entries[name] = entry
        if place != num_bytes:
            raise self._damaged(f"its tensors end at byte {place:,}, and it has {num_bytes:,}: cut short?")

    def read(self, name: str, wanted: Box, target: Tensor) -> None:
        """Read what an entry holds of `wanted`, which the contiguous `target` has in memory, into it."""
        entry = self.entries[name]
        box = entry.box.common_with(wanted)
        if box is None:
            return
        row_bytes = math.prod(entry.box.sizes[1:]) * entry.dtype.itemsize
        first, num = (box.offsets[0], box.sizes[0]) if box.shape else (0, 1)
        place = entry.start - (entry.box.offsets[0] * row_bytes if box.shape else 0)
        with open_file(self.path) as file:
            if box.sizes[1:] == entry.box.sizes[1:] == wanted.sizes[1:]:  # whole rows of both
                self._fill(file, name, place + first * row_bytes, box.within(target, wanted))
                return
            step = max(CHUNK_BYTES // row_bytes, 1)
            for row in range(first, first + num, step):
                offsets, sizes = (row, *entry.box.offsets[1:]), (min(step, first + num - row), *entry.box.sizes[1:])
                rows = Box(shape=box.shape, offsets=offsets, sizes=sizes)
                chunk = torch.empty(sizes, dtype=entry.dtype)
                self._fill(file, name, place + row * row_bytes, chunk)
                common = rows.common_with(wanted)
                assert common is not None
                common.within(target, wanted).copy_(common.within(chunk, rows))

    def sha256(self, *, may_hold_nan: bool = False) -> str:
        """The sum of the whole file, which is read once.

        Raises:
            DamagedError: it ends too early, or a tensor in it holds NaN.
        """
        found = hashlib.sha256()
        buffers = cycle(torch.empty(2, CHUNK_BYTES, dtype=torch.uint8))
        with open_file(self.path) as file, ThreadPoolExecutor(1) as hashing:  # a chunk, while the next one is read
            under_way = hashing.submit(found.update, file.read(self._start))
            for name, entry in self.entries.items():
                for place in range(0, entry.num_bytes, CHUNK_BYTES):
                    chunk = next(buffers)[: entry.num_bytes - place].view(entry.dtype)
                    self._fill(file, name, entry.start + place, chunk)
                    under_way.result()
                    under_way = hashing.submit(found.update, _bytes(chunk))
                    if not may_hold_nan and _has_nan(chunk):
                        raise self._damaged(f"{name} holds NaN")
        return found.hexdigest()

    def _fill(self, file: BufferedReader, name: str, place: int, target: Tensor) -> None:
        try:
            file.seek(place)
            num_bytes = file.readinto(_bytes(target))
        except OSError as error:
            raise self._damaged(f"{name} cannot be read ({error.strerror or error})") from error
        if num_bytes != target.nbytes:
            raise self._damaged(f"it ends within {name}: cut short?")

    def _damaged(self, problem: str) -> DamagedError:
        return DamagedError(f"{self.path}: {problem}")


def open_file(path: Path) -> BufferedReader:
    """Open a file of a checkpoint for reading.

    Raises:
        DamagedError: there is none, or it is not a regular file.
    """
    try:
        return open(open_regular(str(path)), "rb")
    except (OSError, ValueError) as error:
        raise DamagedError(f"{path} cannot be read ({getattr(error, 'strerror', None) or error})") from error


def _entry(name: str, about: Mapping[str, Any], parts: Mapping[str, str], start: int) -> tuple[str, Entry]:
    dtype, sizes = DTYPES[about["dtype"]], _numbers(about["shape"])
    begin, stop = _numbers(about["data_offsets"])
    if math.prod(sizes) * dtype.itemsize != stop - begin:
        raise ValueError(f"{name} has the shape {sizes} and {stop - begin:,} bytes")
    box = Box.all_of(sizes)
    if name in parts:
        told = parse_json(parts[name])
        box = Box(shape=_numbers(told["shape"]), offsets=_numbers(told["offsets"]), sizes=sizes)
        starts = zip(box.offsets, sizes, box.shape, strict=True)
        if any(first + num > size for first, num, size in starts):
            raise ValueError(f"{name} reaches out of the tensor of {box.shape} that it is a part of")
    if math.prod(max(size, 1) for size in box.shape) > _MAX_ELEMENTS:
        raise ValueError(f"{name} is of a tensor of {box.shape}, which is too large")
    return name, Entry(dtype=dtype, box=box, start=start + begin, num_bytes=stop - begin)


def _numbers(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > 64 or not all(type(one) is int and one >= 0 for one in value):
        raise ValueError(f"{str(value)[:80]} are not sizes")
    return tuple(value)


def _bytes(tensor: Tensor) -> memoryview:
    return tensor.reshape(-1).view(torch.uint8).numpy().data


def _has_nan(values: Tensor) -> bool:
    if not values.is_floating_point() or not values.numel():
        return False
    values = values if values.itemsize > 1 else values.float()
    # of so few numbers the least is found in this thread: torch's others belong to the training
    return any(math.isnan(some.amin()) for some in torch.split(values, 2**14))  # NaN, if there is one
