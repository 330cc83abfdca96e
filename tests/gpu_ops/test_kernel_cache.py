"""Compiled kernels on disk: a second start compiles nothing, and changed sources are compiled anew."""

import json
import os
import shutil
import warnings
from pathlib import Path
from typing import Any

import numba
import pytest

from augpipe.gpu_ops import jit
from tests.augpipe.loader.loader_sources import ROOT, run_python

USE = """
import json, sys, warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import augpipe, augpipe.loader  # which takes all of it
import numba, numpy as np
from numba.core.dispatcher import Dispatcher
from augpipe.gpu_ops import jit
from augpipe.gpu_ops.compiled import folder as folders
rng = np.random.default_rng(0)
from augpipe.datasets.formats.arrays import ArraySource
source = ArraySource(rng.integers(0, 256, (4, 40, 50, 3), np.uint8))
"""
LOAD = """
recipe = augpipe.recipes.deep_image(16, (20, 40))
loader = augpipe.Loader(source, recipe, batch_size=2, framework="numpy", dtype="float16")
total = sum(float(batch.images.astype(np.float64).sum()) for batch in loader)
"""
ORDER = "total = int(augpipe.order.sample_ids(np.arange(9), 9, 1, 2, True) @ np.arange(9))\n"
REPORT = """
kernels = {name: kernel for name, (_, kernel, _) in declared._DECLARED.items() if kernel.signatures}
hits = {name: sum(kernel.stats.cache_hits.values()) for name, kernel in kernels.items()}
misses = {name: sum(kernel.stats.cache_misses.values()) for name, kernel in kernels.items()}
messages = [str(warning.message) for warning in caught]
print(json.dumps(dict(total=total, hits=hits, misses=misses, messages=messages, cache_dir=numba.config.CACHE_DIR)))
"""


def started(work: str, **environment: str) -> dict[str, Any]:
    """What a new interpreter reports of its kernels after `work`."""
    ended = run_python(USE + work + REPORT, options=(), **environment)
    assert ended.returncode == 0, ended.stderr
    report: dict[str, Any] = json.loads(ended.stdout)
    return report


def files_in(folder: Path) -> dict[str, int]:
    """File -> time of its last change, of the kernels below a folder."""
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in folder.rglob("*.kernel")}


def test_a_second_start_does_not_compile(tmp_path: Path) -> None:
    first = started(LOAD, AUGPIPE_CACHE_DIR=str(tmp_path))
    assert sum(first["misses"].values()) >= 4  # the chain, packing, draws, the order
    assert sum(first["hits"].values()) == 0
    kept = files_in(tmp_path)
    assert len(kept) >= 8  # an index and the code of each
    second = started(LOAD, AUGPIPE_CACHE_DIR=str(tmp_path))
    assert sum(second["misses"].values()) == 0
    # one is built into another here, which alone is loaded then
    built_in = {"augpipe.gpu_ops.image.pixels.pack_rgbx": 1}
    assert second["hits"] | built_in == first["misses"] and not second["hits"].keys() & built_in.keys()
    assert second["total"] == first["total"]
    assert files_in(tmp_path) == kept
    assert first["messages"] == second["messages"] == []


def test_the_cache_lies_where_it_is_told_to_and_nowhere_else(tmp_path: Path) -> None:
    places = {"AUGPIPE_CACHE_DIR": tmp_path / "chosen", "XDG_CACHE_HOME": tmp_path / "xdg", "HOME": tmp_path / "home"}
    for folder in places.values():
        folder.mkdir()
    everything = {name: str(folder) for name, folder in places.items()}
    below = [tmp_path / "chosen", tmp_path / "xdg" / "augpipe", tmp_path / "home" / ".cache" / "augpipe"]
    for name, folder in zip(places, below, strict=True):
        started(ORDER, **everything)
        (kernels,) = folder.iterdir()
        assert kernels.name == f"kernels-{jit.sources_digest(ROOT / 'gpu_ops')}"
        assert files_in(kernels)
        shutil.rmtree(places[name])
        places[name].mkdir()
        assert not [path for place in places.values() for path in place.rglob("*.kernel")]
        everything[name] = ""  # set and empty is not set


def test_a_chosen_folder_is_made(tmp_path: Path) -> None:
    started(ORDER, AUGPIPE_CACHE_DIR=str(tmp_path / "not" / "there yet"))
    assert files_in(tmp_path / "not" / "there yet")


def test_a_folder_that_cannot_be_written_is_told_once_and_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "a file").write_text("in the way")  # root may write into folders that are closed to others
    report = started(ORDER, AUGPIPE_CACHE_DIR=str(tmp_path / "a file" / "below"))
    (message,) = report["messages"]
    assert message.startswith(f"compiled kernels cannot be kept in {tmp_path / 'a file' / 'below'}")
    assert "they compile anew at every start" in message and "Set AUGPIPE_CACHE_DIR to a folder" in message
    assert report["total"] == started(ORDER)["total"]
    assert sum(report["hits"].values()) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["a file"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    report = started(ORDER, AUGPIPE_CACHE_DIR=str(tmp_path))
    tmp_path.chmod(0o700)
    assert len(report["messages"]) == 1 and "Permission denied" in report["messages"][0]


def test_no_home_folder_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home(*_: Any) -> Path:
        raise RuntimeError("Could not determine home directory.")  # as for a user id that no account has

    monkeypatch.delenv("AUGPIPE_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    monkeypatch.setattr(Path, "expanduser", no_home)
    with pytest.warns(RuntimeWarning, match="Set AUGPIPE_CACHE_DIR to a folder that can be written") as told:
        assert jit.cache_folder() is None
    assert len(told) == 1


def test_a_folder_that_can_be_written_brings_no_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUGPIPE_CACHE_DIR", str(tmp_path))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        folder = jit.cache_folder()
    assert folder is not None and folder.parent == tmp_path
    assert list(folder.iterdir()) == []  # the trial left nothing


def test_the_digest_changes_with_every_source(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "gpu_ops", tmp_path / "gpu_ops", ignore=shutil.ignore_patterns("__pycache__"))
    folder = tmp_path / "gpu_ops"
    before = jit.sources_digest(folder)
    assert before == jit.sources_digest(ROOT / "gpu_ops")
    sources = sorted(folder.rglob("*.py"))
    assert len({path.parent for path in sources}) > 1 and len(sources) > 8
    digests = {before}
    for path in sources:
        text = path.read_text()
        path.write_text(text + "\n")
        digests.add(jit.sources_digest(folder))
        path.write_text(text)
    assert len(digests) == len(sources) + 1
    assert jit.sources_digest(folder) == before
    (folder / "image" / "tone.py").rename(folder / "image" / "tones.py")
    assert jit.sources_digest(folder) not in digests


@pytest.mark.parametrize("part", ["numba.__version__", "llvmlite.__version__", "get_host_cpu_name"])
def test_the_digest_changes_with_compiler_and_processor(monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    before = jit.sources_digest(ROOT / "gpu_ops")
    monkeypatch.setattr(f"augpipe.gpu_ops.jit.{part}", "other" if part.endswith("__") else lambda: "other")
    assert jit.sources_digest(ROOT / "gpu_ops") != before


def test_the_users_own_numba_cache_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "ours").mkdir()
    (tmp_path / "theirs").mkdir()
    report = started(ORDER, NUMBA_CACHE_DIR=str(tmp_path / "theirs"), AUGPIPE_CACHE_DIR=str(tmp_path / "ours"))
    assert report["cache_dir"] == str(tmp_path / "theirs")
    assert files_in(tmp_path / "ours")
    assert list((tmp_path / "theirs").iterdir()) == []


def test_the_setting_is_put_back_even_where_decorating_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(jit, "_CACHE_FOLDER", tmp_path)
    before = numba.config.CACHE_DIR
    with pytest.raises(TypeError, match="cache"):
        jit.kernel(cache=False)(lambda x: x)
    assert before == numba.config.CACHE_DIR


def test_kernels_compile_without_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "_CACHE_FOLDER", None)

    @jit.kernel()
    def ratio(one: Any, other: Any) -> Any:
        return one / other

    assert ratio(1.0, 0.0) == float("inf")  # as IEEE 754 has it
    assert ratio.stats.cache_path is None
