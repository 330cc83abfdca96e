"""`import augpipe` stays light, and so do all of its names: what is heavy is loaded by the call that needs it."""

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

HEAVY = (
    "torch",
    "nvidia.dali",
    "numba.cuda",
    "cupy",
    "cv2",
    "imagehash",
    "matplotlib",
    "pyarrow",
    "ray",
    "aiohttp",
    "fsspec",
    "typer",
    "rich",
)
"""Not scipy: numba imports it wherever it is installed."""


def heavy(modules: Iterable[str]) -> set[str]:
    """Those of `HEAVY` that are among `modules`, or that one of `modules` is a part of."""
    return {name for name in HEAVY for module in modules if module == name or module.startswith(f"{name}.")}


def loaded_by(statement: str) -> set[str]:
    """The modules that a new interpreter holds after `statement`, any warning of which is an error."""
    code = f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    command = [sys.executable, "-W", "error", "-c", code]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    return set(json.loads(ended.stdout))


@pytest.mark.parametrize("statement", ["import augpipe", "from augpipe import *"])
def test_import_augpipe_loads_nothing_heavy(statement: str) -> None:
    modules = loaded_by(statement)
    assert "augpipe" in modules
    assert ("augpipe.loader" in modules) == ("*" in statement)
    assert heavy(modules) == set()


@pytest.mark.deep  # loads all that the others must not
def test_this_test_can_fail() -> None:
    assert "torch" in heavy(loaded_by("import augpipe, torch"))


@pytest.mark.parametrize("name", HEAVY)
def test_a_heavy_module_is_seen_by_itself_and_by_a_part(name: str) -> None:
    assert heavy({"numpy", name}) == {name}
    assert heavy({f"{name}.part"}) == {name}


def test_a_like_name_is_no_heavy_module() -> None:
    assert heavy({"torchless", "rich_text", "numba", "numba.core", "nvidia"}) == set()
