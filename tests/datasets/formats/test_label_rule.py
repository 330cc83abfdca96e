"""One rule for labels in every format: what looks like the label and cannot be used is an error that names `label=`."""

import json
import logging
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from augpipe.datasets.formats.folder import FolderSource
from augpipe.datasets.formats.hugging_face import HuggingFaceSource
from augpipe.datasets.formats.idx import IdxSource
from augpipe.datasets.formats.parquet.parquet_source import ParquetSource
from augpipe.datasets.formats.tar.tar_source import TarSource
from augpipe.datasets.formats.tfrecord.tfrecord_source import TFRecordSource
from augpipe.datasets.open import open_source
from tests.datasets.formats import tar_files, test_source_idx
from tests.datasets.formats.source_checks import assert_labels
from tests.datasets.formats.test_source_hugging_face import ClassLabel, Dataset, Image, List, Value
from tests.datasets.formats.test_source_tfrecord import example, of_bytes, of_floats, of_ints
from tests.datasets.formats.test_source_tfrecord import put as put_records

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


# --- tables: Parquet and Hugging Face


def parquet(folder: Path, **columns: Any) -> Callable[..., Any]:
    num = len(next(iter(columns.values())))
    image = pa.array([{"bytes": b"x"}] * num, pa.struct({"bytes": pa.binary()}))
    pq.write_table(pa.table({"image": image, **columns}), folder / "a.parquet")
    return lambda **options: ParquetSource(folder / "a.parquet", **options)


def hugging_face(columns: dict[str, tuple[Any, Sequence[Any]]]) -> Callable[..., Any]:
    rows = [
        {"image": {"bytes": b"x", "path": None}, **{name: values[i] for name, (_, values) in columns.items()}}
        for i in range(2)
    ]
    features = {name: kind for name, (kind, _) in columns.items()}
    return lambda **options: HuggingFaceSource(Dataset(rows, {"image": Image(), **features}), **options)


UNUSABLE = {
    "floats": (pa.float64(), Value("float64"), [0.5, 1.0], [[0.5], [1]], np.float32),
    "booleans": (pa.bool_(), Value("bool"), [True, False], [[1], [0]], np.float32),
    "lists": (pa.list_(pa.int64()), List(Value("int64")), [[1, 0], [0, 1]], [[1, 0], [0, 1]], np.int64),
}


@pytest.mark.parametrize("other", [None, "target", "class"])
@pytest.mark.parametrize("kind", UNUSABLE)
@pytest.mark.parametrize("form", ["parquet", "hugging_face"])
def test_a_column_that_looks_like_the_label_is_not_dropped(
    tmp_path: Path, form: str, kind: str, other: str | None
) -> None:
    arrow, feature, values, rows, dtype = UNUSABLE[kind]
    if form == "parquet":
        others = {other: pa.array([3, 4])} if other else {}
        opened = parquet(tmp_path, label=pa.array(values, arrow), **others)
    else:
        opened = hugging_face({"label": (feature, values)} | ({other: (Value("int64"), [3, 4])} if other else {}))
    with pytest.raises(
        ValueError, match=r"column 'label' looks like the label and holds .*, and a class is an integer or"
    ):
        opened()
    with pytest.raises(
        ValueError, match=r"Pass label='label' to read it as numbers, label= another column, or label=F"
    ):
        opened()
    assert_labels(opened(label="label"), rows, dtype, ())
    assert opened(label=False).labels().tolist() == [-1, -1]
    if other:
        assert opened(label=other).labels().tolist() == [3, 4]


@pytest.mark.parametrize("form", ["parquet", "hugging_face"])
def test_integers_of_which_pandas_made_floats(tmp_path: Path, form: str) -> None:
    numbers = [1.0, float("nan")]
    opened = (
        parquet(tmp_path, label=pa.array(numbers, pa.float64()))
        if form == "parquet"
        else hugging_face({"label": (Value("float64"), numbers)})
    )
    with pytest.raises(ValueError, match=r"pandas makes floats of integers where one is missing: fill those with -1"):
        opened()
    with pytest.raises(ValueError, match=r"finite"):
        opened(label="label")


def test_decimals_and_columns_of_nothing(tmp_path: Path) -> None:
    for kind, values in ((pa.decimal128(3, 1), None), (pa.null(), [None, None])):
        column = pa.array([Decimal(1), Decimal("2.5")] if values is None else values, kind)
        with pytest.raises(
            ValueError, match=r"column 'label' looks like .*\. Convert it, or pass label= another column"
        ):
            parquet(tmp_path, label=column)()
    with pytest.raises(ValueError, match=r"column 'Label' looks like the label and holds decimal128\(3, 1\)"):
        hugging_face({"Label": (Value("decimal128(3, 1)"), [1, 2])})()


@pytest.mark.parametrize("form", ["parquet", "hugging_face"])
def test_which_column_is_taken_is_said(tmp_path: Path, source_log: pytest.LogCaptureFixture, form: str) -> None:
    if form == "parquet":
        opened = parquet(tmp_path, Class=["b", "a"], target=pa.array([0.5, 1.5]), id=[7, 8])
    else:
        columns: Any = {"Class": (Value("string"), ["b", "a"]), "target": (Value("float32"), [0.5, 1.5])}
        opened = hugging_face(columns | {"id": (Value("int64"), [7, 8])})
    source = open_source(opened())
    assert source.classes == ("a", "b")
    (record,) = source_log.records
    assert record.levelno == logging.INFO
    assert record.getMessage().endswith(
        "; labels are column 'Class'; not read: column 'target' of the table (label='target' reads it)"
    )


@pytest.mark.parametrize("form", ["parquet", "hugging_face"])
def test_columns_are_named_where_none_is_a_label(
    tmp_path: Path, source_log: pytest.LogCaptureFixture, form: str
) -> None:
    if form == "parquet":
        opened = parquet(tmp_path, x=[1, 2], score=pa.array([0.5, 1.5]))
    else:
        opened = hugging_face({"x": (Value("int64"), [1, 2]), "score": (Value("float32"), [0.5, 1.5])})
    open_source(opened())
    (record,) = source_log.records
    assert record.levelno == logging.WARNING
    assert record.getMessage().endswith(
        "; none has a label; left out: columns 'x', 'score' of the table (label='x' reads one, label=['x', 'score'] "
        "several as numbers)"
    )


def test_a_class_label_of_another_name_does_not_hide_a_label_of_floats() -> None:
    with pytest.raises(ValueError, match=r"column 'label' looks like the label and holds float32"):
        hugging_face({"label": (Value("float32"), [0.5, 1]), "kind": (ClassLabel(["a", "b"]), [0, 1])})()


# --- tar


def put_tar(folder: Path, *members: tuple[str, bytes]) -> Path:
    return tar_files.put(folder / "a.tar", members)


def test_labels_that_lie_apart_from_their_images(tmp_path: Path) -> None:
    path = put_tar(tmp_path, ("1.jpg", b"a"), ("2.jpg", b"b"), ("1.cls", b"0"), ("2.cls", b"1"))
    with pytest.raises(
        ValueError, match=r"a.tar: the label of sample '1' lies apart from its image.*tar --sort=name.*label"
    ):
        TarSource(path)
    assert TarSource(path, label=False).labels().tolist() == [-1, -1]


def test_class_folders_in_a_tar(tmp_path: Path) -> None:
    path = put_tar(tmp_path, ("./set/dog/1.jpg", b"a"), ("./set/cat/deep/1.jpg", b"b"), ("./set/2.jpg", b"c"))
    with pytest.raises(
        ValueError, match=r"no label.* and the photographs lie in folders \('cat', 'dog'\).*label='folder'"
    ):
        TarSource(path)
    source = TarSource(path, label="folder")
    assert (source.labels().tolist(), source.classes) == ([1, 0, -1], ("cat", "dog"))
    assert TarSource(path, label="folder", classes=["dog", "cat"]).labels().tolist() == [0, 1, -1]
    assert TarSource(path, label=False).labels().tolist() == [-1] * 3
    one = put_tar(tmp_path, ("set/1.jpg", b"a"), ("set/2.jpg", b"b"))
    assert TarSource(one).labels().tolist() == [-1, -1]


def test_folders_of_splits_in_a_tar_are_no_classes(tmp_path: Path) -> None:
    path = put_tar(tmp_path, ("train/1.jpg", b"a"), ("test/1.jpg", b"b"))
    for label in (None, "folder"):
        with pytest.raises(
            ValueError, match=r"folders 'test', 'train' are splits, and no classes. Pack each into a tar"
        ):
            TarSource(path, label=label)


def test_fields_and_members_that_look_like_labels(tmp_path: Path) -> None:
    field = put_tar(tmp_path, ("1.jpg", b"a"), ("1.json", b'{"class": 3, "id": 7}'))
    with pytest.raises(ValueError, match=r"no label.*'class' in its .json looks like one. Pass label='class'"):
        TarSource(field)
    assert TarSource(field, label="class").labels().tolist() == [3]
    member = put_tar(tmp_path, ("1.jpg", b"a"), ("1.target", b"cat"))
    with pytest.raises(ValueError, match=r"its member .target looks like one. Pass label='target'"):
        TarSource(member)
    assert TarSource(member, label="target").classes == ("cat",)
    listed = put_tar(tmp_path, ("1.jpg", b"a"), ("labels.csv", b"1.jpg,0\n"))
    with pytest.raises(ValueError, match=r"holds 'labels.csv', which is not read. Unpack it.*or pass label=False"):
        TarSource(listed)
    with pytest.raises(ValueError, match=r"label='kind' names a member or a field of .json that no sample has"):
        TarSource(field, label="kind")


def test_floats_in_json_are_named(tmp_path: Path) -> None:
    path = put_tar(
        tmp_path, ("1.jpg", b"a"), ("1.json", b'{"label": 0.5}'), ("2.jpg", b""), ("2.json", b'{"label": 1}')
    )
    with pytest.raises(
        ValueError, match=r"gives label=0.5, and a class is an integer or a name. Pass label='label' to r"
    ):
        TarSource(path)
    assert_labels(TarSource(path, label="label"), [[0.5], [1]], np.float32, ())


def test_samples_without_cls_are_counted(tmp_path: Path, source_log: pytest.LogCaptureFixture) -> None:
    path = put_tar(tmp_path, ("1.jpg", b"a"), ("1.cls", b"0"), ("2.jpg", b"b"), ("3.jpg", b"c"))
    open_source(path)
    (record,) = source_log.records
    assert record.levelno == logging.WARNING
    assert "(3 photographs" not in record.getMessage() and "2 photographs without a label (-1)" in record.getMessage()


def test_samples_without_an_image_are_counted(tmp_path: Path, source_log: pytest.LogCaptureFixture) -> None:
    open_source(put_tar(tmp_path, ("1.jpg", b"a"), ("1.cls", b"0"), ("2.heic", b"b"), ("2.cls", b"1")))
    assert "left out: 1 sample without an image (cls, heic)" in source_log.text


def test_floats_in_cls_are_regression_and_that_is_said(tmp_path: Path, source_log: pytest.LogCaptureFixture) -> None:
    source = open_source(put_tar(tmp_path, ("1.jpg", b"a"), ("1.cls", b"0.5"), ("2.jpg", b"b"), ("2.cls", b"2")))
    assert_labels(source, [[0.5], [2]], np.float32, ())
    assert "the label holds numbers with a point, so labels are regression" in source_log.text
    source_log.clear()
    open_source(put_tar(tmp_path, ("1.jpg", b"a"), ("1.cls", b"1.0"), ("2.jpg", b"b"), ("2.cls", b"2.0")))
    (record,) = source_log.records
    assert "all are whole" in record.getMessage() and record.levelno == logging.WARNING


# --- TFRecord


def records(folder: Path, *features: dict[str, bytes]) -> Path:
    return put_records(folder / "a.tfrecord", [example(image=of_bytes(b"x"), **one) for one in features])


def test_features_that_are_taken_under_another_name(tmp_path: Path, source_log: pytest.LogCaptureFixture) -> None:
    for name, feature, classes in (
        ("image__label", of_ints(1), ("0", "1")),
        ("target", of_ints(0), ("0",)),
        ("image__class__text", of_bytes(b"cat"), ("cat",)),
    ):
        source_log.clear()
        assert open_source(records(tmp_path, {name: feature})).classes == classes
        assert f"; labels are feature '{name.replace('__', '/')}'" in source_log.text


def test_features_that_cannot_be_labels(tmp_path: Path) -> None:
    path = records(tmp_path, *({"label": of_floats(number), "class": of_ints(1)} for number in (0.5, 2)))
    with pytest.raises(
        ValueError,
        match=r"record 0: feature 'label' looks like the label and holds float.*Pass label='label' to read it as n",
    ):
        TFRecordSource(path)
    assert_labels(TFRecordSource(path, label="label"), [[0.5], [2]], np.float32, ())
    assert TFRecordSource(path, label=False).labels().tolist() == [-1, -1]
    mixed = records(tmp_path, {"class": of_ints(1)}, {"label": of_ints(0)})
    with pytest.raises(ValueError, match=r"record 1: its label is feature 'label', and before it 'class'. Pass label="):
        TFRecordSource(mixed)
    with pytest.raises(ValueError, match=r"record 0: its feature 'label' holds nan|finite"):
        TFRecordSource(records(tmp_path, {"label": of_floats(float("nan"))}), label="label")


def test_features_are_named_where_none_is_a_label(tmp_path: Path, source_log: pytest.LogCaptureFixture) -> None:
    open_source(records(tmp_path, {"score": of_floats(0.5)}))
    (record,) = source_log.records
    assert record.levelno == logging.WARNING
    assert record.getMessage().endswith(
        "; none has a label; left out: feature 'score' of the records (label='score' reads it)"
    )


# --- IDX


def test_labels_of_another_name_beside_idx_images(tmp_path: Path) -> None:
    (tmp_path / "digits").write_bytes(test_source_idx.idx(test_source_idx.PIXELS))
    assert IdxSource(tmp_path / "digits").labels().tolist() == [-1] * 5
    (tmp_path / "digit_labels").write_bytes(test_source_idx.idx(test_source_idx.LABELS))
    with pytest.raises(
        ValueError, match=r"digits has no labels by its name, and digit_labels next to it holds 5. Pass labels="
    ):
        IdxSource(tmp_path / "digits")
    assert IdxSource(tmp_path / "digits", tmp_path / "digit_labels").labels().tolist() == [3, 0, 2, 2, 1]
    assert IdxSource(tmp_path / "digits", False).labels().tolist() == [-1] * 5
    (tmp_path / "digit_labels").write_bytes(test_source_idx.idx(test_source_idx.LABELS[:4]))
    assert IdxSource(tmp_path / "digits").labels().tolist() == [-1] * 5


def test_label_255_is_none(tmp_path: Path, source_log: pytest.LogCaptureFixture) -> None:
    path = test_source_idx.put(tmp_path, test_source_idx.PIXELS, np.array([3, 255, 2, 255, 1], np.uint8))
    source = open_source(path)
    assert (source.labels().tolist(), source.classes) == ([3, -1, 2, -1, 1], ("0", "1", "2", "3"))
    (record,) = source_log.records
    assert record.levelno == logging.WARNING
    assert "2 photographs without a label (-1); label 255 is read as -1, as int8 writes it" in record.getMessage()
    assert IdxSource(path, classes=["a", "b", "c", "d"]).labels().tolist() == [3, -1, 2, -1, 1]
    many = test_source_idx.put(tmp_path, test_source_idx.PIXELS, np.array([3, 255, 2, 254, 1], np.uint8))
    assert IdxSource(many).labels().tolist() == [3, 255, 2, 254, 1]
    assert IdxSource(many, classes=[str(i) for i in range(256)]).labels().tolist() == [3, 255, 2, 254, 1]


# --- a list in a flat folder


@pytest.mark.parametrize(
    "text", ["file_name,label\n1.jpg,cat\n", "1.jpg,3\n", "path;target\n1.jpg;0.5\n", "image,label_x\n1.jpg,2\n"]
)
def test_a_list_in_a_flat_folder_is_not_passed_over(tmp_path: Path, text: str) -> None:
    (tmp_path / "1.jpg").touch()
    (tmp_path / "metadata.csv").write_text(text)
    with pytest.raises(ValueError, match=r"metadata.csv lists the labels of photographs .* Give that list itself"):
        FolderSource(tmp_path)
    assert len(open_source(tmp_path / "metadata.csv")) == 1


def test_a_list_beside_one_folder_is_not_passed_over(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "1.jpg").touch()
    (tmp_path / "train.csv").write_text("image,label\nimages/1.jpg,3\n")
    with pytest.raises(ValueError, match=r"train.csv lists the labels of photographs"):
        FolderSource(tmp_path)
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "1.jpg").touch()
    assert FolderSource(tmp_path).classes == ("images", "more")


def test_other_files_in_a_flat_folder_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "1.jpg").touch()
    for name, text in (
        ("notes.txt", "1.jpg is nice, very\n"),
        ("sizes.csv", "path,width\n1.jpg,7\n"),
        ("other.csv", "gone.jpg,1\n"),
        ("empty.csv", ""),
    ):
        (tmp_path / name).write_text(text)
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    assert FolderSource(tmp_path).labels().tolist() == [-1]
    (tmp_path / "metadata.jsonl").write_text(json.dumps({"file_name": "1.jpg", "label": 0}))
    with pytest.raises(ValueError, match=r"metadata.jsonl lists the labels of photographs.*Write it as a CSV list"):
        FolderSource(tmp_path)
