"""What would be published: one name in the user's environment, with everything behind it that the checkout has."""

import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("src", "augpipe", "gpu_ops", "datasets", "trainer", "tests", "benchmarks", "docs", "examples")


@dataclass(frozen=True, kw_only=True)
class Built:
    """Archives built from a copy of the checkout."""

    checkout: Path
    wheel: Path
    wheel_from_sdist: Path


def build(checkout: Path, out: Path, *options: str) -> None:
    """Run the build front end offline, with the setuptools that is installed."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), *options, str(checkout)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    checkout = tmp_path_factory.mktemp("checkout")
    for entry in ROOT.iterdir():
        if entry.is_file() and not entry.name.startswith("."):
            shutil.copy(entry, checkout)
        elif entry.name in FOLDERS:
            ignored = shutil.ignore_patterns("__pycache__", ".*")
            shutil.copytree(entry, checkout / entry.name, symlinks=True, ignore=ignored)
    direct, via_sdist = tmp_path_factory.mktemp("direct"), tmp_path_factory.mktemp("via_sdist")
    build(checkout, via_sdist)  # an sdist, and a wheel from it
    build(checkout, direct, "--wheel")
    (wheel,) = direct.iterdir()
    (wheel_from_sdist,) = via_sdist.glob("*.whl")
    return Built(checkout=checkout, wheel=wheel, wheel_from_sdist=wheel_from_sdist)


def contents(wheel: Path) -> dict[str, int]:
    """Name -> checksum of each file in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return {info.filename: info.CRC for info in archive.infolist()}


def test_nothing_but_augpipe_is_installed(built: Built) -> None:
    name, version = built.wheel.name.split("-")[:2]
    assert name == "augpipe"
    tops = {path.partition("/")[0] for path in contents(built.wheel)}
    assert tops == {"augpipe", f"augpipe-{version}.dist-info"}


def test_the_wheel_holds_every_file_of_the_rooms_but_their_pages(built: Built) -> None:
    package = built.checkout / "augpipe"
    expected = {
        Path(parent, name).relative_to(built.checkout).as_posix()
        for parent, _, files in os.walk(package, followlinks=True)
        for name in files
        if not name.startswith(".") and not name.endswith(".md")
    }
    assert {path for path in contents(built.wheel) if path.startswith("augpipe/")} == expected


@pytest.mark.parametrize("part", ["gpu_ops/", "datasets/", "datasets/synthetic/", "trainer/__init__.py", "cli/"])
def test_the_wheel_holds_each_room(built: Built, part: str) -> None:
    assert [path for path in contents(built.wheel) if path.startswith(f"augpipe/{part}") and path.endswith(".py")]


def test_the_wheel_is_marked_as_typed(built: Built) -> None:
    assert "augpipe/py.typed" in contents(built.wheel)


def test_a_wheel_built_from_the_sdist_is_the_same(built: Built) -> None:
    assert contents(built.wheel_from_sdist) == contents(built.wheel)


def test_the_command_runs_from_the_unpacked_wheel(built: Built, tmp_path: Path) -> None:
    site = tmp_path / "site"
    with zipfile.ZipFile(built.wheel) as archive:
        archive.extractall(site)
    code = (
        "import sys, augpipe.datasets\n"
        "from importlib.metadata import distribution\n"
        "(command,) = distribution('augpipe').entry_points.select(group='console_scripts', name='augpipe')\n"
        "assert callable(command.load())\n"
        "print(augpipe.__file__, *augpipe.datasets.__path__, sep='\\n')"
    )
    # the unpacked wheel comes before an editable install
    environment = os.environ | {"PYTHONPATH": str(site)}
    command = [sys.executable, "-c", code]
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == [str(site / "augpipe/__init__.py"), str(site / "augpipe/datasets")]
