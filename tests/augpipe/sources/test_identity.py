"""What a source is known by."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from augpipe.datasets.formats.arrays import ArraySource
from augpipe.datasets.formats.folder import FolderSource
from augpipe.sources import Concat, Subset
from augpipe.sources.identity import SourceIdentity, identity_of, stored_names
from augpipe.sources.protocol import Labels

IMAGES = np.random.default_rng(0).integers(0, 256, (6, 4, 4, 3), np.uint8)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("ant/0.jpg", "ant/1.jpg", "bee/0.jpg"):
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"not read")
    return tmp_path / "photos"


def test_a_moved_folder_is_the_same_source(folder: Path, tmp_path: Path) -> None:
    before = identity_of(FolderSource(folder))
    shutil.move(folder, tmp_path / "elsewhere")
    assert identity_of(FolderSource(tmp_path / "elsewhere")) == before


def test_it_survives_json(folder: Path) -> None:
    identity = identity_of(FolderSource(folder))
    assert SourceIdentity.from_json(json.loads(json.dumps(identity.to_json()))) == identity


@pytest.mark.parametrize("noted", [None, {}, {"names": "a"}, "x"])
def test_what_is_no_identity_is_refused(noted: object) -> None:
    with pytest.raises(ValueError, match=r"a source's identity holds num_samples, names, labels, classes, content"):
        SourceIdentity.from_json(noted)
    with pytest.raises(ValueError, match=r"names=3, which is not a str"):
        SourceIdentity.from_json(identity_of(ArraySource(IMAGES)).to_json() | {"names": 3})


def test_one_file_for_another_is_told(folder: Path) -> None:
    before = identity_of(FolderSource(folder))
    (folder / "ant/1.jpg").rename(folder / "ant/2.jpg")
    assert before.differences(identity_of(FolderSource(folder))) == ["other names, or the same in another order"]
    (folder / "ant/2.jpg").unlink()
    assert before.differences(identity_of(FolderSource(folder))) == ["3 photographs then, 2 now"]


def test_labels_classes_and_content_are_told() -> None:
    before = identity_of(ArraySource(IMAGES, range(6), classes="abcdef"))
    assert before.differences(before) == []
    for images, labels, classes, words in (
        (IMAGES, [0, 1, 2, 3, 5, 4], "abcdef", "other labels"),
        (IMAGES, range(6), "abcdfe", "other classes, or the same in another order"),
        (255 - IMAGES, range(6), "abcdef", "the same names and labels, but files of other content"),
    ):
        now = identity_of(ArraySource(images, labels, classes=classes))
        assert before.differences(now) == [words]


class Damaged(ArraySource):
    """One label cannot be read."""

    def label(self, sample_id: int) -> int | Labels:
        if sample_id == 2:
            raise ValueError("its label is damaged")
        return super().label(sample_id)


def test_damaged_labels_do_not_hide_that_others_are_of_another_source() -> None:
    before = identity_of(Damaged(IMAGES, range(6), classes="abcdef"))
    assert before.differences(identity_of(Damaged(IMAGES, range(6), classes="abcdef"))) == []
    for now in (Damaged(IMAGES, [0, 1, 2, 3, 5, 4], classes="abcdef"), ArraySource(IMAGES, range(6), classes="abcdef")):
        assert before.differences(identity_of(now)) == ["other labels"]


def test_all_of_many_samples_are_looked_at() -> None:
    many = ArraySource(np.zeros((70_000, 1, 1, 3), np.uint8))
    order = np.arange(70_000)
    before = identity_of(Subset(many, order))
    for place in (0, 69_998):
        swapped = order.copy()
        swapped[[place, place + 1]] = order[[place + 1, place]]
        assert before.differences(identity_of(Subset(many, swapped))) == ["other names, or the same in another order"]


def test_subsets_are_known_by_their_samples(folder: Path) -> None:
    source = FolderSource(folder)
    assert identity_of(Subset(source, [0, 2])) != identity_of(Subset(source, [0, 1]))
    before = identity_of(Subset(source, [0, 2]))
    (folder / "ant/01.jpg").write_bytes(b"a new one before the others")
    assert identity_of(Subset(FolderSource(folder), [0, 3])) == before
    assert list(stored_names(Subset(source, [2, 0]))) == ["bee/0.jpg", "ant/0.jpg"]


def test_parts_of_a_concatenation_are_told_apart(folder: Path) -> None:
    source = FolderSource(folder)
    assert list(stored_names(Concat([source, source])))[2:4] == ["0/bee/0.jpg", "1/ant/0.jpg"]
    assert identity_of(Concat([source, Subset(source, [0])])) != identity_of(Concat([Subset(source, [0]), source]))
    assert list(stored_names(Concat([source, ArraySource(IMAGES, np.zeros(6, int), classes=source.classes)])))[:1]


def test_names_of_rows_are_without_their_folder() -> None:
    assert list(stored_names(ArraySource(IMAGES)))[1] == "images[1]"
    assert list(stored_names(Subset(ArraySource(IMAGES), [1]))) == ["images[1]"]


def test_content_is_compared_where_both_know_it() -> None:
    one = identity_of(ArraySource(IMAGES))
    assert one.content and one.differences(replace(one, content="")) == []
    assert replace(one, content="").differences(one) == []
    assert one.differences(replace(one, content="other")) == ["the same names and labels, but files of other content"]
