"""Files that are loaded only where they are whole and about what was asked for."""

import hashlib
import stat
import tempfile
from pathlib import Path

OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
"""The bits of a mode by which not only the owner can write."""
_SEAL_BYTES = hashlib.sha256().digest_size


def read_sealed(path: Path, identity: str) -> bytes | None:
    """The content of a file; None where it is not there, damaged, or written for another `identity`."""
    try:
        data = path.read_bytes()
    except OSError:
        return None  # not there, or another user's
    content = data[_SEAL_BYTES:]
    return content if data[:_SEAL_BYTES] == _seal(identity, content) else None


def write_sealed(path: Path, identity: str, content: bytes) -> None:
    """Put a whole file in place in one move: other processes may read and write it at the same time.

    Only its owner can change it, whatever the umask.

    Raises:
        OSError: it cannot be written.
    """
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        whole = Path(folder) / path.name
        whole.write_bytes(_seal(identity, content) + content)
        whole.chmod(stat.S_IMODE(whole.stat().st_mode) & ~OTHERS_WRITE)
        whole.replace(path)


def _seal(identity: str, content: bytes) -> bytes:
    return hashlib.sha256(identity.encode() + b"\n" + content).digest()
