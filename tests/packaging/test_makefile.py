"""What `make` installs, and its answer where it cannot."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with what installing looks at."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def make(checkout: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run it with pip kept from every index and folder of wheels."""
    outer = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    return subprocess.run(
        ["make", *arguments, f"PYTHON={sys.executable}"],
        cwd=checkout,
        env=outer | {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.deep  # an environment is made
@pytest.mark.slow
def test_without_a_network_it_says_which_packages_are_missing(checkout: Path) -> None:
    ended = make(checkout, "demo")
    assert ended.returncode != 0
    (line,) = [line for line in ended.stderr.splitlines() if line.startswith("Missing, and what they need: ")]
    missing = line.partition(": ")[2].rstrip(".").split(", ")
    assert {"torch==2.13.0", "numba==0.68.1", "tomli-w==1.2.0", "matplotlib==3.11.2"} <= set(missing)
    assert missing == sorted(missing) and not any("ray" in name or "dali" in name for name in missing)
    assert "PIP_FIND_LINKS=FOLDER" in ended.stderr
    assert not (checkout / ".venv/.demo").exists()


@pytest.mark.parametrize(
    ("there", "target", "installed"),
    [
        ([], "demo", [".[torch,plots]"]),
        ([".demo"], "demo", []),
        ([".installed"], "demo", []),  # holds what the demo needs
        ([".demo"], "test-fast", [".[dev,torch,"]),
        ([".demo", ".installed"], "test-fast", []),
    ],
)
def test_each_target_installs_what_it_uses(checkout: Path, there: list[str], target: str, installed: list[str]) -> None:
    (checkout / ".venv").mkdir()
    for name in there:
        (checkout / ".venv" / name).touch()
    commands = make(checkout, "--dry-run", target).stdout
    assert commands.count('--no-build-isolation -e ".[') == len(installed)
    for extras in installed:
        assert extras in commands


def test_the_pinned_torch_is_the_one_that_is_installed_first() -> None:
    pins = (ROOT / "constraints.txt").read_text().splitlines()
    (pin,) = [line for line in pins if line.startswith("torch==")]
    assert f"$(INSTALL) {pin};" in (ROOT / "Makefile").read_text()
