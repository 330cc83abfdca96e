"""Python processes that are at work at once: forked from a server that has imported torch and what training takes.

Started anew, each would spend five seconds of processor time on imports. The commands of the documentation, the
examples and the restart by torchrun are tests that start training anew.
"""

import builtins
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from pathlib import Path
from tempfile import TemporaryFile
from unittest.mock import patch

from tests.child_path import child_path

ROOT = Path(__file__).resolve().parents[2]
ALONE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": child_path()}
"""The server's environment: a process is forked best while it has one thread."""


@cache
def server() -> ForkServerContext:
    """What starts processes by a fork of the server, which is started here once."""
    context = multiprocessing.get_context("forkserver")
    # pytest has started this process, and so multiprocessing imports it into each child
    context.set_forkserver_preload(["pytest", "tests.distributed.preloaded"])
    with patch.dict(os.environ, ALONE):
        forkserver.ensure_running()
    return context


class ForkedPython:
    """A process as `python ARGUMENTS` would be, in a session of its own; the part of Popen that tests need.

    Args:
        arguments: `-c SCRIPT`, `-m MODULE` or a file, and what is for it; `-W ACTION` and `-W ACTION::BUILTIN_CATEGORY`
            may stand before.
        environment: what is added to this process's.
    """

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self._arguments = arguments
        self._outputs = [TemporaryFile("r", encoding="utf-8") for _ in range(2)]  # noqa: SIM115
        self._said: tuple[str, str] | None = None
        places = [f"/proc/{os.getpid()}/fd/{output.fileno()}" for output in self._outputs]
        its_environment = {**os.environ, **ALONE, **(environment or {})}
        self._process = server().Process(target=_run, args=(list(arguments), its_environment, places))
        self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """What it has written to stdout and stderr, once it has ended."""
        if self._said is None:
            self._process.join(timeout)
            if self._process.is_alive():
                raise subprocess.TimeoutExpired([sys.executable, *self._arguments], timeout or 0)
            for output in self._outputs:
                output.seek(0)
            self._said = self._outputs[0].read(), self._outputs[1].read()
            for output in self._outputs:
                output.close()
        return self._said

    def first_line(self, timeout: float) -> str:
        """The first line on stdout, as soon as it is there."""
        deadline = time.monotonic() + timeout
        while True:
            has_ended = self._process.exitcode is not None
            self._outputs[0].seek(0)
            line = self._outputs[0].readline()
            if line.endswith("\n") or has_ended:
                return line
            assert time.monotonic() < deadline, "nothing is said"
            time.sleep(0.01)

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        """kill -9, if it has not ended."""
        self._process.kill()

    def kill_session(self) -> None:
        """kill -9 of the process and of those that it has started."""
        if self._process.exitcode is None:  # else its id may be another's by now
            try:
                os.killpg(self.pid, signal.SIGKILL)
            except ProcessLookupError:  # it has no session yet
                self._process.kill()


def _run(arguments: list[str], environment: dict[str, str], outputs: list[str]) -> None:
    os.setsid()
    for number, output in enumerate(outputs, 1):
        os.dup2(os.open(output, os.O_WRONLY | os.O_APPEND), number)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(ROOT)
    while arguments[0] == "-W":
        action, _, category = arguments[1].partition("::")
        warnings.simplefilter(action, getattr(builtins, category or "Warning"))  # type: ignore[arg-type]
        arguments = arguments[2:]
    match arguments:
        case ["-m", module, *for_it]:
            sys.argv = [module, *for_it]
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        case ["-c", script, *for_it]:
            sys.argv = ["-c", *for_it]
            exec(compile(script, "<string>", "exec"), {"__name__": "__main__"})
        case [path, *_]:
            sys.argv = arguments
            sys.path.insert(0, str(Path(path).parent))
            runpy.run_path(path, run_name="__main__")
