"""From what a user types or holds to a source."""

import os
from typing import Any

import numpy as np

from augpipe.datasets.arrays import ArraySource
from augpipe.datasets.file_list import LIST_EXTENSIONS, FileListSource
from augpipe.datasets.files import EXTENSIONS, is_photograph_name
from augpipe.datasets.folder import FolderSource
from augpipe.datasets.names import printable
from augpipe.datasets.single import SingleSource
from augpipe.source import Source, is_source

ACCEPTED = (
    f"a folder of photographs or of class folders; a list ({', '.join(LIST_EXTENSIONS)}) of path,label lines; "
    f"one photograph ({', '.join(EXTENSIONS)}); an uint8 array (N, H, W, C) or a list of (H, W, C) arrays; "
    "or an object with classes, __len__, read, label and name (augpipe.source.Source)"
)


def open_source(path_or_source: Any) -> Source:
    """The source for a path (a folder, a list, one photograph) or for arrays; a source is returned as it is.

    Raises:
        ValueError: it is none of these; the message lists what is accepted.
        OSError: a folder or a list cannot be read.
    """
    if is_source(path_or_source):
        source: Source = path_or_source
        return source
    if isinstance(path_or_source, (str, os.PathLike)):
        return _open_path(os.fspath(path_or_source))
    if isinstance(path_or_source, np.ndarray):
        return ArraySource(path_or_source)
    if isinstance(path_or_source, (list, tuple)) and all(isinstance(item, np.ndarray) for item in path_or_source):
        return ArraySource(path_or_source)
    raise ValueError(f"a {type(path_or_source).__name__} is not a source of photographs. Accepted: {ACCEPTED}.")


def _open_path(path: str) -> Source:
    if os.path.isdir(path):
        return FolderSource(path)
    if not os.path.lexists(path):
        raise ValueError(
            f"{printable(path)!r} does not exist (the current folder is {printable(os.getcwd())}). "
            f"Accepted: {ACCEPTED}."
        )
    extension = os.path.splitext(path)[1].lower()
    if extension in LIST_EXTENSIONS:
        return FileListSource(path)
    if is_photograph_name(path) or not extension:
        return SingleSource(path)
    raise ValueError(
        f"{printable(path)!r} is neither a photograph nor a list, by its name. Accepted: {ACCEPTED}. "
        "If it is a photograph all the same, pass augpipe.datasets.single.SingleSource(path)."
    )
