"""Parts of remote files, by way of blocks kept on the local disk; one store a process for the same settings."""

import hashlib
import os
import threading
import uuid
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from augpipe.datasets.remote.disk_cache import DiskCache
from augpipe.datasets.remote.filesystem import RemoteFileSystem
from augpipe.datasets.remote.remote_error import RemoteError
from augpipe.datasets.remote.settings import RemoteSettings
from augpipe.datasets.remote.urls import is_http, shown
from augpipe.errors import SourceChangedError


class RemoteFile(NamedTuple):
    """A remote file in the state in which it was found."""

    url: str
    num_bytes: int
    version: str
    """What the server calls this state, e.g. its ETag; empty where that is not known or does not matter."""
    key: str
    """What its blocks are kept under: another state, another key."""
    start_digest: str = ""
    """A digest of its first block, where that is all there is to know its state by."""


class BlockStore:
    """Reads parts of remote files, fetching the blocks that are not kept; safe for threads, and after a fork.

    Blocks that lie side by side come by one request. A block that several threads want is fetched by the first of
    them. Where a file is read from its begin to its end, more is fetched each time, up to `read_ahead_blocks`.
    A copy made by pickle is the other process's own store of the same settings.
    """

    def __init__(self, settings: RemoteSettings) -> None:
        self.settings = settings
        self.files = RemoteFileSystem(settings)
        self.cache = DiskCache(settings.cache_folder, settings.cache_bytes)
        self._reset()

    def _reset(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._pending: dict[str, Future[bytes]] = {}
        self._windows: dict[str, tuple[int, int]] = {}
        """File -> the block after the last one that was fetched, and how many were fetched ahead."""

    def find(self, url: str) -> RemoteFile:
        """Ask for a file's length and state, and its first block.

        Raises:
            RemoteError: no usable answer came.
            FileNotFoundError: there is no such file.
            ImportError, ValueError: the URL cannot be read.
        """
        answer = self.files.part(url, 0, self.settings.block_bytes)
        # where nothing is known of its state, what an earlier run kept may be of another one
        state = answer.version or uuid.uuid4().hex
        key = f"{url}\n{answer.total_bytes}\n{state}"
        start = "" if answer.version else _digest(answer.data)
        file = RemoteFile(url, answer.total_bytes, answer.version, key, start)
        if answer.data:
            self.cache.put(self._key(file, 0), answer.data)
        return file

    def check_unchanged(self, file: RemoteFile) -> None:
        """Ask whether a file that `find` has found is in the state that it was in then.

        Over HTTP, a server with a word for the state gives it with each block, and blocks that are kept are of the
        state in which the file was found, so it is not asked. One without is asked for the first block again.

        Raises:
            SourceChangedError: it is not; names it.
            RemoteError: no usable answer came.
        """
        if is_http(file.url) and file.version:
            return
        try:
            answer = self.files.part(file.url, 0, self.settings.block_bytes if file.start_digest else 1)
        except FileNotFoundError:
            raise SourceChangedError(shown(file.url), "it is not there any more") from None
        if answer.total_bytes != file.num_bytes:
            reason = f"it had {file.num_bytes:,} bytes and has {answer.total_bytes:,}"
        elif answer.version != file.version or (file.start_digest and _digest(answer.data) != file.start_digest):
            reason = f"it has {file.num_bytes:,} bytes as before, and was rewritten"
        else:
            return
        raise SourceChangedError(shown(file.url), reason)

    def read(self, file: RemoteFile, num_bytes: int, offset: int) -> bytes:
        """`num_bytes` from `offset`; fewer where the file ends before.

        Raises:
            RemoteError: no usable answer came, or the file is no longer what it was.
            FileNotFoundError: it is there no longer.
        """
        assert num_bytes >= 0 and offset >= 0
        end = min(offset + num_bytes, file.num_bytes)
        if offset >= end:
            return b""
        size = self.settings.block_bytes
        first, last = offset // size, (end - 1) // size
        blocks = self._blocks(file, range(first, last + 1))
        if len(blocks) == 1:
            return blocks[0][offset - first * size : end - first * size]
        blocks[0] = blocks[0][offset - first * size :]
        blocks[-1] = blocks[-1][: end - last * size]
        return b"".join(blocks)

    def forget(self, file: RemoteFile, num_bytes: int, offset: int) -> None:
        """Drop the blocks that hold a part, which turned out to be wrong."""
        size = self.settings.block_bytes
        for number in range(offset // size, (offset + num_bytes - 1) // size + 1):
            self.cache.discard(self._key(file, number))

    def __reduce__(self) -> tuple[Any, ...]:
        return store_for, (self.settings,)

    def _blocks(self, file: RemoteFile, numbers: Sequence[int]) -> list[bytes]:
        if self._process != os.getpid():  # what was pending at a fork is fetched by threads of the parent
            self._reset()
        futures: dict[int, Future[bytes]] = {}
        mine: list[int] = []
        with self._lock:
            for number in numbers:
                self._claim(file, number, futures, mine)
        try:
            missing = [number for number in mine if not self._fill(file, number, futures[number])]
            if missing:
                missing += self._read_ahead(file, missing, futures, mine)
                for run in _runs(missing):
                    self._fetch(file, run, futures)
        except BaseException as problem:
            for number in mine:
                if not futures[number].done():
                    futures[number].set_exception(problem)
            raise
        finally:
            with self._lock:
                for number in mine:
                    del self._pending[self._key(file, number)]
        return [futures[number].result() for number in numbers]

    def _claim(self, file: RemoteFile, number: int, futures: dict[int, Future[bytes]], mine: list[int]) -> None:
        key = self._key(file, number)
        pending = self._pending.get(key)
        if pending is None:
            pending = self._pending[key] = Future()
            mine.append(number)
        futures[number] = pending

    def _fill(self, file: RemoteFile, number: int, future: "Future[bytes]") -> bool:
        data = self.cache.get(self._key(file, number))
        if data is None:
            return False
        future.set_result(data)
        return True

    def _read_ahead(
        self, file: RemoteFile, missing: Sequence[int], futures: dict[int, Future[bytes]], mine: list[int]
    ) -> list[int]:
        """Claim the blocks after the last one, where those before the first one were fetched the time before."""
        last = missing[-1]
        with self._lock:
            expected, ahead = self._windows.get(file.key, (-1, 0))
            ahead = min(max(2 * ahead, 1), self.settings.read_ahead_blocks) if missing[0] == expected else 0
            if self.settings.cache_bytes < 2 * ahead * self.settings.block_bytes:
                ahead = 0  # it would be dropped before it is read
            more: list[int] = []
            for number in range(last + 1, min(last + ahead, (file.num_bytes - 1) // self.settings.block_bytes) + 1):
                if self._key(file, number) in self._pending or futures.get(number) is not None:
                    break
                self._claim(file, number, futures, mine)
                more.append(number)
            self._windows[file.key] = last + len(more) + 1, ahead
        return more

    def _fetch(self, file: RemoteFile, numbers: Sequence[int], futures: dict[int, Future[bytes]]) -> None:
        size = self.settings.block_bytes
        start = numbers[0] * size
        answer = self.files.part(file.url, start, len(numbers) * size, file.num_bytes)
        has_new_state = bool(file.version and answer.version) and answer.version != file.version
        if answer.total_bytes != file.num_bytes or has_new_state:
            raise RemoteError(
                f"it has changed since it was opened: it has {answer.total_bytes} bytes, state {answer.version!r}, and "
                f"had {file.num_bytes}, state {file.version!r}. Open the data set again",
                shown(file.url),
            )
        for place, number in enumerate(numbers):
            data = answer.data[place * size : (place + 1) * size]
            assert len(data) == min(size, file.num_bytes - number * size)
            self.cache.put(self._key(file, number), data)
            futures[number].set_result(data)

    def _key(self, file: RemoteFile, number: int) -> str:
        return f"{file.key}\n{self.settings.block_bytes} {number}"


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _runs(numbers: Sequence[int]) -> list[list[int]]:
    """Numbers that follow one another, together."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return runs


_stores: dict[str, BlockStore] = {}
_stores_lock = threading.Lock()


def store_for(settings: RemoteSettings | None) -> BlockStore:
    """The store for settings; those of the environment if None.

    Raises:
        ValueError: the environment's are wrong.
    """
    settings = settings or RemoteSettings()
    with _stores_lock:
        return _stores.setdefault(settings.key(), BlockStore(settings))


def _unlock() -> None:
    global _stores_lock
    _stores_lock = threading.Lock()  # a fork copies it as it is


os.register_at_fork(after_in_child=_unlock)
