"""Compiled kernels on disk: a second start compiles nothing, and nothing is loaded but what was asked for, whole."""

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from llvmlite.binding import parse_bitcode
from numba.core.errors import TypingError

from augpipe.gpu_ops import jit
from augpipe.gpu_ops.compiled import background, cache, declared, folder
from augpipe.gpu_ops.compiled.cache import KernelCache
from augpipe.gpu_ops.compiled.folder import cache_folder, host_level, kernels_digest, sources_digest, target_cpu
from augpipe.gpu_ops.compiled.sealed import read_sealed, write_sealed
from augpipe.sampling.epoch_order import sample_ids
from tests.augpipe.loader.loader_sources import COMPILING_TIMEOUT_S, ROOT, run_python

USE = """
import json, logging, sys, warnings
caught = []
logged = logging.getLogger("augpipe")
def take(record):
    caught.extend([record.getMessage()] if record.getMessage().startswith("compiled kernels") else [])
    return True
logged.addFilter(take)
warnings.simplefilter("always")
warnings.showwarning = lambda message, *_: caught.append(str(message))
import augpipe, augpipe.loader  # which takes all of it
import numba, numpy as np
from augpipe.gpu_ops.compiled import declared
rng = np.random.default_rng(0)
from augpipe.datasets.formats.arrays import ArraySource
source = ArraySource(rng.integers(0, 256, (4, 40, 50, 3), np.uint8))
"""
LOAD = """
recipe = augpipe.recipes.deep_image(16, (20, 40))
loader = augpipe.Loader(source, recipe, batch_size=2, framework="numpy", dtype="float16")
total = sum(float(batch.images.astype(np.float64).sum()) for batch in loader)
"""
READ_ONLY = """
import errno, os, tempfile
def is_allowed(path, mode, allowed=os.access, **options):
    return not mode & os.W_OK and allowed(path, mode)
def refused(*_, dir=None, **options):
    raise OSError(errno.EROFS, "Read-only file system", str(dir))
os.access, tempfile.TemporaryFile = is_allowed, refused  # root may write everywhere
"""
NO_TEMPORARY = "tempfile.mkdtemp = refused\n"
ORDER = "total = int(augpipe.sampling.epoch_order.sample_ids(np.arange(9), 9, 1, 2, True) @ np.arange(9))\n"
REPORT = """
kernels = {name: kernel for name, (_, kernel, _) in declared._DECLARED.items() if kernel.signatures}
hits = {name: sum(kernel.stats.cache_hits.values()) for name, kernel in kernels.items()}
misses = {name: sum(kernel.stats.cache_misses.values()) for name, kernel in kernels.items()}
print(json.dumps(dict(total=total, hits=hits, misses=misses, messages=caught, cache_dir=numba.config.CACHE_DIR)))
"""


def started(work: str, **environment: str) -> dict[str, Any]:
    """What a new interpreter reports of its kernels after `work`."""
    ended = run_python(USE + work + REPORT, options=(), timeout_s=COMPILING_TIMEOUT_S, **environment)
    assert ended.returncode == 0, ended.stderr
    report: dict[str, Any] = json.loads(ended.stdout)
    return report


def files_in(folder: Path) -> dict[str, int]:
    """File -> time of its last change, of the kernels below a folder."""
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in folder.rglob("*.kernel")}


@pytest.mark.deep  # one kernel does in every run: where it cannot be written, below
def test_a_second_start_does_not_compile(tmp_path: Path) -> None:
    first = started(LOAD, AUGPIPE_CACHE_DIR=str(tmp_path))
    kept = files_in(tmp_path)
    assert len(kept) >= 4  # the chain, packing, draws, the order
    second = started(LOAD, AUGPIPE_CACHE_DIR=str(tmp_path))
    assert sum(second["misses"].values()) == 0 and sum(second["hits"].values()) >= 4
    assert second["total"] == first["total"]
    assert files_in(tmp_path) == kept
    assert first["messages"] == second["messages"] == []


WRITE_ROWS = """
from augpipe import Recipe, ops, plan
from augpipe.native.cpu_render import Scratch, as_rgbx, render
from augpipe.planning.kernel_rows import kernel_rows
from augpipe.planning.output_format import OutputFormat
image, total = rng.integers(0, 256, (44, 60, 3), np.uint8), []
for listed in ([ops.Rotate(p=1)], [ops.Gamma(p=1)], []):
    rows = kernel_rows(plan(Recipe(ops=[*listed, ops.Normalize()]), [1], sizes=[(44, 60)]).rows)
    for layout in ("NCHW", "NHWC"):
        out, form = np.zeros(44 * 60 * 3, np.float32), OutputFormat(dtype="float32", layout=layout, framework="numpy")
        render([as_rgbx(image, Scratch())], rows, out, (44, 60), form, Scratch())
        total.append(zlib.crc32(out.tobytes()))
"""


@pytest.mark.deep  # it compiles three kernels
def test_a_kernel_gives_the_same_bits_where_it_was_compiled_and_where_it_is_loaded(tmp_path: Path) -> None:
    """Also at the ends of rows: 60 pixels are not whole vectors."""
    code = "import zlib" + WRITE_ROWS
    compiled, loaded = (started(code, AUGPIPE_CACHE_DIR=str(tmp_path)) for _ in range(2))
    assert sum(compiled["misses"].values()) >= 3 and sum(loaded["misses"].values()) == 0
    assert compiled["total"] == loaded["total"]


PLACES = {"AUGPIPE_CACHE_DIR": ".", "XDG_CACHE_HOME": "augpipe", "HOME": ".cache/augpipe"}
"""Variable -> where in its folder kernels lie; the first one that is set and not empty counts."""


@pytest.fixture
def places(tmp_path: Path) -> dict[str, Path]:
    made = {name: tmp_path / name for name in PLACES}
    for place in made.values():
        place.mkdir()
    return made


def set_from(name: str, places: dict[str, Path]) -> dict[str, str]:
    """The variables, of which those before `name` are set and empty."""
    first = list(places).index(name)
    return {one: "" if nth < first else str(folder) for nth, (one, folder) in enumerate(places.items())}


@pytest.mark.parametrize(
    "name", [name if name == "HOME" else pytest.param(name, marks=pytest.mark.deep) for name in PLACES]
)
def test_the_cache_lies_where_it_is_told_to_and_nowhere_else(name: str, places: dict[str, Path]) -> None:
    started(ORDER, **set_from(name, places))
    (kernels,) = (places.pop(name) / PLACES[name]).iterdir()
    assert kernels.name == f"kernels-{kernels_digest(target_cpu())}"
    assert files_in(kernels)
    assert not [path for place in places.values() for path in place.rglob("*.kernel")]


def test_the_folder_is_that_of_the_first_variable_that_is_set(
    places: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, place in places.items():
        for variable, value in set_from(name, places).items():
            monkeypatch.setenv(variable, value)
        found = cache_folder("kernels")
        assert found is not None and found.parent == place / PLACES[name]


def test_a_chosen_folder_is_made_and_the_users_own_numba_cache_left_alone(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    ours = tmp_path / "not" / "there yet"
    report = started(ORDER, NUMBA_CACHE_DIR=str(tmp_path / "theirs"), AUGPIPE_CACHE_DIR=str(ours))
    assert files_in(ours)
    assert report["cache_dir"] == str(tmp_path / "theirs")
    assert list((tmp_path / "theirs").iterdir()) == []


def test_a_folder_that_cannot_be_written_is_told_once_and_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "a file").write_text("in the way")  # root may write into folders that are closed to others
    report = started(ORDER, AUGPIPE_CACHE_DIR=str(tmp_path / "a file" / "below"))
    (message,) = report["messages"]
    assert message.startswith(f"compiled kernels cannot be kept in {tmp_path / 'a file' / 'below'}")
    assert "they are compiled at every start" in message and "Set AUGPIPE_CACHE_DIR to a folder" in message
    assert report["total"] == sample_ids(np.arange(9), 9, 1, 2, True) @ np.arange(9)
    assert sum(report["hits"].values()) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["a file"]


def test_kernels_are_read_where_they_cannot_be_written(tmp_path: Path) -> None:
    """As of an image that root has warmed, and another user starts, or with a root file system that is read only."""
    first = started(ORDER, AUGPIPE_CACHE_DIR=str(tmp_path))
    kept = files_in(tmp_path)
    second = started(READ_ONLY + ORDER, AUGPIPE_CACHE_DIR=str(tmp_path))
    assert sum(second["misses"].values()) == 0 and sum(second["hits"].values()) == sum(first["misses"].values())
    assert second["messages"] == [] and second["total"] == first["total"] and files_in(tmp_path) == kept


@pytest.mark.deep  # compiles again, and so does the next one
def test_what_is_missing_there_is_compiled_into_a_private_folder(tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    work = f"""
import glob, stat
(private,) = glob.glob({str(temporary)!r} + "/augpipe-*")
assert stat.S_IMODE(os.stat(private).st_mode) == 0o700
"""
    report = started(READ_ONLY + ORDER + work, AUGPIPE_CACHE_DIR=str(tmp_path / "not there"), TMPDIR=str(temporary))
    (message,) = report["messages"]
    assert "cannot be kept" in message and "Read-only file system" in message
    assert list(temporary.iterdir()) == []  # removed when the process ended


def test_a_private_folder_is_read_after_the_lasting_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUGPIPE_CACHE_DIR", str(tmp_path))
    lasting, private = tmp_path / folder.kernels_name(), tmp_path / "private"
    lasting.mkdir()
    monkeypatch.setattr(folder, "_private", [private])
    assert folder.readable_folders() == [lasting, private / folder.kernels_name()]


def kept_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Any, Path, Any]:
    """A folder of kernels, a kernel that was compiled into it, its file there, and what it was compiled for."""
    monkeypatch.setenv("AUGPIPE_CACHE_DIR", str(tmp_path))
    place = folder.cache_place(f"kernels-{kernels_digest(target_cpu())}")
    place.mkdir()
    ratio = ratio_kernel()
    monkeypatch.setattr(cache, "kernels_folder", lambda: place)
    monkeypatch.setattr(cache, "_is_said", True)  # that it is compiled, which is said where that takes a while
    assert ratio(1.0, 2.0) == 0.5
    (file,) = place.glob("*.kernel")
    (sig,) = ratio.signatures
    return place, ratio, file, sig


@pytest.mark.parametrize("may_write", [True, False])
def test_another_users_kernels_are_not_loaded(
    may_write: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """They are machine code: a folder is used that root or this user alone can fill."""
    place, ratio, file, sig = kept_kernel(tmp_path, monkeypatch)
    find = KernelCache(ratio).find
    other = os.geteuid() + 1

    def owned_by(user: int, mode: int, of: Path) -> None:
        real = os.stat

        def stat(path: Any, *rest: Any, **options: Any) -> Any:
            found = real(path, *rest, **options)
            if Path(path) != of:
                return found
            return os.stat_result((found.st_mode & ~0o777 | mode, *found[1:4], user, *found[5:]))

        monkeypatch.setattr(os, "stat", stat)

    assert find(sig) == (file, "here")
    monkeypatch.setattr(folder, "_may_write", lambda path: may_write)
    for user, mode, is_found in (
        (os.geteuid(), 0o755, True),
        (0, 0o755, True),
        (other, 0o755, False),
        (other, 0o777, False),
        (0, 0o775, False),
        (0, 0o757, False),
    ):
        for of in (place, file):
            with monkeypatch.context() as patched:
                monkeypatch = patched
                owned_by(user, mode, of)
                assert (find(sig) is not None) == is_found, (user, mode, of)
                is_kept = cache_folder(place.name) is not None
                assert is_kept == (is_found or of == file), (user, mode, of)
    told = [line for line in caplog.messages if line.startswith(f"compiled kernels cannot be kept in {place} (")]
    assert len(told) == 2 and f"(it belongs to the user {other}, and this is" in told[0]
    assert "(it can be written by others)" in told[1] and "compiled at every start" in told[1]
    unread = [line for line in caplog.messages if line.startswith(f"compiled kernels in {place} are not used: it ")]
    assert len(unread) == (0 if may_write else 2) and len(caplog.messages) == len(told) + len(unread)


@pytest.mark.parametrize("mode", [0o775, 0o777])
def test_a_folder_of_this_user_is_closed_to_others(
    mode: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A umask of 002 or 0 has opened it; a file that others could change is not loaded, and compiled again."""
    place, ratio, file, sig = kept_kernel(tmp_path, monkeypatch)
    place.chmod(mode)
    assert KernelCache(ratio).find(sig) == (file, "here")
    assert place.stat().st_mode & 0o777 == 0o755
    file.chmod(0o664)
    assert KernelCache(ratio).find(sig) is None
    assert not caplog.messages


def test_only_their_owner_can_write_what_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the umask; a folder that was chosen is made for others to read."""
    before = os.umask(0)
    try:
        for name, mode in (("AUGPIPE_CACHE_DIR", 0o755), ("XDG_CACHE_HOME", 0o700)):
            monkeypatch.delenv("AUGPIPE_CACHE_DIR", raising=False)
            monkeypatch.setenv(name, str(tmp_path / name))
            made = cache_folder("kernels")
            assert made is not None and made.stat().st_mode & 0o777 == mode
            write_sealed(made / "one.kernel", "one", b"code")
            assert (made / "one.kernel").stat().st_mode & 0o777 == 0o644
    finally:
        os.umask(before)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    report = started(ORDER, AUGPIPE_CACHE_DIR=str(tmp_path))
    tmp_path.chmod(0o700)
    assert len(report["messages"]) == 1 and "Permission denied" in report["messages"][0]


def test_no_home_folder_does_no_harm(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def no_home(*_: Any) -> Path:
        raise RuntimeError("Could not determine home directory.")  # as for a user id that no account has

    monkeypatch.delenv("AUGPIPE_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    monkeypatch.setattr(Path, "expanduser", no_home)
    for _ in range(2):
        assert cache_folder("kernels") is None
    (message,) = caplog.messages
    assert "Set AUGPIPE_CACHE_DIR to a folder that can be written" in message


def test_a_folder_that_can_be_written_brings_no_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AUGPIPE_CACHE_DIR", str(tmp_path))
    made = cache_folder("kernels")
    assert not caplog.messages
    assert made is not None and made.parent == tmp_path
    assert list(made.iterdir()) == []  # the trial left nothing


def test_the_digest_changes_with_every_source(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "gpu_ops", tmp_path / "gpu_ops", ignore=shutil.ignore_patterns("__pycache__"))
    copy = tmp_path / "gpu_ops"
    before = sources_digest(copy)
    assert before == sources_digest(ROOT / "gpu_ops")
    sources = sorted(copy.rglob("*.py"))
    assert len({path.parent for path in sources}) > 1 and len(sources) > 8
    digests = {before}
    for path in sources:
        text = path.read_text()
        path.write_text(text + "\n")
        digests.add(sources_digest(copy))
        path.write_text(text)
    assert len(digests) == len(sources) + 1
    assert sources_digest(copy) == before
    (copy / "image" / "tone.py").rename(copy / "image" / "tones.py")
    assert sources_digest(copy) not in digests


@pytest.mark.parametrize("part", ["numba.__version__", "llvmlite.__version__", "platform.python_version_tuple"])
def test_the_digest_changes_with_the_compiler(monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    before = sources_digest(ROOT / "gpu_ops")
    other: Any = "other" if part.endswith("__") else lambda: ("3", "99", "1")
    monkeypatch.setattr(f"augpipe.gpu_ops.compiled.folder.{part}", other)
    assert sources_digest(ROOT / "gpu_ops") != before
    assert kernels_digest("one CPU") != kernels_digest("another")


def test_kernels_are_plain_python_where_numba_is_told_so() -> None:
    ended = run_python(
        "from augpipe.gpu_ops.compiled.declared import overloads; print(len(overloads(['order'])))\n"
        "from augpipe.gpu_ops.jit import kernel\nprint(kernel()(lambda one: one + 1)(2))",
        options=(),
        NUMBA_DISABLE_JIT="1",
    )
    assert ended.stdout.split() == ["0", "3"], ended.stderr


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for kernels, in this process alone."""
    monkeypatch.setattr(cache, "kernels_folder", lambda: tmp_path)
    monkeypatch.setattr(cache, "readable_folders", lambda: [tmp_path])
    monkeypatch.setattr(background, "kernels_folder", lambda: tmp_path)
    return tmp_path


def ratio_kernel() -> Any:
    """A new kernel, which nothing has compiled."""

    def ratio(one: Any, other: Any) -> Any:
        return one / other

    return jit.kernel()(ratio)


def test_kernels_compile_without_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "kernels_folder", lambda: None)
    monkeypatch.setattr(cache, "readable_folders", list)
    ratio = ratio_kernel()
    assert ratio(1.0, 0.0) == float("inf")  # as IEEE 754 has it
    assert ratio.stats.cache_path is None


@pytest.mark.parametrize("harm", ["cut", "changed", "empty", "another's"])
def test_a_file_that_is_not_whole_is_compiled_again(kept: Path, harm: str) -> None:
    ratio_kernel()(1.0, 2.0)
    (file,) = kept.glob("*.kernel")
    whole = file.read_bytes()
    if harm == "another's":
        ratio_kernel()(1, 2)
        (other,) = (path for path in kept.glob("*.kernel") if path != file)
        file.write_bytes(other.read_bytes())
    else:
        changed = whole[:-100] + bytes([whole[-100] ^ 1]) + whole[-99:]
        file.write_bytes({"cut": whole[:-1], "changed": changed, "empty": b""}[harm])
    again = ratio_kernel()
    assert again(1.0, 2.0) == 0.5
    assert sum(again.stats.cache_misses.values()) == 1
    third = ratio_kernel()
    assert third(1.0, 2.0) == 0.5 and sum(third.stats.cache_hits.values()) == 1


def test_other_options_of_the_same_code_lie_in_no_file_of_its(kept: Path) -> None:
    identity = KernelCache(ratio_kernel())._identity("(float64,)", "a CPU")
    assert kernels_digest("a CPU") in identity and "(float64,)" in identity and "ratio" in identity
    assert cache._file_digest(__file__) != "" and cache._file_digest(jit.__file__) == ""


def test_a_part_of_another_kernel_is_not_kept_by_itself(kept: Path) -> None:
    ratio = ratio_kernel()

    def twice(one: Any) -> Any:
        return ratio(one, 2.0) + ratio(one, 4.0)

    assert jit.kernel()(twice)(8.0) == 6.0
    (file,) = kept.glob("*.kernel")
    assert "twice" in file.name


def test_a_kernel_that_was_loaded_becomes_a_part_of_one_that_is_compiled(kept: Path) -> None:
    ratio_kernel()(1.0, 2.0)
    ratio = ratio_kernel()
    assert ratio(8.0, 2.0) == 4.0 and sum(ratio.stats.cache_hits.values()) == 1

    def both(one: Any) -> Any:
        return ratio(one, 2.0) + ratio(one, 4.0)

    assert jit.kernel()(both)(8.0) == 6.0


TWO_KERNELS = """
from tests.gpu_ops.compiled.test_kernel_cache import ratio_kernel
from augpipe.gpu_ops.jit import kernel
ratio = ratio_kernel()
both = kernel()(lambda one: ratio(one, 2.0) + ratio(one, 4.0))
"""


def test_a_kernel_is_loaded_while_one_is_compiled_that_calls_it(tmp_path: Path) -> None:
    reports = "print(both(8.0), ratio(8.0, 2.0), sum(ratio.stats.cache_hits.values()))"
    for work, expected in (("print(ratio(1.0, 2.0))", "0.5"), (reports, "6.0 4.0 1")):
        ended = run_python(TWO_KERNELS + work, options=(), AUGPIPE_CACHE_DIR=str(tmp_path))
        assert ended.stdout.strip() == expected, ended.stderr


def test_subroutines_are_compiled_as_parts_of_kernels(kept: Path) -> None:
    half = jit.subroutine(lambda one: one / 2.0)

    def quarter(one: Any) -> Any:
        return half(half(one))

    both = jit.kernel()(quarter), jit.kernel()(lambda one: half(one) + 1.0)
    assert [kernel(8.0) for kernel in both] == [2.0, 5.0]
    (part,) = half.overloads.values()
    assert not part.library.get_pointer_to_function(part.fndesc.llvm_func_name)


def test_a_kernel_that_cannot_be_compiled_leaves_the_others_as_they_were(kept: Path) -> None:
    def wrong(one: Any) -> Any:
        return one.missing

    with pytest.raises(TypingError, match="missing"):
        jit.kernel()(wrong)(1.0)
    assert ratio_kernel()(1.0, 2.0) == 0.5 and len(list(kept.glob("*.kernel"))) == 1


COMPILE = """
import sys, time
from pathlib import Path
from augpipe.gpu_ops.compiled import declared
one = declared.overloads(["order"])[0]
Path(sys.argv[1], f"ready-{sys.argv[2]}").touch()
one.compile()
print(sum(one.kernel.stats.cache_misses.values()))
"""


def test_two_processes_compile_once(tmp_path: Path) -> None:
    environment = os.environ | {"AUGPIPE_CACHE_DIR": str(tmp_path)}
    both = [
        subprocess.Popen([sys.executable, "-c", COMPILE, tmp_path, str(nth)], stdout=subprocess.PIPE, env=environment)
        for nth in range(2)
    ]
    misses = [int(process.communicate(timeout=120)[0]) for process in both]
    assert sorted(misses) == [0, 1]


@pytest.mark.deep  # compiles twice
def test_a_process_that_is_killed_leaves_nothing_half_made(tmp_path: Path) -> None:
    environment = os.environ | {"AUGPIPE_CACHE_DIR": str(tmp_path)}
    program = COMPILE.replace("one.compile()", "from augpipe.gpu_ops.compiled import cache\none.compile()").replace(
        "one = ", "import os, signal\none = "
    )
    slow = program.replace(
        "cache\n", "cache\ncache.write_sealed = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
    )  # compiled, and not kept yet: the lock is held
    killed = subprocess.run([sys.executable, "-c", slow, tmp_path, "0"], env=environment, timeout=120)
    assert killed.returncode == -signal.SIGKILL
    assert not files_in(tmp_path) and list(tmp_path.rglob("*.lock"))
    began = time.monotonic()
    again = subprocess.run([sys.executable, "-c", COMPILE, tmp_path, "1"], env=environment, capture_output=True)
    assert int(again.stdout) == 1 and len(files_in(tmp_path)) == 1, again.stderr
    assert time.monotonic() - began < 100  # no lock was left


CALLED = """
import io
import numpy as np
import torch
from PIL import Image
from augpipe import Augment, Loader, Recipe, TargetOptions, ops, recipes
from augpipe.datasets.formats.arrays import ArraySource
from augpipe.datasets.prepare.lanczos import lanczos
from augpipe.datasets.stats.channels import ChannelSums
from augpipe.decoding.jpeg import check_codes
from augpipe.gpu_ops.compiled import declared
from augpipe.sampling import ClassBalanced
from augpipe.sources.targets import Targets
from augpipe.trainer.codecs import codec, names

rng = np.random.default_rng(0)

class Files:
    labels, classes = np.arange(8) % 2, ("a", "b")
    def __init__(self, kind): self.kind = kind
    def __len__(self): return 8
    def name(self, i): return str(i)
    def label(self, i): return int(self.labels[i])
    def read(self, i):
        file = io.BytesIO()
        Image.fromarray(rng.integers(0, 256, (80, 90, 3), np.uint8)).save(file, self.kind)
        return file.getvalue()

class Annotated(Files):
    has_targets, has_label_maps, object_classes, keypoint_swaps = True, True, (), ()
    def label_map(self, i):  # one of files may not be written
        return np.asarray(Image.fromarray(np.zeros((80, 90), np.uint8))) if i % 2 else np.zeros((80, 90), np.uint8)
    def targets_of(self, ids):
        ring = np.array([[0.0, 0.0], [50.0, 0.0], [50.0, 40.0]])
        return Targets(counts=np.ones(len(ids), np.int64), polygons=[[ring]] * len(ids))

stack = ArraySource(rng.integers(0, 256, (8, 40, 50, 3), np.uint8), np.arange(8) % 2)
normal, mixing = [ops.RandomResizedCrop(size=32), ops.Normalize()], [ops.MixUp()]
for source in (Files("JPEG"), Files("PNG"), stack):
    for dtype in ("float32", "uint8", "bfloat16", "float16"):
        some = normal[:1] if dtype == "uint8" else normal
        for steps in ([], [ops.Gamma(), ops.Sharpness(), ops.BoxBlur(), ops.ISONoise()]):
            for mix in ([], mixing):
                recipe = Recipe(ops=[*some[:1], *steps, *some[1:]], mixing=mix)
                for batch in Loader(source, recipe, batch_size=4, dtype=dtype): pass
for batch in Loader(stack, Recipe(ops=normal), batch_size=4, sampler=ClassBalanced()): pass
for batch in Loader(Annotated("PNG"), Recipe(ops=normal), batch_size=4, targets=TargetOptions(masks=True)): pass
Augment(Recipe(ops=[*normal[:1], ops.JpegCompression(p=1), normal[1]]))(rng.integers(0, 256, (40, 50, 3), np.uint8))
Augment(Recipe(ops=[ops.Noise(), *normal]))(rng.integers(0, 256, (40, 50, 3), np.uint8))
Augment(Recipe(ops=normal))(rng.integers(0, 256, (40, 50, 3), np.uint8))
Augment(Recipe(ops=normal))(np.zeros((1024, 1100, 3), np.uint8))  # of which a part is packed
for sides in ((40, 50), (1024, 1100)):  # parts of which are packed together
    Augment(Recipe(ops=normal))([np.zeros((*sides, 3), np.uint8)] * 2)
Augment(Recipe(ops=[ops.Gamma()]), dtype="uint8")(np.zeros((100, 100, 3), np.uint8))  # which is looked up
Augment(Recipe(ops=normal))([np.zeros((40, 50, 3), np.uint8), np.zeros((40, 99, 3), np.uint8)[:, ::2]])  # one by one
Augment(Recipe(ops=[ops.RandomResizedCrop(size=100), ops.Gamma()]), dtype="uint8")(np.zeros((200, 200, 3), np.uint8))
elastic, grid = ops.ElasticTransform(p=1.0), ops.GridDistortion()
Augment(Recipe(ops=[normal[0], elastic]))(Files("JPEG").read(0))  # of which a part is decoded
for bent in (
    [], [ops.LensDistortion()], [ops.BrownConrady(), ops.Perspective()], [ops.Perspective(), ops.Gamma(p=1)],
    [elastic], [grid, ops.Gamma(p=1)],
):
    for border in ("context", "edge"):
        Augment(Recipe(ops=[*normal, *bent], border=border))(
            image=rng.integers(0, 256, (40, 50, 3), np.uint8), mask=np.zeros((40, 50)), bbox_format="coco",
            bboxes=[[0, 0, 50, 40], [5, 5, 9, 9]], polygons=[[[0, 0, 50, 0, 50, 40]], []],
        )
for bent in ([], [elastic]):
    for by in ("majority", "linear"):
        Augment(Recipe(ops=[ops.Resize(size=(16, 20)), *bent]))(
            image=np.zeros((40, 50, 3), np.uint8), mask=np.zeros((40, 50), np.uint8),
            targets=TargetOptions(mask_interpolation=by),
        )
Augment(Recipe(ops=normal))(image=np.zeros((40, 50, 3), np.uint8), rotated_boxes=[[9, 9, 30, 9, 30, 20, 9, 20]])
lanczos(rng.integers(0, 256, (40, 50, 4), np.uint8), 20, 30)
ChannelSums.of(rng.integers(0, 256, (40, 50, 4), np.uint8))
for name in names():
    one, x = codec(name), torch.randn(100)
    one.decode(one.encode(x))

declared_types = {}
for one in declared.overloads():
    declared_types.setdefault(one.name.rpartition(":")[0], set()).add(one.types)
called = {name: set(kernel.signatures) for name, (_, kernel, _) in declared._DECLARED.items()}
print(sorted(name for name, types in called.items() if types - declared_types[name]))
print(sorted(name for name, types in called.items() if not types))
"""


def test_what_is_declared_is_what_is_called() -> None:
    """After `warm` nothing that people do waits for a compiler: kernels are called with the types that they declare."""
    ended = run_python(CALLED, options=(), timeout_s=COMPILING_TIMEOUT_S)
    assert ended.returncode == 0, ended.stderr
    with_others, not_called = ended.stdout.splitlines()[-2:]
    assert with_others == "[]"
    assert not_called == "['gpu_ops.jpeg.walk.walk']"  # for samplings that are rare: see test_jpeg_walk


def test_a_prebuilt_level_is_used_only_where_it_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    level = host_level()
    if level is None:
        pytest.skip("no wheel carries kernels for this CPU")
    monkeypatch.setattr(cache, "PREBUILT", tmp_path)
    manifest = {"compilers": folder.compilers(), "digest": kernels_digest(level), "kernels": []}
    place = tmp_path / level
    place.mkdir()

    def reason(**changes: str) -> str | None:
        (place / cache.MANIFEST).write_text(json.dumps(manifest | changes))
        return cache.why_not_prebuilt(level)

    assert reason() is None
    assert "made by numba 0.1" in str(reason(compilers="numba 0.1"))
    assert "other sources" in str(reason(digest="0"))
    (place / cache.MANIFEST).write_text("{")
    assert "cannot be read" in str(cache.why_not_prebuilt(level))


def test_a_damaged_kernel_of_the_wheel_is_compiled_here(
    kept: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    level = "x86-64-v3"
    prebuilt = tmp_path_factory.mktemp("prebuilt")
    monkeypatch.setattr(cache, "PREBUILT", prebuilt)
    monkeypatch.setattr(cache, "prebuilt_level", lambda: level)
    (prebuilt / level).mkdir()
    ratio_kernel()(1.0, 2.0)
    (file,) = kept.glob("*.kernel")
    shutil.move(file, prebuilt / level / file.name)  # made for this CPU, and not for the level: another identity
    again = ratio_kernel()
    assert again(1.0, 2.0) == 0.5 and sum(again.stats.cache_misses.values()) == 1
    assert len(list(kept.glob("*.kernel"))) == 1
    third = ratio_kernel()
    assert third(1.0, 2.0) == 0.5 and sum(third.stats.cache_hits.values()) == 1


def test_levels_are_ordered_and_this_cpu_has_what_its_level_says(monkeypatch: pytest.MonkeyPatch) -> None:
    levels = list(folder.LEVELS)
    assert levels == ["x86-64-v4", "x86-64-v3"] and set(folder.LEVELS[levels[1]]) < set(folder.LEVELS[levels[0]])
    for has, level in ((folder.LEVELS[levels[0]], levels[0]), (folder.LEVELS[levels[1]], levels[1]), (("sse2",), None)):
        monkeypatch.setattr(folder, "get_host_cpu_features", lambda has=has: dict.fromkeys(has, True))
        monkeypatch.setattr(folder.platform, "machine", lambda: "x86_64")
        monkeypatch.setattr(folder.sys, "platform", "linux")
        assert host_level() == level
    monkeypatch.setattr(folder.sys, "platform", "win32")
    assert host_level() is None


def test_every_declared_overload_has_a_name_of_its_own() -> None:
    every = declared.overloads()
    assert len({one.name for one in every}) == len(every) >= 31
    assert len({(one.kernel, one.types) for one in every}) == len(every)
    assert np.all([one.group in declared.MODULES for one in every])


def test_what_a_kernel_calls_is_its_own() -> None:
    """Else a process would call the copy of whichever kernel was compiled or loaded first: other instructions, and so
    other bits."""
    for one in declared.overloads(("render", "targets")):
        if one.function not in ("filter_images", "nearest_pixels"):
            continue
        one.compile()
        kernel_cache: KernelCache = one.kernel._cache
        path, _ = kernel_cache.find(one.types)
        _, bitcode = pickle.loads(read_sealed(path, kernel_cache._identity(one.types, target_cpu())))
        seen = [
            f.name for f in parse_bitcode(bitcode).functions if not f.is_declaration and f.linkage.name != "internal"
        ]
        assert seen and all(one.kernel.py_func.__name__ in name for name in seen), one.name
