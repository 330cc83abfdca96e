"""Which rank a loader is where nobody says so: of the process group, by torchrun's environment, or the only one."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from augpipe import Loader
from tests.augpipe.loader.loader_sources import CENTRE, MemorySource, arrays, ids_of, run_python

NUM = 12
IMAGES = arrays(NUM)


@pytest.fixture(autouse=True)
def _no_word_yet(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("augpipe.validation.log_once._LOGGED", set())
    caplog.set_level(logging.INFO, "augpipe")
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def group() -> Iterator[None]:
    """A process group of which this process is rank 2 of 3."""
    dist.init_process_group("fake", rank=2, world_size=3, store=FakeStore())
    yield
    dist.destroy_process_group()


def make(**options: Any) -> Loader:
    settings = {"batch_size": 2, "framework": "numpy", "num_threads": 1, "seed": 5} | options
    return Loader(MemorySource(IMAGES), CENTRE, **settings)


def place(made: Loader) -> tuple[int, int]:
    return made.rank, made.world_size


def told_of_ranks(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    return [(record.levelno, record.getMessage()) for record in caplog.records if "rank" in record.getMessage().lower()]


def environment(monkeypatch: pytest.MonkeyPatch, rank: str | None, world_size: str | None) -> None:
    for name, value in (("RANK", rank), ("WORLD_SIZE", world_size)):
        if value is not None:
            monkeypatch.setenv(name, value)


def test_alone_it_is_the_only_rank_and_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    assert place(make()) == (0, 1)
    assert told_of_ranks(caplog) == []


@pytest.mark.parametrize(("rank", "drop_last", "num"), [(1, False, 0), (2, False, 1), (2, True, 0)])
def test_a_rank_whose_last_batch_is_empty_is_told(
    rank: int, drop_last: bool, num: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Five ranks take ten of twelve images, and two are left."""
    made = make(batch_size=2, rank=rank, world_size=5, drop_last=drop_last)
    assert (len(list(made)[-1]) == 0) == bool(num)
    told = [record.levelname for record in caplog.records if "is empty" in record.getMessage()]
    assert told == ["WARNING"] * num


@pytest.mark.parametrize("rank", [0, 1])
def test_under_torchrun_ranks_share_the_samples(
    rank: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    environment(monkeypatch, str(rank), "2")
    made = make()
    assert place(made) == (rank, 2)
    assert ids_of(made) == ids_of(make(rank=rank, world_size=2))
    make()
    level = logging.WARNING if rank == 0 else logging.INFO  # one of them is seen
    assert told_of_ranks(caplog) == [
        (
            level,
            f"rank {rank} of 2, as RANK and WORLD_SIZE of the environment say: each rank is given its share of the "
            "samples. Loader(rank=0, world_size=1) gives a process all of them.",
        )
    ]


@pytest.mark.usefixtures("group")
def test_an_initialised_process_group_comes_first(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    environment(monkeypatch, "1", "2")
    assert place(make()) == (2, 3)
    ((_, line),) = told_of_ranks(caplog)
    assert line.startswith("rank 2 of 3, as the process group says: each rank is given its share")


@pytest.mark.usefixtures("group")
def test_what_is_said_counts(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    environment(monkeypatch, "1", "2")
    assert place(make(rank=0, world_size=1)) == (0, 1)
    assert len(ids_of(make(rank=0, world_size=1))) == NUM
    assert place(make(rank=3, world_size=4)) == (3, 4)
    assert told_of_ranks(caplog) == []


@pytest.mark.parametrize("names", [("WORLD_SIZE", "RANK"), ("RANK", "WORLD_SIZE")])
def test_one_of_the_two_variables_is_ignored_with_a_line(
    names: tuple[str, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(names[0], "3")
    assert place(make()) == (0, 1)
    assert told_of_ranks(caplog) == [
        (
            logging.WARNING,
            f"{names[0]}=3 of the environment is ignored, as there is no {names[1]}: this loader gives all samples. "
            "Give rank and world_size where processes are to share them.",
        )
    ]


def test_a_world_of_one_is_no_news(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    environment(monkeypatch, None, "1")
    assert place(make()) == (0, 1)
    environment(monkeypatch, "0", "1")
    assert place(make()) == (0, 1)
    assert told_of_ranks(caplog) == []


@pytest.mark.parametrize(("rank", "world_size"), [("two", "3"), ("3", "3"), ("-1", "3"), ("0", "")])
def test_an_environment_without_sense_is_refused(rank: str, world_size: str, monkeypatch: pytest.MonkeyPatch) -> None:
    environment(monkeypatch, rank, world_size)
    message = rf"^RANK={rank!r} and WORLD_SIZE={world_size!r} of the environment .* Give rank and world_size"
    with pytest.raises(ValueError, match=message):
        make()
    assert place(make(rank=0, world_size=1)) == (0, 1)


def test_a_number_of_ranks_needs_a_rank() -> None:
    """Each process would be rank 0, and all would get the same share."""
    with pytest.raises(ValueError, match=r"^world_size=2 is given without rank.*Give both, or neither"):
        make(world_size=2)
    assert place(make(world_size=1)) == (0, 1)


def test_a_process_group_that_comes_later_is_noticed() -> None:
    early, told = make(), make(rank=0, world_size=1)
    dist.init_process_group("fake", rank=2, world_size=3, store=FakeStore())
    try:
        message = r"^this loader was made before the process group .* as rank 0 of 1, and the group says rank 2 of 3.*"
        with pytest.raises(ValueError, match=message):
            list(early)
        assert len(ids_of(told)) == NUM
    finally:
        dist.destroy_process_group()


@pytest.mark.slow
def test_the_environment_is_asked_without_torch() -> None:
    code = """
import sys
import numpy as np
from augpipe import Loader, recipes
from augpipe.datasets.formats.arrays import ArraySource
source = ArraySource(np.zeros((6, 40, 50, 3), np.uint8))
loader = Loader(source, recipes.deep_image(16, (20, 40)), batch_size=1, framework="numpy")
print(loader.rank, loader.world_size, len(list(loader)), "torch" in sys.modules)
"""
    ended = run_python(code, RANK="1", WORLD_SIZE="2")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "1 2 3 False\n", "")
