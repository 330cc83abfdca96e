"""Cards against folders that are laid out otherwise, lists that lie, and links and paths that lead outside."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from augpipe.datasets.cards.card import load_card
from augpipe.datasets.cards.open_card import open_card
from augpipe.datasets.cards.tree import Tree
from tests.datasets.cards.card_trees import TREES, jpeg, put, write_lines

pytestmark = pytest.mark.filterwarnings("ignore:.*are official")


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


# --- layouts


def test_a_wrong_layout_is_shown_beside_the_official_one(tmp_path: Path) -> None:
    TREES["flowers102"](tmp_path)
    (tmp_path / "setid.mat").rename(tmp_path / "setid (1).mat")
    with pytest.raises(ValueError, match="is not laid out as card 'flowers102'") as caught:
        open_card("flowers102", tmp_path, split="val")
    message = str(caught.value)
    assert "  jpg/                                     found" in message
    assert "  imagelabels.mat                          found" in message
    assert "  setid.mat                                not there" in message
    assert "The folder holds: 'jpg/', 'imagelabels.mat', 'setid (1).mat'." in message
    assert load_card("flowers102").layout.strip("\n").splitlines()[0] in message


@pytest.mark.parametrize("name", sorted(TREES))
def test_every_need_of_a_split_is_needed(tmp_path: Path, name: str) -> None:
    """Whatever is taken away, what is said is that it is not there: nothing is read halfway."""
    card = load_card(name)
    split = next(iter(card.splits))
    way = card.splits[split].ways[0]
    for index, need in enumerate(way.needs):
        folder = tmp_path / str(index)
        TREES[name](folder)
        for below in card.folders:
            parent, _, pattern = need.rstrip("/").rpartition("/")
            for path in (folder / below / parent).glob(pattern):
                path.rename(path.with_name(f".{path.name}"))
        only = card.model_copy(update={"splits": {split: card.splits[split].model_copy(update={"ways": (way,)})}})
        with pytest.raises(ValueError, match="is not laid out as card") as caught:
            open_card(only, folder, split=split)
        assert f"  {need:<40} not there" in str(caught.value)


def test_an_archive_in_place_of_its_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "images.tar.gz").write_bytes(b"x")
    with pytest.raises(ValueError, match="images.tar.gz is a file; card 'pets' takes the folder"):
        open_card("pets", tmp_path / "images.tar.gz")


def test_lists_without_any_of_their_images_are_refused(tmp_path: Path) -> None:
    TREES["pets"](tmp_path)
    for image in (tmp_path / "images").iterdir():
        image.unlink()
    with pytest.raises(ValueError, match="holds none of the 4 photographs that card 'pets' lists for its split"):
        open_card("pets", tmp_path)


# --- paths and links


@pytest.mark.parametrize(
    "path", ["../../secret.jpg", "a/../../../secret.jpg", "/etc/passwd", "./a.jpg", "a//b.jpg", "001.x/.."]
)
def test_a_path_that_leads_outside_is_refused(tmp_path: Path, path: str) -> None:
    TREES["cub200"](tmp_path / "cub")
    (tmp_path / "secret.jpg").write_bytes(jpeg())
    rows = [f"{n} {path}" for n in range(1, 10)]
    write_lines(tmp_path / "cub/images.txt", rows)
    with pytest.raises(ValueError, match="is not a plain path below the folder"):
        open_card("cub200", tmp_path / "cub")


def test_an_address_whose_file_name_is_dots_is_refused(tmp_path: Path) -> None:
    TREES["mvso"](tmp_path)
    replace(tmp_path / "image_url_mappings/english.csv", "1_a.jpg", "..")
    with pytest.raises(ValueError, match="is not a plain path below the folder"):
        open_card("mvso", tmp_path)


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("cifar10", "data_batch_3.bin"),
        ("cifar10", "batches.meta.txt"),
        ("mnist", "train-labels-idx1-ubyte"),
        ("flowers102", "imagelabels.mat"),
        ("mvso", "image_url_mappings/english.csv"),
        ("pets", "annotations/list.txt"),
        ("pets", "images/Abyssinian_100.jpg"),
        ("pets", "images"),
    ],
)
@pytest.mark.parametrize("outside_name", ["outside", "root outside"])
@pytest.mark.parametrize("is_relative", [False, True])
def test_a_link_that_leaves_the_folder_is_refused(
    tmp_path: Path, name: str, file: str, outside_name: str, is_relative: bool
) -> None:
    root, outside = tmp_path / "root", tmp_path / outside_name
    TREES[name](root)
    link = root / file
    link.rename(outside)
    link.symlink_to(os.path.relpath(outside, link.parent) if is_relative else outside)
    with pytest.raises(ValueError, match="is a link that leaves the folder, to .*outside"):
        open_card(name, root)


def test_a_link_that_stays_in_the_folder_is_followed(tmp_path: Path) -> None:
    TREES["pets"](tmp_path / "real")
    (tmp_path / "real/images").rename(tmp_path / "real/photographs")
    (tmp_path / "real/images").symlink_to("photographs")
    (tmp_path / "link").symlink_to("real")  # the folder that is given may itself be one
    source = open_card("pets", tmp_path / "link")
    assert len(source) == 4 and len(source.read(0)) > 0


def test_only_plain_files_are_images(tmp_path: Path) -> None:
    """A pipe, which would block whoever opens it, a folder and a dangling link count as not there."""
    TREES["pets"](tmp_path)
    for name in ("american_bulldog_2", "Abyssinian_100", "Egyptian_Mau_2"):
        (tmp_path / f"images/{name}.jpg").unlink()
    os.mkfifo(tmp_path / "images/american_bulldog_2.jpg")
    (tmp_path / "images/Abyssinian_100.jpg").mkdir()
    (tmp_path / "images/Egyptian_Mau_2.jpg").symlink_to("nowhere.jpg")
    with pytest.warns(UserWarning, match="3 of 4 listed photographs are not there"):
        assert len(open_card("pets", tmp_path)) == 1


def test_names_that_are_not_utf8_are_found(tmp_path: Path) -> None:
    TREES["indoor67"](tmp_path)
    name = b"kitchen/caf\xe9.jpg"
    (tmp_path / "Images").joinpath(os.fsdecode(name)).write_bytes(jpeg())
    (tmp_path / "TestImages.txt").write_bytes(name + b"\r\n")
    source = open_card("indoor67", tmp_path, split="test")
    assert (source.read(0), source.label(0)) == (jpeg(), 1)


def test_a_tree_lists_a_folder_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, [f"a/b/{n}.jpg" for n in range(50)])
    calls: list[str] = []
    listing = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: calls.append(path) or listing(path))  # type: ignore[func-returns-value]
    tree = Tree(str(tmp_path))
    assert all(tree.is_file(f"a/b/{n}.jpg") for n in range(50)) and not tree.is_file("a/b/50.jpg")
    assert len(calls) == 3  # the root, a, a/b


# --- lists that lie


@pytest.mark.parametrize(
    ("name", "file", "old", "new", "reason"),
    [
        ("cub200", "images.txt", "3 001.", "003.", r"images.txt, line 3: 2 columns are needed"),
        ("cub200", "image_class_labels.txt", "2 1\n", "", r"images.txt, line 2: image id '2' does not occur in im"),
        ("cub200", "image_class_labels.txt", "2 1\n", "1 2\n", r"image_class_labels.txt, line 2: id '1' comes a"),
        ("cub200", "image_class_labels.txt", "1 1\n", "1 9\n", r"has the label '9', which is the id of none of the 3"),
        ("cub200", "bounding_boxes.txt", "27.0", "left", r"bounding_boxes.txt, line 1: four numbers are needed"),
        ("cub200", "classes.txt", "2 002", "1 002", r"class id '1' stands for 2 classes"),
        ("cub200", "classes.txt", "2 002", "two 002", r"classes.txt, line 2: class id 'two' is not a number"),
        ("pets", "annotations/list.txt", "Abyssinian_2 1", "Abyssinian 1", r"line 8: 'Abyssinian' is not like"),
        ("pets", "annotations/trainval.txt", "_100 1 1 1", "_100 1 1", r"trainval.txt, line 2: 4 columns are needed"),
        ("aircraft", "data/variants.txt", "Boeing 717", "Boeing 718", r"has the label 'Boeing 717', which is the id"),
        (
            "indoor67",
            "TestImages.txt",
            "kitchen/",
            "sauna/",
            r"has the label 'sauna', which is the id of none of the 3",
        ),
    ],
)
def test_a_list_that_cannot_be_used_is_named_with_its_line(
    tmp_path: Path, name: str, file: str, old: str, new: str, reason: str
) -> None:
    TREES[name](tmp_path)
    replace(tmp_path / file, old, new)
    split = "test" if name == "indoor67" else next(iter(load_card(name).splits))
    with pytest.raises(ValueError, match=reason):
        open_card(name, tmp_path, split=split)


@pytest.mark.parametrize("ground_truth", [["0"], ["5"], ["1001"], ["cat"]])
def test_an_id_that_is_no_class_is_refused(tmp_path: Path, ground_truth: list[str]) -> None:
    """5 is the miniature's high-level synset, which the devkit numbers too."""
    TREES["imagenet"](tmp_path)
    write_lines(tmp_path / "ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt", ground_truth)
    with pytest.raises(ValueError, match=f"has the label '{ground_truth[0]}', which is the id of none of the 4 cl"):
        open_card("imagenet", tmp_path, split="val")


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        ("setid.mat", {"trnid": np.array([[1, 9]])}, "'trnid' holds the image number 9, and imagelabels.mat has lab"),
        ("setid.mat", {"trnid": np.array([[0, 1]])}, "'trnid' holds the image number 0"),
        ("setid.mat", {"trnid": np.array([[1.5]])}, "has dtype float64, and whole numbers are needed"),
        ("setid.mat", {"trnid": "words"}, "whole numbers are needed"),
        ("setid.mat", {"tstid": np.array([[1]])}, "'trnid' in .*setid.mat is not there"),
        ("imagelabels.mat", {"labels": np.full((1, 8), 103)}, "has the label '103'"),
        ("setid.mat", b"", "is not a MATLAB file of versions 5 to 7, or it is damaged"),
        ("setid.mat", b"MATLAB 7.3 MAT-file".ljust(124) + b"\0\2IM", "is not a MATLAB file of versions 5 to 7"),
        ("setid.mat", pickle.dumps({"trnid": [1]}), "is not a MATLAB file of versions 5 to 7"),
    ],
)
def test_a_matlab_file_that_cannot_be_used_is_refused(tmp_path: Path, file: str, content: object, reason: str) -> None:
    TREES["flowers102"](tmp_path)
    if isinstance(content, bytes):
        (tmp_path / file).write_bytes(content)
    else:
        savemat(tmp_path / file, content)
    with pytest.raises(ValueError, match=reason):
        open_card("flowers102", tmp_path)


def test_a_matlab_file_cut_short_anywhere_is_refused(tmp_path: Path) -> None:
    TREES["flowers102"](tmp_path)
    whole = (tmp_path / "setid.mat").read_bytes()
    for length in range(0, len(whole) // 2, 7):
        (tmp_path / "setid.mat").write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"is not a MATLAB file|is not there|whole numbers"):
            open_card("flowers102", tmp_path, split="test")


def test_a_devkit_without_the_fields_is_refused(tmp_path: Path) -> None:
    TREES["imagenet"](tmp_path)
    savemat(tmp_path / "ILSVRC2012_devkit_t12/data/meta.mat", {"synsets": np.arange(4)})
    with pytest.raises(ValueError, match="has the fields \\(none\\), and ILSVRC2012_ID, WNID, num_children is needed"):
        open_card("imagenet", tmp_path)
