"""Arrays and struct arrays of the MATLAB files that come with datasets, by their variable's name."""

import numpy as np
import numpy.typing as npt

from augpipe.datasets.cards import mat5
from augpipe.datasets.cards.tree import Tree
from augpipe.datasets.metadata.names import printable


def integers(tree: Tree, file: str, variable: str) -> npt.NDArray[np.int64]:
    """A numeric array, flattened: int64 of shape (N,).

    Raises:
        ValueError: no such file or variable, not a MATLAB file of versions 5 to 7, or not whole numbers.
        OSError: the file cannot be read.
    """
    matrix = _find(tree, file, variable)
    try:
        values = mat5.numbers(matrix)
    except ValueError as error:
        raise ValueError(
            f"{_place(tree, file, variable)}: whole numbers are needed, and {error}. Download the official file again."
        ) from error
    if values.dtype.kind == "f" and not (np.isfinite(values).all() and (np.floor(values) == values).all()):
        raise ValueError(
            f"{_place(tree, file, variable)} has dtype {values.dtype}, and whole numbers are needed. "
            "Download the official file again."
        )
    if len(values) and max(-int(values.min()), int(values.max())) > 2**53:
        raise ValueError(
            f"{_place(tree, file, variable)} holds {values.max()}, which numbers nothing. Download it again."
        )
    return values.astype(np.int64)


def structs(tree: Tree, file: str, variable: str, names: tuple[str, ...]) -> list[tuple[str, ...]]:
    """The fields `names` of each entry of a struct array, as text; whole numbers without a point.

    Raises:
        ValueError: no such file, variable or field, or not a MATLAB file of versions 5 to 7.
        OSError: the file cannot be read.
    """
    matrix = _find(tree, file, variable)
    try:
        found = mat5.fields(matrix)
        if set(names) <= set(found):
            return [tuple(map(mat5.text, entry)) for entry in mat5.structs(matrix, names)]
    except ValueError as error:
        raise _damaged(tree, file, error) from error
    raise ValueError(
        f"{_place(tree, file, variable)} has the fields {found or '(none)'}, and "
        f"{', '.join(name for name in names if name not in found)} is needed. Download the official file again."
    )


def _place(tree: Tree, file: str, variable: str) -> str:
    return f"{variable!r} in {printable(tree.root)}/{printable(file)}"


def _find(tree: Tree, file: str, variable: str) -> mat5.Matrix:
    with open(tree.path(file), "rb") as stream:
        data = stream.read(mat5.MAX_BYTES + 1)
    try:
        if len(data) > mat5.MAX_BYTES:
            raise ValueError(f"it has more than {mat5.MAX_BYTES} bytes")
        matrix = mat5.find_variable(data, variable)
    except ValueError as error:
        raise _damaged(tree, file, error) from error
    if matrix is None:
        raise ValueError(f"{_place(tree, file, variable)} is not there. Download the official file again.")
    return matrix


def _damaged(tree: Tree, file: str, error: ValueError) -> ValueError:
    return ValueError(
        f"{printable(tree.root)}/{printable(file)} is not a MATLAB file of versions 5 to 7, or it is damaged: {error}. "
        "Download the official file again."
    )
