"""A run that was stopped goes on: to the last bit with the same ranks, without losing a sample with others.

Each fixture is a start or two of processes, which do one run after the other.
"""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from augpipe.trainer.checkpoint import Checkpoint
from augpipe.trainer.report.metrics import read_rows
from tests.distributed.train_runs import (
    assert_no_pickles,
    checkpoints,
    contents,
    run_ranks,
    sample_ids,
    settings,
    whole_state,
    write_photos,
)

NUM = 29
LAZY: dict[str, Any] = {
    "sync": {"strategy": "lazy", "codec": "dynamic-tree", "error_feedback": True, "bucket_bytes": 2000},
    "optim": {"name": "adamw", "lr": 0.01, "decay_1d": False, "clip_norm": 1.0, "label_smoothing": 0.1},
    "ema": {"decay": 0.9, "every": 2},
    "schedule": {"name": "cosine", "warmup_epochs": 0.5},
}
DDP: dict[str, Any] = {"optim": {"lr": 0.05, "accumulate": 2}, "sync": {"strategy": "ddp"}}
AVERAGED: dict[str, Any] = {"ema": {"decay": 0.5, "every": 2}, "checkpoint": {"every_steps": 2}}
"""The average takes in step 2 and no later one, so what is evaluated after step 3 was in the checkpoint of step 2."""
PLAIN: dict[str, Any] = {"optim": {"name": "adamw", "lr": 0.01, "decay_1d": False}}
PLAIN_LAZY = PLAIN | {"sync": {"strategy": "lazy", "bucket_bytes": 2000}}
OTHERS: dict[str, dict[str, Any]] = {
    "to ddp": {"strategy": "ddp"},
    "to butterfly": {"strategy": "butterfly", "bucket_bytes": 2000},
    "to other buckets": {"strategy": "lazy", "bucket_bytes": 1000},
}
MLP = {"name": "mullapudi-mlp", "options": {"hidden": [24, 12], "dropout": 0.0, "in_features": 768}}
RESIZED: dict[str, dict[str, Any]] = {
    "lazy": PLAIN_LAZY | {"ema": {"decay": 0.9}},
    "8-bit": LAZY,
    "hybrid": PLAIN_LAZY | {"ema": {"decay": 0.9}, "model": MLP, "parallel": {"layers": ["2", "5"]}},
}
RESIZED_STAGES = ((4, 2, 1), (2, 1, 2), (3, 3, 3))
"""(Ranks, ranks among which hybrid splits its layers, the step after which all stop): amid an epoch, since a run
that goes on at an epoch's end saves that checkpoint again."""


def job_of(out: Path, photos: Path, tables: dict[str, Any], max_steps: int | None) -> dict[str, Any]:
    stops = {} if max_steps is None else {"max_steps": max_steps}
    return settings(out, photos, **tables, **stops)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Undisturbed and resumed runs of two ranks, and one that goes on with one rank and then with two again."""
    folder = tmp_path_factory.mktemp("runs")
    photos = write_photos(folder, NUM)

    def job(name: str, tables: dict[str, Any], max_steps: int | None) -> dict[str, Any]:
        return job_of(folder / name, photos, tables, max_steps)

    averaged = AVERAGED | {"data": {"eval_source": str(photos)}}
    first = [job("lazy", LAZY, 6), job("lazy resumed", LAZY, 3), job("ddp", DDP, 4), job("ddp resumed", DDP, 1)]
    first += [job("averaged", averaged, 3), job("averaged resumed", averaged, 2)]
    first += [job("plain", PLAIN_LAZY, 4), *[job(name, PLAIN_LAZY, 2) for name in OTHERS]]
    first += [job("elastic", LAZY, 2)]
    run_ranks(folder / "first", (2, first), (1, [job("elastic", LAZY, 4)]))
    second = [job("lazy resumed", LAZY, 6), job("ddp resumed", DDP, 4), job("averaged resumed", averaged, 3)]
    second += [job(name, PLAIN | {"sync": sync}, 4) for name, sync in OTHERS.items()]
    second += [job("elastic", LAZY, None)]
    run_ranks(folder / "second", (2, second))
    return folder


@pytest.fixture(scope="module")
def resized_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs that go on with fewer ranks, and with more."""
    folder = tmp_path_factory.mktemp("resized")
    photos = write_photos(folder, NUM)

    def resized(size: int, model: int, last: int) -> list[dict[str, Any]]:
        jobs = []
        for name, tables in RESIZED.items():
            split = {"parallel": {**tables["parallel"], "model": model}} if "parallel" in tables else {}
            jobs.append(job_of(folder / name, photos, tables | split | {"checkpoint": {"keep": 9}}, last))
        return jobs

    run_ranks(folder / "stages", *[(stage[0], resized(*stage)) for stage in RESIZED_STAGES])
    return folder


@pytest.mark.parametrize(("name", "last"), [("lazy", 6), ("ddp", 4)])
def test_the_same_ranks_go_on_to_the_last_bit(runs: Path, name: str, last: int) -> None:
    whole = contents(runs / name, f"step-{last:09}")
    resumed = contents(runs / f"{name} resumed", f"step-{last:09}")
    assert whole.keys() == resumed.keys() and len(whole) > 30
    differing = [key for key in whole if not torch.equal(whole[key], resumed[key])]
    assert differing == []
    for rank in range(2):
        assert sample_ids(runs / name, rank) == sample_ids(runs / f"{name} resumed", rank)
    rows = [(runs / run_name / "metrics.csv").read_text().splitlines() for run_name in (name, f"{name} resumed")]
    losses = [[line.split(",")[4] for line in lines if line.split(",")[4]] for lines in rows]
    assert losses[0] == losses[1] and len(losses[0]) == last + 1


@pytest.mark.parametrize("name", ["lazy", "ddp", "elastic", "to butterfly"])
def test_no_pickle_is_in_a_runs_folder(runs: Path, name: str) -> None:
    """Under `lazy` with an 8-bit codec, too, after 2, 1 and 2 ranks, and under another strategy than before."""
    assert list((runs / name).rglob("rank*.safetensors"))
    assert_no_pickles(runs / name)


def test_training_moves_what_it_should(runs: Path) -> None:
    early = contents(runs / "lazy resumed", "step-000000003")
    late = contents(runs / "lazy", "step-000000006")
    moved = [key for key in early if key.startswith("common/model") and not torch.equal(early[key], late[key])]
    assert len(moved) > 10
    assert any(key.startswith("rank1/sync") for key in late)
    assert any("ema" in key and not torch.equal(early[key], late[key]) for key in early)


def test_two_ranks_then_one_then_two_see_each_sample_once_an_epoch(runs: Path) -> None:
    rows = [row for rank in range(2) for row in sample_ids(runs / "elastic", rank)]
    for epoch in range(2):
        seen = sorted(i for _, number, ids in rows if number == epoch for i in ids)
        assert seen == list(range(NUM))
    ranks_at = {step: sum(row[0] == step and len(row[2]) > 0 for row in rows) for step in range(1, 6)}
    assert ranks_at == {1: 2, 2: 2, 3: 1, 4: 1, 5: 2}
    assert checkpoints(runs / "elastic")[-1] == f"step-{max(row[0] for row in rows):09}"


@pytest.mark.deep  # nine runs of up to four ranks; states are resharded in test_sync and test_parallel_state
@pytest.mark.parametrize("name", RESIZED)
def test_four_ranks_then_two_then_three_take_up_every_bit(resized_runs: Path, name: str) -> None:
    """Weights, averages, the optimizer's state and the residuals of updates, whichever rank has which slice of them."""
    for (before, _, step), (now, *_) in pairwise(RESIZED_STAGES):
        of_both = [Checkpoint(resized_runs / name / part / f"step-{step:09}") for part in ("checkpoints", "loaded")]
        assert [checkpoint.world_size for checkpoint in of_both] == [before, now]
        saved, loaded = map(whole_state, of_both)
        assert saved.keys() == loaded.keys() and sum("/exp_avg" in key for key in saved) > 10
        assert any(key.endswith("/residual") for key in saved) == (name == "8-bit")
        assert [key for key in saved if not torch.equal(saved[key], loaded[key])] == []


def test_a_resumed_run_evaluates_the_same_average(runs: Path) -> None:
    """The average's running statistics are each rank's own, and come back so."""
    last = [read_rows(runs / name / "metrics.csv")[-1] for name in ("averaged", "averaged resumed")]
    assert last[0]["step"] == last[1]["step"] == "3"
    assert last[0]["eval_loss"] == last[1]["eval_loss"] != ""


@pytest.mark.parametrize("name", OTHERS)
def test_under_another_strategy_the_optimizers_state_is_what_it_was(runs: Path, name: str) -> None:
    whole = contents(runs / "plain", "step-000000004")
    resumed = contents(runs / name, "step-000000004")
    weights = [key for key in whole if key.startswith("common/model")]
    assert len(weights) > 10
    assert [key for key in weights if not torch.equal(whole[key], resumed[key])] == []
