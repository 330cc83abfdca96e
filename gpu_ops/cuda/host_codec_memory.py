"""What the simulator takes for `device_codec_memory`: the same names over host memory."""

import ctypes
import threading
from typing import Any

import numpy as np

_lock = threading.Lock()
"""The simulator's threads are Python threads."""


def float32_of(bits: np.int32) -> np.float32:
    """The float32 with these bits."""
    return np.int32(bits).view(np.float32)


def bits_of(value: np.float32) -> np.int32:
    """The bits of a float32."""
    return np.float32(value).view(np.int32)


def product(a: np.float32, b: np.float32) -> np.float32:
    """Of two float32."""
    return np.float32(a) * np.float32(b)


def load_changing_f32(address: int) -> np.float32:
    """A float32."""
    return np.float32(ctypes.c_float.from_address(int(address)).value)


def load_changing_i32(address: int) -> np.int32:
    """An int32."""
    return np.int32(ctypes.c_int32.from_address(int(address)).value)


def store_i32(address: int, value: Any) -> None:
    """An int32, at a multiple of 4."""
    assert address % 4 == 0, "a device refuses this address"
    ctypes.c_int32.from_address(int(address)).value = int(value)


def raise_to(address: int, value: np.int32) -> None:
    """The larger of what is there and `value`."""
    with _lock:
        store_i32(address, max(load_changing_i32(address), value))


def add_to(address: int, value: np.int32) -> None:
    """The sum of what is there and `value`."""
    with _lock:
        store_i32(address, int(load_changing_i32(address)) + int(value))
