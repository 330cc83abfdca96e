"""The driver of a run over Ray is killed: its cluster goes with it."""

import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from augpipe.trainer.config import to_toml
from tests.child_path import child_path
from tests.distributed.prepare_runs import below
from tests.distributed.train_runs import write_photos
from tests.trainer.servers.ray_runs import command_line, servers_config

pytestmark = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")

ENDS_WITHIN_S = 30.0
"""Three times what docs/servers.md says: the machine may be busy."""
KINDS = ("ray::Server", "ray::WorkerActor", "ray::Dispatcher", "raylet", "gcs_server")
AGENTS = ("ray::DashboardAgent", "ray::RuntimeEnvAgent")
"""Ray's own, idle, which go on asking for its daemons for a minute."""


def alive(pids: list[int]) -> list[str]:
    """The command lines of those that have not ended, Ray's agents apart."""
    return [line for line in map(command_line, pids) if line and not line.startswith(AGENTS)]


@pytest.mark.deep  # it waits for clusters of Ray to end, for most of a minute
def test_nothing_of_it_is_left(tmp_path: Path) -> None:
    photos = write_photos(tmp_path / "data", 60)
    out = tmp_path / "run"
    config = servers_config(out, photos, {"mode": "async", "workers": 1}, epochs=10_000)
    (tmp_path / "run.toml").write_text(to_toml(config))
    with (tmp_path / "said.txt").open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "augpipe", "train", str(tmp_path / "run.toml")],
            stderr=said,
            env={**os.environ, "PYTHONPATH": child_path()},
        )
    started: list[int] = []
    try:
        while not (out / "pushes.csv").exists() or len((out / "pushes.csv").read_bytes().splitlines()) < 10:
            assert process.poll() is None, (tmp_path / "said.txt").read_text()
            time.sleep(0.1)
        started = below(process.pid)
        before = [command_line(pid) for pid in started]
        assert all(any(kind in line for line in before) for kind in KINDS), before
        process.kill()
        process.wait()
        end = time.monotonic() + ENDS_WITHIN_S
        while (left := alive(started)) and time.monotonic() < end:
            time.sleep(0.2)
        assert not left
    finally:
        for pid in [process.pid, *started]:
            if command_line(pid):
                os.kill(pid, signal.SIGKILL)
        process.wait()
