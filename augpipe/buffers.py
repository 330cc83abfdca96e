"""Batches' memory, used again as soon as nobody holds it: fresh pages would cost more than the kernel."""

import sys
import threading

import numpy as np
import numpy.typing as npt

_IDLE_REFERENCES = 3
"""The pool's list, the loop variable and getrefcount's own argument."""


class BufferPool:
    """Hands out uninitialised arrays; at most `keep` of them are remembered. Safe from several threads."""

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._arrays: list[npt.NDArray[np.generic]] = []
        self._lock = threading.Lock()

    def take(self, num: int, dtype: npt.DTypeLike) -> npt.NDArray[np.generic]:
        """(num,) array that nobody else refers to, its content arbitrary."""
        wanted = np.dtype(dtype)
        with self._lock:
            for array in self._arrays:
                idle = sys.getrefcount(array) == _IDLE_REFERENCES
                if idle and array.dtype == wanted and len(array) == num:
                    return array
            fresh: npt.NDArray[np.generic] = np.empty(num, wanted)
            self._arrays.append(fresh)
            if len(self._arrays) > self._keep:
                del self._arrays[0]
            return fresh
