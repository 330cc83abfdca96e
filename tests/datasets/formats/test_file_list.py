"""Lists as people have them: made by pandas, downloaded with a competition, saved by a spreadsheet."""

import logging
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from augpipe import Loader, recipes
from augpipe.datasets.formats.file_list import FileListSource
from augpipe.datasets.open import open_source
from augpipe.sources.protocol import columns_of
from tests.datasets.formats.source_checks import assert_labels

NAMES = ("0.jpg", "1.jpg", "2.jpg")


def put_list(folder: Path, text: str, name: str = "list.csv") -> Path:
    for photo in NAMES:
        (folder / photo).write_bytes(photo.encode())
    (folder / name).write_text(text, encoding="utf-8", newline="")
    return folder / name


def read_back(source: FileListSource) -> list[str]:
    return [bytes(source.read(i)).decode() for i in range(len(source))]


# --- labels


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("path,label\n0.jpg,0.003\n1.jpg,1e-2\n2.jpg,-7\n", [[0.003], [0.01], [-7]]),
        ("0.jpg,0.5\n1.jpg,.25\n2.jpg,3.\n", [[0.5], [0.25], [3]]),
        ("path,label\n0.jpg,1.0\n1.jpg,0.0\n2.jpg,2.0\n", [[1], [0], [2]]),
    ],
)
def test_floats_are_regression_and_that_is_said(
    tmp_path: Path, source_log: pytest.LogCaptureFixture, text: str, rows: list[list[float]]
) -> None:
    source = open_source(put_list(tmp_path, text))
    assert_labels(source, rows, np.float32, ("label",) if text.startswith("path") else ())
    (line,) = source_log.messages
    assert "3 photographs, labels of 1 number)" in line
    assert "holds numbers with a point, so labels are regression, (B, 1) float32" in line


def test_floats_that_pandas_makes_of_integers_name_the_remedy(
    tmp_path: Path, source_log: pytest.LogCaptureFixture
) -> None:
    open_source(put_list(tmp_path, "path,label\n0.jpg,1.0\n1.jpg,0.0\n"))
    (record,) = source_log.records
    assert "all are whole: for classes pass classes=[...], or write no point" in record.getMessage()
    assert record.levelno == logging.WARNING


def test_floats_may_be_named(tmp_path: Path) -> None:
    path = put_list(tmp_path, "path,label\n0.jpg,0.5\n1.jpg,2\n")
    assert_labels(FileListSource(path, classes=["age"]), [[0.5], [2]], np.float32, ("age",))
    with pytest.raises(ValueError, match=r"line 2: label '0.5' is not a class number \(0..1, or -1 for none\)"):
        FileListSource(path, classes=["a", "b"])


def test_whole_floats_are_classes_where_classes_are_given(tmp_path: Path) -> None:
    path = put_list(tmp_path, "path,label\n0.jpg,1.0\n1.jpg,0.0\n2.jpg,-1.0\n")
    assert FileListSource(path, classes=["cat", "dog"]).labels().tolist() == [1, 0, -1]


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (("0.5", "nan"), r"line 3: label 'nan' is not a number, and other labels are. Write one, or leave the sample"),
        (("1", "NaN"), r"line 3: label 'NaN' is not a number, and other labels are"),
        (
            ("cat", "nan"),
            r"line 3: label 'nan' stands where a label is missing. Write one, or leave the sample out; if it is ",
        ),
        (("nan", "nan"), r"line 2: label 'nan' stands where a label is missing"),
        (("0.5", "1e39"), r"line 3: label '1e39' is beyond float32"),
        (("0.5", "cat"), r"line 3: label 'cat' is a name, and other labels are numbers. Fix it"),
        (("cat", "0.5"), r"line 2: label 'cat' is a name, and other labels are numbers"),
        (("01", "1"), r"line 3: label '1' is the number that '01' is elsewhere, spelled in another way"),
        (("7", "+7"), r"line 3: label '\+7' is the number that '7' is elsewhere"),
        (("0,5", "1,5"), r"line 2: label '0,5' has a comma for a point"),
        (("[1, 0]", "[0, 1]"), r"line 2: label '\[1, 0\]' is a list, and one text is one class"),
    ],
)
def test_labels_that_say_two_things_are_refused(tmp_path: Path, cells: tuple[str, str], message: str) -> None:
    first, second = (f'"{cell}"' for cell in cells)
    path = put_list(tmp_path, f"path,label\n0.jpg,{first}\n1.jpg,{second}\n")
    with pytest.raises(ValueError, match=f"list.csv, {message}"):
        FileListSource(path)


def test_names_that_look_like_numbers_are_taken_with_classes(tmp_path: Path) -> None:
    path = put_list(tmp_path, "path,label\n0.jpg,01\n1.jpg,1\n2.jpg,nan\n")
    source = FileListSource(path, classes=["01", "1", "nan"])
    assert source.labels().tolist() == [0, 1, 2]


@pytest.mark.parametrize("number", ["nan", "inf", "-Infinity", "1e300", "1_0"])
def test_columns_of_numbers_hold_finite_numbers(tmp_path: Path, number: str) -> None:
    path = put_list(tmp_path, f"path,label_x,label_y\n0.jpg,1,2\n1.jpg,3,{number}\n")
    with pytest.raises(ValueError, match=rf"list.csv, line 3: column 'label_y' holds '{number}', and .* finite number"):
        FileListSource(path)


def test_unicode_forms_of_a_name_are_one_class_and_one_file(tmp_path: Path) -> None:
    composed, apart = (unicodedata.normalize(form, "café") for form in ("NFC", "NFD"))
    path = put_list(tmp_path, f"path,label\n0.jpg,{composed}\n1.jpg,{apart}\n{composed}.jpg,tea\n")
    (tmp_path / f"{apart}.jpg").write_bytes(b"coffee")
    source = FileListSource(path)
    assert (source.labels().tolist(), source.classes) == ([0, 0, 1], (composed, "tea"))
    assert bytes(source.read(2)) == b"coffee"
    given = FileListSource(path, classes=["tea", apart])
    assert (given.labels().tolist(), given.classes) == ([1, 1, 0], ("tea", apart))


# --- columns


def test_columns_that_are_not_read_are_named(tmp_path: Path, source_log: pytest.LogCaptureFixture) -> None:
    source = open_source(put_list(tmp_path, "path,x,y,score\n0.jpg,1,2,0.5\n1.jpg,3,4,0.25\n"))
    assert source.label(0) == -1
    (record,) = source_log.records
    assert record.levelno == logging.WARNING
    assert (
        "none has a label; left out: columns 'x', 'y', 'score' of the list (labels=['x', 'y', 'score'] reads them as "
        "numbers, label='x' one of them)" in record.getMessage()
    )
    source_log.clear()
    open_source(put_list(tmp_path, "path,label,width\n0.jpg,cat,640\n1.jpg,dog,480\n"))
    (record,) = source_log.records
    assert record.levelno == logging.INFO
    assert "not read: column 'width' of the list (labels=['width'] reads it as numbers)" in record.getMessage()


@pytest.mark.parametrize(
    ("text", "options", "names", "labels"),
    [
        (",path,label\n0,0.jpg,cat\n1,1.jpg,dog\n", {}, ["0.jpg", "1.jpg"], [0, 1]),
        ("image_id,label\n0.jpg,3\n1.jpg,1\n", {}, ["0.jpg", "1.jpg"], [3, 1]),
        ("file_name,class,split\n0.jpg,b,x\n1.jpg,a,y\n", {}, ["0.jpg", "1.jpg"], [1, 0]),
        ("id,photo,kind\n7,0.jpg,b\n8,1.jpg,a\n", {"image": "photo", "label": "kind"}, ["0.jpg", "1.jpg"], [1, 0]),
        ("path,label,kind\n0.jpg,1,b\n1.jpg,0,a\n", {"label": "kind"}, ["0.jpg", "1.jpg"], [1, 0]),
        ("path,path_1\n0.jpg,2.jpg\n1.jpg,0.jpg\n", {"image": "path_1"}, ["2.jpg", "0.jpg"], [-1, -1]),
        ("path;label\n0.jpg;cat\n1.jpg;dog\n", {}, ["0.jpg", "1.jpg"], [0, 1]),
        ("\ufeffpath;label\r\n0.jpg;cat\r\n1.jpg;dog\r\n", {}, ["0.jpg", "1.jpg"], [0, 1]),
        ("path\tlabel\n0.jpg\tcat\n1.jpg\tdog\n", {}, ["0.jpg", "1.jpg"], [0, 1]),
        ("0.jpg;cat\n1.jpg;dog\n", {}, ["0.jpg", "1.jpg"], [0, 1]),
        ("0.jpg,cat,\n1.jpg,dog,\n", {}, ["0.jpg", "1.jpg"], [0, 1]),
        ("# made by hand\n0.jpg,cat\n#1.jpg,cat\n2.jpg,dog\n", {}, ["0.jpg", "2.jpg"], [0, 1]),
        ("path,label\n0.jpg,1\n1.jpg,0\n", {"label": False}, ["0.jpg", "1.jpg"], [-1, -1]),
    ],
)
def test_columns_that_are_found_or_named(
    tmp_path: Path, text: str, options: dict[str, Any], names: list[str], labels: list[int]
) -> None:
    source = FileListSource(put_list(tmp_path, text), **options)
    assert read_back(source) == names
    assert source.labels().tolist() == labels


def test_other_columns_than_path_and_label_are_said(tmp_path: Path, source_log: pytest.LogCaptureFixture) -> None:
    open_source(put_list(tmp_path, "# x\nimage_id,class\n0.jpg,cat\n1.jpg,dog\n"))
    (line,) = source_log.messages
    assert line.endswith("; photographs are column 'image_id'; labels are column 'class'; 1 line begins with # and is "
                         "not read")  # fmt: skip


def test_a_file_whose_name_begins_with_a_hash_is_no_comment(tmp_path: Path) -> None:
    path = put_list(tmp_path, "#3.jpg,0\n0.jpg,1\n")
    (tmp_path / "#3.jpg").write_bytes(b"hash")
    assert read_back(FileListSource(path)) == ["hash", "0.jpg"]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("0.jpg,1,2,3\n", {}, r"line 1: 4 columns, and no header says what they are. Write one, as path,label,"),
        ("path,label\n0.jpg,cat, black\n", {}, r"line 2: 3 columns, and the first line has 2. Put a text with a comma"),
        ("0.jpg,cat\n1.jpg,cat,2\n", {}, r"line 2: 3 columns, and the first line has 2"),
        (
            "id_code,diagnosis\n0.jpg,2\n",
            {},
            r"line 1: neither a header .*: id_code, diagnosis. .*pass image='id_code'",
        ),
        ("0,0.jpg,cat\n1,1.jpg,dog\n", {}, r"line 1: neither a header .*Name the columns path and label\.$"),
        ("a,b\n0.jpg,2\n", {"image": "c"}, r"line 1: there is no column 'c': the header has a, b. Name those"),
        ("path,b\n0.jpg,2\n", {"label": "c"}, r"line 1: there is no column 'c': the header has path, b"),
        ("path,b\n0.jpg,2\n", {"label": "b", "labels": ["b"]}, r"label='b' and labels=\['b'\] are two answers"),
        ("path,label,label\n0.jpg,1,2\n", {}, r"line 1: column 'label' is there twice"),
        ("path,label\n0.jpg,\n", {}, r"line 2: the label is empty. Write one on each line.*label=False reads none"),
        ("photo,kind\n0.jpg,1\n", {"label": "kind"}, r"line 1: no column of the header names the photographs.*image="),
    ],
)
def test_columns_that_are_refused(tmp_path: Path, text: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FileListSource(put_list(tmp_path, text), **options)


def test_names_without_their_suffix_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"none of the first 2 is there, e.g. .*/0\. .*0\.jpg is: write names with"):
        FileListSource(put_list(tmp_path, "image_id,label\n0,a\n1,b\n"))


def test_label_takes_several_columns_as_other_sources_do(tmp_path: Path) -> None:
    path = put_list(tmp_path, "path,x,y\n0.jpg,0.5,2\n")
    for source in (FileListSource(path, label=["x", "y"]), open_source(path, label=["x", "y"])):
        assert source.classes == ("x", "y") and list(source.label(0)) == [0.5, 2]


def test_a_name_of_several_classes_is_warned_of(tmp_path: Path, source_log: pytest.LogCaptureFixture) -> None:
    text = "path,label\n0.jpg,Mass\n1.jpg,Mass|Edema\n2.jpg,Edema\n"
    assert open_source(put_list(tmp_path, text)).classes == ("Edema", "Mass", "Mass|Edema")
    (record,) = source_log.records
    assert record.levelno == logging.WARNING
    assert "'Mass|Edema' is one class: for several at once give each a column of 0 and 1" in record.getMessage()
    source_log.clear()
    open_source(put_list(tmp_path, text), classes=["Mass", "Mass|Edema", "Edema"])
    assert [record.levelno for record in source_log.records] == [logging.INFO]


# --- a column of splits

SPLITS = "path,label,split\n0.jpg,cat,train\n1.jpg,dog,train\n2.jpg,bird,Validation\n"


def test_rows_of_one_split_of_a_list(tmp_path: Path) -> None:
    path = put_list(tmp_path, SPLITS)
    train, val = (open_source(path, split=split) for split in ("train", "val"))
    assert [Path(train.name(i)).name for i in range(len(train))] == ["0.jpg", "1.jpg"]
    assert [Path(val.name(i)).name for i in range(len(val))] == ["2.jpg"]
    assert train.classes == val.classes == ("bird", "cat", "dog")  # of all rows, so that labels agree
    assert (train.label(1), val.label(0)) == (2, 0)
    loader = Loader(path, recipes.none(), batch_size=1, split="validation", columns=["split"])
    assert columns_of(loader.source, np.array([0])) == {"split": ["Validation"]}


def test_a_list_of_several_splits_that_is_read_as_one_is_warned_of(
    tmp_path: Path, source_log: pytest.LogCaptureFixture
) -> None:
    open_source(put_list(tmp_path, SPLITS))
    (record,) = source_log.records
    assert record.levelno == logging.WARNING
    assert (
        "column 'split' names train (2), Validation (1), and all rows are read: split=\"train\" takes those of one"
    ) in record.message
    source_log.clear()
    open_source(put_list(tmp_path, SPLITS.replace("Validation", "train"), "one.csv"))
    assert [record.levelno for record in source_log.records] == [logging.INFO]


def test_rows_that_no_split_takes_with_the_others_of_their_kind_are_warned_of(
    tmp_path: Path, source_log: pytest.LogCaptureFixture
) -> None:
    rows = "".join(f"{i}.jpg,cat,{split}\n" for i, split in enumerate(["train", "Train", "train", "", "val", "x", "X"]))
    assert len(open_source(put_list(tmp_path, f"path,label,split\n{rows}"), split="train")) == 2
    (record,) = source_log.records
    assert record.levelno == logging.WARNING
    assert (
        "column 'split' spells one split in several ways, and each is read without the others: train (2) and Train (1);"
        " x (1) and X (1)"
    ) in record.message
    assert "1 row without a split is in none" in record.message
    numbers = open_source(put_list(tmp_path, "path,label_x,label_y,split\n0.jpg,1,2,a\n1.jpg,1,2,A\n"), split="a")
    assert len(numbers) == 1 and "several ways" in source_log.records[1].message


def test_of_a_list_of_which_a_split_is_read_the_log_names_the_columns_that_are_not(
    tmp_path: Path, source_log: pytest.LogCaptureFixture
) -> None:
    path = put_list(tmp_path, "path,x,y,split\n0.jpg,1,2,train\n1.jpg,3,4,val\n")
    loader = Loader(path, recipes.none(), batch_size=1, split="train")
    assert loader.source.label(0) == -1
    (record,) = source_log.records
    assert record.levelno == logging.WARNING
    said = record.getMessage()
    assert "none has a label; left out: columns 'x', 'y' of the list" in said
    assert "all rows are read" not in said


def test_the_whole_list_is_warned_of_behind_one_of_its_splits(
    tmp_path: Path, source_log: pytest.LogCaptureFixture
) -> None:
    source = FileListSource(put_list(tmp_path, SPLITS))
    for given, said in ((source.part("val"), False), (source, True), (source.part("train"), False)):
        source_log.clear()
        Loader(given, recipes.none(), batch_size=1)
        assert any("all rows are read" in message for message in source_log.messages) == said


def test_a_list_that_is_open_already_is_divided(tmp_path: Path) -> None:
    source = FileListSource(put_list(tmp_path, SPLITS.replace("path", "photo")), image="photo")
    val = Loader(source, recipes.none(), batch_size=1, split="val").source
    assert [val.name(row) for row in range(len(val))] == [source.name(2)]
    with pytest.raises(ValueError, match="holds no split 'test', but 'Validation', 'train'"):
        open_source(source, split="test")


def test_a_split_that_a_list_does_not_have_is_refused(tmp_path: Path) -> None:
    path = put_list(tmp_path, SPLITS)
    with pytest.raises(ValueError, match=r"list.csv holds no split 'test', but 'Validation', 'train'. Name one"):
        open_source(path, split="test")
    path = put_list(tmp_path, "path,label\n0.jpg,cat\n1.jpg,dog\n", "plain.csv")
    with pytest.raises(ValueError, match=r'plain.csv holds no split .train.* split="train", holdout=0.1 draws one'):
        open_source(path, split="train")


@pytest.mark.parametrize("text", ["0.jpg 0\n1.jpg 1\n", "photos/0.jpg  0\nphotos/1.jpg 1\n"])
def test_a_blank_between_path_and_label_is_told(tmp_path: Path, text: str) -> None:
    """As of ImageNet's and Caffe's lists; in the second one the folder is another one, too."""
    with pytest.raises(ValueError, match=r"2 photographs.*0.jpg +0. A blank stands between .* Write 'path,label', as"):
        FileListSource(put_list(tmp_path, text, "val.txt"))
