"""Millions of file names in a few bytes each: one blob and where each name ends in it."""

import hashlib
import os
from array import array
from collections.abc import Iterable


class NameTable:
    """An append-only list of paths; about 8 bytes a name in addition to its own bytes (a Python str takes 50 more)."""

    def __init__(self) -> None:
        self._blob = bytearray()
        self._ends = array("q", [0])

    def extend(self, names: Iterable[bytes]) -> None:
        """Append names as `os.fsencode` writes them."""
        for name in names:
            self._blob += name
            self._ends.append(len(self._blob))

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, index: int) -> str:
        """The name at `index` (0..len-1), fit for `open()`: bytes that are not UTF-8 come back as they were."""
        return os.fsdecode(bytes(self._blob[self._ends[index] : self._ends[index + 1]]))

    def digest(self) -> bytes:
        """SHA-256 of all names, in their order."""
        made = hashlib.sha256(self._blob)
        made.update(self._ends.tobytes())
        return made.digest()


def printable(path: str) -> str:
    """`path` as text that can be printed: bytes of it that are not UTF-8 are shown as \\xNN."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def listed(names: Iterable[str], *, most: int = 3) -> str:
    """The first few names and how many more there are, for messages."""
    everything = [printable(name) for name in names]
    shown = ", ".join(repr(name) for name in everything[:most])
    return shown if len(everything) <= most else f"{shown} and {len(everything) - most} more"
