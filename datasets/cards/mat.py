"""Arrays and struct arrays of MATLAB files, read by SciPy."""

from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.datasets.cards.tree import Tree
from augpipe.datasets.names import printable


def integers(tree: Tree, file: str, variable: str) -> npt.NDArray[np.int64]:
    """A numeric array, flattened: int64 of shape (N,).

    Raises:
        ImportError: SciPy is not installed.
        ValueError: no such file or variable, not a MATLAB file of versions 4 to 7, or not whole numbers.
        OSError: the file cannot be read.
    """
    values = np.asarray(_load(tree, file, variable)).reshape(-1)
    if values.dtype.kind not in "uif" or not np.array_equal(values, np.floor(values)):
        raise ValueError(
            f"{_place(tree, file, variable)} has dtype {values.dtype}, and whole numbers are needed. "
            "Download the official file again."
        )
    return values.astype(np.int64)


def structs(tree: Tree, file: str, variable: str, names: tuple[str, ...]) -> list[tuple[str, ...]]:
    """The fields `names` of each entry of a struct array, as text; whole numbers without a point.

    Raises:
        ImportError: SciPy is not installed.
        ValueError: no such file, variable or field, or not a MATLAB file of versions 4 to 7.
        OSError: the file cannot be read.
    """
    entries = np.atleast_1d(_load(tree, file, variable))
    missing = [name for name in names if name not in (entries.dtype.names or ())]
    if missing:
        raise ValueError(
            f"{_place(tree, file, variable)} has the fields {entries.dtype.names or '(none)'}, and "
            f"{', '.join(missing)} is needed. Download the official file again."
        )
    return [tuple(_text(entry[name]) for name in names) for entry in entries.reshape(-1)]


def _text(value: Any) -> str:
    # MATLAB keeps whole doubles in as few bytes as hold them, and other writers do not
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _place(tree: Tree, file: str, variable: str) -> str:
    return f"{variable!r} in {printable(tree.root)}/{printable(file)}"


def _load(tree: Tree, file: str, variable: str) -> npt.NDArray[Any]:
    path = tree.path(file)
    try:
        from scipy.io import loadmat
    except ImportError as error:
        raise ImportError(
            f'{printable(path)} is a MATLAB file, and reading it needs SciPy: pip install "augpipe[mat]".'
        ) from error
    with open(path, "rb") as stream:
        try:
            found = loadmat(stream, squeeze_me=True, variable_names=[variable])
        except Exception as error:  # a damaged file ends in nearly any of them: zlib, struct, NumPy, SciPy's own
            raise ValueError(
                f"{printable(path)} is not a MATLAB file of versions 4 to 7, or it is damaged "
                f"({type(error).__name__}: {error}). Download the official file again."
            ) from error
    if variable not in found:
        raise ValueError(f"{_place(tree, file, variable)} is not there. Download the official file again.")
    array: npt.NDArray[Any] = np.asarray(found[variable])
    return array
