"""Launching the codecs' kernels: from raw addresses to work queued on a stream; see `codec_codes` for the loops.

Nothing here waits for the device or allocates on it, but for the first call of each kernel, which compiles it. The
device must be the current one, and all memory must be left alone until the stream has passed the launch.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from numba import cuda

from augpipe.gpu_ops.cuda import codec_codes, codec_one_bit
from augpipe.gpu_ops.cuda.codec_codes import CHUNK, LAUNCH_BOUNDS, THREADS
from augpipe.gpu_ops.cuda.launch import _compiled, _launch, _lock

CODEC_KERNELS: dict[str, tuple[Callable[..., None], str]] = {
    "largest_magnitudes": (codec_codes.largest_magnitudes, f"void({', '.join(['int64'] * 5)})"),
    "encode_codes": (codec_codes.encode_codes, f"void({', '.join(['int64'] * 9)})"),
    "decode_codes": (codec_codes.decode_codes, f"void({', '.join(['int64'] * 7)})"),
    "encode_whole": (codec_codes.encode_whole, f"void({', '.join(['int64'] * 5)})"),
    "decode_whole": (codec_codes.decode_whole, f"void({', '.join(['int64'] * 5)})"),
    "partial_sums": (codec_one_bit.partial_sums, f"void({', '.join(['int64'] * 6)})"),
    "write_means": (codec_one_bit.write_means, f"void({', '.join(['int64'] * 6)})"),
    "write_signs": (codec_one_bit.write_signs, f"void({', '.join(['int64'] * 4)})"),
    "decode_signs": (codec_one_bit.decode_signs, f"void({', '.join(['int64'] * 6)})"),
}
"""Every kernel by name, with its signature."""


def compile_ptx_of(name: str, cc: tuple[int, int]) -> str:
    """A kernel's PTX for a compute capability, without a device."""
    body, signature = CODEC_KERNELS[name]
    ptx, _ = cuda.compile_ptx(body, signature, cc=cc, launch_bounds=LAUNCH_BOUNDS)
    return str(ptx)


@dataclass(frozen=True, kw_only=True)
class Cut:
    """How a run of numbers is cut for the kernels."""

    num: int
    block: int
    """Numbers that share a scale; at least 1."""

    @property
    def num_blocks(self) -> int:
        """Of the codec."""
        return -(-self.num // self.block)

    @property
    def chunks(self) -> int:
        """Blocks of threads for each block of the codec."""
        return -(-min(self.block, max(self.num, 1)) // CHUNK)

    @property
    def grid(self) -> int:
        """Blocks of threads in all."""
        return self.num_blocks * self.chunks

    @property
    def scratch_bytes(self) -> int:
        """Scratch that encoding to one bit takes, zeros before; codes take the first 4 * (num_blocks + 1) of them."""
        return 4 * (self.num_blocks + 1) + codec_one_bit.PARTIAL_BYTES * self.grid


def encode_codes(
    values: int, payload: int, scratch: int, cut: Cut, table: int, first_bucket: int, num_buckets: int, stream: int
) -> None:
    """Queue the encoding of (num,) float32 at `values`; scratch holds zeros, and then the count at 4 * num_blocks."""
    if not cut.num:
        return
    sizes = cut.num, cut.block, cut.chunks
    _queue("largest_magnitudes", cut.grid, stream, values, scratch, *sizes)
    _queue("encode_codes", cut.grid, stream, values, payload, scratch, *sizes, table, first_bucket, num_buckets)


def decode_codes(payload: int, values: int, cut: Cut, levels: int, add: bool, stream: int) -> None:
    """Queue the decoding into (num,) float32 at `values`."""
    if cut.num:
        _queue("decode_codes", cut.grid, stream, payload, values, cut.num, cut.block, cut.chunks, levels, int(add))


def encode_whole(values: int, payload: int, count: int, num: int, item_bytes: int, stream: int) -> None:
    """Queue the encoding to float32 (4 `item_bytes`) or bfloat16 (2); the payload lies at a multiple of them."""
    if num:
        _queue("encode_whole", -(-num // CHUNK), stream, values, payload, count, num, item_bytes)


def decode_whole(payload: int, values: int, num: int, item_bytes: int, add: bool, stream: int) -> None:
    """Queue the decoding into (num,) float32 at `values`."""
    if num:
        _queue("decode_whole", -(-num // CHUNK), stream, payload, values, num, item_bytes, int(add))


def encode_signs(values: int, payload: int, scratch: int, cut: Cut, stream: int) -> None:
    """Queue the encoding to one bit; scratch as for `encode_codes`, and behind it as much as `scratch_bytes` says."""
    partials = scratch + 4 * (cut.num_blocks + 1)
    sizes = cut.num, cut.block, cut.chunks
    if cut.num:
        _queue("largest_magnitudes", cut.grid, stream, values, scratch, *sizes)
        _queue("partial_sums", cut.grid, stream, values, partials, scratch, *sizes)
        _queue("write_signs", -(-cut.num // (8 * THREADS)), stream, values, payload, cut.num, cut.block)
    _queue("write_means", max(-(-cut.num_blocks // THREADS), 1), stream, payload, partials, scratch, *sizes)


def decode_signs(payload: int, values: int, cut: Cut, add: bool, stream: int) -> None:
    """Queue the decoding into (num,) float32 at `values`."""
    if cut.num:
        _queue("decode_signs", cut.grid, stream, payload, values, cut.num, cut.block, cut.chunks, int(add))


def _queue(name: str, grid: int, stream: int, *arguments: int) -> None:
    with _lock:
        kernel = _kernel(name)
    _launch(kernel, (grid,), THREADS, stream, *arguments)


@cache
def _kernel(name: str) -> Any:
    body, signature = CODEC_KERNELS[name]
    return _compiled(body, signature, LAUNCH_BOUNDS)
