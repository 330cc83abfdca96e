"""One photograph as a source, for previews."""

import os

import numpy as np

from augpipe.datasets.files import FileSource
from augpipe.datasets.names import NameTable, printable


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
        names.extend([os.fsencode(text)])
        super().__init__("", names, np.full(1, -1, dtype=np.int64), ())
