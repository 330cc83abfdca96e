"""Two ranks that do nothing but save: kill -9 at any moment leaves the newest whole one, bits equal, and what one rank
cannot write no rank has written."""

import json
import random
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from augpipe.trainer.checkpoint.checkpoints_folder import finished, newest_whole
from tests.distributed.rank_processes import TIMEOUT_S
from tests.distributed.train_processes import started

RANK = """
import os, sys
from datetime import timedelta
from pathlib import Path
import torch
import torch.distributed as dist
from augpipe.trainer.checkpoint import Checkpoint, Saver, agree_on_newest
from augpipe.trainer.checkpoint.checkpoints_folder import remove_unfinished
folder, meeting_place, rank = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
dist.init_process_group("gloo", init_method=f"file://{meeting_place}", rank=rank, world_size=2,
                        timeout=timedelta(seconds=60))
sys.addaudithook(lambda event, _: event == "pickle.find_class" and os._exit(7))  # nothing is unpickled
def state(step, of):
    numbers = torch.Generator().manual_seed(10 * step + of)
    return {"weights": torch.randn(200_000, generator=numbers), "small": [torch.tensor(step)] * 50}
def is_state(found, step, of):
    return torch.equal(found["weights"], state(step, of)["weights"]) and found["small"] == [step] * 50
path, step = agree_on_newest(folder, dist.group.WORLD), 0
if path is not None:
    checkpoint = Checkpoint(path)
    step = checkpoint.step
    assert is_state(checkpoint.common(), step, 9) and is_state(checkpoint.of_rank(rank), step, rank)
if rank == 0:
    remove_unfinished(folder)
dist.barrier()
print(f"{step} it is", flush=True)
saver = Saver(folder, dist.group.WORLD, keep=2, asynchronous=True, about={})
while True:
    step += 1
    saver.save(step, state(step, 9), state(step, rank))
    assert saver.num_failed == 0
"""


@pytest.mark.parametrize("num_kills", [10, pytest.param(100, marks=pytest.mark.deep)])
def test_killed_while_saving(num_kills: int, tmp_path: Path) -> None:
    """Every other life finishes a checkpoint first, and they go on until enough of them ended amid a write."""
    dice = random.Random(num_kills)
    folder, last, num_amid, number = tmp_path / "checkpoints", 0, 0, 0
    while number <= num_kills or num_amid <= num_kills / 3:
        assert number < 10 * num_kills, (last, num_amid)
        commands = [(["-c", RANK, str(folder), str(tmp_path / f"meet{number}"), str(rank)], {}) for rank in range(2)]
        with started(commands) as ranks, ExitStack() as killed:
            for rank in ranks:
                killed.callback(rank.kill)
                assert rank.first_line(TIMEOUT_S) == f"{last} it is\n", rank.communicate()[1]
            if number % 2:
                wait_until_finished(folder, last + 1)
            time.sleep(dice.uniform(0, 0.3))
            first, second = dice.sample(ranks, 2)
            first.kill()
            second.kill()
        assert first.returncode == -9, first.communicate()[1]  # the other one may have seen it go
        whole = newest_whole(folder, pytest.fail)
        assert whole == next(iter(finished(folder)), None)
        last = 0 if whole is None else int(whole.name.removeprefix("step-"))
        num_amid += any(folder.glob("*.tmp"))
        number += 1
    assert last >= number // 2, (last, number)


def wait_until_finished(folder: Path, step: int) -> None:
    """Wait until a run that saves has finished a checkpoint after so many steps, or more."""
    deadline = time.monotonic() + TIMEOUT_S
    while not any(int(path.name.removeprefix("step-")) >= step for path in finished(folder)):
        assert time.monotonic() < deadline, f"step {step} was not saved within {TIMEOUT_S} s"
        time.sleep(0.005)


ONE_FAILS = """
import errno, json, os, sys
from datetime import timedelta
from pathlib import Path
import torch
import torch.distributed as dist
from augpipe.trainer.checkpoint import Saver
from augpipe.trainer.checkpoint.save import Copied
folder, meeting_place, rank = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
dist.init_process_group("gloo", init_method=f"file://{meeting_place}", rank=rank, world_size=2,
                        timeout=timedelta(seconds=60))
write, rename = Copied.write, os.rename
def failing(self, path):
    if rank == 1 and path.name == "step-000000002.tmp":
        raise OSError(errno.ENOSPC, "No space left on device", "rank1.json")
    return write(self, path)
def not_renamed(old, new):
    if Path(new).name == "step-000000004":
        raise OSError(errno.EIO, "Input/output error", str(old))
    rename(old, new)
Copied.write, os.rename = failing, not_renamed
saver = Saver(folder, dist.group.WORLD, keep=9, asynchronous=False, about={})
for step in range(1, 7):
    weights = torch.ones(3)
    if step == 6:
        weights[rank:] = float("nan")
    saver.save(step, {}, {"weights": weights})
    print(json.dumps([step, saver.num_failed, saver.last_step]), flush=True)
dist.destroy_process_group()
"""


def test_what_one_rank_cannot_write_no_rank_has_written(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    commands = [(["-c", ONE_FAILS, str(folder), str(tmp_path / "meet"), str(rank)], {}) for rank in range(2)]
    with started(commands) as ranks:
        said = [rank.communicate(timeout=TIMEOUT_S) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], said
    outs = [[json.loads(line) for line in out.splitlines()] for out, _ in said]
    assert outs[0] == outs[1] == [[1, 0, 1], [2, 1, 1], [3, 1, 3], [4, 2, 3], [5, 2, 5], [6, 3, 5]]
    assert sorted(path.name for path in folder.iterdir()) == [f"step-{step:09}" for step in (1, 3, 5)]
    told = [line for line in said[0][1].splitlines() if "was not written" in line]
    before = "the checkpoint after step"
    assert told == [
        f"{before} 2 was not written: rank 1: No space left on device (rank1.json). The one after step 1 stays valid.",
        f"{before} 4 was not written: rank 0: Input/output error ({folder}/step-000000004.tmp). "
        "The one after step 3 stays valid.",
        f"{before} 6 was not written: rank 0: rank0/weights holds NaN; rank 1: rank1/weights holds NaN. "
        "The one after step 5 stays valid.",
    ]
    assert "was not written" not in said[1][1]


LATE = """
import sys, time
from datetime import timedelta
from pathlib import Path
import torch
import torch.distributed as dist
from augpipe.trainer.checkpoint import Saver
from augpipe.trainer.checkpoint.checkpoints_folder import newest_whole, remove_unfinished
folder, meeting_place, rank = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
dist.init_process_group("gloo", init_method=f"file://{meeting_place}", rank=rank, world_size=2,
                        timeout=timedelta(seconds=60))
saver = Saver(folder, dist.group.WORLD, keep=9, asynchronous=True, about={})
if rank == 0:
    time.sleep(1.0)  # the other rank saves meanwhile, if it does not wait
    assert not list(folder.glob("*")), "a rank writes before rank 0 has begun"
    remove_unfinished(folder)
saver.save(2, {}, {"weights": torch.ones(3)})
saver.wait()
assert saver.last_step == 2 and newest_whole(folder) == folder / "step-000000002"
dist.destroy_process_group()
"""


def test_no_rank_writes_while_rank_0_still_clears_up(tmp_path: Path) -> None:
    """A run that goes on may save at once; rank 0 removes first what an earlier one left half written."""
    commands = [(["-c", LATE, str(tmp_path / "c"), str(tmp_path / "meet"), str(rank)], {}) for rank in range(2)]
    with started(commands) as ranks:
        said = [rank.communicate(timeout=TIMEOUT_S) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], said
