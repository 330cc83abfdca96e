"""Memory beside pages that nobody may touch, for scripts that end by a signal where something reads too far."""

import ctypes
import mmap
from typing import Any

import numpy as np
import numpy.typing as npt

_HELD: list[mmap.mmap] = []
"""All areas, as arrays do not own them."""


def guarded(num: int, dtype: npt.DTypeLike, is_at_end: bool) -> npt.NDArray[Any]:
    """(num,) zeros between two such pages, right before the second one or right behind the first; never let go."""
    num_bytes = num * np.dtype(dtype).itemsize
    inner_bytes = -(-num_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
    area = mmap.mmap(-1, inner_bytes + 2 * mmap.PAGESIZE)
    _HELD.append(area)
    base = ctypes.addressof(ctypes.c_char.from_buffer(area))
    for guard in (base, base + mmap.PAGESIZE + inner_bytes):
        assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(guard), mmap.PAGESIZE, 0) == 0
    first = base + mmap.PAGESIZE + (inner_bytes - num_bytes if is_at_end else 0)
    return np.ctypeslib.as_array((ctypes.c_uint8 * num_bytes).from_address(first)).view(dtype)
