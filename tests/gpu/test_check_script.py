"""`make gpu-check` without a device: the script runs in numba's CUDA simulator, and its report says what it must."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu_check.py"
TIMEOUT_S = 200

BROKEN_SECTIONS = """
import os, sys, time, types

def section(**answers):
    module = types.ModuleType("section")
    module.answers = lambda run: answers
    return module

def hang(findings):
    time.sleep(600)

def fail(findings):
    raise ArithmeticError("no")

def judge(findings):
    import importlib.util
    import numpy as np
    spec = importlib.util.spec_from_file_location("preflight", os.path.join(sys.path[0], "gpu_preflight.py"))
    preflight = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(preflight)
    images = [np.full((3, 4, 3), 7, np.uint8)] * 2
    other = images[0].copy()
    other[0, 0] = 8
    preflight.judge(findings, "libjpeg", images, images)
    preflight.judge(findings, "another", [images[0], other], images)

def well(findings):
    findings.keep("pid", os.getpid())
    findings.check("asked", True)

sys.modules |= {
    "gpu_preflight": section(first=well),
    "gpu_kernel": section(first=well, dies=lambda findings: os.abort(), last=well),
    "gpu_codecs": section(fails=fail, last=well),
    "gpu_decode": section(hangs=hang, last=well),
    "gpu_parity": section(bad=lambda findings: findings.check("is so", False, "it is not"), judge=judge, last=well),
}
"""
"""Run by Python before anything else. Sections are found as if imported; `training` is no module at all."""


def check(out: Path, *arguments: str, before: str = "", **environment: str) -> tuple[int, str, dict[str, Any]]:
    """Run it; returns the exit code, what it printed, and the report."""
    if before:
        folder = out.parent / "before"
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(before)
        environment["PYTHONPATH"] = str(folder)
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *arguments, "--out", str(out)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        cwd=out.parent,
        env=os.environ | environment,
    )
    (path,) = out.iterdir()
    assert str(path) in done.stdout, done.stdout + done.stderr
    return done.returncode, done.stdout + done.stderr, json.loads(path.read_text())


def test_preflight_and_kernel_in_the_simulator(tmp_path: Path) -> None:
    code, said, report = check(tmp_path / "out", "--simulate", "--only", "preflight", "--only", "kernel")
    assert code == 0, said
    assert "nothing here was measured" in report["simulated"]
    assert list(report["sections"]) == ["preflight", "kernel"]
    preflight, kernel = report["sections"].values()
    assert preflight["status"] == kernel["status"] == "done"
    assert preflight["measured"]["NVVM"]["path"] and preflight["measured"]["nvJPEG"]["version"]
    checks = preflight["checks"] | kernel["checks"]
    assert len(checks) >= 5 and all(found["passed"] for found in checks.values())
    mixes = {name: found for name, found in kernel["measured"].items() if name.startswith("default mix")}
    assert len(mixes) == 4  # with and without a lens, in float16 and float32
    assert all(found["bytes_an_image"]["written"] in (216, 432) for found in mixes.values())


def test_what_dies_hangs_or_fails_takes_nothing_with_it(tmp_path: Path) -> None:
    arguments = "--simulate", "--answer-seconds", "10", "--only", "preflight", "--only", "kernel", "--only", "codecs"
    more = "--only", "decode", "--only", "parity"
    code, said, report = check(tmp_path / "out", *arguments, *more, before=BROKEN_SECTIONS)
    assert code == 1, said
    sections = report["sections"]
    assert {name: found["status"] for name, found in sections.items()} == {
        "preflight": "done",
        "kernel": "incomplete",
        "codecs": "done",
        "decode": "incomplete",
        "parity": "done",
    }
    assert sections["kernel"]["lost"]["dies"]["reason"] == "it died of SIGABRT"
    assert sections["decode"]["lost"]["hangs"]["reason"] == "it took more than 10 s"
    assert sections["codecs"]["errors"]["fails"][-1] == "ArithmeticError: no"
    checks = sections["parity"]["checks"]
    assert checks["is so"] == {"passed": False, "detail": "it is not"}
    assert not checks["libjpeg: nvJPEG decoded"]["passed"] and checks["another: nvJPEG decoded"]["passed"]
    assert "2 of 2 equal libjpeg's bit for bit" in checks["libjpeg: nvJPEG decoded"]["detail"]
    assert all(found["checks"]["asked"]["passed"] for found in sections.values())  # the answer behind each of them
    processes = [found["measured"]["pid"] for found in sections.values()]
    assert len(set(processes)) == 3  # one more behind what died, and behind what hung
    assert "LOST kernel, dies" in said and "FAILED is so" in said


def test_preflight_stops_the_run(tmp_path: Path) -> None:
    before = BROKEN_SECTIONS.replace('"gpu_preflight": section(first=well)', '"gpu_preflight": section(first=fail)')
    code, said, report = check(tmp_path / "out", "--simulate", before=before)
    assert code == 1 and "STOPPED: preflight" in said
    assert report["stopped"][-1] == "first: ArithmeticError: no"
    others = {name: found["status"] for name, found in report["sections"].items() if name != "preflight"}
    assert len(others) == 5 and set(others.values()) == {"not run"}


def test_the_minutes_count_from_when_unpacking_began(tmp_path: Path) -> None:
    """Here they were over before the script began."""
    code, said, report = check(tmp_path / "out", "--simulate", "--only", "parity", "--began", "0")
    assert code == 1, said
    parity = report["sections"]["parity"]
    assert parity == {"status": "not run", "reason": "the 9 minutes were over"}


def test_figures_of_the_simulator_do_not_go_to_the_results() -> None:
    done = subprocess.run([sys.executable, str(SCRIPT), "--simulate"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "give --out" in done.stderr


def test_every_section_is_listed_and_there() -> None:
    done = subprocess.run([sys.executable, str(SCRIPT), "--list"], capture_output=True, text=True, timeout=60)
    names = [line.split()[0] for line in done.stdout.splitlines()]
    assert done.returncode == 0 and len(names) == len(set(names)) > 10
    assert all((SCRIPT.parent / f"gpu_{name}.py").is_file() for name in names)
