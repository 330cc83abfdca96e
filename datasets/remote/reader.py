"""A remote file as a Python file, for what reads files: the tar indexer, pyarrow."""

import io
import os
from typing import BinaryIO, cast

from augpipe.datasets.remote.blocks import BlockStore, RemoteFile
from augpipe.datasets.remote.urls import shown


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

    def readinto(self, buffer: object) -> int:
        """Fill a buffer as far as the file goes; raises as `BlockStore.read`."""
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        data = self._store.read(self._file, len(view), self._at)
        view[: len(data)] = data
        self._at += len(data)
        return len(data)


def open_remote(store: BlockStore, file: RemoteFile, buffer_bytes: int | None = None) -> BinaryIO:
    """A buffered reader, whose buffer is a block long if left out."""
    raw = RemoteReader(store, file)
    return cast(BinaryIO, io.BufferedReader(raw, buffer_bytes or store.settings.block_bytes))
