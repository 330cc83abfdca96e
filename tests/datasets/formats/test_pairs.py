"""Pairs of photograph and label as programs hold them: lists, torchvision's folders, any map-style data set."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from augpipe import Loader, SampleError, recipes
from augpipe.datasets.formats.folder import FolderSource
from augpipe.datasets.formats.pairs import MapStyleSource, PairSource
from augpipe.datasets.open import open_source
from augpipe.sources import Subset
from augpipe.sources.protocol import labels_of
from tests.augpipe.decoding.image_files import encoded, scene
from tests.augpipe.loader.loader_sources import CENTRE
from tests.datasets.formats.source_checks import assert_keeps_the_protocol

torch = pytest.importorskip("torch")

SCENES = [scene(40, 52, seed) for seed in range(6)]
FILES = [encoded(image, "PNG") for image in SCENES]
LABELS = [1, 0, 2, 0, -1, 1]


class Items(torch.utils.data.Dataset[Any]):
    """A data set as people have it."""

    def __init__(self, images: list[Any], labels: Any = LABELS) -> None:
        self.images, self.given = images, labels
        self.num_asked = 0

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Any:
        self.num_asked += 1
        return self.images[index], self.given[index]


def torchvision_s(function: Any) -> Any:
    """As if torchvision had defined it."""
    function.__module__ = "torchvision.datasets.folder"
    return function


torchvision_s(torchvision_s)


class ImageFolder:
    """What torchvision's has of interest; its items would be decoded by Pillow."""

    def __init__(self, root: Path, transform: Any = None, target_transform: Any = None) -> None:
        folders = sorted(folder for folder in root.iterdir())
        self.classes = [folder.name for folder in folders]
        self.class_to_idx = {name: label for label, name in enumerate(self.classes)}
        self.samples = [(str(path), label) for label, folder in enumerate(folders) for path in sorted(folder.iterdir())]
        self.targets = [label for _, label in self.samples]
        self.transform, self.target_transform, self.loader = transform, target_transform, torchvision_s

    def __len__(self) -> int:
        return len(self.samples)

    @torchvision_s
    def __getitem__(self, index: int) -> Any:
        if self.loader is torchvision_s:
            raise AssertionError("it was asked for an item")
        path, label = self.samples[index]
        return self.loader(path), label


class Listed(torch.utils.data.Dataset[Any]):
    """As those of torchvision that hold pixels and a list of numbers."""

    def __init__(self, targets: list[int]) -> None:
        self.targets = targets

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return np.zeros((4, 4, 3), np.uint8), self.targets[index]


class Relabelled(ImageFolder):
    """What people write to change what they are given."""

    def __getitem__(self, index: int) -> Any:
        path, label = self.samples[index]
        return Image.open(path).rotate(180), 1 - label


def written(folder: Path) -> list[Path]:
    paths = [folder / f"{'cat' if number % 2 else 'bird'}" / f"{number}.png" for number in range(len(FILES))]
    for path, data in zip(paths, FILES, strict=True):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
    return paths


# (path, label)


def test_a_list_of_pairs_is_a_source(tmp_path: Path) -> None:
    paths = written(tmp_path)
    for pairs in (
        [*zip(paths, LABELS, strict=True)],
        tuple([str(path), np.int64(n)] for path, n in zip(paths, LABELS, strict=True)),
    ):
        source = open_source(pairs)
        assert isinstance(source, PairSource) and source.classes == ("0", "1", "2")
        assert_keeps_the_protocol(source, FILES, LABELS)
        assert source.name(2) == str(paths[2]) and source.stamp(0) is not None
    named = open_source(list(zip(paths, LABELS, strict=True)), classes=["a", "b", "c"])
    assert named.classes == ("a", "b", "c")
    words = open_source([(path, path.parent.name) for path in paths])
    assert words.classes == ("bird", "cat") and labels_of(words, np.arange(6)).tolist() == [0, 1] * 3
    assert len(Loader([(path, 0) for path in paths], CENTRE, batch_size=2)) == 3


@pytest.mark.parametrize("kind", [list, tuple, np.array, torch.tensor])
def test_labels_of_pairs_may_be_several_numbers(tmp_path: Path, kind: Any) -> None:
    paths = written(tmp_path)
    rows = [[number, number % 2, 1] for number in range(6)]
    source = open_source([(path, kind(row)) for path, row in zip(paths, rows, strict=True)])
    assert source.classes == () and labels_of(source, np.arange(6)).tolist() == rows
    (images, labels), *_ = Loader(source, CENTRE, batch_size=6, shuffle=False)
    assert (labels.dtype, labels.tolist()) == (torch.int64, rows) and len(images) == 6
    shares = open_source([(path, kind([0.25 * row[0]])) for path, row in zip(paths, rows, strict=True)], classes=["x"])
    assert shares.classes == ("x",)
    expected = np.array([[0.25 * number] for number in range(6)], np.float32)
    np.testing.assert_array_equal(labels_of(shares, np.arange(6)), expected, strict=True)


def test_what_is_no_pair_is_named() -> None:
    for pairs, message in (
        ([("a.jpg", 0), "b.jpg"], r"^pairs\[1\] is 'b.jpg', and must be \(path, label\)"),
        ([("a.jpg", 0), (3, 0)], r"^pairs\[1\] is \(3, 0\)"),
        (
            [("a.jpg", 0), ("b.jpg", 0.5)],
            r"^pairs\[1\] has the label 0.5. Give all labels as integers, all as names, or all as lists of numbers, as "
            r"\[0.5\].$",
        ),
        ([("a.jpg", [0, 1]), ("b.jpg", [1])], r"^pairs\[1\]: its label is 1 number, and the first one 2: "),
        ([("a.jpg", [0, 1]), ("b.jpg", 1)], r"^pairs\[1\] has the label 1. Give all labels as"),
        ([("a.jpg", "a"), ("b.jpg", "b"), ("c.jpg", float("nan"))], r"^pairs\[2\] has the label nan. Give all labels"),
        ([("a.jpg", 3), ("b.jpg", "b")], r"^pairs\[1\] has the label 'b'. Give all labels"),
        ([("a.jpg", [0.0, float("nan")])], r"^pairs\[0\]: its label holds nan, and labels are finite numbers"),
        ([("a.jpg", [[0], [1]])], r"^pairs\[0\]: its label holds \[0\]"),
        ([("a.jpg", 0), ("b.jpg", "cat")], r"^pairs\[1\] has the label 'cat'"),
        ([("a.jpg", True)], r"^pairs\[0\] has the label True"),
        ([("a.jpg", -2)], "^a.jpg: label -2 is not a class number"),
    ):
        with pytest.raises(ValueError, match=message):
            open_source(pairs)
    with pytest.raises(ValueError, match="^b.jpg: label 2 is not a class number .0..1"):
        open_source([("a.jpg", 0), ("b.jpg", 2)], classes=["x", "y"])
    with pytest.raises(ValueError, match="^pairs is empty"):
        PairSource([])


class Frame(Items):
    """Columns by name, as a frame of pandas has them."""

    __module__ = "pandas.core.frame"


def test_tables_and_bare_paths_are_told_how_to_become_pairs() -> None:
    table = np.array([["a.jpg", 0]], dtype=object)
    for given, message in (
        (Frame([]), r"^a Frame is not a source of photographs. Give pairs, list\(zip\(frame.path, frame.label\)\), "),
        (table, r"^a ndarray is not a source of photographs. Give it as a list: array.tolist\(\)"),
        (["a.jpg", "b.jpg"], r"^a list is not a source of photographs. Give pairs: \[\(path, -1\) for path in paths\]"),
    ):
        with pytest.raises(ValueError, match=message):
            open_source(given)


# torchvision's folders


def test_an_image_folder_is_read_as_the_folder_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    written(tmp_path)
    folder, source = FolderSource(tmp_path), open_source(ImageFolder(tmp_path))
    assert source.classes == folder.classes == ("bird", "cat")
    assert labels_of(source, np.arange(6)).tolist() == folder.labels().tolist()
    assert [source.read(i) for i in range(6)] == [folder.read(i) for i in range(6)]
    with caplog.at_level(logging.WARNING, "augpipe"):
        open_source(ImageFolder(tmp_path, transform=str))
    assert "its transform is not applied: the recipe takes its place" in caplog.text
    with pytest.raises(ValueError, match="^the ImageFolder has a target_transform, which is not applied"):
        open_source(ImageFolder(tmp_path, target_transform=str))


def test_data_sets_that_torch_joins_are_read_as_each_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    written(tmp_path)
    (tmp_path / "cat" / "z.png").write_bytes(FILES[0])  # a source of a size of its own: each line is logged once
    first, second = ImageFolder(tmp_path, transform=str), ImageFolder(tmp_path)
    joined = torch.utils.data.ConcatDataset([torch.utils.data.Subset(first, [5, 0]), second])
    with caplog.at_level(logging.WARNING, "augpipe"):
        source = open_source(joined)
    assert "its transform is not applied: the recipe takes its place" in caplog.text
    paths = [path for path, _ in second.samples]
    assert [source.name(i) for i in range(9)] == [paths[5], paths[0], *paths]
    assert labels_of(source, np.arange(9)).tolist() == [1, 0, 0, 0, 0, 1, 1, 1, 1] and source.classes == ("bird", "cat")
    second.classes = ["cat", "dog"]
    with pytest.raises(ValueError, match=r"^sources\[0\] and sources\[1\] have different classes"):
        open_source(joined)


def test_of_joined_data_sets_one_may_lack_classes_that_are_numbers_or_be_empty() -> None:
    few, many, none = Listed([0, 1]), Listed([2, 0]), Listed([])
    unlisted: Any = [(np.zeros((4, 4, 3), np.uint8), 1)]
    source = open_source(torch.utils.data.ConcatDataset([few, many, unlisted, none]))
    assert source.classes == ("0", "1", "2") and labels_of(source, np.arange(5)).tolist() == [0, 1, 2, 0, 1]
    with pytest.raises(ValueError, match=r"^the ConcatDataset is empty"):
        open_source(torch.utils.data.ConcatDataset([none]))


def test_a_data_set_that_changes_images_itself_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    written(tmp_path)
    dataset = Relabelled(tmp_path, transform=str)
    with caplog.at_level(logging.WARNING, "augpipe"):
        open_source(dataset)
    (told,) = caplog.messages
    assert told.endswith("; its own transform acts before the recipe: make the data set without one")
    dataset.transform = None
    assert open_source(dataset).cautions == ()


def test_an_image_folder_with_items_of_its_own_is_asked_for_them(tmp_path: Path) -> None:
    written(tmp_path)
    upright = [np.asarray(Image.open(path)) for path, _ in ImageFolder(tmp_path).samples]
    relabelled = Relabelled(tmp_path)
    source = open_source(relabelled)
    assert isinstance(source, MapStyleSource)
    with pytest.raises(ValueError, match="its item has the label 1, and the data set's list 'targets' has 0 for it"):
        source.read(0)
    relabelled.targets = [1 - label for label in relabelled.targets]
    source = open_source(relabelled)
    assert labels_of(source, np.arange(6)).tolist() == [1, 1, 1, 0, 0, 0] and source.classes == ("bird", "cat")
    np.testing.assert_array_equal(source.read(2), upright[2][::-1, ::-1])
    with_loader = ImageFolder(tmp_path)
    with_loader.loader = lambda path: Image.open(path).convert("L")
    source = open_source(with_loader)
    np.testing.assert_array_equal(source.read(4), np.asarray(Image.fromarray(upright[4]).convert("L")))
    assert labels_of(source, np.arange(6)).tolist() == [0, 0, 0, 1, 1, 1]


def test_torchvision_s_own_image_folder_is_read_as_files(tmp_path: Path) -> None:
    torchvision = pytest.importorskip("torchvision")
    written(tmp_path)
    assert isinstance(open_source(torchvision.datasets.ImageFolder(tmp_path)), PairSource)
    with_loader = torchvision.datasets.ImageFolder(tmp_path, loader=lambda path: Image.open(path).rotate(90))
    assert isinstance(open_source(with_loader), MapStyleSource)


def test_a_subset_of_torch_is_one_of_its_files(tmp_path: Path) -> None:
    written(tmp_path)
    source = open_source(torch.utils.data.Subset(ImageFolder(tmp_path), [4, 1]))
    assert isinstance(source, Subset) and source.classes == ("bird", "cat")
    assert labels_of(source, np.arange(2)).tolist() == [1, 0] and source.name(0).endswith("cat/3.png")


# Any map-style data set


@pytest.mark.parametrize(
    ("kind", "of_scene"),
    [
        ("arrays", lambda image: image),
        ("PIL images", Image.fromarray),
        ("tensors", torch.from_numpy),
        ("tensors with their channels first", lambda image: torch.from_numpy(image).permute(2, 0, 1)),
    ],
)
def test_pixels_of_every_kind_are_read(kind: str, of_scene: Any) -> None:
    source = open_source(Items([of_scene(image) for image in SCENES]))
    assert isinstance(source, MapStyleSource)
    for number, image in enumerate(SCENES):
        np.testing.assert_array_equal(source.read(number), image)
    assert source.name(3) == "Items[3]"


def test_files_of_every_kind_are_read(tmp_path: Path) -> None:
    paths = written(tmp_path)
    for items in (FILES, [bytearray(data) for data in FILES], paths, [*map(str, paths)]):
        source = open_source(Items(items))
        assert [source.read(i) for i in range(6)] == FILES


def test_a_loader_asks_for_each_item_once() -> None:
    dataset = Items(SCENES, [torch.tensor(label) for label in LABELS])
    loader = Loader(dataset, CENTRE, batch_size=2, shuffle=False, framework="numpy")
    assert np.concatenate([labels for _, labels in loader]).tolist() == LABELS
    assert dataset.num_asked == 6
    loader.state_dict()
    assert dataset.num_asked == 6


def test_listed_labels_are_taken_without_asking() -> None:
    dataset = Items(SCENES)
    dataset.targets, dataset.classes = LABELS, ["a", "b", "c"]
    source = open_source(dataset)
    assert source.classes == ("a", "b", "c") and labels_of(source, np.arange(6)).tolist() == LABELS
    assert dataset.num_asked == 0
    assert_keeps_the_protocol(source, SCENES, LABELS)
    dataset.targets = torch.tensor(LABELS)
    del dataset.classes
    assert open_source(dataset).classes == ("0", "1", "2")
    assert open_source([*zip(SCENES, LABELS, strict=True)]).classes == ()
    assert open_source(dataset, classes=["x", "y", "z"]).classes == ("x", "y", "z")


@pytest.mark.parametrize("label", [0, 0.5, np.array([0, 1]), torch.tensor(2)])
def test_a_label_that_is_not_the_listed_one_is_named(label: Any) -> None:
    dataset = Items(SCENES[:2], [1, label])
    dataset.labels = np.array([1, 1])  # as of another column
    with pytest.raises(
        SampleError, match=r"^Items\[1\]: its item has the label .*, and the data set's list 'labels' has 1 for"
    ):
        next(iter(Loader(dataset, CENTRE, batch_size=2, shuffle=False)))


def test_what_it_cannot_give_is_named() -> None:
    floats = torch.zeros(3, 8, 8)
    for dataset, message in (
        (Items([floats]), r"^Items\[0\]: .*float32, and must be uint8.*Make the data set without a transform"),
        (Items(SCENES[:1], ["cat"]), r"^Items\[0\]: its label is 'cat', and an integer is needed"),
        (Items(SCENES[:1], [[0, 1]]), r"its label is \[0, 1\], .*number, or give pairs of path and numbers"),
        (
            Items(SCENES[:1], [-2]),
            r"^Items\[0\]: its label is -2, which is not a class number \(0, 1, ...; -1 for none\)",
        ),
    ):
        with pytest.raises(SampleError, match=message):
            next(iter(Loader(dataset, CENTRE, batch_size=1)))
    single = open_source(torch.utils.data.TensorDataset(torch.zeros(2, 8, 8, 3, dtype=torch.uint8)))
    with pytest.raises(ValueError, match=r"the data set gives a tuple of 1, and \(photograph, label\) is needed"):
        single.read(0)
    with pytest.raises(ValueError, match="^the Items is empty"):
        open_source(Items([]))
    with pytest.raises(
        ValueError, match="a Stream is not a source of photographs. Accepted: .*a data set with a length"
    ):
        open_source(Stream())


class Stream(torch.utils.data.IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(SCENES)


# A split that is drawn


def test_a_split_that_is_drawn_never_overlaps(tmp_path: Path) -> None:
    pairs = [(path, 0) for path in written(tmp_path)] * 10
    for seed in (0, 7):
        parts = [open_source(pairs, split=part, holdout=0.25, split_seed=seed) for part in ("train", "val")]
        train, val = (part.ids.tolist() for part in parts if isinstance(part, Subset))
        assert len(val) == 15 and sorted(train + val) == [*range(60)]
        assert val == sorted(val) != [*range(15)]
        again = open_source(open_source(pairs), split="val", holdout=0.25, split_seed=seed)
        assert isinstance(again, Subset) and again.ids.tolist() == val
        loader = Loader(pairs, recipes.none(), batch_size=4, split="val", holdout=0.25, split_seed=seed)
        assert isinstance(loader.source, Subset) and loader.source.ids.tolist() == val


def test_a_split_that_cannot_be_drawn_is_named(tmp_path: Path) -> None:
    source = open_source([(path, 0) for path in written(tmp_path)])
    for options, message in (
        ({"split": "test", "holdout": 0.5}, "^split='test' with holdout=0.5 is not known. Choose \"val\""),
        ({"holdout": 0.5}, "^split=None with holdout=0.5 is not known"),
        ({"split": "val", "holdout": 0.0}, "^holdout=0.0 must lie between 0 and 1"),
        ({"split": "val", "holdout": 10}, "^holdout=10 must lie between 0 and 1"),
        ({"split": "val", "holdout": 0.01}, "^holdout=0.01 of 6 photographs is 0: both parts need some"),
        ({"split": "val", "holdout": 0.5, "split_seed": -1}, "^seed=-1 must lie in"),
        ({"split_seed": 3}, "^split_seed=3 draws a split, and none is drawn"),
    ):
        with pytest.raises(ValueError, match=message):
            open_source(source, **options)
        with pytest.raises(ValueError, match=message):
            Loader(source, CENTRE, batch_size=1, **options)
