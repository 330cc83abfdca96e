"""Many files read at any place by any number of threads, of which a bounded number is open."""

import os
import resource
import stat
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, BinaryIO

from augpipe.datasets.metadata.names import printable

_MOST = 4096
_BUFFER_BYTES = 1 << 16


def absolute(path: str) -> str:
    """The path from the root, so that it leads to the same place when the current folder is another one.

    Nothing else is changed in it: `a/../b` may lead elsewhere than `b` where `a` is a link.
    """
    return path if os.path.isabs(path) else os.path.join(os.getcwd(), path)


def open_regular(path: str) -> int:
    """Open a file for reading and return its descriptor; a pipe would wait for a writer for ever.

    Raises:
        ValueError: it is no regular file.
        OSError: it cannot be opened.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise ValueError(f"{printable(path)} is no regular file. Check where the data set lies.")
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def most_descriptors() -> int:
    """How many files a source keeps open: a quarter of what the process may open, at most 4096."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if soft == resource.RLIM_INFINITY else max(1, min(soft // 4, _MOST))


class FileSet:
    """Files by number, opened when they are first read; those not read for longest are closed first.

    Read with `pread`, not through a map: a failing disk then ends in an OSError where a map ends the process, and
    other threads run while the disk is waited for.

    Args:
        paths: one a number.
        most: how many are open at once; `most_descriptors()` if left out, and in a copy made by pickle.
    """

    def __init__(self, paths: Sequence[str], most: int | None = None) -> None:
        self._paths = paths
        self._most = most or most_descriptors()
        self._open: OrderedDict[int, _Descriptor] = OrderedDict()
        self._lock = threading.Lock()

    def open(self, number: int) -> BinaryIO:
        """A file to read from its begin to its end; raises as the built-in `open`."""
        return open(self._paths[number], "rb", buffering=_BUFFER_BYTES)

    def read(self, number: int, num_bytes: int, offset: int) -> bytes:
        """`num_bytes` from `offset`; fewer where the file ends before.

        Raises:
            OSError: the file cannot be opened or read.
            ValueError: it is no regular file.
        """
        held = self._descriptor(number)
        return os.pread(held.number, num_bytes, offset)

    def _descriptor(self, number: int) -> "_Descriptor":
        with self._lock:
            held = self._open.get(number)
            if held is not None:
                self._open.move_to_end(number)
                return held
        opened = _Descriptor(open_regular(self._paths[number]))  # outside of the lock: a network drive takes its time
        with self._lock:
            held = self._open.setdefault(number, opened)
            self._open.move_to_end(number)
            while len(self._open) > self._most:
                self._open.popitem(last=False)
        return held

    def __reduce__(self) -> tuple[Any, ...]:
        return FileSet, (self._paths,)


class _Descriptor:
    """Closed once nobody holds it, so that a file dropped from the set stays open for the threads that read it."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        os.close(self.number)
