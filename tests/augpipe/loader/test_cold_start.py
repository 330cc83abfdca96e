"""The first batches, while another process still compiles our decoder: libjpeg-turbo decodes, and nothing differs."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from augpipe import Augment, Loader, Recipe, ops, recipes
from augpipe.datasets.open import open_source
from augpipe.decoding import jpeg
from augpipe.decoding.row_index import row_index_of
from augpipe.gpu_ops.compiled import background, cache
from augpipe.gpu_ops.compiled.declared import Overload
from augpipe.gpu_ops.jpeg.workspace import HAS_WIDE_VECTORS
from tests.augpipe.loader.jpeg_loaders import jpeg_files
from tests.augpipe.loader.loader_sources import COMPILING_TIMEOUT_S, run_python

pytestmark = pytest.mark.skipif(not HAS_WIDE_VECTORS, reason="this CPU leaves JPEGs to libjpeg-turbo")

SMALL_CROPS = Recipe(ops=[ops.RandomResizedCrop(size=24, scale=(0.05, 0.3)), ops.Flip()])


class Compiling:
    """Another process that compiles our decoder: until something waits for it, or for ever."""

    def __init__(self) -> None:
        self.is_over = False
        self.num_waits = 0

    def is_coming(self, overload: Overload) -> bool:
        return not self.is_over and overload.group == "decoder"

    def wait(self, wanted: Any) -> None:
        if any(map(self.is_coming, wanted)):
            self.num_waits += 1
            self.is_over = True


@pytest.fixture
def compiling(monkeypatch: pytest.MonkeyPatch) -> Iterator[Compiling]:
    made = Compiling()
    monkeypatch.setattr(background, "is_coming", made.is_coming)
    monkeypatch.setattr(background, "wait", made.wait)
    monkeypatch.setattr(jpeg, "_local", jpeg._Local())  # no thread has a decoder yet
    return made


def damaged_folder(folder: Path, num: int) -> Path:
    """Photographs, of which `num` have codes changed somewhere, or end too early."""
    rng = np.random.default_rng(5)
    for nth, content in enumerate(jpeg_files(2 * num, [(120, 160), (200, 150), (96, 130)])):
        file = bytearray(content)
        if nth % 2:
            scan = file.rindex(b"\xff\xda")
            at = int(rng.integers(scan + 20, len(file) - 2))
            if nth % 6 == 1:
                del file[at:]
            elif nth % 6 == 3:
                file[at : at + 2] = b"\xff\xd9"
            else:
                file[at] ^= int(rng.integers(1, 256))
        (folder / f"{nth:03}.jpg").write_bytes(file)
    return folder


def epoch_of(folder: Path, recipe: Recipe, **options: Any) -> tuple[np.ndarray, dict[int, str]]:
    loader = Loader(
        folder, recipe, batch_size=8, framework="numpy", dtype="uint8", on_error="skip", num_threads=2, **options
    )
    return np.concatenate([batch.images for batch in loader]), loader.skipped


@pytest.mark.parametrize("recipe", [SMALL_CROPS, Recipe(ops=[ops.CenterCrop(size=96)])], ids=["small", "centre"])
def test_which_decoder_was_ready_does_not_decide_what_is_skipped(
    tmp_path: Path, compiling: Compiling, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged_folder(tmp_path, 50)
    cold, cold_skipped = epoch_of(tmp_path, recipe)
    assert compiling.is_over and compiling.num_waits >= 1  # a refusal was not taken from libjpeg-turbo alone
    warm, warm_skipped = epoch_of(tmp_path, recipe)
    assert 5 <= len(warm_skipped) < 50
    assert cold_skipped == warm_skipped
    np.testing.assert_array_equal(cold, warm)


def test_libjpeg_turbo_decodes_meanwhile(tmp_path: Path, compiling: Compiling) -> None:
    for nth, content in enumerate(jpeg_files(16)):
        (tmp_path / f"{nth}.jpg").write_bytes(content)
    cold, _ = epoch_of(tmp_path, SMALL_CROPS)
    assert compiling.num_waits == 0  # nothing had to wait
    compiling.is_over = True
    warm, _ = epoch_of(tmp_path, SMALL_CROPS)
    np.testing.assert_array_equal(cold, warm)


def test_a_row_index_waits_for_the_decoder(compiling: Compiling) -> None:
    (file,) = jpeg_files(1, [(120, 160)])
    assert len(row_index_of(file, 120, 160)) > 10
    assert compiling.num_waits == 1


COLD = """
import logging, sys
logging.basicConfig(format="%(message)s")
from augpipe.gpu_ops.compiled import cache
cache.PATIENCE_S = 0.0
import hashlib
from augpipe import Augment, Loader, recipes
from augpipe.gpu_ops.compiled import background
background.PATIENCE_S = 0.0
loader = Loader(sys.argv[1] if len(sys.argv) > 1 else FOLDER, recipes.deep_image(32, (40,)), batch_size=4,
                framework="numpy", on_error="skip")
started = sorted(background._processes)
digest = hashlib.sha256(b"".join(batch.images.tobytes() for batch in loader)).hexdigest()
print(len(started), digest)
for process in background._processes.values():
    process.kill()  # what goes on is the decoder's, whose batches are compared above
"""


def test_an_empty_cache_gives_the_batches_of_a_full_one(tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    for nth, content in enumerate(jpeg_files(8, [(120, 160)])):
        (photos / f"{nth}.jpg").write_bytes(content)
    kept = tmp_path / "kernels"
    code = COLD.replace("FOLDER", repr(str(photos)))
    cold = run_python(code, options=(), timeout_s=COMPILING_TIMEOUT_S, AUGPIPE_CACHE_DIR=str(kept))
    assert cold.returncode == 0, cold.stderr
    num_started, digest = cold.stdout.split()
    assert int(num_started) >= 6  # by two processes, when the loader was made
    said = [line for line in cold.stderr.splitlines() if line.startswith("compiling")]
    assert len(said) == 1 and str(kept) in said[0] and "happens once" in said[0] and "augpipe warm" in said[0]
    full = run_python(code, options=())
    assert full.stdout.split() == ["0", digest], full.stderr


def test_nothing_is_started_where_nothing_can_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "kernels_folder", lambda: None)
    monkeypatch.setattr(background, "find", lambda _: None)
    monkeypatch.setattr(background, "_processes", {})
    background.start([jpeg.decoder_overloads("float32")])
    assert background._processes == {}


READ_ONLY = """
import errno, os, tempfile
def refused(*_, dir=None, **options):
    raise OSError(errno.EROFS, "Read-only file system", str(dir))
tempfile.TemporaryFile = refused
"""


@pytest.mark.deep  # compiles all again; one kernel is in every run, see test_kernel_cache
def test_a_cache_that_cannot_be_written_has_the_decoder_compiled_meanwhile(tmp_path: Path) -> None:
    """In processes of their own, which put it into a private folder; and no advice that cannot help."""
    photos = tmp_path / "photos"
    photos.mkdir()
    for nth, content in enumerate(jpeg_files(8, [(120, 160)])):
        (photos / f"{nth}.jpg").write_bytes(content)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    code = COLD.replace("FOLDER", repr(str(photos)))
    full = run_python(code, options=())
    place = {"AUGPIPE_CACHE_DIR": str(tmp_path / "kernels"), "TMPDIR": str(temporary)}
    cold = run_python(READ_ONLY + code, options=(), timeout_s=COMPILING_TIMEOUT_S, **place)
    num_started, digest = cold.stdout.split()
    assert int(num_started) >= 6 and digest == full.stdout.split()[1], cold.stderr
    said = [line for line in cold.stderr.splitlines() if line.startswith("compiling")]
    assert len(said) == 1 and "at every start" in said[0] and "augpipe warm" not in said[0]
    assert not list(temporary.glob("augpipe-*"))


def test_libjpeg_turbo_decodes_where_nothing_can_be_kept_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiling the decoder takes a minute and more, which is waited for only where a file is to be refused."""
    for nth, content in enumerate(jpeg_files(16)):
        (tmp_path / f"{nth}.jpg").write_bytes(content)
    warm, _ = epoch_of(tmp_path, SMALL_CROPS)
    monkeypatch.setattr(background, "compiles_here", lambda overload: overload.group == "decoder")
    monkeypatch.setattr(jpeg, "_local", jpeg._Local())
    monkeypatch.setattr(jpeg, "own_decoder", lambda: pytest.fail("the decoder was asked for"))
    cold, _ = epoch_of(tmp_path, SMALL_CROPS)
    np.testing.assert_array_equal(cold, warm)


def test_what_this_process_would_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    one = jpeg.decoder_overloads("float32")[0]
    monkeypatch.setattr(background, "kernels_folder", lambda: None)
    monkeypatch.setattr(background, "find", lambda _: None)
    loaded = [one.types] if one.types in one.kernel.overloads else []
    assert background.compiles_here(one) == (not loaded)
    one.compile()
    assert not background.compiles_here(one)  # it is there


def compiled_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no kernel lie in a file, nor be loaded by a test before this one."""
    monkeypatch.setattr(background, "find", lambda _: None)
    monkeypatch.setattr(background, "_processes", {})
    monkeypatch.setattr(Overload, "is_loaded", False)


def test_a_process_that_fails_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(background, "kernels_folder", lambda: tmp_path)
    compiled_nowhere(monkeypatch)
    monkeypatch.setattr(background.sys, "executable", "/bin/false")
    wanted = jpeg.decoder_overloads("float32")
    background.start([wanted])
    assert len(background._processes) == len(wanted)
    background.wait(wanted)
    assert not any(map(background.is_coming, wanted))


def test_a_process_makes_way_though_it_has_a_session_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Linux shares cores among sessions before it looks at processes, where it is told to."""
    sleeps = tmp_path / "sleeps"
    sleeps.write_text("#!/bin/sh\nexec sleep 60\n")
    sleeps.chmod(0o755)
    monkeypatch.setattr(background, "kernels_folder", lambda: tmp_path)
    compiled_nowhere(monkeypatch)
    monkeypatch.setattr(background.sys, "executable", str(sleeps))
    background.start([jpeg.decoder_overloads("float32")], nice=7)
    (process,) = set(background._processes.values())
    try:
        assert os.getpriority(os.PRIO_PROCESS, process.pid) == 7
        session = Path(f"/proc/{process.pid}/autogroup")
        assert not session.exists() or session.read_text().endswith("nice 7\n")
    finally:
        process.kill()
        process.wait()


def test_compiling_is_said_once(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_is_said", False)
    with caplog.at_level(logging.WARNING, "augpipe"):
        for _ in range(3):
            cache.say_compiling("a kernel")
    assert len(caplog.messages) == 1


def test_a_loader_on_numpy_arrays_starts_no_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    groups: list[Any] = []
    monkeypatch.setattr(background, "start", lambda more, **_: groups.extend(more))
    monkeypatch.setattr(background, "wait", lambda _: None)
    source = open_source(np.zeros((4, 40, 50, 3), np.uint8))
    Loader(source, recipes.deep_image(16, (20,)), batch_size=2, framework="numpy")
    assert {one.group for group in groups for one in group} == {"render", "plan", "order"}


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        ([], {"run_aligned:float32"}),
        ([ops.Gamma()], {"run_aligned:float32", "finish_images:float32_steps"}),
        (
            [ops.OneOf(ops=[ops.GaussianBlur(), ops.JpegCompression()])],
            {
                "run_aligned:float32",
                "finish_images:float32_steps",
                "filter_images:filters",
                "compress_images:compresses",
            },
        ),
        (
            [ops.ISONoise(), ops.GridDropout()],
            {"run_aligned:float32", "finish_images:float32_steps", "take_patterns:patterns"},
        ),
        ([ops.Rotate()], {"run_slanted:float32"}),
        ([ops.Rotate(p=0.5)], {"run_slanted:float32", "run_aligned:float32"}),
        ([ops.Rotate(max_deg=(-10, 10))], {"run_slanted:float32", "run_aligned:float32"}),  # 0 is a step
        ([ops.Rotate(max_deg=90)], {"run_slanted:float32", "run_aligned:float32"}),
        ([ops.Rotate(max_deg=(-10, 10), step=None)], {"run_slanted:float32"}),
        ([ops.Shear(horizontal_deg=(-4, 4), step=1)], {"run_slanted:float32", "run_aligned:float32"}),
        ([ops.OneOf(ops=[ops.Rotate(), ops.Flip()])], {"run_slanted:float32", "run_aligned:float32"}),
    ],
)
def test_what_a_recipe_needs_is_compiled_at_the_same_time(
    listed: list[ops.Op], expected: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    monkeypatch.setattr(
        background,
        "start",
        lambda groups, **_: started.extend(one.name for group in groups for one in group if one.group == "render"),
    )
    Augment(Recipe(ops=[ops.CenterCrop(size=8), *listed]))
    found = {name.rpartition(".")[2] for name in started}
    assert found == {"kinds_of:any", *expected}
