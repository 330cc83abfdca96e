"""All sections of the report, each on its own: what goes wrong in one is a line of it, and the others go on.

Those of libraries that may crash run in a process of their own: noise on its output or memory that it holds stay there.
"""

import importlib
import json
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from augpipe.doctor.finding import Finding

Probe = Callable[[], list[Finding]]
TIMEOUT_S = 60.0
_MARK = "augpipe.doctor: "  # libraries print on stdout, too


@dataclass(frozen=True, kw_only=True)
class Section:
    """A group of lines and the function that finds them."""

    title: str
    """Over the lines."""
    module: str
    """Where the function is; imported when it runs."""
    function: str
    """Its name; called without arguments."""
    in_own_process: bool = False
    """Whether it runs in a process of its own: for libraries that may crash, print, or take the GPU's memory."""
    is_needed: bool = False
    """Whether nothing of augpipe works where it fails."""


SECTIONS = (
    Section(title="Machine", module="augpipe.doctor.system", function="system"),
    Section(title="Kernels", module="augpipe.doctor.system", function="kernels", is_needed=True),
    Section(title="Decoders", module="augpipe.doctor.decoders", function="decoders", is_needed=True),
    Section(title="torch and CUDA", module="augpipe.doctor.gpus", function="gpus", in_own_process=True),
    Section(title="DALI", module="augpipe.doctor.dali", function="dali", in_own_process=True),
    Section(title="Clusters", module="augpipe.doctor.clusters", function="clusters", in_own_process=True),
)


def examine(
    sections: Sequence[Section] = SECTIONS, progress: Callable[[int, int], None] = lambda done, total: None
) -> list[Finding]:
    """Look at everything; never raises for what it finds. About 4 s, mostly torch's import.

    Args:
        sections: what to look at, in this order.
        progress: called with the sections looked at and their number.
    """
    # those apart start first, and run in parallel with the others
    waiting = {section: start(section.module, section.function) for section in sections if section.in_own_process}
    found: list[Finding] = []
    for number, section in enumerate(sections):
        progress(number, len(sections))
        probe = waiting[section] if section.in_own_process else _probe(section)
        found += [replace(finding, section=section.title) for finding in run(section, probe)]
    progress(len(sections), len(sections))
    return found


def run(section: Section, probe: Probe) -> list[Finding]:
    """A section's lines; one of the status broken where the probe itself fails."""
    try:
        return probe()
    except Exception as error:
        reason = traceback.format_exception_only(error)[-1].strip()
        text = f"cannot be looked at: {reason}"
        return [Finding(name=section.title, status="broken", text=text, is_needed=section.is_needed)]


def is_well(findings: Sequence[Finding]) -> bool:
    """Whether nothing that augpipe needs is broken."""
    return not any(finding.is_needed and finding.status == "broken" for finding in findings)


def _probe(section: Section) -> Probe:
    def probe() -> list[Finding]:
        found: list[Finding] = getattr(importlib.import_module(section.module), section.function)()
        return found

    return probe


def start(module: str, function: str, timeout_s: float = TIMEOUT_S) -> Callable[[], list[Finding]]:
    """Start the probe, and return what waits for its findings, to be called once.

    It raises RuntimeError where the process crashed, failed or took longer than `timeout_s`.
    """
    code = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import answer; answer(*sys.argv[1:])"
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
