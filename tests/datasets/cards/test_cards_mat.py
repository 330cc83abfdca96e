"""MATLAB files: what SciPy writes is read back, and what is damaged is refused, at no more cost than its length."""

import io
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.io import loadmat, savemat

from augpipe.datasets.cards import mat, mat5
from augpipe.datasets.cards.tree import Tree


def written(variables: dict[str, Any], packed: bool = True) -> bytes:
    file = io.BytesIO()
    savemat(file, variables, do_compression=packed)
    return file.getvalue()


def found(data: bytes, name: str = "x") -> mat5.Matrix:
    matrix = mat5.find_variable(data, name)
    assert matrix is not None
    return matrix


def struct_array(*rows: tuple[Any, ...]) -> Any:
    array = np.zeros((len(rows), 1), dtype=[("id", object), ("name", object), ("list", object)])
    for place, row in enumerate(rows):
        array[place, 0] = row
    return array


ROWS = struct_array((7.0, "n014", np.arange(9)), (np.uint8(3), "Zürich, 日本", np.zeros((1, 0))), (2.5, "", "text"))


@settings(max_examples=60)
@given(
    array=hnp.arrays(
        st.sampled_from("u1 i1 u2 i2 u4 i4 u8 i8 f4 f8".split()).map(np.dtype),
        st.tuples(st.integers(0, 4), st.integers(0, 9)),
    ),
    packed=st.booleans(),
)
def test_numbers_are_those_that_scipy_reads(array: Any, packed: bool) -> None:
    data = written({"other": "before", "x": array, "last": 1}, packed)
    expected = loadmat(io.BytesIO(data))["x"].reshape(-1, order="F")
    values = mat5.numbers(found(data))
    assert values.dtype.kind == expected.dtype.kind
    np.testing.assert_array_equal(values, expected)
    assert mat5.find_variable(data, "y") is None


@pytest.mark.parametrize("packed", [False, True])
def test_structs_and_texts(tmp_path: Path, packed: bool) -> None:
    data = written({"x": ROWS}, packed)
    assert mat5.fields(found(data)) == ("id", "name", "list")
    (tmp_path / "a.mat").write_bytes(data)
    rows = mat.structs(Tree(str(tmp_path)), "a.mat", "x", ("name", "id"))
    assert rows == [("n014", "7"), ("Zürich, 日本", "3"), ("", "2.5")]


@pytest.mark.parametrize("packed", [False, True])
def test_variables_of_names_of_any_length(packed: bool) -> None:
    """A name ends at a multiple of eight bytes, but for those of up to four letters."""
    names = ["a" * length for length in range(1, 20)]
    data = written({name: np.arange(len(name)) for name in names}, packed)
    for name in names:
        assert mat5.numbers(found(data, name)).tolist() == list(range(len(name)))


def element(kind: int, content: bytes, order: str) -> bytes:
    return struct.pack(f"{order}II", kind, len(content)) + content + bytes(-len(content) % 8)


@pytest.mark.parametrize(("order", "version"), [("<", b"\0\1IM"), (">", b"\1\0MI")])
def test_as_matlab_writes_it_on_machines_of_either_byte_order(order: str, version: bytes) -> None:
    """MATLAB writes text as 16 bits a letter, names of up to four letters within their tag, doubles as bytes."""

    def array(kind: int, shape: tuple[int, int], tail: bytes, name: str = "") -> bytes:
        small = struct.pack(f"{order}I", len(name) << 16 | 1) + name.encode().ljust(4, b"\0")
        flags = element(6, struct.pack(f"{order}II", kind, 0), order)
        return element(14, flags + element(5, struct.pack(f"{order}2i", *shape), order) + small + tail, order)

    letters = "Boeing 717".encode("utf-16-le" if order == "<" else "utf-16-be")
    cells = array(6, (1, 1), element(2, b"\x05", order)) + array(4, (1, 10), element(4, letters, order))
    names = struct.pack(f"{order}II", 4 << 16 | 5, 3) + element(1, b"a\0\0bc\0", order)
    data = bytes(124) + version + array(2, (1, 1), names + cells, "ab")
    matrix = found(data, "ab")
    assert mat5.fields(matrix) == ("a", "bc")
    assert [tuple(map(mat5.text, entry)) for entry in mat5.structs(matrix, ("bc", "a"))] == [("Boeing 717", "5")]


SOUND = [written({"x": np.arange(20.0)}, packed) for packed in (False, True)] + [
    written({"x": ROWS}, packed) for packed in (False, True)
]
EXTREME = st.sampled_from([b"\0", b"\xff", b"\x0f", b"\xff\xff\xff\x7f", b"\xff" * 4, b"\0\0\0\1", bytes(8)])


def changed(draw: Any, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        part = draw(st.one_of(EXTREME, st.binary(min_size=1, max_size=2)))
        at = draw(st.integers(0, len(out) - 1))
        out[at : at + len(part)] = part
    return bytes(out[: draw(st.one_of(st.just(len(out)), st.integers(0, len(out))))])


@pytest.mark.slow
@settings(max_examples=200)
@given(st.data(), st.sampled_from(SOUND))
def test_damaged_files_end_in_errors_or_in_values(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, sound: bytes
) -> None:
    """Damaged inside of the compression too: such files ended the process while SciPy read them."""
    head, body = sound[:128], sound[128:]
    if int.from_bytes(body[:4], "little") == 15 and data.draw(st.booleans()):
        inner = zlib.compress(changed(data.draw, zlib.decompress(body[8:])))
        body = struct.pack("<II", 15, len(inner)) + inner
        bad = head + body
    else:
        bad = changed(data.draw, sound)
    folder = tmp_path_factory.getbasetemp() / "damaged"
    folder.mkdir(exist_ok=True)
    (folder / "a.mat").write_bytes(bad)
    tree = Tree(str(folder))
    for read in (lambda: mat.integers(tree, "a.mat", "x"), lambda: mat.structs(tree, "a.mat", "x", ("id", "name"))):
        try:
            values = read()
        except ValueError:
            continue
        assert len(values) <= len(bad)


@pytest.mark.parametrize("shape", [(2**31 - 1, 1), (2**31 - 1, 2**31 - 1), (0, 5), (-1, 3)])
def test_a_shape_that_lies_costs_nothing(tmp_path: Path, shape: tuple[int, int]) -> None:
    true = struct.pack("<2i", 3, 1)
    for value, reason in ((ROWS, "cannot lie in|has the shape"), (np.zeros((3, 1)), "an array of shape|has the shape")):
        data = written({"x": value}, packed=False)
        assert true in data
        (tmp_path / "a.mat").write_bytes(data.replace(true, struct.pack("<2i", *shape), 1))
        if shape == (0, 5) and value is ROWS:
            assert mat.structs(Tree(str(tmp_path)), "a.mat", "x", ("id",)) == []
            continue
        with pytest.raises(ValueError, match=reason):
            mat.structs(Tree(str(tmp_path)), "a.mat", "x", ("id",)) if value is ROWS else mat.integers(
                Tree(str(tmp_path)), "a.mat", "x"
            )


def test_a_packed_variable_that_is_cut_short_is_refused() -> None:
    """All of its numbers are there, and the checksum behind them is not."""
    content = zlib.compress(written({"x": np.arange(5.0)}, packed=False)[128:])
    head = SOUND[0][:128]
    whole, cut = (head + struct.pack("<II", 15, len(part)) + part for part in (content, content[:-1]))
    assert mat5.numbers(found(whole)).tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="a variable is truncated"):
        mat5.find_variable(cut, "x")


@pytest.mark.parametrize(("num_bytes", "is_taken"), [(4, True), (5, False)])
def test_a_tag_holds_four_bytes_at_most(num_bytes: int, is_taken: bool) -> None:
    tag = memoryview(struct.pack("<HH", 2, num_bytes) + bytes(range(1, 13)))
    matrix = mat5.Matrix(9, False, (1, num_bytes), "x", tag, "<")
    if is_taken:
        assert mat5.numbers(matrix).tolist() == [1, 2, 3, 4]
    else:
        with pytest.raises(ValueError, match="an element of 5 bytes stands where"):
            mat5.numbers(matrix)


@pytest.mark.slow
def test_what_expands_without_end_is_refused(tmp_path: Path) -> None:
    bomb = zlib.compress(bytes(mat5.MAX_BYTES + 1))
    (tmp_path / "a.mat").write_bytes(SOUND[0][:128] + struct.pack("<II", 15, len(bomb)) + bomb)
    with pytest.raises(ValueError, match=f"is truncated, or has more than {mat5.MAX_BYTES} bytes"):
        mat.integers(Tree(str(tmp_path)), "a.mat", "x")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (np.array([1j]), "whole numbers are needed, and it holds complex numbers of shape"),
        (np.array([np.inf]), "has dtype float64, and whole numbers are needed"),
        (np.array([np.nan]), "has dtype float64, and whole numbers are needed"),
        (np.array([2.0**60]), "which numbers nothing"),
        ("words", "it holds text"),
        ([np.array(1), "a"], "it holds cells"),
        ({"a": 1}, "it holds structs"),
    ],
)
def test_values_that_number_nothing(tmp_path: Path, value: Any, reason: str) -> None:
    if isinstance(value, list):
        value = np.array(value, dtype=object)
    (tmp_path / "a.mat").write_bytes(written({"x": value}))
    with pytest.raises(ValueError, match=reason):
        mat.integers(Tree(str(tmp_path)), "a.mat", "x")
