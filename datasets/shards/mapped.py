"""Files in memory without a descriptor held: `mmap.mmap` keeps one for each until Python 3.13, and a data set of ten
thousand shards has more than most systems let a process open."""

import ctypes
import os
import weakref
from functools import cache
from typing import Any

_PROT_READ, _MAP_SHARED = 1, 1
_MAP_FAILED = ctypes.c_void_p(-1).value


def map_file(descriptor: int, num_bytes: int) -> memoryview:
    """The first `num_bytes` of an open file, read-only; mapped as long as the view, or any view of it, lives.

    The descriptor may be closed. The file must not be truncated meanwhile: reading what it has lost ends the process.

    Raises:
        OSError: it cannot be mapped.
    """
    address = _libc().mmap(None, num_bytes, _PROT_READ, _MAP_SHARED, descriptor, 0)
    if address == _MAP_FAILED:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    memory = (ctypes.c_ubyte * num_bytes).from_address(address)
    unmap = weakref.finalize(memory, _libc().munmap, address, num_bytes)
    unmap.atexit = False  # at exit other threads may still read, and the system unmaps everything anyway
    return memoryview(memory).cast("B").toreadonly()


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
    return libc
