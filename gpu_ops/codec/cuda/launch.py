"""Launching the codecs' kernels: from slices in raw memory to work queued on a stream; `chunks` has the rules.

Nothing here waits for the device or allocates on it, except for the first call of each kernel, which compiles it. The
device must be the current one, and all memory must be left alone until the stream has passed the launch.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numba import cuda

from augpipe.gpu_ops.codec.cuda import codes as codec_codes
from augpipe.gpu_ops.codec.cuda import four_bit as codec_four_bit
from augpipe.gpu_ops.codec.cuda import one_bit as codec_one_bit
from augpipe.gpu_ops.codec.cuda import rows as codec_rows
from augpipe.gpu_ops.codec.cuda.chunks import CHUNK, LAUNCH_BOUNDS, ROW_BYTES, THREADS, WARPS
from augpipe.gpu_ops.cuda.memory import WARP
from augpipe.gpu_ops.image.cuda.launch import MAX_GRID_ROWS, _compiled, _launch, _lock

CODEC_KERNELS: dict[str, tuple[Callable[..., None], str]] = {
    "largest_magnitudes": (codec_codes.largest_magnitudes, f"void({', '.join(['int64'] * 4)})"),
    "encode_codes": (codec_codes.encode_codes, f"void({', '.join(['int64'] * 8)})"),
    "decode_codes": (codec_codes.decode_codes, f"void({', '.join(['int64'] * 6)})"),
    "encode_bfloat16": (codec_codes.encode_bfloat16, f"void({', '.join(['int64'] * 2)})"),
    "decode_bfloat16": (codec_codes.decode_bfloat16, f"void({', '.join(['int64'] * 6)})"),
    "encode_nibbles": (codec_four_bit.encode_nibbles, f"void({', '.join(['int64'] * 5)})"),
    "decode_nibbles": (codec_four_bit.decode_nibbles, f"void({', '.join(['int64'] * 6)})"),
    "encode_signs": (codec_one_bit.encode_signs, f"void({', '.join(['int64'] * 5)})"),
    "join_partials": (codec_one_bit.join_partials, f"void({', '.join(['int64'] * 4)})"),
    "decode_signs": (codec_one_bit.decode_signs, f"void({', '.join(['int64'] * 6)})"),
    "add_rows": (codec_rows.add_rows, f"void({', '.join(['int64'] * 7)})"),
}
"""Every kernel by name, with its signature."""

NUM_CUTS = 1024
"""Results of `cut_slices` that are kept; a training run has a few for each bucket."""


def compile_ptx_of(name: str, cc: tuple[int, int]) -> str:
    """A kernel's PTX for a compute capability, without a device."""
    body, signature = CODEC_KERNELS[name]
    ptx, _ = cuda.compile_ptx(body, signature, cc=cc, launch_bounds=LAUNCH_BOUNDS)
    return str(ptx)


@dataclass(frozen=True, kw_only=True)
class Slices:
    """What one launch works on."""

    rows: tuple[tuple[int, ...], ...]
    """The table that kernels read, see `chunks.ROW_BYTES`; a slice has a row for each of its messages."""
    num: int
    """Slices."""
    messages: int
    """Payloads of each slice."""
    block: int
    """Numbers that share a scale; at least 1."""
    chunks: int
    """The chunks of a block: each is a warp's."""
    most_blocks: int
    """The blocks of one slice."""
    num_blocks: int
    """The blocks of all slices."""

    @property
    def num_absmax(self) -> int:
        """How many int32 of scratch `encode_codes` and `encode_nibbles` take, zeros before."""
        return self.num_blocks if self.chunks > 1 else 0

    @property
    def partial_bytes(self) -> int:
        """Bytes of scratch that `encode_signs` takes."""
        return codec_one_bit.PARTIAL_BYTES * self.num_blocks * self.chunks if self.chunks > 1 else 0


@dataclass(frozen=True, kw_only=True)
class Launch:
    """Slices, and where they are worked on."""

    slices: Slices
    table: int
    """Device address of the slices' `rows`, int64."""
    stream: int
    """cudaStream_t as a number; 0 is the default stream."""


@lru_cache(NUM_CUTS)
def cut_slices(
    slices: tuple[tuple[int, tuple[int, ...], int], ...], block: int | None, scale_bytes: int, header_bytes: int = 0
) -> Slices:
    """Cut slices for a launch.

    Args:
        slices: of each the address of its values, those of its payloads (as many for each slice), and how many numbers.
        block: numbers that share a scale; None for all of a slice.
        scale_bytes: of a block, between a payload's header and its codes.
        header_bytes: of a payload.
    """
    longest = max(1, *(num for _, _, num in slices))
    block = longest if block is None else block
    rows: list[tuple[int, ...]] = []
    num_blocks = most_blocks = 0
    for values, payloads, num in slices:
        blocks = -(-num // block)
        for payload in payloads:
            scales = payload + header_bytes
            rows.append((values, scales, scales + blocks * scale_bytes, num, num_blocks))
        num_blocks += blocks
        most_blocks = max(most_blocks, blocks)
    return Slices(
        rows=tuple(rows),
        num=len(slices),
        messages=len(slices[0][1]),
        block=block,
        chunks=-(-min(block, longest) // CHUNK),
        most_blocks=most_blocks,
        num_blocks=num_blocks,
    )


def encode_codes(launch: Launch, count: int, scratch: int, entries: int, first_bucket: int, num_buckets: int) -> None:
    """Queue the encoding of all slices; the int32 at `count` grows by the numbers that are not finite.

    Args:
        scratch: address of `num_absmax` zeros.
        entries, first_bucket, num_buckets: see `gpu_ops.codec.loops.encode_codes`.
    """
    block, chunks = launch.slices.block, launch.slices.chunks
    if chunks > 1:
        _queue("largest_magnitudes", launch, chunks, scratch, block, chunks)
    _queue("encode_codes", launch, chunks, count, scratch, block, chunks, entries, first_bucket, num_buckets)


def encode_nibbles(launch: Launch, count: int, scratch: int) -> None:
    """Queue the encoding to four bits; `count` and `scratch` as for `encode_codes`."""
    block, chunks = launch.slices.block, launch.slices.chunks
    if chunks > 1:
        _queue("largest_magnitudes", launch, chunks, scratch, block, chunks)
    _queue("encode_nibbles", launch, chunks, count, scratch, block, chunks)


def encode_bfloat16(launch: Launch, count: int) -> None:
    """Queue the encoding of all slices, in blocks of `CHUNK`; `count` as for `encode_codes`."""
    _queue("encode_bfloat16", launch, 1, count)


def encode_signs(launch: Launch, count: int, scratch: int) -> None:
    """Queue the encoding to one bit; `count` as for `encode_codes`, scratch of `partial_bytes`."""
    block, chunks = launch.slices.block, launch.slices.chunks
    _queue("encode_signs", launch, chunks, count, scratch, block, chunks)
    if chunks > 1:
        _queue("join_partials", launch, 1, scratch, block, chunks)


def decode(kernel: str, launch: Launch, add: bool, levels: int = 0) -> None:
    """Queue the decoding of all slices' messages by one of the kernels for it.

    Args:
        levels: address of the codebook, if the kernel reads one.
    """
    slices = launch.slices
    _queue(kernel, launch, slices.chunks, slices.messages, slices.block, slices.chunks, levels, int(add))


def add_rows(
    values: int, rows: int, *, row_bytes: int, num_rows: int, num: int, share: float, factor: float, stream: int
) -> None:
    """Queue factor * (share * values + share * row 0 + ...) over the `num` float32 at `values`.

    Args:
        rows: device address of the first of `num_rows` rows of `num` float32, `row_bytes` apart.
    """
    grid = -(-num // (WARP * WARPS)), 1
    units = [int(np.float32(one).view(np.int32)) for one in (share, factor)]
    with _lock:
        kernel = _kernel("add_rows")
    _launch(kernel, grid, THREADS, stream, values, rows, row_bytes, num_rows, num, *units)


def _queue(name: str, launch: Launch, warps: int, *arguments: int) -> None:
    """One launch over all slices, or over as many as a grid takes, with so many warps for each block."""
    with _lock:
        kernel = _kernel(name)
    slices = launch.slices
    blocks = max(-(-slices.most_blocks * warps // WARPS), 1)
    for first in range(0, slices.num, MAX_GRID_ROWS):
        grid = blocks, min(slices.num - first, MAX_GRID_ROWS)
        table = launch.table + first * slices.messages * ROW_BYTES
        _launch(kernel, grid, THREADS, launch.stream, table, *arguments)


@cache
def _kernel(name: str) -> Any:
    body, signature = CODEC_KERNELS[name]
    return _compiled(body, signature, LAUNCH_BOUNDS)
