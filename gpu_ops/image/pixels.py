"""Changing how pixels are held: packed to four bytes on the way in, narrowed to 16-bit floats on the way out."""

import numpy as np
import numpy.typing as npt
from numba import types

from augpipe.gpu_ops.compiled.declared import declare
from augpipe.gpu_ops.image.tone import to_uint8
from augpipe.gpu_ops.jit import kernel, leaf, subroutine
from augpipe.gpu_ops.memory import load, load_bytes, prefer_wide_vectors, prefetch, store

load_byte = load_bytes("unpacked", types.uint8)
load_word = load_bytes("unpacked", types.uint32)
store_pixel = store("pixels")
load_level = load("values", types.float32)

OPAQUE = np.uint32(0xFF000000)
BYTE = np.uint32(8)
GRAY = np.uint32(0x010101)

RGB_BYTES = np.int64(3)

CACHE_LINE = 64
"""Bytes."""
PREFETCH_ROWS = 4
"""Rows of a region for which memory is asked ahead; 2 to 8 measured alike."""

REBIAS = np.uint32((127 - 15) << 23)
LEAST_NORMAL = np.uint32((127 - 14) << 23)
TOO_LARGE = np.uint32((127 + 16) << 23)
INFINITY = np.uint32(0xFF << 23)
"""float32 bits: what exponents of a float16 differ by, its least normal number, the power of two behind its largest
one, and infinity."""

FLOAT16S = np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float32)
"""(65536,) what the bits of a float16 stand for: looking it up takes half as long as numpy's cast."""


@subroutine
def pack_row(source, pixel_bytes, width, target):
    """Write RGBX pixels at the address `target`, of so many bytes each at `source`: 1 (gray), 3 or 4."""
    prefer_wide_vectors()
    if pixel_bytes == 1:
        for x in range(width):
            store_pixel(target, x, np.uint32(load_byte(source, x) * GRAY | OPAQUE))
    elif pixel_bytes == 4:  # of three, the spare byte is loaded, too
        for x in range(width):
            store_pixel(target, x, np.uint32(load_word(source, 4 * x) | OPAQUE))
    else:
        for x in range(0, width - 3, 4):  # twelve bytes are four pixels
            first, middle, last = (
                load_word(source, 3 * x),
                load_word(source, 3 * x + 4),
                load_word(source, 3 * x + 8),
            )
            store_pixel(target, x, np.uint32(first | OPAQUE))
            store_pixel(target, x + 1, np.uint32(first >> BYTE * 3 | middle << BYTE | OPAQUE))
            store_pixel(target, x + 2, np.uint32(middle >> BYTE * 2 | last << BYTE * 2 | OPAQUE))
            store_pixel(target, x + 3, np.uint32(last >> BYTE | OPAQUE))
        for x in range(width - width % 4, width):
            red, green = np.uint32(load_byte(source, 3 * x)), np.uint32(load_byte(source, 3 * x + 1))
            blue = np.uint32(load_byte(source, 3 * x + 2))
            store_pixel(target, x, np.uint32(red | green << BYTE | blue << BYTE * 2 | OPAQUE))


@subroutine
def prefetch_row(at, row_bytes, num_bytes, turns):
    """Ask for memory some rows ahead of a row's `num_bytes`, unless most bytes are read, and none of it `turns` round:
    the CPU foresees these."""
    if turns or 4 * num_bytes < 3 * abs(row_bytes):
        for ahead in range(0, num_bytes, CACHE_LINE):
            prefetch(np.uintp(at + PREFETCH_ROWS * row_bytes + ahead))


@kernel()
def pack_rgbx(image, packed):
    """Copy an uint8 image (H, W, C) with C of 1 (gray), 3 or 4 (the fourth is dropped) into (H, W, 4) RGBX, X = 255.

    `packed` is contiguous. Where the pixels of the image's rows are, a pixel takes one load and one store.
    """
    height, width, channels = image.shape
    has_spare = channels >= 3 and image.strides[1] == 4 and image.strides[0] % 4 == 0 and image.ctypes.data % 4 == 0
    if image.strides[2] == 1 and (image.strides[1] == channels or has_spare):
        for y in range(height):
            source = np.uintp(image.ctypes.data + y * image.strides[0])
            pack_row(source, image.strides[1], width, np.uintp(packed.ctypes.data + 4 * y * width))
        return
    green, blue = (0, 0) if channels == 1 else (1, 2)
    for y in range(height):
        for x in range(width):
            packed[y, x, 0] = image[y, x, 0]
            packed[y, x, 1] = image[y, x, green]
            packed[y, x, 2] = image[y, x, blue]
            packed[y, x, 3] = np.uint8(255)


declare(
    __name__,
    pack_rgbx,
    any=lambda: (np.zeros((1, 1, 3), np.uint8), np.zeros((1, 1, 4), np.uint8)),
    parts=lambda: (np.zeros((2, 2, 3), np.uint8)[:, 1:], np.zeros((2, 1, 4), np.uint8)),  # of large arrays
)


@kernel()
def pack_regions(images, regions, rgb_rows, packed, table):
    """Copy a region of each of several images into RGBX, one behind the other, as `pack_rgbx` does.

    Args:
        images: (B, 3) int64: the address of the first pixel, bytes from one row to the next, and bytes of a pixel, 1
            (gray), 3 or 4; pixels of a row lie side by side.
        regions: (B, 4) int32 left, top, right, bottom, in pixels, the last two excluded.
        rgb_rows: (B,) int64, as `fused.run_jobs` takes it: where it is not 0, the image stays where it is.
        packed: (n,) uint8, written.
        table: (B, 4) int64, written: `rows.PIXEL_TABLE_COLUMNS` of what was packed, and of what stays.
    """
    target = np.uintp(packed.ctypes.data)
    for i in range(len(images)):
        address, row_bytes, pixel_bytes = images[i, 0], images[i, 1], images[i, 2]
        left, top, right, bottom = regions[i, 0], regions[i, 1], regions[i, 2], regions[i, 3]
        width = np.int64(right - left)
        if rgb_rows[i]:
            table[i, 0], table[i, 1], table[i, 2], table[i, 3] = address, 0, 0, 0
            continue
        table[i, 0], table[i, 1], table[i, 2], table[i, 3] = target, width, left, top
        for y in range(top, bottom):
            source = np.uintp(address + y * row_bytes + left * pixel_bytes)
            prefetch_row(source, row_bytes, width * pixel_bytes, row_bytes < 0)
            pack_row(source, pixel_bytes, width, target)
            target = np.uintp(target + 4 * width)


def _packing() -> tuple[npt.NDArray[np.generic], ...]:
    regions = np.zeros((1, 4), np.int32)
    rgb_rows, packed = np.zeros(1, np.int64), np.zeros(1, np.uint8)
    return np.zeros((1, 3), np.int64), regions, rgb_rows, packed, np.zeros((1, 4), np.int64)


declare(__name__, pack_regions, any=_packing)


@kernel()
def pack_stack(stack, ids, packed):
    """Copy the images `ids` (B,) of a uint8 stack (N, H, W, C) into (B, H, W, 4), each as `pack_rgbx` does."""
    for i in range(len(ids)):
        pack_rgbx(stack[ids[i]], packed[i])


def _stacking(stack: npt.NDArray[np.uint8]) -> tuple[npt.NDArray[np.generic], ...]:
    ids = np.zeros((2, 2), np.int64)[:, 0]  # a column of the plan's records
    return stack, ids, np.zeros((1, 1, 1, 4), np.uint8)


declare(
    __name__,
    pack_stack,
    any=lambda: _stacking(np.zeros((1, 1, 1, 3), np.uint8)),
    read_only=lambda: _stacking(np.frombuffer(b"\0", np.uint8).reshape(1, 1, 1, 1)),  # as of files in memory
)


@kernel()
def pack_levels(levels, packed):
    """Round (3 * n,) float32 levels, channel after channel, into (n, 4) RGBX, X = 255."""
    prefer_wide_vectors()
    source, target, num = levels.ctypes.data, packed.ctypes.data, len(packed)
    for i in range(num):
        red, green = np.uint32(to_uint8(load_level(source, i))), np.uint32(to_uint8(load_level(source, num + i)))
        blue = np.uint32(to_uint8(load_level(source, 2 * num + i)))
        store_pixel(target, i, np.uint32(red | green << BYTE | blue << BYTE * 2 | OPAQUE))


declare(__name__, pack_levels, passes=lambda: (np.zeros(3, np.float32), np.zeros((1, 4), np.uint8)))


@leaf
def bfloat16_bits(word):
    """The 16 bits of the nearest bfloat16 to a float32, given as uint32 bits; halves to even."""
    odd = (word >> np.uint32(16)) & np.uint32(1)
    return np.uint16((word + np.uint32(0x7FFF) + odd) >> np.uint32(16))


@kernel()
def round_to_bfloat16(bits, out):
    """Round float32 numbers, given as (n,) uint32 bits, to bfloat16, as (n,) uint16 bits."""
    for i in range(len(bits)):
        out[i] = bfloat16_bits(bits[i])


@leaf
def float16_bits(value, word):
    """The 16 bits of the float16 nearest to a float32, given with its uint32 bits; halves to even, one NaN for all."""
    magnitude = word & np.uint32(0x7FFFFFFF)
    odd = (magnitude >> np.uint32(13)) & np.uint32(1)
    bits = np.uint32(np.uint32(magnitude - REBIAS + np.uint32(0xFFF) + odd) >> np.uint32(13))
    if magnitude < LEAST_NORMAL:  # a whole number of 2**-24, as float32's steps from 0.5 on are
        small = min(abs(value), np.float32(2**-14)) + np.float32(0.5) - np.float32(0.5)
        bits = np.uint32(np.int32(small * np.float32(2**24)))
    if magnitude >= TOO_LARGE:
        bits = np.uint32(0x7C00)
    if magnitude > INFINITY:
        bits = np.uint32(0x7E00)
    return np.uint16(np.uint32((word >> np.uint32(16)) & np.uint32(0x8000)) | bits)


@kernel()
def round_to_float16(values, out):
    """Round (n,) float32 numbers to float16, as (n,) uint16 bits."""
    prefer_wide_vectors()
    bits = values.view(np.uint32)
    for i in range(len(values)):
        out[i] = float16_bits(values[i], bits[i])


declare(__name__, round_to_bfloat16, bfloat16=lambda: (np.zeros(1, np.uint32), np.zeros(1, np.uint16)))
declare(__name__, round_to_float16, float16=lambda: (np.zeros(1, np.float32), np.zeros(1, np.uint16)))


def narrow(values: npt.NDArray[np.float32], out: npt.NDArray[np.generic]) -> None:
    """Round (n,) float32 `values` into (n,) `out`: float16, or uint16 that holds the bits of bfloat16."""
    if out.dtype == np.uint16:
        round_to_bfloat16(values.view(np.uint32), out)
    else:
        round_to_float16(values, out.view(np.uint16))


def widen(values: npt.NDArray[np.generic], out: npt.NDArray[np.float32]) -> None:
    """Write (n,) numbers that `narrow` has rounded into (n,) `out`, exactly."""
    if values.dtype == np.uint16:
        bits = out.view(np.uint32)
        bits[:] = values
        bits <<= np.uint32(16)
    else:
        np.take(FLOAT16S, values.view(np.uint16), out=out, mode="wrap")  # with "raise" it would fill a copy
