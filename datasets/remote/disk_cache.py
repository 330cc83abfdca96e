"""A folder of checked entries with a limit, shared by any number of threads and processes."""

import fcntl
import hashlib
import logging
import os
import uuid
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from augpipe.datasets.metadata.names import printable

logger = logging.getLogger("augpipe")

_TRAILER_BYTES = 8
_MAGIC = b"APC1"
_KEPT_SHARE = 0.9
"""The share of the limit that is kept, once something has to go: so that the folder is not gone through for every
entry."""
_LOCK_NAME = "lock"
_COUNT_BYTES = 8
_WHOLE = ".file"
"""What files end with that are kept whatever the limit."""


class DiskCache:
    """Bytes by key. An entry is written under another name and renamed, so that what a killed process leaves is never
    taken for one; it ends with a CRC-32 of its key and its bytes, and one that is damaged is removed as if it had never
    been there. What was not read for longest goes first.

    How much there is stands in a file, which is locked while it changes: the limit is kept by all processes together,
    to within what is being written at that moment. Nothing is put on the disk by fsync: after a power cut, what was
    lost is fetched again.

    Args:
        folder: made when the first entry is kept. It holds nothing else.
        max_bytes: of all entries.
    """

    def __init__(self, folder: str, max_bytes: int) -> None:
        self.folder = folder
        self.max_bytes = max_bytes
        self._is_usable = True

    def get(self, key: str) -> bytes | None:
        """The bytes kept under a key; None where there are none, or damaged ones."""
        path = self._path(key)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return None
        try:
            size = os.fstat(descriptor).st_size
            content = os.pread(descriptor, size, 0)
            with suppress(OSError):  # another user's: it stays as old as it was
                os.utime(descriptor)
        except OSError:
            return None
        finally:
            os.close(descriptor)
        if len(content) < _TRAILER_BYTES or content[-_TRAILER_BYTES:] != _trailer(key, content[:-_TRAILER_BYTES]):
            self.discard(key)
            return None
        return content[:-_TRAILER_BYTES]

    def put(self, key: str, data: bytes) -> None:
        """Keep bytes, unless there are more than the limit; a folder that cannot be written is told of once."""
        if self._is_usable and len(data) + _TRAILER_BYTES <= self.max_bytes:
            try:
                self._make_room(len(data) + _TRAILER_BYTES)
                self._write(self._path(key), (data, _trailer(key, data)))
            except FileNotFoundError:
                # another process that made room took the file that was being written: this entry is not kept, and
                # nothing is wrong with the folder
                logger.debug("an entry of the cache in %s was removed while it was written", printable(self.folder))
            except OSError as problem:
                self._is_usable = False
                logger.warning(
                    "the cache of remote files in %s cannot be written (%s): what is read is not kept",
                    printable(self.folder),
                    problem.strerror or problem,
                )

    def put_file(self, key: str, data: bytes) -> str:
        """Keep bytes as they are, whatever the limit, and return the path; the caller knows their sum and checks it.

        Raises:
            OSError: the folder cannot be written.
        """
        path = self.path_of_file(key)
        self._write(path, (data,))
        return path

    def path_of_file(self, key: str) -> str:
        """Where `put_file` keeps what has this key."""
        return f"{self._path(key)}{_WHOLE}"

    def discard(self, key: str) -> None:
        """Forget what is kept under a key."""
        with suppress(OSError):
            os.unlink(self._path(key))

    def num_bytes(self) -> int:
        """The bytes of all entries; goes through the folder."""
        return sum(size for _, size, _ in self._entries())

    def _path(self, key: str) -> str:
        digest = hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()
        return os.path.join(self.folder, digest[:2], digest[2:])

    def _write(self, path: str, parts: tuple[bytes, ...]) -> None:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        temporary = f"{path}.{uuid.uuid4().hex}.tmp"
        try:
            with open(temporary, "xb") as file:
                for part in parts:
                    file.write(part)
            os.replace(temporary, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise

    def _make_room(self, num_bytes: int) -> None:
        os.makedirs(self.folder, exist_ok=True)
        with self._locked() as descriptor:
            count = os.pread(descriptor, _COUNT_BYTES, 0)
            held = int.from_bytes(count, "little")
            if len(count) < _COUNT_BYTES or held + num_bytes > self.max_bytes:
                held = self._shrink(max(self.max_bytes - num_bytes, 0))
            os.pwrite(descriptor, (held + num_bytes).to_bytes(_COUNT_BYTES, "little"), 0)

    def _shrink(self, most: int) -> int:
        """Remove the oldest entries where there is more than `most`; returns how much is left."""
        entries = sorted(self._entries())
        held = sum(size for _, size, _ in entries)
        if held <= most:
            return held
        for _, size, path in entries:
            if held <= most * _KEPT_SHARE:
                break
            with suppress(OSError):  # gone already, or open elsewhere: what is open stays readable there
                os.unlink(path)
            held -= size
        return held

    def _entries(self) -> Iterator[tuple[int, int, str]]:
        """(last read, bytes, path), of temporary files too: those of killed processes grow old, and go."""
        for folder in _scan(self.folder):
            if folder.is_dir(follow_symlinks=False) and len(folder.name) == 2:
                for entry in _scan(folder.path):
                    if entry.name.endswith(_WHOLE):
                        continue
                    with suppress(OSError):
                        status = entry.stat(follow_symlinks=False)
                        yield status.st_mtime_ns, status.st_size, entry.path

    @contextmanager
    def _locked(self) -> Iterator[int]:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(os.path.join(self.folder, _LOCK_NAME), flags, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield descriptor
        finally:
            os.close(descriptor)  # which ends the lock


def _scan(folder: str) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _trailer(key: str, data: bytes) -> bytes:
    crc = zlib.crc32(data, zlib.crc32(key.encode("utf-8", "surrogateescape")))
    return _MAGIC + crc.to_bytes(4, "little")
