"""`augpipe prepare --card`: official archives, as they are unpacked, become a data set for each split."""

import re
import shutil
import warnings
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from augpipe.cli.app import app
from augpipe.datasets.cards.open_card import open_card
from augpipe.datasets.prepare import local_engine
from augpipe.datasets.shards.manifest import Manifest
from augpipe.datasets.shards.shard_source import ShardSource
from augpipe.datasets.shards.verify import verify
from tests.datasets.cards.card_trees import TREES
from tests.datasets.prepare.prepare_sources import InlineEngine, tree

# a miniature's counts are not the official ones, and the command prints warnings
pytestmark = pytest.mark.filterwarnings("always:.*, card '.*are (official|left out)")
SPLITS = {
    "aircraft": ["train", "val", "test"],  # trainval would be train and val again
    "cifar10": ["train", "test"],
    "cub200": ["train", "test"],
    "flowers102": ["train", "val", "test"],
    "imagenet": ["train", "val", "test"],
    "indoor67": ["train", "test"],  # all would be these and more
    "mnist": ["train", "test"],
    "mvso": ["all"],
    "pets": ["trainval", "test"],
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(local_engine, "LocalEngine", lambda num_workers: InlineEngine())
    return tmp_path


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["prepare", *arguments, "--scales", "16"])


def prepared(*arguments: str) -> str:
    """What it says, without the warnings of a miniature's counts."""
    ended = invoke(*arguments)
    assert ended.exit_code == 0, ended.output
    said = [line for line in ended.stderr.splitlines() if "are official" not in line and "are left out." not in line]
    return "\n".join(said)


@pytest.mark.parametrize("card", sorted(TREES))
def test_every_card_becomes_its_splits(folder: Path, card: str) -> None:
    TREES[card](folder / "archives")
    before = tree(folder / "archives")
    prepared("--card", card, "archives", "out")
    assert sorted(path.name for path in (folder / "out").iterdir()) == sorted(SPLITS[card])
    assert tree(folder / "archives") == before
    for split in SPLITS[card]:
        out = folder / "out" / split
        assert not verify(out, deep=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            source = open_card(card, folder / "archives", split=split)
        made = ShardSource(out)
        assert tuple(made.classes) == tuple(source.classes)
        assert [made.label(n) for n in range(len(made))] == [source.label(n) for n in range(len(source))]
        assert Manifest.load(out).settings["source_name"] == f"{card} {split}"


def test_splits_that_repeat_others_are_told_and_made_on_request(folder: Path) -> None:
    TREES["aircraft"](folder / "archives")
    assert prepared("--card", "aircraft", "archives", "out") == (
        "augpipe: split 'trainval' is left out: it repeats photographs of 'train', 'val'. --split trainval makes it"
    )
    assert prepared("--card", "aircraft", "archives", "out", "--split", "trainval") == ""
    assert len(ShardSource(folder / "out/trainval")) == sum(
        len(ShardSource(folder / "out" / split)) for split in ("train", "val")
    )


def test_some_splits_by_name(folder: Path) -> None:
    TREES["flowers102"](folder / "archives")
    prepared("--card", "flowers102", "archives", "out", "--split", "test", "--split", "val")
    assert sorted(path.name for path in (folder / "out").iterdir()) == ["test", "val"]


def test_a_split_that_was_not_unpacked_is_told(folder: Path) -> None:
    TREES["imagenet"](folder / "archives")
    shutil.rmtree(folder / "archives/test")
    said = prepared("--card", "imagenet", "archives", "out")
    assert said == "augpipe: split 'test' is left out: its files are not there. --split test says what is missing"
    assert sorted(path.name for path in (folder / "out").iterdir()) == ["train", "val"]
    ended = invoke("--card", "imagenet", "archives", "out2", "--split", "test")
    assert ended.exit_code == 2 and "is not laid out as card 'imagenet' needs it for its split 'test'" in ended.stderr


def test_a_run_that_ended_between_splits_is_resumed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    TREES["pets"](folder / "archives")
    prepared("--card", "pets", "archives", "whole")
    prepared("--card", "pets", "archives", "out", "--split", "trainval")
    monkeypatch.setattr(local_engine, "LocalEngine", lambda num_workers: InlineEngine(stop_before=0))
    assert invoke("--card", "pets", "archives", "out", "--split", "test").exit_code == 130
    monkeypatch.setattr(local_engine, "LocalEngine", lambda num_workers: InlineEngine())
    again = invoke("--card", "pets", "archives", "out")
    assert again.exit_code == 2 and "out/trainval holds a finished data set" in again.stderr
    prepared("--card", "pets", "archives", "out", "--resume")
    assert tree(folder / "out") == tree(folder / "whole")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("archives out --split train --split val", "several --split go with --card NAME"),
        ("archives out --card flower", "card 'flower' is not known. Did you mean 'flowers102'? Known: aircraft, "),
        ("archives out --card pets --split val", "card 'pets' has no split 'val'. Its splits: trainval, test."),
        ("empty out --card pets", "empty is not laid out as card 'pets' needs it for its split 'trainval'"),
        ("nowhere out --card pets", "nowhere does not exist; card 'pets' takes the folder"),
        ("archives archives/out --card pets", "lies in the source archives"),
        ("archives full --card pets", "full holds 'thesis.tex', and the splits of card 'pets' go there, a folder each"),
    ],
)
def test_mistakes(folder: Path, arguments: str, reason: str) -> None:
    TREES["pets"](folder / "archives")
    (folder / "empty").mkdir()
    (folder / "full").mkdir()
    (folder / "full/thesis.tex").write_text("three years")
    ended = invoke(*arguments.split())
    assert ended.exit_code == 2 and ended.stdout == ""
    assert reason in re.sub(r"\s+", " ", ended.stderr)
    assert not (folder / "out").exists() and tree(folder / "full") == {"thesis.tex": b"three years"}
