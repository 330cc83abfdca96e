"""Prepare over processes: workers do not show, and a run that is killed at any moment can be finished."""

import os
import random
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from augpipe.datasets.formats.folder import FolderSource
from augpipe.datasets.prepare import engine_protocol
from augpipe.datasets.prepare.engine_protocol import Watcher, WorkerDiedError
from augpipe.datasets.prepare.local_engine import LocalEngine
from augpipe.datasets.prepare.prepare import prepare
from augpipe.datasets.prepare.settings import PrepareSettings
from tests.augpipe.decoding.image_files import encoded, scene
from tests.datasets.prepare.prepare_sources import tree
from tests.distributed.prepare_runs import (
    NUM,
    NUM_FILES,
    SETTINGS,
    TIMEOUT_S,
    command,
    finish,
    forked,
    is_running,
    kill_group,
    num_files,
    wait_until,
    workers_of,
)


@pytest.mark.deep  # those that are killed do not show, below
def test_workers_do_not_show(photos: Path, whole: dict[str, bytes], tmp_path: Path) -> None:
    """Three of them; below there are one and two, and the bytes are the same."""
    assert finish(photos, tmp_path / "out", "--workers", "3") == ""
    assert tree(tmp_path / "out") == whole


@pytest.mark.slow
@pytest.mark.parametrize("num_to_kill", [3, pytest.param(8, marks=pytest.mark.deep)])
def test_killed_as_a_group_and_resumed(num_to_kill: int, photos: Path, whole: dict[str, bytes], tmp_path: Path) -> None:
    """`kill -9` on the run and its workers at random moments; where one comes too late, the next run begins anew."""
    rng, out = random.Random(0), tmp_path / "out"
    num_kills = num_ends = 0
    while num_kills < num_to_kill:
        assert num_ends < 3 * num_to_kill, "all runs end before they are killed"
        wanted = min(num_files(out) + rng.randrange(9), NUM_FILES)
        delay_s = rng.uniform(0, 0.02)
        with forked(photos, out, num_workers=1 + num_kills % 2) as process:
            wait_until(lambda: num_files(out) >= wanted or not process.is_alive())  # noqa: B023
            time.sleep(delay_s)
            kill_group(process)
        if process.exitcode == -signal.SIGKILL:
            num_kills += 1
            continue
        assert process.exitcode == 0
        num_ends += 1
        assert tree(out) == whole
        shutil.rmtree(out)
    finish(photos, out, "--workers", "2", "--resume")
    assert tree(out) == whole


class Mortal(FolderSource):
    """A folder of which some images kill the process that first reads them, unless that is `parent`."""

    def __init__(self, root: Path, deaths: Path, mortal: list[int]) -> None:
        super().__init__(root)
        self.deaths, self.mortal, self.parent = deaths, mortal, os.getpid()

    def read(self, sample_id: int) -> bytes:
        death = self.deaths / str(sample_id)
        if sample_id in self.mortal and os.getpid() != self.parent and not death.exists():
            death.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().read(sample_id)


@pytest.mark.slow
@pytest.mark.parametrize("num_kills", [2, pytest.param(5, marks=pytest.mark.deep)])
def test_killed_workers_are_replaced(
    num_kills: int, photos: Path, whole: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One worker after another, each at a random image; a chunk may be hit more often than a run would bear."""
    monkeypatch.setattr(engine_protocol, "MOST_ATTEMPTS", num_kills + 1)
    (tmp_path / "deaths").mkdir()
    mortal = sorted(random.Random(0).sample(range(NUM), num_kills))
    said: list[str] = []
    prepare(
        Mortal(photos, tmp_path / "deaths", mortal),
        tmp_path / "out",
        SETTINGS,
        source_path=str(photos),
        engine=LocalEngine(2),
        watcher=Watcher(notice=said.append),
    )
    assert sorted(int(death.name) for death in (tmp_path / "deaths").iterdir()) == mortal
    died = re.compile(
        r"a worker died \(by signal SIGKILL\) at photograph \d+, or soon after; shard \d{6} is begun again"
    )
    assert len(said) == num_kills and all(died.match(text) for text in said)
    assert tree(tmp_path / "out") == whole


@pytest.fixture
def gated(photos: Path, tmp_path: Path) -> Path:
    """A list of the images of which one never comes: the read of a pipe that nobody writes to does not end."""
    os.mkfifo(tmp_path / "gate.jpg")
    names = [str(path) for path in sorted(photos.rglob("*.*"))]
    names[-2] = str(tmp_path / "gate.jpg")  # none of those that the plan tries
    (tmp_path / "list.csv").write_text("".join(f"{name},0\n" for name in names))
    return tmp_path / "list.csv"


@pytest.mark.deep  # as a group they are killed in every run
def test_workers_end_when_their_parent_is_killed(photos: Path, tmp_path: Path, gated: Path) -> None:
    with command(gated, tmp_path / "out", "--workers", "2") as process:
        wait_until(lambda: num_files(tmp_path / "out") >= 3)
        workers = workers_of(process.pid)
        process.kill()
        process.communicate(TIMEOUT_S)
        assert workers

        def have_ended() -> bool:
            os.close(os.open(tmp_path / "gate.jpg", os.O_RDWR))  # a reader at the gate goes on, with no bytes
            return not any(is_running(worker) for worker in workers)

        wait_until(have_ended)


def test_ctrl_c_ends_it_and_says_how_to_go_on(tmp_path: Path, gated: Path) -> None:
    out = tmp_path / "out"
    with command(gated, out, "--workers", "2") as process:
        wait_until(lambda: num_files(out) >= 5)
        workers = workers_of(process.pid)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        printed, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130 and printed == ""
    stopped = "augpipe: stopped. What is done stays: run the same command with --resume to finish it."
    assert stopped in errors.splitlines()  # after lines of progress, where it took more than two seconds
    assert "Traceback" not in errors
    assert workers and not any(is_running(worker) for worker in workers)
    assert not [name for name in tree(out) if name.endswith(".tmp")]


@pytest.mark.deep  # two runs of processes
def test_two_runs_do_not_mix(photos: Path, whole: dict[str, bytes], tmp_path: Path) -> None:
    out = tmp_path / "out"
    refusals = []

    def second(*_: object) -> None:
        with command(photos, out, "--resume") as process:
            refusals.append(process.communicate(timeout=TIMEOUT_S)[1])
            assert process.returncode == 2

    watcher = Watcher(planned=second)
    prepare(FolderSource(photos), out, SETTINGS, source_path=str(photos), engine=LocalEngine(1), watcher=watcher)
    assert len(refusals) == 1 and f"another augpipe prepare (process {os.getpid()} on " in refusals[0]
    assert tree(out) == whole


class Deadly:
    """A source whose fifth image kills the process that reads it, at most so many times."""

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
    # the plan tries a few images in this process
    monkeypatch.setattr("augpipe.datasets.prepare.run_plan._mean_bytes", lambda *_: (10_000, 10_000))


def test_an_image_that_kills_workers_is_named(in_workers: None, tmp_path: Path) -> None:
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


@pytest.mark.deep  # two more runs of processes
def test_progress_counts_each_image_once(in_workers: None, tmp_path: Path) -> None:
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


@pytest.mark.deep  # mounts a disk; two runs of processes
def test_a_full_disk(photos: Path, whole: dict[str, bytes], tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    size = sum(map(len, whole.values()))
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size // 2}", "tmpfs", str(disk)]
    if os.geteuid() or subprocess.run(mount, check=False, capture_output=True, timeout=TIMEOUT_S).returncode:
        pytest.skip("needs the right to mount a small tmpfs")
    try:
        out = disk / "out"
        with command(photos, out, "--workers", "2") as process:
            _, errors = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 1
        warned, said = (line for line in errors.splitlines() if not line.startswith("augpipe: preparing "))
        assert re.fullmatch(r"augpipe: about [\d.]+ MB will be written, and [\d.]+ MB are free at .*", warned)
        assert said.startswith(f"augpipe: {out}/")
        assert said.endswith(
            ": No space left on device. Free some room there. What is done stays: run the same command with --resume "
            "to finish it."
        )
        assert not [name for name in tree(out) if name.endswith(".tmp")]
        grow = ["mount", "-o", f"remount,size={3 * size}", str(disk)]
        subprocess.run(grow, check=True, timeout=TIMEOUT_S)
        assert "are done already" in finish(photos, out, "--resume")
        assert tree(out) == whole
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True, timeout=TIMEOUT_S)
