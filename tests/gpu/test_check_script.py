"""`make gpu-check` without a device: the script runs in numba's CUDA simulator, and its report says what it must."""

import json
import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu_check.py"
TIMEOUT_S = 120


def check(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env=os.environ | environment,
    )


def test_parity_and_report_in_the_simulator(tmp_path: Path) -> None:
    done = check("--simulate", "--only", "parity", "--only", "streams", "--out", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = tmp_path.iterdir()
    assert path.name.endswith("-gpu-check-simulated-parity-streams.json") and str(path) in done.stdout
    report = json.loads(path.read_text())
    assert "nothing here was measured" in report["simulated"]
    assert list(report["sections"]) == ["parity", "streams"]
    parity = report["sections"]["parity"]
    assert parity["status"] == "done" and not parity["not_measured"]
    assert len(parity["checks"]) >= 15 and all(found["passed"] for found in parity["checks"].values())
    assert parity["measured"]["ops"]["recipes"] == 4
    assert 0 < parity["measured"]["ops"]["greatest_difference_levels"] < 1
    assert report["sections"]["streams"] == {"status": "not run", "reason": "it needs a device"}


def test_a_section_that_does_not_end_is_in_the_report(tmp_path: Path) -> None:
    """It is ended when the time is over, and what follows it is not begun."""
    slow, out = tmp_path / "slow", tmp_path / "out"
    slow.mkdir()
    # Python runs this first: the process of a section sleeps, the one that waits for it does not
    (slow / "sitecustomize.py").write_text("import sys, time\nif '--child' in sys.orig_argv:\n    time.sleep(600)\n")
    arguments = "--simulate", "--only", "parity", "--only", "training", "--minutes", "0.1", "--out", str(out)
    done = check(*arguments, PYTHONPATH=str(slow))
    assert done.returncode == 1
    (path,) = out.iterdir()
    sections = json.loads(path.read_text())["sections"]
    assert (sections["parity"]["status"], sections["training"]["status"]) == ("out of time", "not run")
    assert sections["training"]["reason"] == "the 0.1 minutes were over"


def test_figures_of_the_simulator_do_not_go_to_the_results() -> None:
    done = check("--simulate")
    assert done.returncode == 2 and "give --out" in done.stderr


def test_every_section_is_listed_and_there() -> None:
    done = check("--list")
    names = [line.split()[0] for line in done.stdout.splitlines()]
    assert done.returncode == 0 and len(names) == len(set(names)) > 10
    assert all((SCRIPT.parent / f"gpu_{name}.py").is_file() for name in names)
