"""Files in memory without a descriptor held: `mmap.mmap` keeps one for each until Python 3.13, and a data set of ten
thousand shards has more than most systems let a process open."""

import ctypes
import os
import sys
from functools import cache
from typing import Any

import numpy as np

_PROT_READ, _MAP_SHARED = 1, 1
_MADV_RANDOM, _MADV_WILLNEED = 1, 3
_MAP_FAILED = ctypes.c_void_p(-1).value


class _Mapping:
    """Owns a map, which ends with the last array or view of it."""

    def __init__(self, address: int, num_bytes: int) -> None:
        self._address, self._num_bytes = address, num_bytes
        # read by numpy: an array of ctypes would need a type of its own for each length, 3 kB that are never freed
        self.__array_interface__ = {"data": (address, True), "shape": (num_bytes,), "typestr": "|u1", "version": 3}

    def __del__(self) -> None:
        if not sys.is_finalizing():  # other threads may still read, and the system unmaps everything anyway
            _libc().munmap(self._address, self._num_bytes)


def map_file(descriptor: int, num_bytes: int) -> memoryview:
    """The first `num_bytes` of an open file, read-only; mapped as long as the view, or any view of it, lives.

    The descriptor may be closed. The file must not be truncated meanwhile: reading what it has lost ends the process.
    Pages are read one by one when they are touched, not with their neighbours: by the system's read-ahead a look-up at
    random was measured to bring 1.1 MB into memory, on a disk that reads 8 MB ahead. `will_need` asks for more.

    Raises:
        OSError: it cannot be mapped.
    """
    address = _libc().mmap(None, num_bytes, _PROT_READ, _MAP_SHARED, descriptor, 0)
    if address == _MAP_FAILED:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    view = np.asarray(_Mapping(address, num_bytes)).data
    _libc().madvise(address, num_bytes, _MADV_RANDOM)  # advice: where it is not taken, all is as right
    return view


def will_need(view: memoryview) -> None:
    """Begin to read all of a view of a map into memory, before it is read from end to end."""
    if len(view):
        first = np.frombuffer(view, np.uint8).ctypes.data
        start = first // os.sysconf("SC_PAGESIZE") * os.sysconf("SC_PAGESIZE")
        _libc().madvise(start, first + len(view) - start, _MADV_WILLNEED)


@cache
def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_longlong,
    ]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return libc
