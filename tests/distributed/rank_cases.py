"""Runs cases on several ranks over Gloo: one group of processes for a table of cases, a traceback a rank and case."""

import importlib
import json
import os
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from tests.distributed.forked_python import ForkedPython

TIMEOUT_S = 30  # of one collective
GROUP_TIMEOUT_S = 150

Case = Callable[[int, int], None]


def run_cases(
    module: str, world_size: int, names: list[str], folder: Path, timeout_s: float = GROUP_TIMEOUT_S
) -> dict[str, str]:
    """By case, what went wrong on which rank, or nothing. Cases are functions (rank, world_size) of a module."""
    command = ["-m", "tests.distributed.rank_cases", module, str(world_size), str(folder / "meet")]
    ranks = [ForkedPython([*command, str(rank), *names]) for rank in range(world_size)]
    failures = dict.fromkeys(names, "")
    deadline = time.monotonic() + timeout_s
    try:
        for rank, process in enumerate(ranks):
            try:
                out, err = process.communicate(timeout=max(deadline - time.monotonic(), 1))
            except subprocess.TimeoutExpired:
                process.kill()
                out, err = process.communicate()
            told = dict(json.loads(line) for line in out.splitlines() if line.startswith('["'))
            for name in names:
                said = told.get(name, f"did not end; the rank's log:\n{err[-3000:]}")
                failures[name] += said and f"\nrank {rank}: {said}"
    finally:
        for process in ranks:
            process.kill()
            process.communicate()
    return failures


def main(module: str, world_size: int, meeting_place: str, rank: int, names: list[str]) -> None:
    """One rank's life."""
    import torch
    import torch.distributed as dist

    warnings.simplefilter("error")
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{meeting_place}",
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=TIMEOUT_S),
    )
    cases = importlib.import_module(module)
    for name in names:
        said = ""
        try:
            getattr(cases, name)(rank, world_size)
        except BaseException:  # the report of the case
            said = traceback.format_exc()
        print("\n" + json.dumps([name, said]), flush=True)
        if said:
            break  # the other ranks are somewhere else now
    if not said and len(names) > 1:  # after a failure, or a case that kills ranks, nobody can be met any more
        dist.barrier()
        dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # no destructor of a broken process group may hang


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), sys.argv[5:])
