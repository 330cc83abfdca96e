"""What the simulator takes for `device_codec_memory`: the same names over host memory."""

import ctypes
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

WARP = 4
"""The simulator starts a Python thread for each thread of a block."""

_lock = threading.Lock()
_told: dict[tuple[int, int, bool], np.int32] = {}
"""By warp, lane and turn: what each thread hands to `of_lane`. The simulator runs one block of threads at a time."""


def float32_of(bits: np.int32) -> np.float32:
    """The float32 with these bits."""
    return np.int32(bits).view(np.float32)


def bits_of(value: np.float32) -> np.int32:
    """The bits of a float32."""
    return np.float32(value).view(np.int32)


def product(a: np.float32, b: np.float32) -> np.float32:
    """The product of two float32."""
    return np.float32(a) * np.float32(b)


def _load(item: Any, result: type[np.generic], num: int = 1) -> Callable[[int], Any]:
    def load(address: int) -> Any:
        assert address % (4 * num) == 0, "a device refuses this address"
        items = tuple(result(item.from_address(int(address) + 4 * i).value) for i in range(num))
        return items[0] if num == 1 else items

    return load


def _store(item: Any, num: int = 1) -> Callable[..., None]:
    def store(address: int, *values: Any) -> None:
        assert address % (4 * num) == 0, "a device refuses this address"
        assert len(values) == num
        for i, value in enumerate(values):
            item.from_address(int(address) + 4 * i).value = value.item()

    return store


load_changing_f32, load_changing_i32 = _load(ctypes.c_float, np.float32), _load(ctypes.c_int32, np.int32)
load_changing_four_f32 = _load(ctypes.c_float, np.float32, 4)
load_two_i32, load_four_i32 = _load(ctypes.c_int32, np.int32, 2), _load(ctypes.c_int32, np.int32, 4)
store_i32, store_two_i32 = _store(ctypes.c_int32), _store(ctypes.c_int32, 2)
store_four_f32 = _store(ctypes.c_float, 4)


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
