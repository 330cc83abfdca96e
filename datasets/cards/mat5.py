"""Numbers, texts and struct arrays in MATLAB files of version 5, which versions 5 to 7 of MATLAB write.

After "MAT-File Format" (MathWorks), chapter 1. Read here, not by SciPy, which believes the sizes that a file claims: of
damaged files it ended the process or asked for gigabytes.
"""

import math
import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

MAX_BYTES = 1 << 26
"""The most bytes of a file, and of a variable once it is expanded; official label files have a few megabytes."""
_HEADER_BYTES = 128
_ORDERS = {b"\0\1IM": "<", b"\1\0MI": ">"}
"""Version and byte order at the header's end -> as `struct` writes it."""
_INT8, _INT32, _UINT32, _MATRIX, _COMPRESSED = 1, 5, 6, 14, 15
_DTYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_ENCODINGS = {1: "latin-1", 2: "latin-1", 4: "utf-16", 16: "utf-8", 17: "utf-16"}
_STRUCTS, _TEXT, _NUMBERS = 2, 4, range(6, 16)
_COMPLEX = 0x800
_CLASSES = {1: "cells", 2: "structs", 3: "objects", 4: "text", 5: "a sparse matrix"}


class Matrix(NamedTuple):
    """A variable, or a field of a struct; all sizes in it are claims, which are checked when it is looked into."""

    kind: int
    """MATLAB's number for its class."""
    is_complex: bool
    shape: tuple[int, ...]
    name: str
    content: memoryview
    """What follows the name."""
    order: str

    @property
    def what(self) -> str:
        """Its content, in words."""
        if self.kind not in _NUMBERS:
            return _CLASSES.get(self.kind, f"values of class {self.kind}")
        return f"{'complex ' if self.is_complex else ''}numbers of shape {self.shape}"


def find_variable(data: bytes, name: str) -> Matrix | None:
    """The variable of this name; None where there is none.

    Raises:
        ValueError: no MATLAB file of version 5, truncated, or damaged; the reason alone.
    """
    order = _ORDERS.get(data[_HEADER_BYTES - 4 : _HEADER_BYTES])
    if order is None:
        raise ValueError("its header is not theirs")
    for kind, content in _elements(memoryview(data)[_HEADER_BYTES:], order):
        if kind == _COMPRESSED:
            kind, content = next(_elements(memoryview(_expanded(content)), order), (0, content))
        if kind == _MATRIX and (matrix := _matrix(content, order)).name == name:
            return matrix
    return None


def numbers(matrix: Matrix) -> npt.NDArray[np.number]:
    """All numbers, of shape (N,), as MATLAB counts them; read-only.

    Raises:
        ValueError: it holds something else, or is damaged; the reason alone.
    """
    if matrix.kind not in _NUMBERS or matrix.is_complex:
        raise ValueError(f"it holds {matrix.what}")
    kind, content = next(_elements(matrix.content, matrix.order), (0, memoryview(b"")))
    dtype = np.dtype(matrix.order + _DTYPES.get(kind, "u1"))
    if math.prod(matrix.shape) * dtype.itemsize != len(content) or (kind not in _DTYPES and len(content)):
        raise ValueError(f"an array of shape {matrix.shape} has {len(content)} bytes of type {kind}")
    values: npt.NDArray[np.number] = np.frombuffer(content, dtype)
    return values


def text(matrix: Matrix) -> str:
    """A line of text, or a single number; whole numbers without a point.

    Raises:
        ValueError: it holds something else, or is damaged; the reason alone.
    """
    if matrix.kind == _TEXT and matrix.shape[0] <= 1:
        kind, content = next(_elements(matrix.content, matrix.order), (0, memoryview(b"")))
        if not len(content):
            return ""
        if kind not in _ENCODINGS:
            raise ValueError(f"a text has the type {kind}")
        ending = {"<": "-le", ">": "-be"}[matrix.order] if _ENCODINGS[kind] == "utf-16" else ""
        return bytes(content).decode(_ENCODINGS[kind] + ending)
    values = numbers(matrix)
    if len(values) != 1:
        raise ValueError(f"one number or a line of text is wanted, and it holds {matrix.what}")
    value = values[0].item()
    # MATLAB keeps whole doubles in as few bytes as hold them, and other writers do not
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def fields(matrix: Matrix) -> tuple[str, ...]:
    """The names of a struct array's fields; () where it is none.

    Raises:
        ValueError: it is damaged; the reason alone.
    """
    return _fields(matrix)[0] if matrix.kind == _STRUCTS else ()


def structs(matrix: Matrix, wanted: tuple[str, ...]) -> Iterator[tuple[Matrix, ...]]:
    """The fields `wanted`, which must be there, of each entry of a struct array.

    Raises:
        ValueError: it is damaged; the reason alone.
    """
    names, content = _fields(matrix)
    places = [names.index(name) for name in wanted]
    num_entries = math.prod(matrix.shape)
    if num_entries * len(names) * 8 > len(content):
        raise ValueError(f"structs of shape {matrix.shape} and {len(names)} fields cannot lie in {len(content)} bytes")
    values = _elements(content, matrix.order)
    for _ in range(num_entries):
        entry = [next(values, (0, content)) for _ in names]
        if any(kind != _MATRIX for kind, _ in entry):
            raise ValueError("a field of its structs is not an array")
        yield tuple(_matrix(entry[place][1], matrix.order) for place in places)


def _fields(matrix: Matrix) -> tuple[tuple[str, ...], memoryview]:
    """Names, and what follows them."""
    (length_kind, length_bytes), at = _element(matrix.content, 0, matrix.order)
    (names_kind, joined), at = _element(matrix.content, at, matrix.order)
    length = int.from_bytes(length_bytes, "little" if matrix.order == "<" else "big")
    if length_kind != _INT32 or names_kind != _INT8 or length < 1 or len(joined) % length:
        raise ValueError("the names of its fields cannot be read")
    parts = [bytes(joined[start : start + length]) for start in range(0, len(joined), length)]
    return tuple(part.split(b"\0", 1)[0].decode("latin-1") for part in parts), matrix.content[at:]


def _expanded(content: memoryview) -> bytes:
    stream = zlib.decompressobj()
    try:
        data = stream.decompress(content, MAX_BYTES)
    except zlib.error as error:
        raise ValueError(f"it cannot be expanded: {error}") from error
    if not stream.eof:
        raise ValueError(f"a variable is truncated, or has more than {MAX_BYTES} bytes")
    return data


def _matrix(content: memoryview, order: str) -> Matrix:
    if not len(content):  # an empty field is written so
        return Matrix(_NUMBERS[0], False, (0, 0), "", content, order)
    (flags_kind, flags), at = _element(content, 0, order)
    (shape_kind, shape_bytes), at = _element(content, at, order)
    (name_kind, name), at = _element(content, at, order)
    if (flags_kind, shape_kind, name_kind) != (_UINT32, _INT32, _INT8) or len(flags) != 8 or len(shape_bytes) % 4:
        raise ValueError("the header of an array cannot be read")
    shape = struct.unpack(f"{order}{len(shape_bytes) // 4}i", shape_bytes)
    if len(shape) < 2 or min(shape) < 0:
        raise ValueError(f"an array has the shape {shape}")
    (flag,) = struct.unpack_from(f"{order}I", flags)
    return Matrix(flag & 0xFF, bool(flag & _COMPLEX), shape, bytes(name).decode("latin-1"), content[at:], order)


def _elements(content: memoryview, order: str) -> Iterator[tuple[int, memoryview]]:
    at = 0
    while at < len(content):
        element, at = _element(content, at, order)
        yield element


def _element(content: memoryview, at: int, order: str) -> tuple[tuple[int, memoryview], int]:
    """(type, bytes) of the element at a place, and where the next one is; up to four bytes lie within its tag."""
    if at + 8 > len(content):
        raise ValueError("it ends within an element")
    kind, num_bytes = struct.unpack_from(f"{order}II", content, at)
    if kind >> 16:
        kind, num_bytes, start, following = kind & 0xFFFF, kind >> 16, at + 4, at + 8
    else:
        start = at + 8
        following = start + num_bytes + (0 if kind == _COMPRESSED else -num_bytes % 8)
    if start + num_bytes > len(content) or (start == at + 4 and num_bytes > 4):
        raise ValueError(f"an element of {num_bytes} bytes stands where {max(len(content) - start, 0)} are left")
    return (kind, content[start : start + num_bytes]), following
