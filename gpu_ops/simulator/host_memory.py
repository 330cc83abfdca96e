"""What the simulator takes for `device_memory`: the same names over host memory."""

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np


def _load(item: Any, result: type[np.generic]) -> Callable[[int], Any]:
    return lambda address: result(item.from_address(int(address)).value)


def _store(item: Any, item_bytes: int) -> Callable[[int, Any], None]:
    def store(address: int, value: Any) -> None:
        assert address % item_bytes == 0, "a device refuses this address"
        item.from_address(int(address)).value = value

    return store


load_u8 = _load(ctypes.c_uint8, np.uint32)
load_u32 = _load(ctypes.c_uint32, np.uint32)
load_i32 = _load(ctypes.c_int32, np.int32)
load_i64 = _load(ctypes.c_int64, np.int64)
load_f32 = _load(ctypes.c_float, np.float32)
store_u8, store_u16, store_u32 = _store(ctypes.c_uint8, 1), _store(ctypes.c_uint16, 2), _store(ctypes.c_uint32, 4)
store_f32 = _store(ctypes.c_float, 4)


def store_f32_pair(address: int, first: np.float32, second: np.float32) -> None:
    """Two float32 side by side, the first at a multiple of 8."""
    assert address % 8 == 0, "a device refuses this address"
    store_f32(address, first)
    store_f32(address + 4, second)


def float32_bits(value: np.float32) -> np.uint32:
    """The 32 bits of a float32."""
    return np.float32(value).view(np.uint32)


def float16_bits(value: np.float32) -> np.uint32:
    """The bits of the nearest float16, halves to even."""
    return np.uint32(np.float16(value).view(np.uint16))


def float16_pair_bits(first: np.float32, second: np.float32) -> np.uint32:
    """The bits of the nearest float16 of both, the first in the lower half."""
    return np.uint32(float16_bits(first) | float16_bits(second) << np.uint32(16))


def reciprocal(value: np.float32) -> np.float32:
    """1 / value."""
    return np.float32(1.0) / np.float32(value)


def floor_index(value: np.float32) -> np.int32:
    """The largest whole number not above `value`, at the ends of int32 where it is beyond them; 0 for NaN."""
    return np.int32(0) if np.isnan(value) else np.int32(min(max(np.floor(np.float64(value)), -(2**31)), 2**31 - 1))


def kept(value: np.int32) -> np.int32:
    """The value itself."""
    return np.int32(value)


def saturated(value: np.float32, factor: np.float32, shift: np.float32) -> np.float32:
    """value * factor + shift within 0..1."""
    return np.float32(min(max(value * factor + shift, np.float32(0.0)), np.float32(1.0)))


@cache
def _raised_levels(raised: int) -> list[np.float32]:
    return [np.uint32(level | raised).view(np.float32) for level in range(256)]


def _raised(byte: int) -> Callable[[Any, Any], np.float32]:
    return lambda pixel, raised: _raised_levels(int(raised))[int(pixel) >> 8 * byte & 255]


raised_red, raised_green, raised_blue = _raised(0), _raised(1), _raised(2)
