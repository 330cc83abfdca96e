"""Cards: each reads a miniature tree in the official layout, and says what is wrong with another; and their page."""

import gzip
import pickle
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from augpipe.datasets.cards.card import Card, ColumnClasses, fill, list_cards, load_card
from augpipe.datasets.cards.card_source import CardSource
from augpipe.datasets.cards.classes import read_classes
from augpipe.datasets.cards.open_card import open_card
from augpipe.datasets.cards.table import card_sections, cards_as_markdown
from augpipe.datasets.cards.tree import Tree
from augpipe.sources.protocol import Source
from tests.datasets.cards.card_trees import SYNSETS, TREES, devkit, put, write_lines
from tests.datasets.formats.source_checks import assert_keeps_the_protocol

OFFICIAL = {  # split -> samples, and classes: from the datasets' papers and home pages
    "aircraft": ({"train": 3_334, "val": 3_333, "trainval": 6_667, "test": 3_333}, 100),
    "cifar10": ({"train": 50_000, "test": 10_000}, 10),
    "cub200": ({"train": 5_994, "test": 5_794}, 200),
    "flowers102": ({"train": 1_020, "val": 1_020, "test": 6_149}, 102),
    "imagenet": ({"train": 1_281_167, "val": 50_000, "test": 100_000}, 1_000),
    "indoor67": ({"train": 5_360, "test": 1_340, "all": 15_620}, 67),
    "mnist": ({"train": 60_000, "test": 10_000}, 10),
    "mvso": ({"all": None}, None),
    "pets": ({"trainval": 3_680, "test": 3_669}, 37),
}


def test_classes_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    ids = ["10", "9", "100", "2", "1"]
    write_lines(tmp_path / "classes.txt", [f"{key} class {key}" for key in ids])
    expected: dict[Any, list[str]] = {"file": ids, "number": "1 2 9 10 100".split(), "name": "1 10 100 2 9".split()}
    for order, sorted_ids in expected.items():
        spec = ColumnClasses(kind="columns", file="classes.txt", id="{0}", name="{1}", order=order)
        assert [entry.id for entry in read_classes(Tree(str(tmp_path)), spec) or ()] == sorted_ids


def opened(name: str, folder: Path, split: str | None = None) -> Source:
    """A source of a miniature, whose counts are not the official ones."""
    with pytest.warns(UserWarning, match="card '") as caught:
        source = open_card(name, folder, split=split)
    assert len(caught) == 1  # one warning for all counts
    assert caught[0].filename == __file__
    return source


def files(source: Source, folder: Path) -> list[tuple[str, int]]:
    """Each sample's path below `folder`, and its label; the file is what is read."""
    assert isinstance(source, CardSource)
    paths, labels = [Path(source.name(i)) for i in range(len(source))], source.labels().tolist()
    assert_keeps_the_protocol(source, [path.read_bytes() for path in paths], labels)
    return [(path.relative_to(folder).as_posix(), label) for path, label in zip(paths, labels, strict=True)]


# --- the cards


def test_every_card_has_a_tree_and_the_official_counts() -> None:
    assert list_cards() == tuple(sorted(OFFICIAL)) == tuple(sorted(TREES))
    for name, (splits, num_classes) in OFFICIAL.items():
        card = load_card(name)
        assert {split: spec.num_samples for split, spec in card.splits.items()} == splits
        assert card.num_classes == num_classes
        assert len(card.layout.splitlines()) > 2 and card.home.startswith("http")


# --- each in its official layout


BREEDS = ("Abyssinian", "american_bulldog", "Egyptian_Mau")
FLOWERS = tuple(str(number) for number in range(1, 103))
ROOMS = ("airport_inside", "kitchen", "tv_studio")
VARIANTS = ("707-320", "Boeing 717", "F/A-18")
PETS = [("american_bulldog_2", 1), ("Abyssinian_100", 0), ("Egyptian_Mau_2", 2), ("Egyptian_Mau_34", 2)]
PLACES = [("kitchen/int474", 1), ("airport_inside/airport_inside_0001", 0), ("tv_studio/a", 2)]
SYNSET_IMAGES = [(f"{synset}/{synset}_{number}", i) for i, synset in enumerate(SYNSETS) for number in (18, 9)]
PLANES = [(1025794 + n, n % 3) for n in range(8)]


@pytest.mark.parametrize(
    ("name", "split", "classes", "path", "samples"),
    [
        ("imagenet", "train", SYNSETS, "train/{}.JPEG", SYNSET_IMAGES),
        # ILSVRC2012_IDs 1, 2, 3, 4, 1 are SYNSETS 1, 3, 0, 2, 1
        ("imagenet", "val", SYNSETS, "val/ILSVRC2012_val_{:08d}.JPEG", [(1, 1), (2, 3), (3, 0), (4, 2), (5, 1)]),
        ("imagenet", "test", (), "test/ILSVRC2012_test_{:08d}.JPEG", [(1, -1), (2, -1), (3, -1)]),
        ("flowers102", "train", FLOWERS, "jpg/image_{:05d}.jpg", [(7, 4), (1, 76), (3, 0)]),
        ("flowers102", "val", FLOWERS, "jpg/image_{:05d}.jpg", [(2, 76), (5, 101)]),
        ("flowers102", "test", FLOWERS, "jpg/image_{:05d}.jpg", [(8, 4), (4, 0), (6, 101)]),
        ("pets", None, BREEDS, "images/{}.jpg", PETS),
        ("aircraft", "train", VARIANTS, "data/images/{}.jpg", PLANES[:3]),
        ("aircraft", "val", VARIANTS, "data/images/{}.jpg", PLANES[3:5]),
        ("aircraft", "trainval", VARIANTS, "data/images/{}.jpg", PLANES[:5]),
        ("aircraft", "test", VARIANTS, "data/images/{}.jpg", PLANES[5:]),
        ("indoor67", "train", ROOMS, "Images/{}.jpg", PLACES),
        ("indoor67", "test", ROOMS, "Images/{}.jpg", [("kitchen/cocina 05", 1)]),
    ],
)
def test_the_samples_of_a_split(
    tmp_path: Path, name: str, split: str | None, classes: tuple[str, ...], path: str, samples: list[tuple[Any, int]]
) -> None:
    TREES[name](tmp_path)
    source = opened(name, tmp_path, split)
    assert source.classes == classes
    assert files(source, tmp_path) == [(path.format(file), label) for file, label in samples]


def test_other_splits_hold_the_rest(tmp_path: Path) -> None:
    for name, split, num in (("pets", "test", 5), ("indoor67", "all", 5)):
        TREES[name](tmp_path / name)
        assert len(opened(name, tmp_path / name, split)) == num


def test_boxes_of_corners_are_counted_from_1_and_include_them(tmp_path: Path) -> None:
    TREES["aircraft"](tmp_path)
    source = opened("aircraft", tmp_path, "test")
    assert isinstance(source, CardSource)
    assert source.box(0) == (2.0, 4.0, 20.0, 10.0)  # corners (3, 5) and (22, 14)


def test_imagenet_val_in_synset_folders_has_the_same_labels(tmp_path: Path) -> None:
    put(tmp_path, [f"val/{synset}/ILSVRC2012_val_{number:08d}.JPEG" for number, synset in enumerate(SYNSETS[1:], 1)])
    devkit(tmp_path, [1, 2, 3])
    source = opened("imagenet", tmp_path, "val")
    assert [label for _, label in files(source, tmp_path)] == [1, 2, 3]  # though one class has no image


@pytest.mark.parametrize("file", ["synset_words.txt", "LOC_synset_mapping.txt"])
def test_imagenet_takes_synset_words_where_there_is_no_devkit(tmp_path: Path, file: str) -> None:
    put(tmp_path, ["train/n02123045/a.JPEG", "train/n01440764/b.JPEG", "val/n02123045/c.JPEG"])
    write_lines(tmp_path / file, ["n01443537 goldfish, Carassius auratus", "n02123045 tabby", "n01440764 tench"])
    for split, labels in (("train", [0, 2]), ("val", [2])):
        source = opened("imagenet", tmp_path, split)
        assert [label for _, label in files(source, tmp_path)] == labels
        assert source.classes == ("n01440764", "n01443537", "n02123045")


def test_imagenet_val_follows_the_training_folders_where_nothing_else_is_there(tmp_path: Path) -> None:
    put(tmp_path, ["train/n02123045/a.JPEG", "train/n01440764/b.JPEG", "val/n02123045/c.JPEG"])
    assert files(opened("imagenet", tmp_path, "val"), tmp_path) == [("val/n02123045/c.JPEG", 1)]
    shutil.rmtree(tmp_path / "train")
    assert files(opened("imagenet", tmp_path, "val"), tmp_path) == [("val/n02123045/c.JPEG", 0)]


@pytest.mark.parametrize("below", ["", "CUB_200_2011"])
def test_cub200_joins_its_tables_by_image_id(tmp_path: Path, below: str) -> None:
    """Given the archive's folder, or the one that it was unpacked in."""
    TREES["cub200"](tmp_path / below)
    train, test = opened("cub200", tmp_path, "train"), opened("cub200", tmp_path, "test")
    assert isinstance(train, CardSource) and isinstance(test, CardSource)
    folders = ["001.Black_footed_Albatross", "002.Laysan_Albatross", "003.Sooty_Albatross"]
    assert train.classes == test.classes == tuple(folders)
    prefix = f"{below}/images" if below else "images"
    assert [name.rpartition("/")[0] for name, _ in files(train, tmp_path)] == [
        f"{prefix}/{folder}" for folder in folders for _ in range(2)
    ]
    assert [label for _, label in files(train, tmp_path)] == [0, 0, 1, 1, 2, 2]
    assert [name.rpartition("_")[2] for name, _ in files(test, tmp_path)] == ["793.jpg"] * 3
    assert [label for _, label in files(test, tmp_path)] == [0, 1, 2]
    boxes = test.boxes()
    assert boxes is not None and boxes.dtype == np.float32
    assert boxes.tolist() == [[3, 27, 325.5, 304], [6, 27, 325.5, 304], [9, 27, 325.5, 304]]
    assert train.box(2) == pickle.loads(pickle.dumps(train)).box(2) == (4.0, 27.0, 325.5, 304.0)
    with pytest.raises(IndexError, match="out of range"):
        train.box(6)


def test_mvso_keeps_the_labels_of_pairs_whose_images_are_not_there(tmp_path: Path) -> None:
    TREES["mvso"](tmp_path)
    with pytest.warns(UserWarning, match="2 of 4 listed photographs are not there and are left out"):
        source = open_card("mvso", tmp_path)
    assert source.classes == ("clear_sky", "happy_baby", "old_house")
    assert files(source, tmp_path) == [("images/old_house/3_c.jpg", 2), ("images/happy_baby/1_a.jpg", 1)]


@pytest.mark.parametrize("end", ["", ".gz"])
@pytest.mark.parametrize("below", ["", "MNIST/raw"])
def test_mnist_reads_the_idx_files_as_downloaded_or_unpacked(tmp_path: Path, end: str, below: str) -> None:
    TREES["mnist"](tmp_path / below)
    expected = (tmp_path / below / "t10k-images-idx3-ubyte").read_bytes()[16:]
    for path in (tmp_path / below).iterdir() if end else ():
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    train, test = opened("mnist", tmp_path, "train"), opened("mnist", tmp_path, "test")
    assert [train.label(n) for n in range(len(train))] == [0, 2, 4, 6, 8]
    assert [test.label(n) for n in range(len(test))] == [0, 2, 4]
    assert train.classes == test.classes == tuple("0123456789")
    assert np.array_equal([test.read(n) for n in range(3)], np.frombuffer(expected, np.uint8).reshape(3, 28, 28))


def test_cifar10_reads_the_binary_batches_one_after_the_other(tmp_path: Path) -> None:
    TREES["cifar10"](tmp_path / "cifar-10-batches-bin")
    train, test = opened("cifar10", tmp_path, "train"), opened("cifar10", tmp_path, "test")
    assert [train.label(n) for n in range(len(train))] == [0, 1, 1, 2, 2, 3, 3, 4, 4, 5]
    assert [test.label(n) for n in range(len(test))] == [5, 6]
    assert train.classes == test.classes and train.classes[9] == "truck"
    image = train.read(5)  # the second record of the third batch
    assert isinstance(image, np.ndarray) and image.shape == (32, 32, 3)
    assert (image == [2, 1, 255]).all()


# --- what is done with them


def test_an_image_may_lack_its_box(tmp_path: Path) -> None:
    TREES["cub200"](tmp_path)
    write_lines(tmp_path / "bounding_boxes.txt", ["4 1 2 3 4", "5 nan 2 3 4"])
    source = opened("cub200", tmp_path)
    assert isinstance(source, CardSource)
    assert [source.box(n) for n in range(6)] == [None, None, (1.0, 2.0, 3.0, 4.0), None, None, None]
    boxes = source.boxes()
    assert boxes is not None and boxes.shape == (6, 4)
    write_lines(tmp_path / "bounding_boxes.txt", ["# none"])
    source = opened("cub200", tmp_path)
    assert isinstance(source, CardSource) and source.boxes() is None and source.box(0) is None


def test_a_part_is_warned_of_once_with_both_numbers(tmp_path: Path) -> None:
    TREES["cub200"](tmp_path)
    images = sorted((tmp_path / "images").glob("*/*.jpg"))
    images[0].unlink()
    message = (
        "card 'cub200', split 'train': 5 photographs, and 5,994 are official; 3 classes, and 200 are official; "
        "1 of 6 listed photographs are not there and are left out"
    )
    with pytest.warns(UserWarning, match=message) as caught:
        source = open_card("cub200", tmp_path)
    assert len(caught) == 1
    assert [label for _, label in files(source, tmp_path)] == [0, 1, 1, 2, 2]


def test_the_official_counts_are_not_warned_of(tmp_path: Path) -> None:
    TREES["cub200"](tmp_path)
    card = load_card("cub200")
    splits = {name: split.model_copy(update={"num_samples": 6}) for name, split in card.splits.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(open_card(card.model_copy(update={"num_classes": 3, "splits": splits}), tmp_path)) == 6


def test_a_card_of_ones_own(tmp_path: Path) -> None:
    put(tmp_path / "data", ["photos/b/1.jpg", "photos/a/2.jpg"])
    write_lines(
        tmp_path / "mine.toml",
        [
            'name = "mine"\ntitle = "Mine"\nhome = "here"\nlicence = "mine"\ncitation = "none"\narchives = ["x.zip"]',
            'layout = "photos/"\nclasses = { kind = "folders", path = "photos" }\n[splits.all]\n[[splits.all.ways]]',
            'reader = "folders"\nneeds = ["photos/*/"]\npath = "photos"',
        ],
    )
    source = open_card(tmp_path / "mine.toml", tmp_path / "data")  # it expects no counts: no warning
    assert files(source, tmp_path / "data") == [("photos/a/2.jpg", 0), ("photos/b/1.jpg", 1)]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("name = ", "is not TOML"),
        ('name = "bad"\nclass = 3', "class=3 is not a field"),
        (b"\xff", "is not TOML"),
    ],
)
def test_a_card_that_is_not_valid_is_refused(tmp_path: Path, text: Any, reason: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match=reason):
        load_card(path)


def test_a_card_is_no_path_without_its_ending() -> None:
    with pytest.raises(ValueError, match="'../cards/pets' is not known"):
        load_card("../cards/pets")


def test_templates_know_only_their_fields() -> None:
    fields = {"1": "https://x/a/b.jpg", "line": "kitchen/c/d.jpg", "n": "42"}
    assert fill("{1:basename} {line:first} {n:05}{{}}", fields) == "b.jpg kitchen 00042{}"
    card = load_card("pets").model_dump()
    for bad in ("{0.__class__}", "{0!r}", "{0:>{1}}", "{other}", "{}"):
        card["splits"]["test"]["ways"][0]["path"] = bad
        with pytest.raises(ValueError, match="holds a field that is not known"):
            type(load_card("pets")).model_validate(card)


PAGE = (Path(__file__).parents[3] / "docs/cards.md").read_text(encoding="utf-8")


def test_the_reference_has_every_card() -> None:
    for name in list_cards():
        assert f"| `{name}` |" in cards_as_markdown() and f"## {name}\n" in card_sections()
        assert f"`{name}`" in PAGE


@pytest.mark.parametrize("kind", ["reader", "kind"])
def test_every_reader_and_every_kind_of_classes_is_named(kind: str) -> None:
    definitions = Card.model_json_schema()["$defs"].values()
    names = [entry["properties"][kind]["const"] for entry in definitions if kind in entry["properties"]]
    assert len(names) >= 6
    assert [name for name in names if f"`{name}`" not in PAGE] == []


def test_hidden_folders_are_no_classes(tmp_path: Path) -> None:
    for name in ("cat", ".git", "__MACOSX"):
        (tmp_path / name).mkdir()
    assert Tree(str(tmp_path)).names("", "folder") == ["cat"]
