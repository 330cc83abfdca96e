"""Further columns of lists and folders, which go along with the batches as texts."""

import logging
import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from augpipe import Loader, recipes
from augpipe.datasets.files.image_files import SingleSource
from augpipe.datasets.formats.file_list import FileListSource
from augpipe.datasets.formats.folder import FolderSource
from augpipe.datasets.open import open_source
from augpipe.sources import Concat, Subset
from augpipe.sources.protocol import Source, columns_of

TEXT = 'path,label,caption,id\n0.png,cat,"a cat, asleep",007\n1.png,dog, é ,8\n2.png,cat,,9\n'
CAPTIONS = ["a cat, asleep", " é ", ""]


@pytest.fixture
def listing(tmp_path: Path) -> Path:
    for number in range(3):
        Image.new("RGB", (8, 8), (number, 0, 0)).save(tmp_path / f"{number}.png")
    (tmp_path / "list.csv").write_text(TEXT, encoding="utf-8")
    return tmp_path / "list.csv"


def columns(source: Source) -> dict[str, list[str]]:
    return dict(columns_of(source, np.arange(len(source))))


def test_named_columns_of_a_list_are_texts_as_they_are_written(listing: Path) -> None:
    source = open_source(listing, columns=["caption", "id"])
    assert columns(source) == {"caption": CAPTIONS, "id": ["007", "8", "9"]}
    assert columns_of(source, np.array([2, 0, 2])) == {"caption": ["", CAPTIONS[0], ""], "id": ["9", "007", "9"]}
    assert columns_of(source, np.array([], np.int64)) == {"caption": [], "id": []}
    assert columns(pickle.loads(pickle.dumps(source))) == columns(source)
    assert source.classes == ("cat", "dog")
    with pytest.raises(IndexError, match="sample_id=-1 is out of range"):
        columns_of(source, np.array([0, -1]))
    for none in (open_source(listing), open_source(listing, columns=[])):
        assert columns(none) == {}


def test_a_column_may_be_the_label_or_the_path_too(listing: Path) -> None:
    source = FileListSource(listing, columns=["label", "path"])
    assert columns(source) == {"label": ["cat", "dog", "cat"], "path": ["0.png", "1.png", "2.png"]}


def test_path_is_the_photographs_column_whatever_its_name(listing: Path) -> None:
    listing.write_text("image,label\n./0.png,1\n1.png,0\n")
    assert columns(FileListSource(listing, columns=["path"])) == {"path": ["./0.png", "1.png"]}
    listing.write_text("image,path,label\n0.png,a,1\n1.png,b,0\n")
    assert columns(FileListSource(listing, image="image", columns=["path"])) == {"path": ["a", "b"]}
    listing.write_text("0.png,1\n1.png,0\n")
    assert columns(FileListSource(listing, columns=["path"])) == {"path": ["0.png", "1.png"]}
    with pytest.raises(ValueError, match=r"line 1: no header names the columns, and columns=\['id'\] names some"):
        FileListSource(listing, columns=["id"])


def test_labels_of_several_columns_leave_room_for_others(listing: Path) -> None:
    listing.write_text("path,label_x,label_y,id\n0.png,1,2,a\n1.png,3,4,b\n")
    source = FileListSource(listing, columns=["id", "label_x"])
    assert columns(source) == {"id": ["a", "b"], "label_x": ["1", "3"]}
    np.testing.assert_array_equal(source.labels(), [[1, 2], [3, 4]])


def test_what_is_handed_on_is_not_said_to_be_unread(
    listing: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("augpipe.sources.log_line._TOLD", set())
    caplog.set_level(logging.INFO, "augpipe")
    open_source(listing, columns=["caption"])
    assert "'id'" in caplog.text
    assert "'caption'" not in caplog.text


def test_a_column_that_is_not_there_is_answered_with_those_that_are(listing: Path) -> None:
    with pytest.raises(ValueError, match=r"line 1: columns=.* 'captoin', .* the header has path, label, caption, id"):
        open_source(listing, columns=["id", "captoin"])
    with pytest.raises(ValueError, match=r"columns='id' is one text. Give the names in a list: columns=\['id'\]"):
        open_source(listing, columns="id")
    with pytest.raises(ValueError, match=r"columns='id' is one text"):
        FileListSource(listing, columns="id")
    listing.write_text("path,id,id\n0.png,1,2\n")
    with pytest.raises(ValueError, match="column 'id' is there twice"):
        open_source(listing, columns=["id"])
    listing.write_text("path,label,id\n0.png,1,2\n1.png,1\n")
    with pytest.raises(ValueError, match="line 3: 2 columns, and 3 are needed"):
        open_source(listing, columns=["id"])


def test_folders_have_paths(listing: Path) -> None:
    (listing.parent / "set" / "train" / "cat").mkdir(parents=True)
    (listing.parent / "set" / "val" / "cat").mkdir(parents=True)
    (listing.parent / "0.png").rename(listing.parent / "set" / "train" / "cat" / "0.png")
    (listing.parent / "1.png").rename(listing.parent / "set" / "val" / "cat" / "1.png")
    source = open_source(listing.parent / "set", split="train", columns=["path"])
    assert columns(source) == {"path": ["cat/0.png"]}
    assert columns(pickle.loads(pickle.dumps(source))) == {"path": ["cat/0.png"]}
    assert columns(FolderSource(listing.parent / "set" / "train" / "cat", columns=["path"])) == {"path": ["0.png"]}
    assert columns(FolderSource(listing.parent / "set" / "train")) == {}
    with pytest.raises(ValueError, match=r"columns=\['id'\] names 'id', and a folder has only 'path'"):
        open_source(listing.parent / "set" / "train", columns=["id"])


def test_sources_without_columns_refuse_them(listing: Path) -> None:
    with pytest.raises(ValueError, match=r"a SingleSource takes no columns=\.\.\.\. Leave it out"):
        open_source(listing.parent / "0.png", columns=["path"])
    with pytest.raises(ValueError, match=r"columns=\['path'\] is for a path, and a SingleSource is given"):
        open_source(SingleSource(listing.parent / "0.png"), columns=["path"])


def test_a_loader_hands_them_on(listing: Path) -> None:
    for batch in Loader(listing, recipes.none(), batch_size=2, columns=["caption", "path"], framework="numpy"):
        assert batch.columns == {
            "caption": [CAPTIONS[i] for i in batch.sample_ids],
            "path": [f"{i}.png" for i in batch.sample_ids],
        }
    (batch,) = Loader(
        listing, recipes.none(), batch_size=2, split="val", holdout=0.4, columns=["id"], framework="numpy"
    )
    assert len(batch.columns["id"]) == 1
    (batch,) = Loader(open_source(listing), recipes.none(), batch_size=3, columns=[], framework="numpy")
    assert batch.columns == {}


def test_subset_and_concat_hand_them_on(listing: Path) -> None:
    whole = open_source(listing, columns=["id"])
    assert columns(Subset(whole, [2, 0])) == {"id": ["9", "007"]}
    both = Concat([Subset(whole, [1]), open_source(listing)])
    assert columns(both) == {"id": ["8", None, None, None]}
