"""Batches' memory, used again as soon as nobody holds it: fresh pages would cost more than the kernel."""

import sys
import threading

import numpy as np
import numpy.typing as npt


def _references(arrays: list[npt.NDArray[np.generic]], position: int) -> int:
    return sys.getrefcount(arrays[position])


_IDLE_REFERENCES = _references([np.empty(0)], 0)
"""References to an array that only a list holds: measured, as Python's versions count temporary ones differently."""


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
            for position in range(len(self._arrays)):
                if _references(self._arrays, position) == _IDLE_REFERENCES:
                    array = self._arrays[position]
                    if array.dtype == wanted and len(array) == num:
                        return array
                    del array
            fresh: npt.NDArray[np.generic] = np.empty(num, wanted)
            self._arrays.append(fresh)
            if len(self._arrays) > self._keep:
                del self._arrays[0]
            return fresh
