"""Labels of several numbers each, from lists with several columns and from Parquet."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from augpipe.datasets.formats.file_list import FileListSource
from augpipe.datasets.formats.parquet.parquet_source import ParquetSource
from augpipe.datasets.open import open_source
from augpipe.sources.protocol import label_width_of
from tests.datasets.formats.source_checks import assert_labels

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


# Lists


def write_list(folder: Path, text: str) -> Path:
    for name in ("0.jpg", "1.jpg"):
        (folder / name).touch()
    (folder / "list.csv").write_text(text)
    return folder / "list.csv"


@pytest.mark.parametrize(
    ("text", "rows", "dtype", "names"),
    [
        ("path,label_x,label_y\n0.jpg,0.5,-2\n1.jpg,1e-3, 7 \n", [[0.5, -2], [1e-3, 7]], np.float32, ("x", "y")),
        ("label_cat,PATH,label_dog\n1,0.jpg,0\n0,1.jpg,-1\n", [[1, 0], [0, -1]], np.int64, ("cat", "dog")),
        ("path,label_only,other\n0.jpg,3,a\n1.jpg,4,b\n", [[3], [4]], np.int64, ("only",)),
        ("path,label_x,label_y\n0.jpg,True,0\n1.jpg,False,1\n", [[1, 0], [0, 1]], np.float32, ("x", "y")),
        ("path,label_x\n0.jpg,9007199254740993\n1.jpg,1\n", [[2.0**53], [1]], np.float32, ("x",)),
    ],
    ids=["floats", "integers", "one column", "booleans", "integers beyond doubles"],
)
def test_columns_that_begin_with_label(tmp_path: Path, text: str, rows: Any, dtype: Any, names: Any) -> None:
    assert_labels(open_source(write_list(tmp_path, text)), rows, dtype, names)


def test_columns_that_are_named(tmp_path: Path) -> None:
    path = write_list(tmp_path, "path,label,X,y\n0.jpg,cat,0.5,1\n1.jpg,dog,2,3\n")
    assert_labels(FileListSource(path, labels=["y", "X"]), [[1, 0.5], [3, 2]], np.float32, ("y", "X"))
    named = FileListSource(path, labels=["y"], classes=["age"])
    assert_labels(named, [[1], [3]], np.int64, ("age",))
    plain = FileListSource(path)
    assert label_width_of(plain) == 0 and plain.labels().tolist() == [0, 1]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("path,label_x\n0.jpg,a\n", {}, r"list.csv, line 2: column 'label_x' holds 'a', and labels of several columns"),
        (
            "path,label_id,label_name\n0.jpg,3,cat\n",
            {},
            r"line 2: column 'label_name' holds 'cat', .* Write one, or pass label= with the column of classes, as "
            r"label='label_name'\.$",
        ),
        ("path,label_x\n0.jpg,\n", {}, r"line 2: column 'label_x' holds ''"),
        ("path,label_x,label_y\n0.jpg,1\n", {}, r"line 2: 2 columns, and 3 are needed as in the first line"),
        ("path,a\n0.jpg,1\n", {"labels": ["b"]}, r"line 1: there is no column 'b': the header has path, a. Name those"),
        ("0.jpg,1,2\n", {"labels": ["b"]}, r"line 1: no header with a column 'path', and labels=\['b'\] names some"),
        ("path,a\n0.jpg,1\n", {"labels": "a"}, r"labels='a' is one text. Give the columns' names: labels=\['a'\]"),
        ("path,label_x\n0.jpg,1\n", {"classes": ["a", "b"]}, r"classes holds 2 names, and there are 1 columns of lab"),
    ],
)
def test_lists_that_are_refused(tmp_path: Path, text: str, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FileListSource(write_list(tmp_path, text), **options)


# Parquet


def put(path: Path, **columns: Any) -> Path:
    num = len(next(iter(columns.values())))
    images = pa.array(
        [{"bytes": b"%d" % i, "path": ""} for i in range(num)], pa.struct({"bytes": pa.binary(), "path": pa.string()})
    )
    pq.write_table(pa.table({"image": images, **columns}), path, row_group_size=2)
    return path


ROWS = [[0.5, 1.0, 0.0], [2.0, 0.25, 1.0], [0.0, 0.0, 3.0]]
LISTS = {
    "list of floats": (pa.list_(pa.float64()), ROWS, np.float32),
    "large list of integers": (pa.large_list(pa.int8()), [[1, 0, 1], [0, 0, 0], [2, 1, 0]], np.int64),
    "fixed list of booleans": (pa.list_(pa.bool_(), 3), [[True, False, True]] * 3, np.float32),
}


@pytest.mark.parametrize("kind", LISTS)
def test_a_column_of_lists(tmp_path: Path, kind: str) -> None:
    arrow, rows, dtype = LISTS[kind]
    first = put(tmp_path / "a.parquet", target=pa.array(rows, arrow))
    second = put(tmp_path / "b.parquet", target=pa.array(rows[1:], arrow))
    both = ParquetSource([first, second], label="target")
    assert_labels(both, [*rows, *rows[1:]], dtype, ())
    assert bytes(both.read(3)) == b"0"
    named = ParquetSource(first, label="target", classes=["a", "b", "c"])
    assert_labels(named, rows, dtype, ("a", "b", "c"))
    with pytest.raises(ValueError, match="column 'target' looks like the label"):
        ParquetSource(first)


def test_several_columns(tmp_path: Path) -> None:
    path = put(tmp_path / "a.parquet", x=[1, 2, 3], y=[0.5, 1.5, 2.5], label=[0, 1, 0])
    assert_labels(ParquetSource(path, label=["y", "x"]), [[0.5, 1], [1.5, 2], [2.5, 3]], np.float32, ("y", "x"))
    assert_labels(ParquetSource(path, label=["x"]), [[1], [2], [3]], np.int64, ())
    assert ParquetSource(path).labels().tolist() == [0, 1, 0]


def test_parquet_files_that_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    for column, message in (
        (
            pa.array([[1], [1, 2]]),
            r"column 'target' holds lists of 1 to 2 numbers.*Write lists of class numbers as rows",
        ),
        (pa.array([[], []], pa.list_(pa.int64())), r"holds lists of 0 to 0 numbers"),
        (pa.array([[1], None]), r"column 'target' holds no label in 1 rows. Fill them, or drop the rows"),
        (pa.array([[1.0], [None]]), r"column 'target' holds lists with a gap. Fill it"),
    ):
        with pytest.raises(ValueError, match=message):
            ParquetSource(put(path, target=column), label="target")
    put(path, x=[1, 2], text=["a", "b"])
    for label, message in (
        (["x", "z"], r"label=\['x', 'z'\] names 'z', which is not a column of numbers. Those are 'x'"),
        (["text"], r"names 'text', which is not a column of numbers"),
        ([], r"label=\[\] names no column. Leave it out"),
    ):
        with pytest.raises(ValueError, match=message):
            ParquetSource(path, label=label)
    with pytest.raises(
        ValueError, match="classes holds 1 names, and each label 2 numbers. Give one name each, or none"
    ):
        ParquetSource(put(path, target=pa.array([[1, 2]])), label="target", classes=["a"])
    other = put(tmp_path / "b.parquet", target=pa.array([[1, 2, 3]]))
    with pytest.raises(ValueError, match=r"labels are of \[2, 3\] numbers. Give one data set's files"):
        ParquetSource([put(path, target=pa.array([[1, 2]])), other], label="target")
