"""Prepare on Ray: the engine does not show in the bytes, on a cluster of its own and on one that is there already."""

import importlib.util
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.child_path import child_path
from tests.datasets.prepare.prepare_sources import tree
from tests.distributed.prepare_runs import (
    TIMEOUT_S,
    below,
    command,
    command_line,
    finish,
    wait_until,
    without_progress,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed"),
]
NOBODY = "127.0.0.1:1"
RAY = ("--engine", "ray", "--workers", "2")


@pytest.mark.deep  # a cluster, and a worker that starts twice
def test_ray_does_not_show_and_a_killed_worker_is_replaced(
    photos: Path, whole: dict[str, bytes], tmp_path: Path
) -> None:
    with command(photos, tmp_path / "out", *RAY) as process:
        found: list[int] = []

        def is_at_work() -> bool:
            # Ray gives the process of a task its name
            found[:] = [pid for pid in below(process.pid) if b"ray::complete_chunk" in command_line(pid)]
            return bool(found) or process.poll() is not None

        wait_until(is_at_work, poll_s=0.02)  # a look at all processes takes 4 ms
        assert found, process.communicate()
        os.kill(found[0], signal.SIGKILL)
        _, errors = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0, errors
    assert re.fullmatch(
        r"augpipe: a worker died \(on Ray \(WorkerCrashedError\)\) at photographs \d+ to \d+; shard \d{6} is begun "
        r"again \(attempt 2 of 3\)\n",
        without_progress(errors),
    ), errors
    assert tree(tmp_path / "out") == whole


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a cluster that others started: one node, here, on ports that are free."""
    # who does not know the token is refused: as on a cluster that is shared, and by default from Ray 2.61 on
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
    folder = tempfile.mkdtemp(prefix="ray")  # not tmp_path: the names of sockets have to be short
    monkeypatch.setenv("RAY_TMPDIR", folder)
    start = "start --head --port 0 --num-cpus 2 --include-dashboard false --disable-usage-stats --block"
    with open(tmp_path / "ray.log", "wb") as log_file:
        process = subprocess.Popen(
            [sys.executable, "-m", "ray.scripts.scripts", *start.split()],
            stdout=log_file,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONPATH": child_path()},
        )
    try:
        log: list[str] = []

        def is_up() -> bool:
            assert process.poll() is None, (tmp_path / "ray.log").read_text()
            log[:] = re.findall(r"--address='([^']+)'", (tmp_path / "ray.log").read_text())
            return bool(log)

        wait_until(is_up, poll_s=0.02)
        yield log[0]
    finally:
        for pid in [*below(process.pid), process.pid]:  # SIGTERM would take half a minute
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait(TIMEOUT_S)
        shutil.rmtree(folder, ignore_errors=True)  # its processes may still be dying


@pytest.mark.deep  # it starts a cluster of Ray beside the tests' own
def test_a_cluster_that_is_there_is_joined_by_its_address_alone(
    photos: Path, whole: dict[str, bytes], tmp_path: Path, cluster: str
) -> None:
    assert finish(photos, tmp_path / "joined", *RAY, "--ray-address", cluster) == ""
    assert tree(tmp_path / "joined") == whole
    # a cluster of its own, though Ray knows of the other: --workers would be refused for that one
    assert finish(photos, tmp_path / "own", *RAY) == ""
    assert tree(tmp_path / "own") == whole


def test_a_cluster_that_nobody_runs_is_told_at_once_and_nothing_is_begun(photos: Path, tmp_path: Path) -> None:
    with command(photos, tmp_path / "out", *RAY, "--ray-address", NOBODY) as process:
        _, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 2
    assert "the Ray cluster at 127.0.0.1:1 cannot be reached (Connection refused). Check the address" in errors
    assert not (tmp_path / "out").exists()
