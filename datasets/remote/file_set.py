"""Many remote files read at any place by any number of threads: what `FileSet` is for local ones."""

import io
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, BinaryIO, cast

from augpipe.datasets.remote.blocks import BlockStore, RemoteFile, store_for
from augpipe.datasets.remote.settings import RemoteSettings
from augpipe.datasets.remote.urls import shown

if TYPE_CHECKING:
    from typing_extensions import Buffer


_NUM_ASKED = 16
"""Files asked for at once: it is the way there and back that takes time."""


class RemoteReader(io.RawIOBase):
    """Read-only and seekable; for one thread at a time."""

    def __init__(self, store: BlockStore, file: RemoteFile) -> None:
        super().__init__()
        self._store = store
        self._file = file
        self._at = 0
        self.name = shown(file.url)

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a place; reading beyond the end gives nothing."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._file.num_bytes}[whence]
        if base + offset < 0:
            raise ValueError(f"seek to {base + offset}, before the begin of {self.name}")
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        """Where the next byte comes from."""
        return self._at

    def readinto(self, buffer: "Buffer") -> int:
        """Fill a buffer as far as the file goes; raises as `BlockStore.read`."""
        view = memoryview(buffer).cast("B")
        data = self._store.read(self._file, len(view), self._at)
        view[: len(data)] = data
        self._at += len(data)
        return len(data)


def open_remote(store: BlockStore, file: RemoteFile, buffer_bytes: int | None = None) -> BinaryIO:
    """A buffered reader, whose buffer is a block long if left out."""
    raw = RemoteReader(store, file)
    return cast(BinaryIO, io.BufferedReader(raw, buffer_bytes or store.settings.block_bytes))


class RemoteFileSet:
    """Files by number; a copy made by pickle asks for none of them again.

    Args:
        urls: one a number; each is asked for its length and state.
        settings: those of the environment if None.

    Raises:
        RemoteError, FileNotFoundError, ImportError, ValueError: as `BlockStore.find`.
    """

    def __init__(self, urls: Sequence[str], settings: RemoteSettings | None) -> None:
        self._store = store_for(settings)
        self._files: list[RemoteFile] = [self._store.find(url) for url in urls]

    @classmethod
    def of(cls, files: Sequence[RemoteFile], settings: RemoteSettings | None) -> "RemoteFileSet":
        """Files of which all is known."""
        made = cls([], settings)
        made._files = list(files)
        return made

    def num_bytes(self, number: int) -> int:
        """A file's length."""
        return self._files[number].num_bytes

    def check_unchanged(self) -> None:
        """Ask whether the files are in the state in which they were found; several at once.

        Raises:
            SourceChangedError: one is not; names it.
            RemoteError: no usable answer came.
        """
        with ThreadPoolExecutor(_NUM_ASKED) as pool:
            for _ in pool.map(self._store.check_unchanged, self._files):
                pass

    def open(self, number: int) -> BinaryIO:
        """A file to read, for one thread."""
        return open_remote(self._store, self._files[number])

    def read(self, number: int, num_bytes: int, offset: int) -> bytes:
        """`num_bytes` from `offset`; fewer where the file ends before; raises as `BlockStore.read`."""
        return self._store.read(self._files[number], num_bytes, offset)

    def forget(self, number: int, num_bytes: int, offset: int) -> None:
        """Have a part fetched again, as what was kept of it is wrong."""
        self._store.forget(self._files[number], num_bytes, offset)
