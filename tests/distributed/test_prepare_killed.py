"""Prepare over processes: workers and engines do not show, and a run that is killed at any moment can be finished."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from augpipe.datasets.folder import FolderSource
from augpipe.datasets.prepare.engines.engine import WorkerDiedError
from augpipe.datasets.prepare.engines.local import LocalEngine
from augpipe.datasets.prepare.run import Watcher, prepare
from augpipe.datasets.prepare.settings import PrepareSettings
from augpipe.datasets.shards.manifest import Manifest
from tests.unit.picture_files import encoded, scene
from tests.unit.prepare_sources import InlineEngine, tree, write_photos

pytestmark = pytest.mark.skipif(
    "AUGPIPE_KILL_TESTS" not in os.environ,
    reason="kills processes at random moments for some minutes: set AUGPIPE_KILL_TESTS=1",
)

ROOT = Path(__file__).resolve().parents[2]
NUM = 128
"""Four shards."""
OPTIONS = ("--scales", "96,128")
SETTINGS = PrepareSettings(scales=("96", "128"))


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_photos(tmp_path_factory.mktemp("data") / "photos", NUM, 200, 260)


@pytest.fixture(scope="module")
def whole(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What an undisturbed run in one process makes."""
    out = tmp_path_factory.mktemp("whole") / "out"
    prepare(FolderSource(photos), out, SETTINGS, source_path=str(photos), engine=InlineEngine())
    return out


@contextmanager
def running(photos: Path, out: Path, *options: str) -> Iterator["subprocess.Popen[str]"]:
    """`augpipe prepare` in a process group of its own; killed at the end, whatever happens."""
    command = [sys.executable, "-m", "augpipe", "prepare", str(photos), str(out), *OPTIONS, *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def finish(photos: Path, out: Path, *options: str) -> str:
    """Run to the end; returns what was said on stderr."""
    with running(photos, out, *options) as process:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        return errors


def workers_of(process: "subprocess.Popen[str]") -> list[int]:
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return [int(child) for child in children.read_text().split()]


def wait_for(process: "subprocess.Popen[str]", out: Path, num_files: int) -> bool:
    """Wait until so many files of shards are there or begun; False if the run has ended before."""
    for _ in range(60_000):
        if process.poll() is not None:
            return False
        if sum(1 for _ in out.glob("*/*0*")) >= num_files:
            return True
        time.sleep(0.001)
    raise AssertionError("nothing happens")


def test_workers_do_not_show(photos: Path, whole: Path, tmp_path: Path) -> None:
    assert finish(photos, tmp_path / "out", "--workers", "3") == ""
    assert tree(tmp_path / "out") == tree(whole)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 6))])
def test_killed_and_resumed(photos: Path, whole: Path, tmp_path: Path, seed: int) -> None:
    rng, out = random.Random(seed), tmp_path / "out"
    num_kills = 0
    # of 4 shards at 2 scales: 16 files in the end, each a temporary one before
    for num_files in sorted(rng.sample(range(2, 16), 2)):
        with running(photos, out, "--workers", "2", "--resume") as process:
            if wait_for(process, out, num_files):
                time.sleep(rng.uniform(0, 0.05))
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                num_kills += 1
    assert num_kills and not (out / "manifest.json").exists()
    finish(photos, out, "--workers", "2", "--resume")
    assert tree(out) == tree(whole)


def test_a_worker_that_is_killed_is_replaced(photos: Path, whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with running(photos, out, "--workers", "2") as process:
        assert wait_for(process, out, 5)
        os.kill(random.choice(workers_of(process)), signal.SIGKILL)
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    assert "augpipe: a worker died (by signal SIGKILL) at photograph " in errors and "(attempt 2 of 3)" in errors
    assert tree(out) == tree(whole)


def test_workers_end_when_their_parent_is_killed(photos: Path, tmp_path: Path) -> None:
    with running(photos, tmp_path / "out", "--workers", "2") as process:
        assert wait_for(process, tmp_path / "out", 3)
        workers = workers_of(process)
        process.kill()
        process.wait()
        assert workers
        for _ in range(2000):
            if not any(is_running(worker) for worker in workers):
                break
            time.sleep(0.01)
        else:
            raise AssertionError(f"{workers} live on")


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_ctrl_c_ends_it_and_says_how_to_go_on(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with running(photos, out, "--workers", "2") as process:
        assert wait_for(process, out, 5)
        workers = workers_of(process)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        printed, errors = process.communicate(timeout=60)
    assert process.returncode == 130 and printed == ""
    assert errors.startswith("augpipe: stopped. What is done stays: run the same command with --resume to finish it.\n")
    assert "Traceback" not in errors
    assert not any(is_running(worker) for worker in workers)
    assert not [name for name in tree(out) if name.endswith(".tmp")]


def test_two_runs_do_not_mix(photos: Path, whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with running(photos, out, "--workers", "1") as first:
        assert wait_for(first, out, 3)
        with running(photos, out, "--resume") as second:
            _, errors = second.communicate(timeout=60)
            assert second.returncode == 2
            assert f"another augpipe prepare (process {first.pid} on " in errors
        assert first.wait(timeout=60) == 0
    assert tree(out) == tree(whole)


class Deadly:
    """A source whose fifth photograph kills the process that reads it, at most so many times."""

    classes = ("a",)

    def __init__(self, folder: Path, num_times: int) -> None:
        self.folder, self.num_times = folder, num_times

    def __len__(self) -> int:
        return 9

    def read(self, sample_id: int) -> bytes:
        if sample_id == 5 and os.environ.get("IS_WORKER"):
            deaths = self.folder / "deaths"
            num = len(deaths.read_text()) if deaths.exists() else 0
            if num < self.num_times:
                deaths.write_text("x" * (num + 1))
                os.kill(os.getpid(), signal.SIGKILL)
        return encoded(scene(30, 40, sample_id), "JPEG")

    def label(self, sample_id: int) -> int:
        return 0

    def name(self, sample_id: int) -> str:
        return f"{sample_id}.jpg"


@pytest.fixture
def in_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IS_WORKER", "1")
    # the plan tries a few photographs in this process
    monkeypatch.setattr("augpipe.datasets.prepare.plan._mean_bytes", lambda *_: (10_000, 10_000))


def test_a_photograph_that_kills_workers_is_named(in_workers: None, tmp_path: Path) -> None:
    said: list[str] = []
    with pytest.raises(WorkerDiedError, match=r"shard 000000 cannot be made: 3 workers died over it, the last one by"):
        prepare(
            Deadly(tmp_path, 99),
            tmp_path / "out",
            PrepareSettings(scales=("20",)),
            engine=LocalEngine(1),
            watcher=Watcher(notice=said.append),
        )
    assert [text.rpartition("(")[2] for text in said] == ["attempt 2 of 3)", "attempt 3 of 3)"]
    assert not [name for name in tree(tmp_path / "out") if name.endswith(".tmp")]


def test_progress_counts_each_photograph_once(in_workers: None, tmp_path: Path) -> None:
    told: list[int] = []
    manifest = prepare(
        Deadly(tmp_path, 2),
        tmp_path / "out",
        PrepareSettings(scales=("20",)),
        engine=LocalEngine(2),
        watcher=Watcher(progress=told.append),
    )
    assert manifest.num_samples == 9 == sum(told)


def test_a_source_that_cannot_travel_is_refused(tmp_path: Path) -> None:
    class Local(Deadly):
        pass

    with pytest.raises(ValueError, match=r"the source Local cannot be handed to worker processes: .*Make it picklable"):
        prepare(Local(tmp_path, 0), tmp_path / "out", engine=LocalEngine(1))


def test_a_full_disk(photos: Path, whole: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    size = sum(map(len, tree(whole).values()))
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size // 2}", "tmpfs", str(disk)]
    if os.geteuid() or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("needs the right to mount a small tmpfs")
    try:
        out = disk / "out"
        with running(photos, out, "--workers", "2") as process:
            _, errors = process.communicate(timeout=120)
        assert process.returncode == 1
        assert errors.count("\n") == 2
        warned, said = errors.splitlines()
        assert "GB will be written, and" in warned
        assert said.startswith(f"augpipe: {out}/")
        assert said.endswith(
            ": No space left on device. Free some room there. What is done stays: run the same command with --resume "
            "to finish it."
        )
        assert not [name for name in tree(out) if name.endswith(".tmp")]
        subprocess.run(["mount", "-o", f"remount,size={3 * size}", str(disk)], check=True)
        assert "are done already" in finish(photos, out, "--resume")
        assert tree(out) == tree(whole)
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.slow
def test_ray_does_not_show(photos: Path, whole: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    finish(photos, tmp_path / "out", "--engine", "ray", "--workers", "2")
    assert tree(tmp_path / "out") == tree(whole)
    assert Manifest.load(tmp_path / "out").num_samples == NUM


@pytest.mark.slow
def test_a_ray_worker_that_is_killed_is_replaced(photos: Path, whole: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    out = tmp_path / "out"
    with running(photos, out, "--engine", "ray", "--workers", "2") as process:
        assert wait_for(process, out, 3)
        victims = [
            int(entry.name)
            for entry in Path("/proc").iterdir()
            if entry.name.isdigit() and b"ray::complete_chunk" in _command(entry)
        ]
        assert victims
        os.kill(victims[0], signal.SIGKILL)
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    assert "augpipe: a worker died (on Ray (WorkerCrashedError)) at photographs " in errors
    assert tree(out) == tree(whole)


def _command(entry: Path) -> bytes:
    try:
        return (entry / "cmdline").read_bytes()
    except OSError:  # it has ended meanwhile
        return b""
