"""Where images come from: folders, lists, single files and arrays."""

import os
import warnings
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from augpipe.datasets.files.image_files import EXTENSIONS, SingleSource, read_file
from augpipe.datasets.formats.arrays import ArraySource
from augpipe.datasets.formats.file_list import LIST_EXTENSIONS, FileListSource
from augpipe.datasets.formats.folder import FolderSource
from augpipe.datasets.metadata.names import NameTable, listed, printable
from augpipe.datasets.open import open_source
from augpipe.sources.protocol import Source
from tests.datasets.formats.source_checks import assert_keeps_the_protocol


def put(root: Path, *names: str) -> Path:
    """Files below `root` whose content is their own name."""
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    return root


def contents(source: Source) -> list[tuple[str, int]]:
    """What each sample reads (our files hold their own names), and its label."""
    return [(bytes(source.read(i)).decode(), source.label(i)) for i in range(len(source))]


# --- every source


def test_each_source_keeps_the_protocol(tmp_path: Path) -> None:
    put(tmp_path, "cat/1.jpg", "dog/2.jpg")
    (tmp_path / "list.csv").write_text("cat/1.jpg,3\ndog/2.jpg,-1\n")
    files, stack = [b"cat/1.jpg", b"dog/2.jpg"], np.arange(120, dtype=np.uint8).reshape(2, 4, 5, 3)
    assert_keeps_the_protocol(FolderSource(tmp_path), files, [0, 1])
    assert_keeps_the_protocol(FolderSource(tmp_path / "cat"), files[:1], [-1])
    assert_keeps_the_protocol(FileListSource(tmp_path / "list.csv"), files, [3, -1])
    assert_keeps_the_protocol(SingleSource(tmp_path / "cat" / "1.jpg"), files[:1], [-1])
    assert_keeps_the_protocol(ArraySource(stack, [0, 1]), stack, [0, 1])


# --- names


@given(st.lists(st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"))))
def test_name_table_gives_back_what_went_in(names: list[str]) -> None:
    table = NameTable()
    table.extend(map(os.fsencode, names))
    assert [table[i] for i in range(len(table))] == names


def test_names_that_are_not_utf8_are_read_and_can_be_printed(tmp_path: Path) -> None:
    raw = os.fsencode(tmp_path) + b"/caf\xe9.jpg"
    try:
        with open(raw, "wb") as file:
            file.write(b"bytes")
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    source = FolderSource(tmp_path)
    assert source.read(0) == b"bytes"
    assert source.name(0).endswith(r"caf\xe9.jpg")
    assert source.name(0).encode()  # what print() needs
    assert printable("žluťoučký кот 猫.jpg") == "žluťoučký кот 猫.jpg"


def test_long_lists_are_cut_in_messages() -> None:
    assert listed(["a", "b", "c"]) == "'a', 'b', 'c'"
    assert listed(f"{i}" for i in range(10)) == "'0', '1', '2' and 7 more"


# --- folders


def test_class_folders_become_labels_in_byte_order(tmp_path: Path) -> None:
    put(tmp_path, "zebra/b.jpg", "zebra/A.jpg", "Zoo/x.png", "ape/deep/er/1.jpg", "ape/deep-er.jpg", "äpfel/1.jpg")
    source = FolderSource(tmp_path)
    assert source.classes == ("Zoo", "ape", "zebra", "äpfel")
    assert contents(source) == [
        ("Zoo/x.png", 0),
        ("ape/deep-er.jpg", 1),  # "-" < "/"
        ("ape/deep/er/1.jpg", 1),
        ("zebra/A.jpg", 2),
        ("zebra/b.jpg", 2),
        ("äpfel/1.jpg", 3),
    ]
    assert source.name(0) == os.path.join(tmp_path, "Zoo/x.png")
    assert repr(source) == f"FolderSource({str(tmp_path)!r}: 6 photographs, 4 classes)"


def test_flat_folder_has_no_labels(tmp_path: Path) -> None:
    source = FolderSource(put(tmp_path, "b.jpg", "a b.JPEG", "кот.PNG", "notes.txt"))
    assert contents(source) == [("a b.JPEG", -1), ("b.jpg", -1), ("кот.PNG", -1)]
    assert source.classes == ()


def test_extensions_that_are_found(tmp_path: Path) -> None:
    found = [f"a.{extension}" for extension in "jpg jpeg JPEG Jpg jfif JPE png webp gif bmp tif TIFF".split()]
    assert {name for name, _ in contents(FolderSource(put(tmp_path, *found, "b.jpg2", "c.txt", "jpg")))} == set(found)


def test_hidden_things_are_ignored(tmp_path: Path) -> None:
    put(tmp_path, "cat/1.jpg", "cat/._1.jpg", "cat/.thumbs/1.jpg", ".git/1.jpg", ".hidden.jpg", "__MACOSX/cat/._1.jpg")
    assert contents(FolderSource(tmp_path)) == [("cat/1.jpg", 0)]


def test_a_flat_folder_may_hold_other_folders(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert contents(FolderSource(put(tmp_path, "1.jpg", "scripts/run.py"))) == [("1.jpg", -1)]


def test_images_with_labels_are_no_source_by_themselves() -> None:
    images = np.zeros((2, 4, 4, 3), np.uint8)
    with pytest.raises(ValueError, match=r"a pair is not a source.* give .*ArraySource\(images, labels\)"):
        open_source((images, np.arange(2)))
    assert len(open_source((images[0], images[1]))) == 2


def test_class_folders_within_splits_are_no_classes(tmp_path: Path) -> None:
    for folder in ("train/cat", "train/dog", "val/cat"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "a.jpg").write_bytes(b"")
    with pytest.raises(ValueError, match=r"holds 2 splits, 'train', 'val', .* one of their folders, as .*val'"):
        FolderSource(tmp_path)
    assert list(FolderSource(tmp_path / "train").classes) == ["cat", "dog"]
    assert list(FolderSource(tmp_path, classes=["train", "val"]).classes) == ["train", "val"]


def test_classes_given_fix_labels_across_splits(tmp_path: Path) -> None:
    train = FolderSource(put(tmp_path / "train", "ant/1.jpg", "bee/1.jpg", "cow/1.jpg"))
    held_out = put(tmp_path / "val", "cow/2.jpg")
    assert FolderSource(held_out).label(0) == 0
    val = FolderSource(held_out, classes=train.classes)
    assert val.classes == train.classes and val.labels().tolist() == [2]
    with pytest.raises(ValueError, match=r"not among the 1 class given: 'cow'\. Move them away, or add"):
        FolderSource(held_out, classes=["ant"])


def test_a_file_is_read_to_its_end_whatever_length_is_stated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody writes it meanwhile, it is cut short, or it has no length, as a pipe."""
    path = tmp_path / "a.jpg"
    path.write_bytes(b"0123456789")
    os.mkfifo(tmp_path / "pipe")
    with ThreadPoolExecutor(1) as pool:
        written = pool.submit((tmp_path / "pipe").write_bytes, b"x" * 100_000)
        assert read_file(str(tmp_path / "pipe")) == b"x" * 100_000
        assert written.result() == 100_000
    for stated in (0, 5, 9, 10, 11, 1000):
        with monkeypatch.context() as patch:
            patch.setattr(
                "augpipe.datasets.files.image_files.os.fstat",
                lambda descriptor, stated=stated: SimpleNamespace(st_size=stated),
            )
            assert read_file(str(path)) == b"0123456789"
    path.write_bytes(b"")
    assert read_file(str(path)) == b""


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    for path, kind in ((tmp_path, IsADirectoryError), (tmp_path / "none.jpg", FileNotFoundError)):
        with pytest.raises(kind) as caught:
            read_file(str(path))
        assert caught.value.filename == str(path)


def test_links_are_followed_but_not_in_circles(tmp_path: Path) -> None:
    put(tmp_path, "store/1.jpg", "data/cat/2.jpg")
    (tmp_path / "data" / "cat" / "more").symlink_to(tmp_path / "store", target_is_directory=True)
    (tmp_path / "data" / "cat" / "loop").symlink_to(tmp_path / "data" / "cat", target_is_directory=True)
    (tmp_path / "data" / "cat" / "gone.jpg").symlink_to(tmp_path / "nowhere.jpg")
    source = FolderSource(tmp_path / "data")
    names = [os.path.relpath(source.name(i), tmp_path / "data") for i in range(len(source))]
    assert names == ["cat/2.jpg", "cat/gone.jpg", "cat/more/1.jpg"]
    with pytest.raises(OSError, match="gone.jpg"):
        source.read(1)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (["x/a.txt", "b.npz"], r"found 1 folder without a photograph \('x'\) and 1 other file \('b.npz'\)"),
        (["cat/1.jpg", "dog/readme.md"], r"class folders without a photograph: 'dog'\. Remove them, or fill them"),
    ],
)
def test_folders_without_images(tmp_path: Path, files: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FolderSource(put(tmp_path, *files))


def test_a_folder_is_no_file_and_a_file_no_folder(tmp_path: Path) -> None:
    put(tmp_path, "1.jpg")
    with pytest.raises(ValueError, match=r"is a folder; FileListSource takes a CSV"):
        FileListSource(tmp_path)
    with pytest.raises(ValueError, match=r"1.jpg is a file, and FolderSource takes a folder.*Give the folder"):
        FolderSource(tmp_path / "1.jpg")


SLASHED = st.text("ab-.Zé ", min_size=1, max_size=6).filter(lambda part: not part.startswith(".") and part.strip())


@pytest.mark.slow
@given(st.dictionaries(SLASHED, st.sets(SLASHED, min_size=1, max_size=4), min_size=1, max_size=4))
def test_any_tree_is_found_whole_and_sorted(
    tmp_path_factory: pytest.TempPathFactory, tree: dict[str, Iterable[str]]
) -> None:
    expected = [f"{folder}/{stem}.jpg" for folder, stems in tree.items() for stem in stems]
    root = put(tmp_path_factory.mktemp("tree"), *expected)
    source = FolderSource(root)
    by_class = sorted(expected, key=lambda name: [part.encode() for part in name.split("/")])
    assert [name for name, _ in contents(source)] == by_class
    assert [source.classes[label] for _, label in contents(source)] == [name.split("/")[0] for name in by_class]


# --- lists


def write_list(tmp_path: Path, text: str | bytes, name: str = "list.csv") -> Path:
    put(tmp_path, "1.jpg", "a b.jpg", "sub/кот.jpg", "c,d.jpg")
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return tmp_path / name


@pytest.mark.parametrize(
    ("name", "text", "expected", "classes"),
    [
        ("l.csv", "1.jpg,0\na b.jpg,2\n", [("1.jpg", 0), ("a b.jpg", 2)], ("0", "1", "2")),
        ("l.csv", "1.jpg,dog\r\nsub/кот.jpg,cat\r\n", [("1.jpg", 1), ("sub/кот.jpg", 0)], ("cat", "dog")),
        ("l.CSV", "Path, Label\n1.jpg, cat\n", [("1.jpg", 0)], ("cat",)),
        ("l.csv", "id,label,path\n7,-1,1.jpg\n8,1,a b.jpg", [("1.jpg", -1), ("a b.jpg", 1)], ("0", "1")),
        ("l.csv", "path,score\n1.jpg,0.5\n", [("1.jpg", -1)], ()),
        ("l.csv", '\n"c,d.jpg",0\n\n,\n1.jpg,0\n', [("c,d.jpg", 0), ("1.jpg", 0)], ("0",)),
        ("l.tsv", "c,d.jpg\t0\n", [("c,d.jpg", 0)], ("0",)),
        ("l.txt", "\n1.jpg\t3\n", [("1.jpg", 3)], ("0", "1", "2", "3")),
        ("l.txt", "1.jpg,0\n", [("1.jpg", 0)], ("0",)),
        ("l.txt", "1.jpg\na b.jpg\n", [("1.jpg", -1), ("a b.jpg", -1)], ()),
        ("list", "\ufeffpath\tlabel\n1.jpg\tcat\n", [("1.jpg", 0)], ("cat",)),
        ("l.csv", "\ufeff1.jpg,cat\n", [("1.jpg", 0)], ("cat",)),
    ],
)
def test_lists_that_are_read(
    tmp_path: Path, name: str, text: str, expected: list[tuple[str, int]], classes: tuple[str, ...]
) -> None:
    source = FileListSource(write_list(tmp_path, text, name))
    assert contents(source) == expected
    assert source.classes == classes


def test_list_root_and_absolute_paths(tmp_path: Path) -> None:
    put(tmp_path / "photos", "1.jpg", "2.jpg")
    listing = tmp_path / "elsewhere" / "l.csv"
    listing.parent.mkdir()
    listing.write_text(f"1.jpg\n{tmp_path / 'photos' / '2.jpg'}\n")
    source = FileListSource(listing, root=tmp_path / "photos")
    assert contents(source) == [("1.jpg", -1), ("2.jpg", -1)]
    listing.write_text("1.jpg\n2.jpg\n")
    with pytest.raises(
        ValueError, match=r"l.csv lists 2 photographs, and none of the first 2 is there, e\.g\. .*1.jpg"
    ):
        FileListSource(listing)


def test_list_files_that_are_missing_fail_when_read(tmp_path: Path) -> None:
    source = FileListSource(write_list(tmp_path, "gone.jpg,0\n1.jpg,1\n"))
    with pytest.raises(FileNotFoundError, match="gone.jpg"):
        source.read(0)
    assert source.read(1) == b"1.jpg"


def test_list_with_classes_given(tmp_path: Path) -> None:
    listing = write_list(tmp_path, "1.jpg,A\na b.jpg,7\n")
    source = FileListSource(listing, classes=["7", "8", "A"])
    assert source.labels().tolist() == [2, 0] and source.classes == ("7", "8", "A")
    with pytest.raises(ValueError, match=r"list.csv, line 2: label '7' is none of the 2 classes given"):
        FileListSource(listing, classes=["A", "B"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"list.csv lists no photograph\. Write one a line"),
        ("path,label\n", r"list.csv lists no photograph"),
        (
            "photo,kind\n1.jpg,cat\n",
            r"line 1: neither a header with a column 'path' .*: photo, kind\. Name the columns",
        ),
        ("file.name,label\n1.jpg,cat\n", r"line 1: neither a header with a column 'path'"),
        ("1.jpg,0\n\na b.jpg\n", r"line 3: 1 columns, and 2 are needed as in the first line\. Complete"),
        ('1.jpg,0\n"a\nb.jpg"\n', r"line 2: 1 columns, and 2 are needed as in the first line"),
        ("1.jpg,0\n,1\n", r"line 2: the path is empty"),
        ("1.jpg,0\na b.jpg, \n", r"line 2: the label is empty\. Write one on each line"),
        ("1.jpg,0\na b.jpg,3O\n", r"line 2: label '3O' is a name, and other labels are integers\. Fix it"),
        ("1.jpg,cat\na b.jpg,3\n", r"line 1: label 'cat' is a name, and other labels are integers"),
        ("1.jpg,0\na b.jpg,-2\n", r"line 2: label '-2' is not a class number"),
        ("1.jpg,0\na b.jpg,1000001\n", r"line 2: label '1000001' is not a class number \(0\.\.1000000, or -1"),
        ("1.jpg,0\na b.jpg," + "9" * 5000, r"line 2: label '9{99} is a name, and other labels are integers"),
        ("1.jpg,0\na b.jpg,1\n".encode("utf-16"), r"line 1: not UTF-8\. Save"),
        (b"1.jpg,0\n" * 5000 + b"caf\xe9.jpg,1\n", r"line 5001: not UTF-8\. Save the list as UTF-8"),
        ('1.jpg,0\n"a b.jpg,1\n', r"line 2: .*\. Check the double quotes"),
    ],
)
def test_lists_that_are_refused_name_file_and_line(tmp_path: Path, text: str | bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        FileListSource(write_list(tmp_path, text))
    assert str(tmp_path / "list.csv") in str(caught.value)


# --- one image


def test_single(tmp_path: Path) -> None:
    put(tmp_path, "one photo.jpg")
    source = SingleSource(tmp_path / "one photo.jpg")
    assert contents(source) == [("one photo.jpg", -1)] and source.name(0) == str(tmp_path / "one photo.jpg")
    with pytest.raises(ValueError, match=r"is a folder, and SingleSource takes one photograph"):
        SingleSource(tmp_path)
    with pytest.raises(ValueError, match=r"no.jpg does not exist; SingleSource"):
        SingleSource(tmp_path / "no.jpg")


# --- arrays


@pytest.mark.parametrize("shape", [(2, 5, 4, 3), (2, 5, 4, 1), (2, 5, 4, 4), (2, 5, 6)])
def test_stacks_are_read_without_a_copy(shape: tuple[int, ...]) -> None:
    images = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    source = ArraySource(images)
    assert len(source) == 2 and source.read(1).shape == shape[1:] and np.shares_memory(source.read(1), images)
    assert source.labels().tolist() == [-1, -1] and source.classes == () and source.name(1) == "images[1]"


def test_lists_of_arrays_may_differ_in_size() -> None:
    images = [np.zeros((3, 4), np.uint8), np.ones((9, 2, 3), np.uint8), np.ones((1, 1, 4), np.uint8)]
    source = ArraySource(images, np.array([1, -1, 0], np.int32), classes=["a", "b"])
    assert [source.read(i).shape for i in range(3)] == [(3, 4), (9, 2, 3), (1, 1, 4)]
    assert source.labels().tolist() == [1, -1, 0] and source.classes == ("a", "b")
    assert ArraySource(images, [0, 2, -1]).classes == ("0", "1", "2")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([np.zeros((4, 4)).astype(bool)],), r"images\[0\] has dtype bool.*: 255 \* images.astype"),
        ((np.zeros((1, 4, 4), np.uint16),), r"images has dtype uint16.*: \(images / 257\).*values of 16 bits"),
        (([np.zeros((3, 8, 8), np.uint8)],), r"images\[0\] has shape \(3, 8, 8\).*transpose\(1, 2, 0\)"),
        ((np.zeros((8, 8, 3), np.uint8),), r"looks like one \(H, W, C\) image.*Pass images\[None\]"),
        ((np.zeros((2, 8, 8, 2), np.uint8),), r"shape \(2, 8, 8, 2\), and \(N, H, W, 1 \| 3 \| 4\) or \(N, H, W\)"),
        ((np.zeros((8, 8), np.uint8),), r"images has shape \(8, 8\), and"),
        ((np.zeros((2, 0, 8, 3), np.uint8),), r"at least one pixel"),
        (([np.zeros((0, 8), np.uint8)],), r"images\[0\] has shape \(0, 8\): .*at least one pixel"),
        (([[1, 2]],), r"images\[0\] is a list, and only numpy arrays are taken"),
        (([],), r"images is empty"),
        ((np.zeros((0, 8, 8, 3), np.uint8),), r"images is empty"),
        ((np.zeros((2, 8, 8), np.uint8), [1]), r"labels has shape \(1,\) and dtype int64, and 2 integers are needed"),
        ((np.zeros((2, 8, 8), np.uint8), [0.5, 1]), r"dtype float64, and 2 integers"),
        ((np.zeros((2, 8, 8), np.uint8), [0, -2]), r"labels holds -2"),
    ],
)
def test_arrays_that_are_refused(arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ArraySource(*arguments)  # type: ignore[arg-type]


# --- open_source


def test_open_source_finds_the_kind(tmp_path: Path) -> None:
    put(tmp_path, "cat/1.jpg", "cat/plain", "dog/1.jpg")
    (tmp_path / "l.csv").write_text("cat/1.jpg,0\n")
    assert isinstance(open_source(tmp_path), FolderSource)
    assert isinstance(open_source(str(tmp_path / "l.csv")), FileListSource)
    assert isinstance(open_source(tmp_path / "cat" / "1.jpg"), SingleSource)
    assert isinstance(open_source(tmp_path / "cat" / "plain"), SingleSource)
    images = np.zeros((2, 8, 8, 3), np.uint8)
    assert isinstance(open_source(images), ArraySource)
    assert isinstance(open_source(list(images)), ArraySource)
    source = ArraySource(images)
    assert open_source(source) is source


def test_the_docs_name_every_extension() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "sources.md").read_text()
    for extension in (*EXTENSIONS, *LIST_EXTENSIONS):
        assert f"`{extension}`" in page
