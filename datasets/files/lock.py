"""A file that one process at a time has to itself."""

import errno
import fcntl
import logging
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

logger = logging.getLogger("augpipe")

_IN_USE = (errno.EAGAIN, errno.EACCES)
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


@contextmanager
def lock_file(path: str, refusal: Callable[[str], str]) -> Iterator[None]:
    """Hold the lock of a file, which is made and says who holds it; the lock ends with the process, however that ends.

    Args:
        path: the file.
        refusal: the message where another process holds the lock, from " (process 12 on host)", or "" if it is not
            known.

    Raises:
        ValueError: another process holds it.
        OSError: the file cannot be made.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _IN_USE:
                holder = os.pread(descriptor, 200, 0).decode(errors="replace")
                raise ValueError(refusal(f" ({holder})" if holder else "")) from error
            if error.errno not in _NO_LOCKS:
                raise
            logger.warning(
                "%s is on a file system without locks (%s): start no other run there", path, os.strerror(error.errno)
            )
        if not _is_file(path, descriptor):  # the run that held it has just finished, and removed it
            raise ValueError(refusal(""))
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _is_file(path: str, descriptor: int) -> bool:
    held = os.fstat(descriptor)
    try:
        there = os.stat(path)
    except FileNotFoundError:
        return False
    return (held.st_dev, held.st_ino) == (there.st_dev, there.st_ino)
