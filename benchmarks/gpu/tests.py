"""Section of `check`: every test that is marked `gpu`, by pytest in a process of its own."""

import importlib.util
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.gpu.common import Findings, Run, on_device

ROOT = Path(__file__).resolve().parents[2]
MISSING = "pytest", "hypothesis", "scipy"


def answers(run: Run) -> dict[str, Callable[[Findings], None]]:
    """One."""
    return on_device(run, {"tests": partial(_tests, run)})


def _tests(run: Run, findings: Findings) -> None:
    lacking = [name for name in MISSING if importlib.util.find_spec(name) is None]
    if lacking:
        findings.leave_out("tests", f"{', '.join(lacking)} is not installed")
        return
    # named one by one: the others may want packages that a machine with a GPU lacks
    files = [str(file) for file in sorted((ROOT / "tests").rglob("test_*.py")) if "pytest.mark.gpu" in file.read_text()]
    outcome = run.work / "outcome.xml"
    # warnings of versions that this checkout does not pin are no failures
    options = ["-o", "filterwarnings=default", "-p", "no:cacheprovider", "-q", "-rs", f"--junitxml={outcome}"]
    if importlib.util.find_spec("_numba_cuda_redirector") is not None:
        options += ["-p", "_numba_cuda_redirector"]  # see check.as_installed
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *files, "-m", "gpu", *options], cwd=ROOT, capture_output=True, text=True
    )
    lines = done.stdout.splitlines()
    if not outcome.exists():
        findings.check("tests", False, lines[-20:] + done.stderr.splitlines()[-10:])
        return
    cases = {
        f"{case.get('classname')}::{case.get('name')}": case for case in ElementTree.parse(outcome).iter("testcase")
    }
    found = {
        kind: {name: part.get("message", "") for name, case in cases.items() if (part := case.find(kind)) is not None}
        for kind in ("failure", "error", "skipped")
    }
    findings.keep("tests", {"run": len(cases)} | {kind: len(named) for kind, named in found.items()})
    for name, reason in found["skipped"].items():
        findings.leave_out(name, reason)
    bad = [*found["failure"], *found["error"]]
    passed = not bad and len(cases) > len(found["skipped"])
    findings.check("tests", passed, {"failed": bad, "last_lines": lines[-40:]} if bad else None)
