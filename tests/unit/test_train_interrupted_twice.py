"""Ctrl-C twice ends a process at once: a line instead of a traceback, exit code 130, no wait for other threads."""

import signal
import subprocess
import sys
from pathlib import Path

from augpipe.trainer.config import to_toml
from tests.distributed.rank_processes import ENVIRONMENT, ROOT, TIMEOUT_S
from tests.distributed.train_runs import config, write_photos

WAITS_IN_STEP_1 = """
import concurrent.futures, runpy, signal, sys, time
from augpipe.trainer.loop.step import Step
pool = concurrent.futures.ThreadPoolExecutor(1)
def waiting(self, *arguments):
    pool.submit(time.sleep, 600)  # as a checkpoint's writer does whose other ranks are gone
    signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGINT)
Step.run = waiting
sys.argv[0] = "augpipe.trainer"
runpy.run_module("augpipe.trainer", run_name="__main__")
"""


def test_the_second_ends_it(tmp_path: Path) -> None:
    job = tmp_path / "job.toml"
    job.write_text(to_toml(config(tmp_path / "run", write_photos(tmp_path, 8))))
    command = [sys.executable, "-c", WAITS_IN_STEP_1, str(job)]
    done = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=TIMEOUT_S / 2)
    assert done.returncode == 128 + signal.SIGINT
    assert done.stderr.endswith("augpipe: interrupted\n") and "Traceback" not in done.stderr
