"""Many files read at any place by any number of threads, of which a bounded number is open."""

import os
import resource
import stat
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO

from augpipe.datasets.metadata.names import printable
from augpipe.errors import SourceChangedError

_MOST = 4096
_BUFFER_BYTES = 1 << 16
_FILES_A_TASK = 64
_NUM_LOOKING = 16


def absolute(path: str) -> str:
    """The path from the root, so that it leads to the same place when the current folder is another one.

    Nothing else is changed in it: `a/../b` may lead elsewhere than `b` where `a` is a link.
    """
    return path if os.path.isabs(path) else os.path.join(os.getcwd(), path)


def open_regular(path: str) -> int:
    """Open a file for reading and return its descriptor; a pipe would wait for a writer for ever.

    Raises:
        ValueError: it is not a regular file.
        OSError: it cannot be opened.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise ValueError(f"{printable(path)} is not a regular file. Check where the data set lies.")
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def most_descriptors() -> int:
    """How many files a source keeps open: a quarter of what the process may open, at most 4096."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if soft == resource.RLIM_INFINITY else max(1, min(soft // 4, _MOST))


class FileSet:
    """Files by number, opened when they are first read; those not read for longest are closed first.

    Read with `pread`, not through a map: a failing disk then ends in an OSError where a map ends the process, and
    other threads run while the disk is waited for.

    What size they have and when they were written is noted at once, also for a copy made by pickle: a file that is
    another one later is refused.

    Args:
        paths: one a number; relative ones stay where they lead to now.
        most: how many are open at once; `most_descriptors()` if left out, and in a copy made by pickle.
        stamps: sizes in bytes and times of writing in ns; those of now if left out.

    Raises:
        OSError: a file is not there.
    """

    def __init__(
        self, paths: Sequence[str], most: int | None = None, stamps: Sequence[tuple[int, int]] | None = None
    ) -> None:
        self._paths = [absolute(path) for path in paths]
        self._stamps = list(stamps) if stamps is not None else _stamps_of(self._paths)
        self._most = most or most_descriptors()
        self._open: OrderedDict[int, _Descriptor] = OrderedDict()
        self._lock = threading.Lock()

    def path(self, number: int) -> str:
        """A file's path, from the root."""
        return self._paths[number]

    def num_bytes(self, number: int) -> int:
        """The length that a file had."""
        return self._stamps[number][0]

    def check_unchanged(self, number: int | None = None) -> None:
        """Look whether files are those that were there at first, by size and time of writing: one, or all.

        Raises:
            SourceChangedError: one is not; names it.
        """
        numbers = range(len(self._paths)) if number is None else range(number, number + 1)
        try:
            found = _stamps_of([self._paths[each] for each in numbers])
        except (FileNotFoundError, NotADirectoryError) as problem:
            raise SourceChangedError(printable(str(problem.filename)), "it is not there any more") from None
        for each, now in zip(numbers, found, strict=True):
            self._compare(each, now)

    def _compare(self, number: int, now: tuple[int, int]) -> None:
        before = self._stamps[number]
        if now != before:
            is_resized = now[0] != before[0]
            raise SourceChangedError(
                printable(self._paths[number]),
                f"it had {before[0]:,} bytes and has {now[0]:,}"
                if is_resized
                else f"it has {now[0]:,} bytes as before, and was rewritten",
            )

    def open(self, number: int) -> BinaryIO:
        """A file to read from its begin to its end; raises as the built-in `open`."""
        return open(self._paths[number], "rb", buffering=_BUFFER_BYTES)

    def read(self, number: int, num_bytes: int, offset: int) -> bytes:
        """`num_bytes` from `offset`; fewer where the file ends before.

        Raises:
            OSError: the file cannot be opened or read.
            ValueError: it is not a regular file.
            SourceChangedError: it was opened for this, or ends too early, and is another one than before.
        """
        held = self._descriptor(number)
        data = os.pread(held.number, num_bytes, offset)
        if len(data) != num_bytes:
            self.check_unchanged(number)
        return data

    def _descriptor(self, number: int) -> "_Descriptor":
        with self._lock:
            held = self._open.get(number)
            if held is not None:
                self._open.move_to_end(number)
                return held
        opened = _Descriptor(open_regular(self._paths[number]))  # outside of the lock: a network drive takes its time
        self._compare(number, _stamp(os.fstat(opened.number)))
        with self._lock:
            held = self._open.setdefault(number, opened)
            self._open.move_to_end(number)
            while len(self._open) > self._most:
                self._open.popitem(last=False)
        return held

    def __reduce__(self) -> tuple[Any, ...]:
        return FileSet, (self._paths, None, self._stamps)


def _stamps_of(paths: Sequence[str]) -> list[tuple[int, int]]:
    """Size and time of writing of each; by several threads where they are many, as a network drive has each wait."""
    if len(paths) <= _FILES_A_TASK:
        return [_stamp(os.stat(path)) for path in paths]

    def some(first: int) -> list[tuple[int, int]]:
        return [_stamp(os.stat(path)) for path in paths[first : first + _FILES_A_TASK]]

    with ThreadPoolExecutor(_NUM_LOOKING) as pool:
        return [stamp for part in pool.map(some, range(0, len(paths), _FILES_A_TASK)) for stamp in part]


def _stamp(status: os.stat_result) -> tuple[int, int]:
    return status.st_size, status.st_mtime_ns


class _Descriptor:
    """Closed once nobody holds it, so that a file dropped from the set stays open for the threads that read it."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        os.close(self.number)
