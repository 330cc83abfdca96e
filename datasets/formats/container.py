"""What the sources of files that hold many images share: the files that they are given, and where a sample lies."""

import hashlib
import os
from collections.abc import Sequence

import numpy as np

from augpipe.datasets.files.descriptors import FileSet
from augpipe.datasets.files.patterns import expand
from augpipe.datasets.files.splits import files_of_split
from augpipe.datasets.metadata.labelled_source import LabelledSource, find_sample
from augpipe.datasets.metadata.names import printable
from augpipe.datasets.remote.file_set import RemoteFileSet

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
"""One file, a folder or a pattern; or several files."""

_EXPANDED_BY = ((b"\x1f\x8b", "gunzip"), (b"BZh", "bunzip2"), (b"\xfd7zXZ\0", "unxz"), (b"\x28\xb5\x2f\xfd", "unzstd"))
"""What a compressed file begins with -> the program that expands it."""


class ContainerSource(LabelledSource):
    """Samples that count through files, one file after the other.

    Args:
        paths: the files, by the names that messages have.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths
        self._where = printable(paths[0]) + (f" and {len(paths) - 1} more" if len(paths) > 1 else "")
        self._ends: list[int] = []
        """How many samples there are up to each file's end."""
        self._files: FileSet | RemoteFileSet

    def __len__(self) -> int:
        return self._ends[-1]

    def check_unchanged(self) -> None:
        """Look whether the files are those that were opened: by size and time of writing, remote ones by their state.

        Raises:
            SourceChangedError: one is not; names it.
            RemoteError: no usable answer came.
        """
        self._files.check_unchanged()

    def content_digest(self) -> str:
        """A digest of the files' names and lengths, and of what more is known of their content."""
        sizes = [self._files.num_bytes(number) for number in range(len(self._paths))]
        return digest_of_files(self._paths, sizes, self._known_content())

    def _known_content(self) -> bytes:
        """What opening has found of the content, in addition to labels."""
        return b""

    def _find(self, sample_id: int) -> tuple[int, int]:
        """The number of a sample's file, and its place there."""
        return find_sample(sample_id, self._ends)


def digest_of_files(paths: Sequence[str], sizes: Sequence[int], more: bytes = b"") -> str:
    """A digest of files by their names, wherever they lie, their lengths, and what is known of their content."""
    made = hashlib.blake2b(repr([os.path.basename(path) for path in paths]).encode(), digest_size=16)
    made.update(np.array(sizes, "<i8").tobytes())
    made.update(more)
    return made.hexdigest()


def container_files(paths: Paths, kind: str, extension: str = "", split: str | None = None) -> list[str]:
    """The files that a source is given; those of a folder are sorted by name.

    Args:
        paths: what the user gave.
        kind: what the files are, for messages: "tar".
        extension: the end of their names in a folder; without one, no folder is taken.
        split: which of several splits in a folder.

    Raises:
        ValueError: there is none, one is not a regular file, a folder holds several splits, or not the one asked for.
        OSError: the folder cannot be listed.
    """
    is_folder = extension and isinstance(paths, (str, os.PathLike)) and os.path.isdir(paths)
    if split is not None and not is_folder:
        raise ValueError(f"split={split!r} chooses from a folder, and files are given. Leave it out.")
    if not isinstance(paths, (str, os.PathLike)):
        found = [os.fspath(path) for path in paths]
    elif is_folder:
        folder = os.fspath(paths)
        names = [name for name in os.listdir(folder) if name.lower().endswith(extension) and not name.startswith(".")]
        if not names:
            raise ValueError(
                f"{printable(folder)} holds no {kind} file (*{extension}). Give the folder that they lie in."
            )
        found = [os.path.join(folder, name) for name in files_of_split(folder, names, split)]
    else:
        path = os.fspath(paths)
        found = [path] if os.path.lexists(path) else expand(path)
    if not found:
        raise ValueError(f"paths is empty: at least one {kind} file is needed. Pass one.")
    for path in found:
        if not os.path.isfile(path):  # a pipe would be waited for
            what = "is not a regular file" if os.path.lexists(path) else "does not exist"
            raise ValueError(f"{printable(path)} {what}, and a {kind} file is wanted. Check the spelling.")
    return found


def refuse_compressed(path: str, start: bytes) -> None:
    """Refuse a compressed file, which cannot be read at any place but from its beginning.

    Args:
        path: its name.
        start: its first 6 bytes, or more.

    Raises:
        ValueError: it is compressed by gzip, bzip2, xz or zstd.
    """
    for beginning, program in _EXPANDED_BY:
        if start.startswith(beginning):
            raise ValueError(
                f"{printable(path)} is compressed, and can only be read from its beginning to its end. Expand it once: "
                f"{program} --keep {printable(path)}"
            )
