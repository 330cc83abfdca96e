"""A `datasets.Dataset` as a source: a stand-in that has its interface, and the library itself where it is installed."""

import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from augpipe.datasets.formats.hugging_face import HuggingFaceSource
from augpipe.datasets.open import open_source
from augpipe.sources.protocol import columns_of
from tests.augpipe.decoding.image_files import encoded, scene
from tests.datasets.formats.source_checks import assert_keeps_the_protocol, assert_labels


class Image:
    _type = "Image"

    def __init__(self, decode: bool = True) -> None:
        self.decode = decode


class ClassLabel:
    _type = "ClassLabel"
    dtype = "int64"

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)


class Value:
    _type = "Value"

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype


class Dataset:
    """What `HuggingFaceSource` uses of a `Dataset`, with the library's behaviour: everything gives a new one."""

    def __init__(self, rows: list[dict[str, Any]], features: dict[str, Any], fmt: str | None = None) -> None:
        self.rows, self.features, self.format = rows, features, fmt
        self.split = "train"

    @property
    def column_names(self) -> list[str]:
        return list(self.features)

    def __len__(self) -> int:
        return len(self.rows)

    def cast_column(self, name: str, feature: Any) -> "Dataset":
        return Dataset(self.rows, {**self.features, name: feature}, self.format)

    def select_columns(self, names: list[str]) -> "Dataset":
        rows = [{name: row[name] for name in names} for row in self.rows]
        return Dataset(rows, {name: self.features[name] for name in names}, self.format)

    def with_format(self, fmt: str | None) -> "Dataset":
        return Dataset(self.rows, self.features, fmt)

    def __getitem__(self, key: Any) -> Any:
        assert self.format is None, "rows of another format hold tensors"
        assert not any(isinstance(f, Image) and f.decode for f in self.features.values()), "would decode"
        if isinstance(key, list):
            return {name: [self.rows[row][name] for row in key] for name in self.features}
        if isinstance(key, slice):
            return {name: [row[name] for row in self.rows[key]] for name in self.features}
        return self.rows[key]


class Stream:
    features: Any = None
    column_names: Any = None

    def cast_column(self) -> None: ...
    def select_columns(self) -> None: ...
    def with_format(self) -> None: ...
    def __iter__(self) -> Iterator[Any]:
        return iter(())


def standard(count: int = 5) -> Dataset:
    rows = [
        {"id": i, "image": {"bytes": b"image %d" % i, "path": None}, "label": i % 2 if i < 4 else -1}
        for i in range(count)
    ]
    return Dataset(rows, {"id": Value("int64"), "image": Image(), "label": ClassLabel(["7", "0"])}, "torch")


def test_images_labels_and_names() -> None:
    dataset = standard()
    source = open_source(dataset)
    assert isinstance(source, HuggingFaceSource) and source.classes == ("7", "0")
    assert_keeps_the_protocol(source, [b"image %d" % i for i in range(5)], [0, 1, 0, 1, -1])
    assert source.name(3) == "Dataset train, row 3"
    assert repr(source) == "HuggingFaceSource('Dataset train': 5 photographs, 2 classes)"
    assert dataset.features["image"].decode, "the user's own Dataset was changed"


def test_further_columns_go_along() -> None:
    source = HuggingFaceSource(standard(), columns=["id"])
    assert columns_of(source, np.array([3, 0, 3])) == {"id": [3, 0, 3]}
    assert columns_of(HuggingFaceSource(standard()), np.array([3])) == {}
    for columns in ("id", ["id", "caption"], ["image"]):
        with pytest.raises(ValueError, match="Dataset train: columns=.* must be a list of names among 'id', 'label'"):
            HuggingFaceSource(standard(), columns=columns)


def test_paths_bytes_and_texts(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"from a file")
    rows = [
        {"img": {"bytes": None, "path": str(tmp_path / "a.jpg")}, "label": "dog", "raw": b"x"},
        {"img": {"bytes": None, "path": "zip://a.jpg::b.zip"}, "label": None, "raw": b"y"},
        {"img": None, "label": "cat", "raw": b"z"},
    ]
    dataset = Dataset(rows, {"img": Image(), "label": Value("string"), "raw": Value("binary")})
    source = HuggingFaceSource(dataset)
    assert source.read(0) == b"from a file"
    assert source.classes == ("cat", "dog")
    assert source.labels().tolist() == [1, -1, 0]
    with pytest.raises(ValueError, match=r"holds no bytes in this row, and no local file is at 'zip://a.jpg::b.zip'"):
        source.read(1)
    with pytest.raises(ValueError, match=r"column 'img' gives a NoneType, and an encoded file is wanted"):
        source.read(2)
    raw = HuggingFaceSource(dataset.select_columns(["raw"]))
    assert [raw.read(i) for i in range(3)] == [b"x", b"y", b"z"]
    assert (raw.labels().tolist(), raw.classes) == ([-1, -1, -1], ())


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match=r"a dict holds several splits: train, test. Give one.*dataset\['train'\]"):
        open_source({"train": standard(), "test": standard()})
    with pytest.raises(ValueError, match=r"a Stream is a stream: its samples have no numbers.*without streaming=True"):
        open_source(Stream())
    with pytest.raises(ValueError, match=r"a list is not a datasets.Dataset: it lacks features, column_names"):
        HuggingFaceSource([1])
    with pytest.raises(ValueError, match=r"Dataset train: no rows"):
        HuggingFaceSource(standard(0))
    with pytest.raises(ValueError, match=r"Dataset train: no column holds encoded images"):
        HuggingFaceSource(standard().select_columns(["label"]))
    with pytest.raises(ValueError, match=r"image='pixels' is not a column of encoded images .* Those are 'image'."):
        HuggingFaceSource(standard(), image="pixels")
    bad = standard()
    bad.rows[2]["label"] = 9
    with pytest.raises(ValueError, match=r"Dataset train, row 2: label 9 is not a class number \(0..1, or -1"):
        HuggingFaceSource(bad)


class List:
    _type = "List"

    def __init__(self, feature: Any) -> None:
        self.feature = feature


def with_numbers() -> Dataset:
    rows = [
        {"image": {"bytes": b"x", "path": None}, "hot": hot, "soft": soft, "age": age, "label": 0, "of": [0]}
        for hot, soft, age in (([1, 0, 1], [0.5, 1.0], 3), ([0, 0, 2], [2.0, 0.25], 7))
    ]
    kinds = {
        "hot": List(Value("int64")),
        "soft": [Value("float32")],
        "age": Value("uint8"),
        "of": List(ClassLabel("a")),
    }
    return Dataset(rows, {"image": Image(), "label": ClassLabel(["a", "b"]), **kinds})


def test_labels_of_several_numbers() -> None:
    dataset = with_numbers()
    assert_labels(HuggingFaceSource(dataset, label="hot"), [[1, 0, 1], [0, 0, 2]], np.int64, ())
    assert_labels(HuggingFaceSource(dataset, label="soft"), [[0.5, 1], [2, 0.25]], np.float32, ())
    assert_labels(HuggingFaceSource(dataset, label=["age"]), [[3], [7]], np.int64, ())
    dataset.features["share"] = Value("float64")
    for row in dataset.rows:
        row["share"] = 0.5
    assert_labels(
        HuggingFaceSource(dataset, label=["share", "age"]), [[0.5, 3], [0.5, 7]], np.float32, ("share", "age")
    )
    assert HuggingFaceSource(dataset).labels().tolist() == [0, 0]


@pytest.mark.parametrize(
    ("label", "second", "message"),
    [
        ("hot", [1], r"Dataset train, row 1: its label is 1 number, and the first one 3: labels are of one length"),
        ("hot", [1, None, 0], r"Dataset train, row 1: its label holds None"),
        ("hot", None, r"Dataset train, row 1: its label holds None"),
        ("of", [0], r"label='of' is not a column of integers or of text"),
        (["hot"], [1], r"label=\['hot'\] names 'hot', which is not a column of numbers. Those are 'age'"),
        ([], [1], r"label=\[\] names no column"),
    ],
)
def test_columns_that_are_no_labels(label: Any, second: Any, message: str) -> None:
    dataset = with_numbers()
    dataset.rows[1]["hot"] = second
    with pytest.raises(ValueError, match=message):
        HuggingFaceSource(dataset, label=label)


def test_the_library_itself() -> None:
    library = pytest.importorskip("datasets")  # from the checkout this can be the folder of that name
    if not hasattr(library, "Dataset"):
        pytest.skip("Hugging Face's datasets is not installed")
    contents = [encoded(scene(20, 30, i), "JPEG") for i in range(4)]
    features = library.Features({"image": library.Image(), "label": library.ClassLabel(names=["a", "b"])})
    rows = {"image": [{"bytes": content, "path": None} for content in contents], "label": [0, 1, 1, -1]}
    source = HuggingFaceSource(library.Dataset.from_dict(rows, features=features).with_format("numpy"))
    assert [source.read(i) for i in range(4)] == contents
    assert source.labels().tolist() == [0, 1, 1, -1]
    assert pickle.loads(pickle.dumps(source)).read(2) == contents[2]
