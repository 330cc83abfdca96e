"""Which nvJPEG is loaded, asked of the library itself; and what a user is told where it is not what it could be."""

import importlib.metadata
import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvidia.dali")

from augpipe.cuda.versions import parse
from augpipe.dali.decoder import DaliDecoder
from augpipe.dali.nvjpeg import Nvjpeg, complaint, loaded_nvjpeg
from tests.augpipe.loader.loader_sources import run_python

LOAD = """
from augpipe.dali.decoder import DaliDecoder
from augpipe.dali.nvjpeg import loaded_nvjpeg
assert loaded_nvjpeg() is None, "asking loads nothing"
decoder = DaliDecoder(1, 1, None, 1)
found = loaded_nvjpeg()
print(found.path, *found.version)
"""


def test_the_file_and_the_version_are_those_of_the_library_in_memory() -> None:
    found = _found()
    mapped = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()}
    assert os.path.realpath(found.path) in mapped
    packages = [name for name in ("nvidia-nvjpeg", "nvidia-nvjpeg-cu12") if _version(name)]
    assert found.version in [parse(str(_version(name))) for name in packages]


def test_a_library_of_ld_library_path_goes_before_the_installed_one(tmp_path: Path) -> None:
    found = _found()
    link = tmp_path / Path(found.path).name
    link.symlink_to(found.path)
    ended = run_python(LOAD, LD_LIBRARY_PATH=str(tmp_path))
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.split() == [str(link), *map(str, found.version)]


FOUND = "/cuda/lib64/libnvjpeg.so.13"
OLD = "nvJPEG 13.1 is loaded (/cuda/lib64/libnvjpeg.so.13): with one before 13.2 the loader has DALI decode photographs"


@pytest.mark.parametrize(
    ("version", "cuda_major", "installed", "path", "parts"),
    [
        (
            (13, 1),
            13,
            "13.3.2.43",
            "/other:/cuda/lib64/",
            [OLD, "Take /cuda/lib64 out of LD_LIBRARY_PATH: nvidia-nvjpeg 13.3.2.43, which is installed, is taken"],
        ),
        (
            (13, 1),
            13,
            "13.3.2.43",
            None,
            [OLD, f"Keep {FOUND} from being loaded first, as LD_PRELOAD or another package does: nvidia-nvjpeg 13.3"],
        ),
        (
            (13, 1),
            13,
            "13.1.0.20",
            "/cuda/lib64",
            ["Take /cuda/lib64 out of LD_LIBRARY_PATH, and install a newer", 'pip install "nvidia-nvjpeg>=13.2"'],
        ),
        ((13, 1), 13, None, "", [OLD, 'looked at. Install a newer one: pip install "nvidia-nvjpeg>=13.2"']),
        (
            (12, 4),
            12,
            "12.4.0.76",
            None,
            ["nvJPEG 12.4", "CUDA 12 has no newer one. Update the driver to release 580", '"augpipe[cuda13]"'],
        ),
        (None, 13, None, None, ["finds no nvJPEG, and decodes photographs on the CPU: pip install --force-reinstall"]),
        (None, 12, None, None, ["pip install --force-reinstall nvidia-nvjpeg-cu12"]),
    ],
)
def test_what_a_user_is_told(
    version: tuple[int, int] | None, cuda_major: int, installed: str | None, path: str | None, parts: list[str]
) -> None:
    found = Nvjpeg(path=FOUND, version=version) if version else None
    environment = {} if path is None else {"LD_LIBRARY_PATH": path}
    told = complaint(found, cuda_major, package=_answering(installed), environment=environment)
    assert told is not None
    for part in parts:
        assert part in str(told), told
    assert "\n" not in str(told) and ".." not in str(told)


@pytest.mark.parametrize("version", [(13, 2), (13, 10), (14, 0)])
def test_all_is_well(version: tuple[int, int]) -> None:
    found = Nvjpeg(path=FOUND, version=version)
    assert found.takes_regions
    assert complaint(found, 13, package=_answering(None), environment={}) is None


def _found() -> Nvjpeg:
    """What this process has loaded, once DALI has built a decoder."""
    DaliDecoder(1, 1, None, 1).close()
    found = loaded_nvjpeg()
    assert found is not None
    return found


def _answering(answer: Any) -> Any:
    return lambda package: answer


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
