"""`make gpu-check` without a device: the script runs in numba's CUDA simulator, and its report says what it must."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from augpipe import ops, policies
from augpipe.trainer.codecs import names as codecs

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu" / "check.py"
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

def bad(findings):
    findings.check("is so", False, "it is not")

def judge(findings):
    import importlib.util
    import numpy as np
    spec = importlib.util.spec_from_file_location("preflight", os.path.join(GPU, "preflight.py"))
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
    "benchmarks.gpu.preflight": section(first=well),
    "benchmarks.gpu.kernel": section(first=well, dies=lambda findings: os.abort(), last=well),
    "benchmarks.gpu.codecs": section(fails=fail, last=well),
    "benchmarks.gpu.decode": section(hangs=hang, last=well),
    "benchmarks.gpu.parity": section(bad=bad, judge=judge, last=well),
}
"""
"""Run by Python before anything else: sections are found as if imported."""

LEFT_OUT = """

def kornia(findings):
    raise ModuleNotFoundError("No module named 'kornia'", name="kornia")

def dali(findings):
    try:
        raise ModuleNotFoundError("No module named 'nvidia'", name="nvidia")
    except ModuleNotFoundError as error:
        raise ImportError('backend="dali" needs NVIDIA DALI') from error

def renamed(findings):
    from augpipe import what_was_renamed

def our_own(findings):
    import augpipe.what_was_moved

sys.modules |= {
    "benchmarks.gpu.parity": section(),
    "benchmarks.gpu.kernel": section(kornia=kornia, last=well),
    "benchmarks.gpu.codecs": section(kornia=kornia, dali=dali),
    "benchmarks.gpu.decode": section(renamed=renamed, our_own=our_own, last=well),
    "benchmarks.gpu.training": types.ModuleType("section"),
    "benchmarks.gpu.memory": section(says_nothing=lambda findings: None, last=well),
}
"""

WRONG_PREFLIGHT = """

def kernel(findings):
    KERNEL

sys.modules |= {
    "benchmarks.gpu.preflight": section(**{"the loaded nvJPEG": fail, "one kernel, two images": kernel, "last": well}),
    "benchmarks.gpu.kernel": section(last=well),
    "benchmarks.gpu.decode": section(last=well),
    "benchmarks.gpu.training": section(**{"from DALI": well, "alone": well}),
    "benchmarks.gpu.parity": section(last=well),
}
"""

COVERING = """

def covers(findings):
    well(findings)
    codecs = "bf16", "dynamic-tree", "dynamic-map", "linear", "mantissa", "static-tree", "one-bit"
    return {"covers": {"op": ["flip", "blur", "flip"], "codec": codecs, "strategy": ("lazy", "ddp", "butterfly")}}

for name in os.listdir(GPU):
    if name.endswith(".py") and name not in ("__init__.py", "check.py", "common.py"):
        sys.modules[f"benchmarks.gpu.{name[:-3]}"] = section(last=covers)
"""

NOT_ON_A_GPU = ("Op", "Custom", "KeepObjects", "Mosaic", "CopyPaste")
OPS = [getattr(ops, name).model_fields["op"].default for name in ops.__all__ if name not in NOT_ON_A_GPU]
FIRST_CALL = ("parity", "kernel", "codecs", "decode", "training")
IN_FIRST = {*FIRST_CALL, "preflight", "exchange", "trainer"}
IN_SECOND = {"tests", "sanitizer", "ranks", "faults", "memory"}


def only(*names: str) -> tuple[str, ...]:
    """The arguments for these sections."""
    return tuple(part for name in names for part in ("--only", name))


def check(out: Path, *arguments: str, before: str = "", **environment: str) -> tuple[int, str, dict[str, Any]]:
    """Run it; returns the exit code, what it printed, and the report."""
    if before:
        folder = out.parent / "before"
        folder.mkdir(exist_ok=True)
        (folder / "sitecustomize.py").write_text(f"GPU = {str(SCRIPT.parent)!r}\n{before}")
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


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The report of what the simulator can run."""
    out = tmp_path_factory.mktemp("simulated") / "out"
    code, said, report = check(out, "--simulate", *only("preflight", "parity", "kernel"))
    assert code == 0, said
    assert "nothing here was measured" in report["simulated"]
    assert list(report["sections"]) == ["preflight", "parity", "kernel"]
    assert "not run: preflight/properties of the device: it needs a device" in said
    return report


def test_preflight_and_kernel_in_the_simulator(simulated: dict[str, Any]) -> None:
    preflight, _, kernel = simulated["sections"].values()
    assert preflight["status"] == kernel["status"] == "done"
    assert preflight["measured"]["NVVM"]["path"] and preflight["measured"]["nvJPEG"]["version"]
    checks = preflight["checks"] | kernel["checks"]
    assert len(checks) >= 5 and all(found["passed"] for found in checks.values())
    mixes = {name: found for name, found in kernel["measured"].items() if name.startswith("default mix")}
    assert len(mixes) == 4  # with and without a lens, in float16 and float32
    assert all(found["bytes_an_image"]["written"] in (216, 432) for found in mixes.values())


def test_parity_renders_every_op_and_policy(simulated: dict[str, Any]) -> None:
    parity, coverage = simulated["sections"]["parity"], simulated["coverage"]
    assert coverage["op"]["covered"] == sorted(OPS) and coverage["op"]["missing"] == []
    assert coverage["policy"]["covered"] == sorted(policies.__all__) and coverage["policy"]["missing"] == []
    rendered = parity["measured"]["ops"]["recipes_of_each_op"]
    assert set(rendered) == {name for name in OPS if name not in ("mix_up", "cut_mix")} and min(rendered.values()) > 0
    assert {"every kernel ran: fused, finish", "every kernel ran: mix"} <= set(parity["checks"])
    assert parity["status"] == "done" and all(found["passed"] for found in parity["checks"].values())


@pytest.mark.deep  # runs the script again
def test_what_dies_hangs_or_fails_takes_nothing_with_it(tmp_path: Path) -> None:
    arguments = "--simulate", "--answer-seconds", "10", *only("preflight", "parity", "kernel", "codecs", "decode")
    code, said, report = check(tmp_path / "out", *arguments, before=BROKEN_SECTIONS)
    assert code == 1, said
    sections = report["sections"]
    assert {name: found["status"] for name, found in sections.items()} == {
        "preflight": "done",
        "parity": "done",
        "kernel": "incomplete",
        "codecs": "incomplete",
        "decode": "incomplete",
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


@pytest.mark.deep  # runs the script again
def test_a_missing_package_is_named_and_nothing_else_is_forgiven(tmp_path: Path) -> None:
    sections = only(*FIRST_CALL, "memory")
    code, said, report = check(tmp_path / "out", "--simulate", *sections, before=BROKEN_SECTIONS + LEFT_OUT)
    assert code == 1, said
    sections = report["sections"]
    assert {name: found["status"] for name, found in sections.items()} == {
        "parity": "failed",
        "kernel": "done",
        "codecs": "not run",
        "decode": "incomplete",
        "training": "failed",
        "memory": "incomplete",
    }
    assert sections["parity"]["errors"] == {"loading the section": ["it has no answers"]}
    assert "has no attribute 'answers'" in sections["training"]["errors"]["loading the section"][-1]
    assert sections["codecs"]["not_run"] == {"kornia": "kornia is not installed", "dali": "nvidia is not installed"}
    assert set(sections["decode"]["errors"]) == {"renamed", "our_own"}
    assert sections["memory"]["errors"]["says_nothing"] == ["it ended and found nothing"]
    assert "not run: kernel/kornia: kornia is not installed" in said


@pytest.mark.deep
def test_evidence_leaves_nothing_out(tmp_path: Path) -> None:
    """Without --require it is not a failure: `simulated` has left out what needs a device."""
    arguments = "--simulate", *only("preflight", "kernel")
    code, said, report = check(tmp_path / "evidence", *arguments, "--require", before=BROKEN_SECTIONS + LEFT_OUT)
    assert code == 1 and said.count("FAILED: ") == 1 and "FAILED: 1 were not run, and --require was given" in said
    assert {found["status"] for found in report["sections"].values()} == {"done"}


@pytest.mark.deep
@pytest.mark.parametrize("is_kernel_wrong", [False, True])
def test_preflight_drops_what_depends_on_a_finding(tmp_path: Path, is_kernel_wrong: bool) -> None:
    before = BROKEN_SECTIONS + WRONG_PREFLIGHT.replace("KERNEL", "os.abort()" if is_kernel_wrong else "well(findings)")
    names = "preflight", *FIRST_CALL
    code, said, report = check(tmp_path / "out", "--simulate", *only(*names), before=before)
    sections = report["sections"]
    assert code == 1 and sections["preflight"]["status"] == "incomplete", said
    reason = "preflight found: the loaded nvJPEG: ArithmeticError: no"
    kept = sections if is_kernel_wrong else {name: found for name, found in sections.items() if name != "decode"}
    expected = dict.fromkeys(kept, "done") | {"preflight": "incomplete", "codecs": "incomplete"}
    if is_kernel_wrong:
        reason = "preflight found: one kernel, two images: it died of SIGABRT"
        expected |= dict.fromkeys(("kernel", "decode", "training"), "not run")
    assert {name: found["status"] for name, found in kept.items()} == expected
    assert sections["decode"]["status"] == "not run" and not sections["decode"].get("checks")
    for name, found in sections.items():
        assert found["status"] == "not run" or found["checks"]["asked"]["passed"], name
    if is_kernel_wrong:
        assert {sections[name]["reason"] for name in ("kernel", "training")} == {reason}
    else:
        assert sections["training"]["not_run"] == {"from DALI": reason}
        assert f"not run: training/from DALI: {reason}" in said


@pytest.mark.deep
def test_what_was_not_covered_is_a_failure_named(tmp_path: Path) -> None:
    """All sections are stand-ins, of which one renders two ops and exchanges all but two codecs."""
    code, said, report = check(tmp_path / "out", "--simulate", "--require", before=BROKEN_SECTIONS + COVERING)
    assert code == 1, said
    assert {found["status"] for found in report["sections"].values()} == {"done"}
    covered = {kind: (found["covered"], found["missing"]) for kind, found in report["coverage"].items()}
    assert covered["op"][0] == ["blur", "flip"] and set(covered["op"][0] + covered["op"][1]) == set(OPS)
    assert covered["codec"] == ([name for name in sorted(codecs()) if name not in ("fp32", "nf4")], ["fp32", "nf4"])
    assert covered["strategy"] == (["butterfly", "ddp", "lazy"], [])
    assert "FAILED: not covered, of kind codec: fp32, nf4\n" in said
    assert "covered: 3 of 3 of kind strategy: butterfly, ddp, lazy\n" in said
    assert set(report["sections"]) == IN_FIRST
    assert_other_call_is_named(said, IN_SECOND, "with --second")


@pytest.mark.deep
def test_the_second_call_and_one_section_promise_nothing(tmp_path: Path) -> None:
    arguments = "--simulate", "--require", "--second"
    code, said, report = check(tmp_path / "second", *arguments, before=BROKEN_SECTIONS + COVERING)
    assert code == 0 and set(report["sections"]) == IN_SECOND
    assert_other_call_is_named(said, IN_FIRST, "without --second")
    code, said, _ = check(tmp_path / "one", "--simulate", *only("parity"), before=BROKEN_SECTIONS + COVERING)
    assert code == 0 and "not run" not in said


def assert_other_call_is_named(said: str, sections: set[str], call: str) -> None:
    """They are not run, and no failure: evidence takes both calls."""
    for section in sections:
        assert f"not run: {section}: it is for the call {call}\n" in said
    assert said.count("not run: ") == len(sections) and "--require was given" not in said


def test_the_minutes_count_from_when_unpacking_began(tmp_path: Path) -> None:
    """Here they were over before the script began."""
    code, said, report = check(tmp_path / "out", "--simulate", "--only", "parity", "--began", "0")
    assert code == 1, said
    parity = report["sections"]["parity"]
    assert parity == {"status": "not run", "reason": "the 9 minutes were over", "seconds": 0.0, "lost": {}}


@pytest.mark.deep
def test_what_no_time_was_left_for_is_named(tmp_path: Path) -> None:
    """The first answer hangs, before anything was found."""
    arguments = "--simulate", "--minutes", "0.5", *only("decode", "training")
    code, said, report = check(tmp_path / "out", *arguments, before=BROKEN_SECTIONS)
    assert code == 1, said
    decode, training = report["sections"].values()
    assert (decode["status"], training["status"]) == ("out of time", "not run")
    assert set(decode["lost"]) == {"hangs"} and decode["not_run"] == {"last": "the 0.5 minutes were over"}
    assert "not run: decode/last: the 0.5 minutes were over" in said
    assert "FAILED: decode/hangs: the 0.5 minutes were over" in said


def test_figures_of_the_simulator_do_not_go_to_the_results() -> None:
    done = subprocess.run([sys.executable, str(SCRIPT), "--simulate"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "give --out" in done.stderr
