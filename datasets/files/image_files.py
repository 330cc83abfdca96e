"""Images that are files, whatever listed them: what the folder and the list have in common; and one alone."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.datasets.files.descriptors import absolute
from augpipe.datasets.metadata.labelled_source import LabelledSource
from augpipe.datasets.metadata.names import NameTable, printable
from augpipe.sources.subset import check_id

EXTENSIONS = (".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff")
"""What a file's name must end with, in any case, to be found in a folder."""


class FileSource(LabelledSource):
    """N files under a root; nothing but their names and labels is held in memory.

    `read` opens the file again at each call, so any number of threads may read at once.

    Args:
        root: what relative names are relative to; where it is relative itself, it stays where it leads to now.
        names: one path a sample, relative to `root` or absolute.
        labels: integers, one a sample, -1 where there is none.
        classes: label -> class name.
        columns: further columns, one text a sample.
    """

    def __init__(
        self,
        root: str,
        names: NameTable,
        labels: npt.NDArray[Any],
        classes: Sequence[str],
        columns: Mapping[str, NameTable] | None = None,
    ) -> None:
        assert len(names) == len(labels)
        self._root = absolute(root)
        self.root = root
        """As it was given."""
        self._where = printable(root)
        self.names = names
        """One path a sample, relative to the root or absolute."""
        self._labels = labels
        self.classes: Sequence[str] = tuple(classes)
        self._columns = dict(columns or {})

    def __len__(self) -> int:
        return len(self.names)

    def read(self, sample_id: int) -> bytes:
        """The file's bytes, not yet decoded.

        Raises:
            OSError: the file cannot be read.
        """
        return read_file(self.path(sample_id))

    def name(self, sample_id: int) -> str:
        """The file's path, printable; relative where the root was given so."""
        check_id(sample_id, len(self))
        return printable(os.path.join(self.root, self.names[sample_id]))

    def columns_of(self, sample_ids: npt.NDArray[np.int64]) -> Mapping[str, list[str]]:
        """Column -> (B,) texts of the columns that were named."""
        ids = sample_ids.tolist()
        for sample_id in ids:
            check_id(sample_id, len(self))
        return {name: [texts[sample_id] for sample_id in ids] for name, texts in self._columns.items()}

    @property
    def has_stored_names(self) -> bool:
        """True: a file's name stays when others come or go."""
        return True

    def stored_name(self, sample_id: int) -> str:
        """The file's path below the root, or as the list has it."""
        check_id(sample_id, len(self))
        return self.names[sample_id]

    def stamp(self, sample_id: int) -> tuple[int, int]:
        """The file's size in bytes and time of writing in ns, now.

        Raises:
            OSError: it cannot be looked at.
        """
        status = os.stat(self.path(sample_id))
        return status.st_size, status.st_mtime_ns

    def path(self, sample_id: int) -> str:
        """The file's path from the root of the file system, as the system has it."""
        check_id(sample_id, len(self))
        return os.path.join(self._root, self.names[sample_id])


def read_file(path: str) -> bytes:
    """A file's content, in few system calls: threads that read at once wait for the GIL after each of them.

    Raises:
        OSError: it cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        content = os.read(descriptor, size + 1)
        if len(content) == size:
            return content
        # no plain file, or one of over two gigabytes, or somebody is writing it: whatever comes until its end
        parts = [content]
        while parts[-1]:
            parts.append(os.read(descriptor, 1 << 20))
        return b"".join(parts)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error  # as `open` does
    finally:
        os.close(descriptor)


def is_hidden(name: str) -> bool:
    """Whether a file or a folder is not part of the data: its name begins with a dot, or a Mac's zip has left it."""
    return name.startswith(".") or name == "__MACOSX"


def is_image_name(name: str) -> bool:
    """Whether a file of this name is taken for an image."""
    return os.path.splitext(name)[1].lower() in EXTENSIONS


class SingleSource(FileSource):
    """One file, whatever its name, with label -1.

    Raises:
        ValueError: there is no such file, or it is a folder.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        text = os.fspath(path)
        if os.path.isdir(text):
            raise ValueError(f"{printable(text)} is a folder, and SingleSource takes one photograph. Use FolderSource.")
        if not os.path.lexists(text):
            raise ValueError(
                f"{printable(text)} does not exist; SingleSource takes one photograph. "
                f"Check the spelling (the current folder is {printable(os.getcwd())})."
            )
        names = NameTable()
        folder, name = os.path.split(text)
        names.extend([os.fsencode(name)])
        super().__init__(folder, names, np.full(1, -1, dtype=np.int64), ())
        self._where = printable(text)
