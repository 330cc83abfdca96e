"""Many remote files read at any place by any number of threads: what `FileSet` is for local ones."""

from collections.abc import Sequence
from typing import Any, BinaryIO

from augpipe.datasets.remote.blocks import RemoteFile
from augpipe.datasets.remote.reader import open_remote
from augpipe.datasets.remote.settings import RemoteSettings
from augpipe.datasets.remote.stores import store_for


class RemoteFileSet:
    """Files by number; a copy made by pickle asks for none of them anew.

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

    def open(self, number: int) -> BinaryIO:
        """A file to read, for one thread."""
        return open_remote(self._store, self._files[number])

    def read(self, number: int, num_bytes: int, offset: int) -> bytes:
        """`num_bytes` from `offset`; fewer where the file ends before; raises as `BlockStore.read`."""
        return self._store.read(self._files[number], num_bytes, offset)

    def forget(self, number: int, num_bytes: int, offset: int) -> None:
        """Have a part fetched anew, as what was kept of it is wrong."""
        self._store.forget(self._files[number], num_bytes, offset)

    def __reduce__(self) -> tuple[Any, ...]:
        return RemoteFileSet.of, (self._files, self._store.settings)
