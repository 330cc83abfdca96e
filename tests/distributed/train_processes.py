"""Ranks of a training run as processes that tests may kill: started with or without torchrun, watched, cleared away."""

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from augpipe.trainer.checkpoint.checkpoints_folder import finished
from augpipe.trainer.report.metrics import read_rows
from tests.distributed.forked_python import ForkedPython
from tests.distributed.rank_processes import TIMEOUT_S

Commands = list[tuple[list[str], dict[str, str]]]
"""What stands behind `python`, and what is added to the environment, of each process."""


@contextmanager
def started(commands: Commands) -> Iterator[list[ForkedPython]]:
    """Processes that are killed at the end with all that they started."""
    processes = [ForkedPython(arguments, environment) for arguments, environment in commands]
    try:
        yield processes
    finally:
        for process in processes:
            kill_all(process)
            process.communicate()


def kill_all(process: ForkedPython) -> None:
    """kill -9 of a process and of its children: torchrun gives its ranks sessions of their own."""
    if process.poll() is None:
        for pid in children(process.pid):
            with suppress(ProcessLookupError):  # it has ended
                os.killpg(pid, signal.SIGKILL)
        process.kill_session()


def children(pid: int) -> list[int]:
    """Process ids."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []  # it has ended


def two_ranks(job: Path, script: str | None = None) -> Commands:
    """A run of two ranks."""
    what = ["-m", "augpipe.trainer"] if script is None else ["-c", script]
    return as_two_ranks([*what, str(job)])


def as_two_ranks(arguments: list[str]) -> Commands:
    """Without torchrun, which would end the others itself."""
    return as_ranks(arguments, 2)


def as_ranks(arguments: list[str], num: int) -> Commands:
    """The same of so many ranks, all on this machine."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    common = {"WORLD_SIZE": str(num), "LOCAL_WORLD_SIZE": str(num), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return [(arguments, {**common, "RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(num)]


def run_to_the_end(commands: Commands) -> str:
    """What the first process said on stderr; all must end well."""
    with started(commands) as processes:
        said = [process.communicate(timeout=TIMEOUT_S)[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes), "\n".join(said)
    return said[0]


def wait_until(what: Callable[[], bool], process: ForkedPython, poll_s: float = 0.05) -> None:
    """Fails if the process ends before that."""
    deadline = time.monotonic() + TIMEOUT_S
    while not what():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(poll_s)


def steps_done(out: Path) -> int:
    """How far the run in a folder is, by its metrics."""
    path = out / "metrics.csv"
    rows = read_rows(path) if path.exists() else []
    return int(rows[-1]["step"]) if rows else 0


def newest(out: Path) -> int:
    """The step of the newest checkpoint that is finished; 0 without one."""
    found = finished(out / "checkpoints")
    return int(found[0].name.removeprefix("step-")) if found else 0
