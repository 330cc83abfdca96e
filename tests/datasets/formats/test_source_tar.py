"""WebDataset tar files as a source: what is read; what is refused is in test_source_tar_refused.py."""

import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from augpipe.datasets.formats.tar.tar_source import TarSource
from augpipe.datasets.open import open_source
from tests.datasets.formats.source_checks import assert_keeps_the_protocol, assert_labels
from tests.datasets.formats.tar_files import put, samples

# --- what is read


def test_samples_labels_names_and_ids(tmp_path: Path) -> None:
    path = put(
        tmp_path / "a.tar",
        [
            ("x/1.cls", b"2"),
            ("x/1.jpg", b"one"),
            ("x/1.json", b'{"label": 0}'),
            ("x/2.png", b"two"),
            ("x/2.json", b'{"label": 1, "more": [1]}'),
            ("x/3.JPEG", b"three"),
            ("x/4.txt", b"no image"),
            ("__meta__/1.jpg", b"about the shard"),
        ],
    )
    source = TarSource(path)
    assert_keeps_the_protocol(source, [b"one", b"two", b"three"], [2, 1, -1])
    assert source.classes == ("0", "1", "2")
    assert source.name(1) == f"{path}/x/2.png"


def test_class_names_are_sorted_and_may_be_given(tmp_path: Path) -> None:
    members = [("1.cls", b"dog"), ("1.jpg", b""), ("2.cls", "Ähre\n".encode()), ("2.jpg", b""), ("3.jpg", b"")]
    path = put(tmp_path / "a.tar", members)
    source = TarSource(path)
    assert source.classes == ("dog", "Ähre")
    assert source.labels().tolist() == [0, 1, -1]
    given_classes = TarSource(path, classes=["ant", "Ähre", "dog"])
    assert given_classes.labels().tolist() == [2, 1, -1]
    with pytest.raises(ValueError, match=r"a.tar/1.jpg: label 'dog' is none of the 1 classes given \('Ähre'\)"):
        TarSource(path, classes=["Ähre"])


def test_label_field_and_extension(tmp_path: Path) -> None:
    members = [("1.left.png", b"l"), ("1.right.png", b"r"), ("1.json", b'{"label": null, "kind": "b"}')]
    path = put(tmp_path / "a.tar", members)
    assert TarSource(path, extension="right.png").read(0) == TarSource(path, extension=".Right.PNG").read(0) == b"r"
    assert TarSource(path, extension=".left.png", label="kind").classes == ("b",)
    with pytest.raises(ValueError, match=r"'1' holds 2 images \(left.png, right.png\).*extension='left.png'"):
        TarSource(path)


def vectors(*labels: Any, key: str = "label") -> list[tuple[str, bytes]]:
    members = []
    for number, label in enumerate(labels):
        members += [(f"{number}.jpg", b"x"), (f"{number}.json", json.dumps({key: label}).encode())]
    return members


@pytest.mark.parametrize(
    ("rows", "dtype"),
    [
        ([[1, 0, 1], [0, 0, -2]], np.int64),
        ([[1, 0.5], [2, 3]], np.float32),
        ([[True], [False]], np.float32),
        ([[2**53, 1], [0, 1]], np.float32),
    ],
    ids=["integers", "floats", "booleans", "integers beyond doubles"],
)
def test_lists_in_json_are_labels_of_several_numbers(tmp_path: Path, rows: Any, dtype: Any) -> None:
    path = put(tmp_path / "a.tar", vectors(*rows, key="target"))
    more = put(tmp_path / "b.tar", vectors(rows[0], key="target"))
    assert_labels(TarSource([path, more], label="target"), [*rows, rows[0]], dtype, ())
    names = ("a", "b", "c")[: len(rows[0])]
    assert_labels(TarSource(path, label="target", classes=names), rows, dtype, names)


@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        (
            [[1, 2], [1]],
            {},
            r"a.tar: sample '1': its label is 1 number, and the first one 2: .*rows of 0 and 1 \(multi",
        ),
        ([[]], {}, r"sample '0': its label is 0 numbers, and the first one at least one"),
        ([[1, "2"]], {}, r"sample '0': its label holds '2', and a list is a label of numbers"),
        ([[1, None]], {}, r"sample '0': its label holds None"),
        ([[[1]]], {}, r"sample '0': its label holds \[1\]"),
        ([[10**400]], {}, r"sample '0': its label holds 10{99}, and labels are finite numbers of float32"),
        ([[1], 1], {}, r"sample '1': its label is not a list of numbers, and the first label is one. Give all"),
        ([1, [1]], {}, r"sample '1': its label is a list of numbers, and the first label is not a list"),
        ([[1], None], {}, r"sample '1': its label is not a list of numbers"),
        ([[1, 2]], {"classes": ["a"]}, r"classes holds 1 names, and each label 2 numbers. Give one name each, or none"),
    ],
)
def test_lists_that_are_no_labels(tmp_path: Path, labels: Any, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TarSource(put(tmp_path / "a.tar", vectors(*labels)), **options)


def test_tar_of_images_alone(tmp_path: Path) -> None:
    source = TarSource(put(tmp_path / "a.tar", [("b.jpg", b"b"), ("./a.jpg", b"a"), ("v1.0/a.jpg", b"c")]))
    assert [source.read(i) for i in range(3)] == [b"b", b"a", b"c"]
    assert source.labels().tolist() == [-1, -1, -1]
    assert source.classes == ()


def test_sets_of_tar_files_count_on(tmp_path: Path) -> None:
    for number in range(12):
        put(tmp_path / f"s-{number:03}.tar", samples(10 * number, 3, number))
    (tmp_path / "notes.md").write_text("no tar file")
    by_folder = open_source(tmp_path)
    by_pattern = open_source(f"{tmp_path}/s-{{000..011}}.tar")
    by_stars = open_source(f"{tmp_path}/s-0?*.tar")
    by_list = TarSource([tmp_path / f"s-{number:03}.tar" for number in range(12)])
    assert by_folder.classes == tuple(str(number) for number in range(12))
    for source in (by_folder, by_pattern, by_stars, by_list):
        assert isinstance(source, TarSource)
        assert [source.read(i) for i in range(36)] == [b"image %d" % (10 * (i // 3) + i % 3) for i in range(36)]
        assert source.labels().tolist() == [i // 3 for i in range(36)]
        assert source.name(35) == f"{tmp_path}/s-011.tar/0112.jpg"
    part = open_source(f"{tmp_path}/s-00{{1,0}}.tar")
    assert [part.label(i) for i in range(6)] == [1, 1, 1, 0, 0, 0]


@pytest.mark.slow
def test_patterns_that_are_refused(tmp_path: Path) -> None:
    put(tmp_path / "s-0.tar", samples(0, 1))
    with pytest.raises(ValueError, match=r"the range \{2..0\} counts down. Write \{0..2\}"):
        open_source(f"{tmp_path}/s-{{2..0}}.tar")
    with pytest.raises(ValueError, match=r"\{0\} is neither a range such as \{000..123\} nor a list"):
        open_source(f"{tmp_path}/s-{{0}}.tar")
    with pytest.raises(ValueError, match="names more than 100000 files"):
        open_source(f"{tmp_path}/s-{{0..99999999999}}.tar")
    (tmp_path / "s-1.bin").write_bytes(b"")
    with pytest.raises(ValueError, match=r"names 2 files .* only one kind of \*.tar, \*.parquet, \*.bin is taken"):
        open_source(f"{tmp_path}/s-*")


def test_folder_of_several_splits_is_refused(tmp_path: Path) -> None:
    for name in ("set-train-000.tar", "set-train-001.tar", "set-validation-000.tar"):
        put(tmp_path / name, samples(0, 1))
    with pytest.raises(ValueError, match=r"holds 2 splits: train, validation. Give one of them.*set-train-000.tar"):
        open_source(tmp_path)
    assert len(open_source(f"{tmp_path}/set-train-*.tar")) == 2


def test_tar_is_known_by_its_content(tmp_path: Path) -> None:
    path = put(tmp_path / "without-extension", samples(0, 2))
    assert isinstance(open_source(path), TarSource)


# --- workers and threads


def test_many_samples_pickle_with_their_index(tmp_path: Path) -> None:
    source = TarSource([put(tmp_path / f"{number}.tar", samples(100 * number, 50)) for number in range(3)])
    expected = [b"image %d" % (100 * number + i) for number in range(3) for i in range(50)]
    assert_keeps_the_protocol(source, expected, [0] * 150)
    assert len(pickle.dumps(source)) < len(source) * 64 + 4096


def test_tar_that_was_cut_short_meanwhile(tmp_path: Path) -> None:
    path = put(tmp_path / "a.tar", samples(0, 3))
    source = TarSource(path)
    os.truncate(path, 600)
    with pytest.raises(ValueError, match="has changed since it was opened: it had"):
        source.read(2)


# --- real data


def test_real_images(photos_dir: Path) -> None:
    source = TarSource(Path(os.environ["AUGPIPE_DATA"]) / "photos.tar")
    assert len(source) == 250
    for i in np.linspace(0, 249, 20).astype(int):
        assert source.read(int(i)) == (photos_dir / Path(source.name(int(i))).name).read_bytes()
