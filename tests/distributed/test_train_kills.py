"""kill -9 of all ranks at any moment, or of one amid an exchange: the same command goes on to the same bits."""

import random
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from augpipe.trainer.checkpoint.checkpoints_folder import finished, newest_whole
from augpipe.trainer.config import make_config, to_toml
from tests.distributed.rank_processes import TIMEOUT_S
from tests.distributed.train_processes import (
    kill_all,
    newest,
    run_to_the_end,
    started,
    two_ranks,
    wait_until,
)
from tests.distributed.train_runs import contents, sample_ids, settings, write_photos

pytestmark = pytest.mark.slow

STEPS, SAVE_EVERY, DIES_IN = 64, 4, 12
STRAIGHT_ON_S = 30
"""For the survivor's end: less than the longest exchange, so that it did not just wait for that to run out."""
TABLES: dict[str, Any] = {
    "epochs": 1000,
    "max_steps": STEPS,
    "sync": {"strategy": "lazy", "codec": "dynamic-tree", "error_feedback": True, "bucket_bytes": 2000},
    "optim": {"name": "adamw", "lr": 0.01, "clip_norm": 1.0},
    "ema": {"decay": 0.9, "every": 2},
    "checkpoint": {"every_steps": SAVE_EVERY, "every_epochs": 0},
    "faults": {"timeout_s": 60, "heartbeat_timeout_s": 4},
}

DIES_AMID_AN_EXCHANGE = """
import os, signal, sys
from augpipe.trainer.loop.step import Step
from augpipe.trainer.exchange.threads import ExchangeThreads
run, issue = Step.run, ExchangeThreads._issue
sent, num_buckets = {"gradients": [], "slices": []}, []  # works by what is reduced and gathered
def counting(self, *arguments):
    result = run(self, *arguments)
    num_buckets.append(len(sent["gradients"]))
    return result
def dying(self, task):
    phase = task.what.split()[0]
    works = sent.setdefault(phase, [])
    if os.environ["RANK"] == "1" and list(sent).index(phase) == PHASE and num_buckets:
        assert num_buckets[0] > 2
        if len(works) == (STEP - 1) * num_buckets[0] + 1:
            works[-1].wait()  # the first bucket of this step is through, the second one is not sent
            print("dying", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
    issue(self, task)
    works.append(task.result)
Step.run, ExchangeThreads._issue = counting, dying
import runpy
sys.argv[0] = "augpipe.trainer"
runpy.run_module("augpipe.trainer", run_name="__main__")
"""


def write_job(folder: Path, photos: Path) -> Path:
    path = folder / "job.toml"
    path.write_text(to_toml(make_config(settings(folder / "run", photos, **TABLES))))
    return path


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_photos(tmp_path_factory.mktemp("photos"), 24)


@pytest.fixture(scope="module")
def undisturbed(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that nobody killed."""
    folder = tmp_path_factory.mktemp("undisturbed")
    run_to_the_end(two_ranks(write_job(folder, photos)))
    return folder / "run"


def assert_ends_like(out: Path, undisturbed: Path) -> None:
    """Weights, averages, optimizer shards, residuals, random numbers, losses and samples, to the last bit."""
    last = f"step-{STEPS:09}"
    theirs, ours = (contents(folder, last) for folder in (undisturbed, out))
    assert theirs.keys() == ours.keys() and any(key.startswith("rank1/sync") for key in theirs)
    assert [key for key in theirs if not torch.equal(theirs[key], ours[key])] == []
    for rank in range(2):
        assert sample_ids(out, rank) == sample_ids(undisturbed, rank)
    assert losses(out) == losses(undisturbed) and len(losses(out)) == STEPS


def losses(out: Path) -> list[str]:
    lines = [line.split(",") for line in (out / "metrics.csv").read_text().splitlines()]
    column = lines[0].index("loss")
    return [line[column] for line in lines[1:]]


@pytest.mark.deep  # one is killed amid an exchange in every run
def test_all_killed_at_random_moments(photos: Path, undisturbed: Path, tmp_path: Path) -> None:
    job, out, moments = write_job(tmp_path, photos), tmp_path / "run", random.Random(2)
    resumed_from = 0
    for _ in range(2):
        least = resumed_from + moments.randrange(SAVE_EVERY, 4 * SAVE_EVERY)
        with started(two_ranks(job)) as ranks:
            wait_until(lambda least=least: newest(out) >= least, ranks[0], poll_s=0.005)  # type: ignore[misc]
            time.sleep(moments.uniform(0, 0.1))
            for rank in ranks:
                kill_all(rank)
            said = ranks[0].communicate()[1]
        assert [rank.returncode for rank in ranks] == [-9, -9]
        assert (f"going on from {out}/checkpoints/step-{resumed_from:09}, written by 2 ranks" in said) == (
            resumed_from > 0
        ), said
        whole = newest_whole(out / "checkpoints")
        assert whole is not None and whole == finished(out / "checkpoints")[0]  # nothing cut short bears a good name
        assert resumed_from < newest(out) < STEPS
        resumed_from = newest(out)
    said = run_to_the_end(two_ranks(job))
    assert f"going on from {out}/checkpoints/step-{resumed_from:09}, written by 2 ranks" in said
    assert_ends_like(out, undisturbed)


@pytest.mark.parametrize("phase", [0, 1], ids=["reduction", "gather"])
def test_one_killed_amid_an_exchange(phase: int, photos: Path, undisturbed: Path, tmp_path: Path) -> None:
    job, out = write_job(tmp_path, photos), tmp_path / "run"
    script = DIES_AMID_AN_EXCHANGE.replace("PHASE", str(phase)).replace("STEP", str(DIES_IN))
    with started(two_ranks(job, script)) as (first, second):
        assert second.first_line(TIMEOUT_S) == "dying\n"
        _, said = first.communicate(timeout=STRAIGHT_ON_S)
        second.communicate(timeout=STRAIGHT_ON_S)
    assert (first.returncode, second.returncode) == (1, -9)
    assert "rank 1 has died: it has given no sign of life" in said and "Traceback" not in said
    # a checkpoint was due after this very step, and the one before last was waited for
    assert DIES_IN % SAVE_EVERY == 0
    left = newest(out)
    assert left in (DIES_IN - SAVE_EVERY, DIES_IN - 2 * SAVE_EVERY)
    assert f"step-{left:09}, written by 2 ranks" in run_to_the_end(two_ranks(job))
    assert_ends_like(out, undisturbed)
