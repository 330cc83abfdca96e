"""What `make gpu-check` says of itself: limits of sections, answers, goals in docs/measured-gpu.md."""

import importlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.parity.table import recipes_of

ROOT = Path(__file__).resolve().parents[2]
GPU = ROOT / "benchmarks" / "gpu"
RESULTS = ROOT / "benchmarks" / "results"
NOT_MEASURED = "not measured yet"


def load(name: str) -> Any:
    """A module of benchmarks/gpu."""
    return importlib.import_module(f"benchmarks.gpu.{name}")


@pytest.fixture(scope="module")
def listed() -> list[str]:
    """Each answer as `section/answer`."""
    command = [sys.executable, str(GPU / "check.py"), "--list"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    found = [line.strip() for line in done.stdout.splitlines() if line.startswith(" ")]
    assert len(found) == len(set(found)) > 50
    return found


def test_the_sections_of_a_call_fit_into_its_minutes() -> None:
    check = load("check")
    for is_first in (True, False):
        limits = {name: found.limit_s for name, found in check.SECTIONS.items() if found.is_first == is_first}
        assert sum(limits.values()) <= check.CALL_S == 9 * 60, limits
    assert list(check.SECTIONS)[:2] == ["preflight", "parity"]
    assert all(found.answer_s <= found.limit_s for found in check.SECTIONS.values())


def test_every_section_is_listed_with_its_answers(listed: list[str]) -> None:
    check = load("check")
    assert {name.partition("/")[0] for name in listed} == set(check.SECTIONS)
    assert all((GPU / f"{name}.py").is_file() for name in check.SECTIONS)


def test_preflight_names_answers_and_sections_that_there_are(listed: list[str]) -> None:
    check = load("check")
    known = {*listed, *check.SECTIONS}
    for answer, dropped in check.DEPENDENTS.items():
        assert f"preflight/{answer}" in known or answer == check.LOADING, answer
        assert set(dropped) <= known and "preflight" not in dropped, answer
    assert {name for name in listed if name.startswith("preflight/")} <= {f"preflight/{n}" for n in check.DEPENDENTS}


def test_every_goal_names_its_answer(listed: list[str]) -> None:
    """A claim in docs/measured-gpu.md that no answer measures would never be measured."""
    text = (ROOT / "docs" / "measured-gpu.md").read_text()
    goals = text[text.index("## Goals") :]
    header, _, *rows = [line.strip("|").split("|") for line in goals.splitlines() if line.startswith("|")]
    columns = [cell.strip() for cell in header]
    assert columns == ["claim", "goal", "predicted", "answer", "measured"] and len(rows) > 15
    for row in rows:
        cells = dict(zip(columns, (cell.strip() for cell in row), strict=True))
        answers = re.findall(r"`([^`]+)`", cells["answer"])
        assert answers and set(answers) <= set(listed), cells
        assert has_been_measured(cells["measured"]) is not None, cells


def has_been_measured(cell: str) -> bool | None:
    """Whether a goal's figure is that of a report of gpu-check; None where it says neither that nor the contrary."""
    if cell == NOT_MEASURED:
        return False
    reports = re.findall(r"[\w.-]*gpu-check[\w.-]*\.json", cell)
    return True if reports and all((RESULTS / name).is_file() for name in reports) else None


def test_a_figure_names_the_report_that_it_is_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "2027-01-01-gpu-check-h100.json").touch()
    monkeypatch.setattr(sys.modules[__name__], "RESULTS", tmp_path)
    assert has_been_measured(NOT_MEASURED) is False
    assert has_been_measured("290 ns (`2027-01-01-gpu-check-h100.json`)") is True
    for claimed in ("", "290 ns", "soon", "290 ns (`2027-01-02-gpu-check-h100.json`)", "290 ns (`other.json`)"):
        assert has_been_measured(claimed) is None, claimed


def test_what_is_compared_on_a_device_can_be_planned() -> None:
    from tests.gpu.test_kernels import PROGRAMS, SHOWN, drawn, program

    recipes = [recipe for name, border in SHOWN for recipe in recipes_of(name, border)]
    recipes += [program(name, border) for name, border in PROGRAMS]
    assert len(recipes) > 300
    for recipe in recipes:
        assert drawn(recipe).num_passes == 1
