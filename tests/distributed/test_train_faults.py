"""What kills a rank, or all of them, and what the others and the next start make of it."""

import os
import re
import signal
from pathlib import Path

import pytest

from augpipe.trainer.config import to_toml
from augpipe.trainer.loop import run
from augpipe.trainer.report.metrics import read_rows
from tests.distributed.rank_processes import TIMEOUT_S
from tests.distributed.train_processes import children, newest, started, steps_done, two_ranks, wait_until
from tests.distributed.train_runs import checkpoints, config, write_photos

pytestmark = pytest.mark.slow

FAILS_IN_STEP_3 = """
import os, sys
from augpipe.trainer.loop.step import Step
run = Step.run
calls = []
def failing(self, *arguments):
    calls.append(1)
    if os.environ["RANK"] == "1" and len(calls) == 3:
        raise ZeroDivisionError("a mistake of somebody's")
    return run(self, *arguments)
Step.run = failing
import runpy
sys.argv[0] = "augpipe.trainer"
runpy.run_module("augpipe.trainer", run_name="__main__")
"""
SLOW_TO_FINISH = """
import sys, time
from augpipe.trainer.checkpoint import checkpoints_folder
write = checkpoints_folder.write_manifest
def slow(folder, about, files):
    if about["step"] >= 8:
        print("writing", flush=True)
        time.sleep(600)
    write(folder, about, files)
checkpoints_folder.write_manifest = slow
import runpy
sys.argv[0] = "augpipe.trainer"
runpy.run_module("augpipe.trainer", run_name="__main__")
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A config file of a run that does not end soon."""
    photos = write_photos(tmp_path, 24)
    made = config(
        tmp_path / "run",
        photos,
        epochs=100_000,
        checkpoint={"every_steps": 4, "every_epochs": 0},
        faults={"timeout_s": 60, "heartbeat_timeout_s": 8},
        sync={"strategy": "butterfly", "codec": "dynamic-tree"},
    )
    path = tmp_path / "job.toml"
    path.write_text(to_toml(made))
    return path


def test_a_killed_rank_ends_the_other_by_name(job: Path) -> None:
    with started(two_ranks(job)) as (first, second):
        wait_until(lambda: steps_done(job.parent / "run") >= 6, first)
        second.kill()
        _, said = first.communicate(timeout=TIMEOUT_S)
    assert first.returncode == 1
    assert "rank 1 has died: it has given no sign of life" in said and "Traceback" not in said


def test_a_rank_that_fails_tells_the_other_why(job: Path) -> None:
    with started(two_ranks(job, FAILS_IN_STEP_3)) as (first, second):
        _, said = first.communicate(timeout=TIMEOUT_S)
        second.communicate(timeout=TIMEOUT_S)
    assert first.returncode == second.returncode == 1
    assert "rank 1 has died: rank 1 (process" in said
    assert "ZeroDivisionError: a mistake of somebody's" in said


def test_a_signal_to_one_rank_ends_both_after_the_same_step(job: Path) -> None:
    with started(two_ranks(job)) as (first, second):
        wait_until(lambda: steps_done(job.parent / "run") >= 3, first)
        second.send_signal(signal.SIGTERM)
        _, said = first.communicate(timeout=TIMEOUT_S)
        second.communicate(timeout=TIMEOUT_S)
    assert first.returncode == second.returncode == 128 + signal.SIGTERM, said
    found = re.search(r"stopped by SIGTERM after [\d,.]+ epochs, ([\d,]+) steps; the same command goes on", said)
    assert found is not None, said
    assert newest(job.parent / "run") == int(found[1].replace(",", ""))


@pytest.mark.deep  # torchrun waits long before it starts ranks again
def test_torchrun_starts_again_from_the_last_checkpoint(job: Path) -> None:
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "1"]
    with started([([*torchrun, "-m", "augpipe.trainer", str(job)], {})]) as (agent,):
        wait_until(lambda: newest(job.parent / "run") >= 4, agent)
        before = newest(job.parent / "run")
        os.kill(children(agent.pid)[1], signal.SIGKILL)
        # the second start has new processes, and forgets the rows after its checkpoint
        wait_until(lambda: newest(job.parent / "run") >= before + 8, agent)
        agent.send_signal(signal.SIGTERM)
        _, said = agent.communicate(timeout=TIMEOUT_S)
    assert "going on from" in said
    steps = [int(row["step"]) for row in read_rows(job.parent / "run" / "metrics.csv")]
    assert steps == list(range(1, len(steps) + 1))


def test_killed_while_a_checkpoint_is_written(job: Path) -> None:
    with started([(["-c", SLOW_TO_FINISH, str(job)], {})]) as (process,):
        assert process.first_line(TIMEOUT_S) == "writing\n"
        process.kill()
    left = checkpoints(job.parent / "run")
    assert left == ["step-000000004", "step-000000008.tmp"]
    result = run(config(job.parent / "run", job.parent / "photos", max_steps=6))
    assert result.step == 6
    assert checkpoints(job.parent / "run") == ["step-000000004", "step-000000006"]
