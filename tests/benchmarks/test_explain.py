"""What the benchmark of explanations rests on: the stage that holds a loader up is found by experiment alone."""

import io
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from augpipe import Loader, Recipe
from augpipe.datasets.formats.folder import FolderSource
from augpipe.ops import Normalize, RandomResizedCrop
from benchmarks.pipeline import explain
from benchmarks.pipeline.explain import advice_of, copied, counted, gains, loader_of, ratio_off, truth_of, turn_of
from benchmarks.pipeline.situations import SITUATIONS, Situation, nothing
from benchmarks.pipeline.staging import Disk, Held, Staging

NUM = 8
RECIPE = Recipe(ops=(RandomResizedCrop(size=32), Normalize()))
ARGUMENTS: dict[str, Any] = {"batch_size": 4, "num_threads": 1, "framework": "numpy"}


@pytest.fixture
def staging(tmp_path: Path) -> Iterator[Staging]:
    rng = np.random.default_rng(0)
    files = []
    for _ in range(NUM):
        out = io.BytesIO()
        Image.fromarray(rng.integers(0, 256, (40, 56, 3), np.uint8)).save(out, "jpeg")
        files.append(out.getvalue())
    with ExitStack() as ends:
        yield Staging(tmp_path, files, ends, share=1 / 18)


def situation(staging: Staging, **how: Any) -> Situation:
    return Situation(files=staging.photographs, recipe=RECIPE, loader=ARGUMENTS, without_map=None, **how)


def slow_disk(folder: Path) -> Disk:
    return Disk(FolderSource(folder), latency_s=0.03, bytes_per_s=1e9)


@pytest.mark.slow
def test_the_true_stage_is_the_one_that_waits(staging: Staging) -> None:
    disk = truth_of(situation(staging, open=slow_disk), 1, 0.0)
    assert disk["true"] == ["reading"] and set(disk["gains"]) == {"reading", "decoding"}
    assert disk["rate"] < 1 / 0.03 < disk["rates if free"]["reading"]
    user = truth_of(situation(staging, consumer=lambda batch: time.sleep(0.1)), 1, 0.0)
    assert user["true"] == ["consumer"] and user["rate"] < 4 / 0.1


def test_stages_that_cannot_be_told_apart_are_both_true(monkeypatch: pytest.MonkeyPatch, staging: Staging) -> None:
    measured = {"as it is": [10.0, 20.0, 40.0], "reading": [20.0, 39.0, 80.0], "decoding": [19.4, 41.0, 70.0]}
    assert gains(measured) == {"reading": 2.0, "decoding": 1.94}
    monkeypatch.setattr(explain, "rates_in_turn", lambda turns, rounds: measured)
    assert truth_of(situation(staging), 3, 0.0)["true"] == ["reading", "decoding"]


def test_what_is_held_is_what_is_read(staging: Staging) -> None:
    """So that a loader whose stages are freed gives the same batches, up to what decoders differ by."""
    files = staging.photographs
    source = FolderSource(files.folder)
    held = Held(source, files.contents, reads=False)
    assert len(source) == 2 * NUM and [held.read(i) for i in range(len(source))] == [
        source.read(i) for i in range(len(source))
    ]
    as_it_is, *freed = [
        next(iter(Loader(each.open(files.folder), RECIPE, **ARGUMENTS))).images
        for each in (situation(staging), *situation(staging).freed().values())
    ]
    assert len(freed) == 2
    for images in freed:
        np.testing.assert_allclose(images, as_it_is, atol=0.02)


def test_a_disk_with_one_head_answers_one_after_another(staging: Staging) -> None:
    source, latency_s = FolderSource(staging.photographs.folder), 0.03

    def read_all(at_once: int) -> float:
        disk = Disk(source, latency_s=latency_s, bytes_per_s=1e9, at_once=at_once)
        start = time.perf_counter()
        with ThreadPoolExecutor(NUM) as pool:
            assert list(pool.map(disk.read, range(NUM))) == list(staging.photographs.contents)
        return time.perf_counter() - start

    assert read_all(1) >= NUM * latency_s > min(read_all(NUM) for _ in range(5)) >= latency_s


@pytest.mark.slow
def test_advice_is_followed_to_the_letter(monkeypatch: pytest.MonkeyPatch, staging: Staging) -> None:
    seen: list[dict[str, Any]] = []
    told = SimpleNamespace(
        rate=10.0,
        stages=(SimpleNamespace(name="reading", share=0.9, rate_if_free=100.0),),
        bottleneck="reading",
        advice="Start more threads.",
        change={"num_threads": 3},
        expected_rate=1e-3,
    )

    def explained(self: Loader) -> SimpleNamespace:
        assert isinstance(self.source, FolderSource)
        told.command = f"augpipe index {self.source._root}"
        return told

    class Seen(Loader):
        def __init__(self, source: Any, recipe: Any, **arguments: Any) -> None:
            super().__init__(source, recipe, **arguments)
            assert isinstance(self.source, FolderSource)
            seen.append(arguments | {"knows_sizes": self.source.knows_sizes})

    monkeypatch.setattr(Loader, "explain", explained, raising=False)
    monkeypatch.setattr(explain, "Loader", Seen)
    staged = situation(staging)
    row = advice_of(staged, copied(staged.files.folder), 0.0, 1, 0.0)
    assert [(each["num_threads"], each["knows_sizes"]) for each in seen] == [(1, False)] * 3 + [(3, True)]
    assert (row["named"], row["change"], row["off"] > 1.0) == ("reading", {"num_threads": "3"}, True)
    assert row["named in later rounds"] == ["reading"] and row["rates"]["expected"] == [0.0]
    rows = {
        "a": row | {"true": ["reading"], "off": 0.2, "rate off": 0.2},
        "b": row | {"true": ["map"], "off": -0.1, "rate off": 0.3},
        "c": {"true": ["map"]},
    }
    assert counted(rows) == {"named": "1 of 2", "gain within 15%": "1 of 2", "rate within 15%": "0 of 2"}


def test_a_prediction_is_held_against_its_own_round() -> None:
    assert ratio_off([10.0, 30.0, 9.0], [10.0, 25.0, 10.0]) == 0.0
    assert ratio_off([12.0, 24.0, 36.0], [10.0, 20.0, 30.0]) == 0.2


@pytest.mark.slow
def test_a_second_epoch_is_counted_after_a_first_one(monkeypatch: pytest.MonkeyPatch, staging: Staging) -> None:
    made: list[Loader] = []
    monkeypatch.setattr(explain, "loader_of", lambda *asked: made.append(loader_of(*asked)) or made[-1])
    staged = situation(staging)
    assert turn_of(staged, staged.files.folder, 0.0, {"cache": "host"}, is_second=True) > 0.0
    (loader,) = made
    statistics = loader.cache_statistics
    assert loader.epoch == 2 and statistics is not None and (statistics.hits, statistics.misses) == (2 * NUM, 2 * NUM)


@pytest.mark.slow
def test_every_situation_says_what_can_be_freed(staging: Staging) -> None:
    assert len(SITUATIONS) >= 12
    for name in set(SITUATIONS) - {"remote"}:
        made = SITUATIONS[name](staging)
        assert "reading" in made.freed() and replace(made, consumer=nothing).freed().keys() <= made.freed().keys()
        assert len(made.open(made.files.folder)) % len(made.files.contents) == 0, name
