"""Files that appear under their name whole or not at all, whatever moment the machine stops at."""

import os
import re
import uuid
from types import TracebackType

_LEFTOVER = re.compile(r"\..+\.[0-9a-f]{32}\.tmp")
_BUFFER_BYTES = 1 << 20


class AtomicFile:
    """A file under a temporary name in the folder of `path`; `commit` gives it its own.

    Two writers of one path do not disturb each other: the last to commit wins. Use it with `with`: what was not
    committed is removed at the end.

    Raises:
        OSError: the file cannot be made.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        folder, name = os.path.split(path)
        self._folder = folder or "."
        self._temporary = os.path.join(self._folder, f".{name}.{uuid.uuid4().hex}.tmp")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(self._temporary, flags, 0o666)  # not mkstemp: the umask decides who may read
        self._file = open(descriptor, "wb", buffering=_BUFFER_BYTES)  # noqa: SIM115  commit and discard close it
        self._is_pending = True

    def write(self, data: bytes) -> None:
        """Append.

        Raises:
            OSError: e.g. the disk is full; its filename is the path that the file was to get.
        """
        try:
            self._file.write(data)
        except OSError as error:
            error.filename = self.path
            raise

    def commit(self) -> None:
        """Put the file on the disk and give it its name, in place of what had it; after this it survives a power cut.

        Raises:
            OSError: it cannot be written; what had the name before is left as it was.
        """
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            os.replace(self._temporary, self.path)
            self._is_pending = False
            sync_folder(self._folder)
        except OSError as error:
            error.filename = self.path
            raise

    def discard(self) -> None:
        """Remove what was not committed."""
        if not self._is_pending:
            return
        self._is_pending = False
        try:
            self._file.close()
        except OSError:  # a full disk takes the buffered rest no better now, and the file is to go anyway
            pass
        finally:
            os.unlink(self._temporary)

    def __enter__(self) -> "AtomicFile":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.discard()


def write_atomically(path: str, data: bytes) -> None:
    """Write a whole file; returns once it is on the disk.

    Raises:
        OSError: it cannot be written; what had the name before is left as it was.
    """
    with AtomicFile(path) as file:
        file.write(data)
        file.commit()


def sync_folder(folder: str) -> None:
    """Put the names that a folder holds on the disk.

    Raises:
        OSError: there is no such folder, or the disk fails.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_leftovers(folder: str) -> int:
    """Remove the temporary files that killed writers left in a folder; no writer may be at work there.

    Returns:
        How many there were.

    Raises:
        OSError: the folder cannot be listed, or a file not removed.
    """
    with os.scandir(folder) as entries:
        found = [entry.path for entry in entries if _LEFTOVER.fullmatch(entry.name)]
    for path in found:
        os.unlink(path)
    return len(found)
