"""Runs of prepare in processes of their own that tests may kill, and how to see how far one has come."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path

from augpipe.datasets.formats.folder import FolderSource
from augpipe.datasets.prepare.local_engine import LocalEngine
from augpipe.datasets.prepare.prepare import prepare
from augpipe.datasets.prepare.settings import PrepareSettings
from tests.distributed.forked_python import ForkedPython, server

NUM = 160
"""Images: five shards."""
OPTIONS = ("--scales", "96,128")
SETTINGS = PrepareSettings(scales=("96", "128"))
NUM_FILES = 21
"""That a run makes before it ends: the plan, and of each shard two tar files and two indices at two scales."""
TIMEOUT_S = 120


@contextmanager
def command(source: Path, out: Path, *options: str) -> Iterator[ForkedPython]:
    """`augpipe prepare` in a session of its own; killed at the end, whatever happens."""
    process = ForkedPython(["-m", "augpipe", "prepare", str(source), str(out), *OPTIONS, *options])
    try:
        yield process
    finally:
        process.kill_session()
        process.communicate()


def finish(source: Path, out: Path, *options: str) -> str:
    """Run the command to its end; returns what it said on stderr, except for how far it is."""
    with command(source, out, *options) as process:
        _, errors = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0, errors
        return without_progress(errors)


def without_progress(errors: str) -> str:
    """What a command said on stderr, without the lines that say how far it is."""
    return "".join(line for line in errors.splitlines(keepends=True) if not line.startswith("augpipe: preparing "))


@contextmanager
def forked(photos: Path, out: Path, *, num_workers: int) -> Iterator[BaseProcess]:
    """A resuming run as the leader of a process group, from a server that has imported all there is."""
    process = server().Process(target=_run, args=(photos, out, num_workers))
    process.start()
    try:
        yield process
    finally:
        if process.is_alive():
            kill_group(process)
        process.join(TIMEOUT_S)


def _run(photos: Path, out: Path, num_workers: int) -> None:
    os.setsid()
    prepare(FolderSource(photos), out, SETTINGS, source_path=str(photos), engine=LocalEngine(num_workers), resume=True)


def kill_group(process: BaseProcess) -> None:
    """kill -9 on the run and its workers; returns once it is gone."""
    assert process.pid is not None
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:  # it is no leader yet, and has no workers
        process.kill()
    process.join(TIMEOUT_S)


def num_files(out: Path) -> int:
    """Files of shards that are there or begun, and the plan."""
    return sum(1 for _ in out.glob("*/*0*")) + (out / ".prepare/plan.json").exists()


def wait_until(condition: Callable[[], bool], poll_s: float = 0.001) -> None:
    """Look again and again; an error after two minutes, as other tests may take both cores."""
    stop = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < stop, "nothing happens"
        time.sleep(poll_s)


def workers_of(pid: int) -> list[int]:
    """The process ids of a local engine's workers."""
    children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [child for child in children if b"augpipe.datasets.prepare.local_worker" in command_line(child)]


def command_line(pid: int) -> bytes:
    """What a process was started as; nothing where there is none."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
        return b""


def below(pid: int) -> list[int]:
    """The processes that one has started, those that they have started, and so on."""
    parents = {int(entry.name): _parent(entry) for entry in Path("/proc").iterdir() if entry.name.isdigit()}
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found[1:]


def _parent(entry: Path) -> int:
    try:
        return int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def is_running(pid: int) -> bool:
    """Whether there is such a process, and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
