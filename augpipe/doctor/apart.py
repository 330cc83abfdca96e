"""A probe in a process of its own: a crash there, noise on its output or memory that it holds stay there."""

import importlib
import json
import signal
import subprocess
import sys
from collections.abc import Callable

from augpipe.doctor.finding import Finding

TIMEOUT_S = 60.0
_MARK = "augpipe.doctor: "  # libraries print on stdout, too


def start(module: str, function: str, timeout_s: float = TIMEOUT_S) -> Callable[[], list[Finding]]:
    """Start the probe, and return what waits for its findings, to be called once.

    It raises RuntimeError where the process crashed, failed or took longer than `timeout_s`.
    """
    code = f"import sys; sys.path[:] = {sys.path!r}; from augpipe.doctor.apart import answer; answer(*sys.argv[1:])"
    process = subprocess.Popen(
        [sys.executable, "-c", code, module, function],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )

    def wait() -> list[Finding]:
        with process:
            try:
                output, errors = process.communicate(timeout=timeout_s)
            except subprocess.TimeoutExpired:
                raise RuntimeError(f"no answer within {timeout_s:.0f} s") from None
            finally:
                process.kill()
        if process.returncode < 0:
            raise RuntimeError(f"its process was ended by {signal.Signals(-process.returncode).name}")
        if process.returncode > 0:
            raise RuntimeError((errors.strip().splitlines() or [f"exit code {process.returncode}"])[-1])
        (line,) = (line for line in output.splitlines() if line.startswith(_MARK))
        return [Finding.from_json(fields) for fields in json.loads(line.removeprefix(_MARK))]

    return wait


def answer(module: str, function: str) -> None:
    """In the process apart: run the probe and print its findings."""
    findings: list[Finding] = getattr(importlib.import_module(module), function)()
    print(f"\n{_MARK}{json.dumps([finding.to_json() for finding in findings])}", flush=True)
