"""What the simulator takes for `device_memory`: the same names over host memory."""

import ctypes
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

WARP = 4
"""The simulator starts a Python thread for each thread of a block."""

_lock = threading.Lock()
_told: dict[tuple[int, int, bool], np.int32] = {}
"""By warp, lane and turn: what each thread hands to `of_lane`. The simulator runs one block of threads at a time."""


def _load(item: Any, result: type[np.generic]) -> Callable[[int], Any]:
    return lambda address: result(item.from_address(int(address)).value)


def _load_several(item: Any, result: type[np.generic], num: int) -> Callable[[int], Any]:
    items, num_bytes = item * num, num * ctypes.sizeof(item)

    def load(address: int) -> Any:
        assert address % num_bytes == 0, "a device refuses this address"
        return tuple(result(one) for one in items.from_address(int(address)))

    return load


def _store(item: Any, num: int = 1) -> Callable[..., None]:
    items, num_bytes = item * num, num * ctypes.sizeof(item)

    def store(address: int, *values: Any) -> None:
        assert address % num_bytes == 0, "a device refuses this address"
        items.from_address(int(address))[:] = [value.item() for value in values]

    return store


load_u8, load_u32 = _load(ctypes.c_uint8, np.uint32), _load(ctypes.c_uint32, np.uint32)
load_i32, load_i64 = _load(ctypes.c_int32, np.int32), _load(ctypes.c_int64, np.int64)
load_f32 = load_changing_f32 = _load(ctypes.c_float, np.float32)
store_u8, store_u16, store_u32 = _store(ctypes.c_uint8), _store(ctypes.c_uint16), _store(ctypes.c_uint32)
store_f32, store_f32_pair, store_i64 = _store(ctypes.c_float), _store(ctypes.c_float, 2), _store(ctypes.c_int64)

load_u16 = load_changing_u16 = _load(ctypes.c_uint16, np.uint32)
load_changing_u8 = load_u8
load_changing_i32, load_changing_four_f32 = load_i32, _load_several(ctypes.c_float, np.float32, 4)
load_two_i32, load_four_i32 = _load_several(ctypes.c_int32, np.int32, 2), _load_several(ctypes.c_int32, np.int32, 4)
store_i32, store_two_i32 = _store(ctypes.c_int32), _store(ctypes.c_int32, 2)
store_four_f32 = _store(ctypes.c_float, 4)


def float32_bits(value: np.float32) -> np.uint32:
    """The 32 bits of a float32."""
    return np.float32(value).view(np.uint32)


def float16_bits(value: np.float32) -> np.uint32:
    """The bits of the nearest float16, halves to even."""
    return np.uint32(np.float16(value).view(np.uint16))


def float16_pair_bits(first: np.float32, second: np.float32) -> np.uint32:
    """The bits of the nearest float16 of both, the first in the lower half."""
    return np.uint32(float16_bits(first) | float16_bits(second) << np.uint32(16))


def float32_of_float16(bits: np.uint32) -> np.float32:
    """The number of a float16's bits."""
    return np.float32(np.uint16(bits).view(np.float16))


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


def float32_of(bits: np.int32) -> np.float32:
    """The float32 with these bits."""
    return np.int32(bits).view(np.float32)


def bits_of(value: np.float32) -> np.int32:
    """The bits of a float32."""
    return np.float32(value).view(np.int32)


def product(a: np.float32, b: np.float32) -> np.float32:
    """The product of two float32."""
    return np.float32(a) * np.float32(b)


def sum_of_product(a: np.float32, b: np.float32, c: np.float32) -> np.float32:
    """a * b + c, rounded once, except for a tie of float64 that falls on one of float32."""
    return np.float32(np.float64(a) * np.float64(b) + np.float64(c))


def of_lane(value: np.int32, distance: int) -> np.int32:
    """The value of the lane whose number differs by exclusive or with `distance`, by way of memory they share."""
    thread: Any = threading.current_thread()  # the simulator's
    lane, warp = thread.threadIdx.x, thread.threadIdx.y
    # turns alternate: what is handed over is not overwritten before all have met once more
    thread.turn = turn = not getattr(thread, "turn", False)
    _told[warp, lane, turn] = value
    thread.syncthreads()
    return np.int32(_told[warp, lane ^ distance, turn])


def raise_to(address: int, value: np.int32) -> None:
    """The larger of what is there and `value`."""
    with _lock:
        store_i32(address, np.int32(max(load_changing_i32(address), value)))


def add_to(address: int, value: np.int32) -> None:
    """The sum of what is there and `value`."""
    with _lock:
        store_i32(address, np.int32(load_changing_i32(address) + value))
