"""Kernels' machine code on disk: later processes find it, whatever decides how it comes out changes its folder."""

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from augpipe.gpu_ops.codec.cuda import launch as codec_launch
from augpipe.gpu_ops.compiled import folder as places
from augpipe.gpu_ops.cuda import machine_code
from augpipe.gpu_ops.cuda.machine_code import Kernel, MachineCode, Source
from augpipe.gpu_ops.image.cuda import ptx

H100 = (9, 0)
PACK = ptx.source_of(ptx.KernelSpec())
FLOAT16 = ptx.source_of(ptx.KernelSpec(held_as="float16"))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where kernels are kept during a test."""
    monkeypatch.setenv("AUGPIPE_CACHE_DIR", str(tmp_path / "kept"))
    return tmp_path / "kept"


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Source, tuple[int, int]]]:
    """What was built, in order; builds take no time here, and each gives other code."""
    calls: list[tuple[Source, tuple[int, int]]] = []

    def build(source: Source, capability: tuple[int, int]) -> MachineCode:
        calls.append((source, capability))
        return MachineCode(entry=f"kernel{len(calls)}", cubin=b"\x7fELF" + bytes([len(calls)]) * 100 + b"\n\n")

    monkeypatch.setattr(machine_code, "build", build)
    return calls


LATER = """
from augpipe.gpu_ops.cuda import machine_code
from augpipe.gpu_ops.image.cuda import ptx
machine_code.build = None  # to call it would raise
import hashlib
found = machine_code.machine_code(ptx.source_of(ptx.KernelSpec()), (9, 0))
print(found.entry, hashlib.sha256(found.cubin).hexdigest())
"""


def test_a_later_process_compiles_nothing(folder: Path) -> None:
    code = machine_code.machine_code(PACK, H100)
    assert code.cubin.startswith(b"\x7fELF") and code.entry.encode() in code.cubin
    done = subprocess.run([sys.executable, "-c", LATER], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [code.entry, hashlib.sha256(code.cubin).hexdigest()]


def test_what_is_linked_is_the_ptx_that_other_tests_look_at(monkeypatch: pytest.MonkeyPatch) -> None:
    linked = []

    class Linker:
        def __init__(self, ptx: Any, options: Any) -> None:
            linked.append((ptx.code, options.arch))

        def link(self, kind: str) -> Any:
            return SimpleNamespace(code=kind.encode())

    monkeypatch.setattr(machine_code, "Linker", Linker)
    code = machine_code.build(PACK, H100)
    text = ptx.compile_ptx_of(ptx.KernelSpec(), H100)
    assert linked[0][1] == "sm_90" and f".entry {code.entry}(" in linked[0][0].decode()

    def lines(text: str) -> list[str]:  # without names, in which numba counts what it has compiled
        return [line for line in text.splitlines() if "_ZN" not in line and "_param_" not in line]

    assert lines(linked[0][0].decode()) == lines(text) and len(lines(text)) > 100


def test_each_kernel_has_an_identity_of_its_own() -> None:
    sources = [ptx.source_of(spec) for spec in ptx.KERNELS]
    bounds = codec_launch.LAUNCH_BOUNDS
    for body, signature in codec_launch.CODEC_KERNELS.values():
        sources.append(Source(body=body, signature=signature, launch_bounds=bounds))
    assert len({source.identity for source in sources}) == len(sources) > 9
    again = ptx.source_of(ptx.KernelSpec(held_as="float16"))
    assert again.body is not FLOAT16.body and again.identity == FLOAT16.identity
    assert "0x" not in FLOAT16.identity  # no address of this process


def test_a_kernel_is_built_once_for_each_capability(built: list[Any], folder: Path) -> None:
    first = [machine_code.machine_code(source, cc) for source in (PACK, FLOAT16) for cc in (H100, (8, 0))]
    assert built == [(PACK, H100), (PACK, (8, 0)), (FLOAT16, H100), (FLOAT16, (8, 0))]
    assert first == [machine_code.machine_code(source, cc) for source in (PACK, FLOAT16) for cc in (H100, (8, 0))]
    assert len(built) == 4 and len({code.cubin for code in first}) == 4
    assert sorted(len(list(each.iterdir())) for each in folder.iterdir()) == [2, 2]


def other_source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A line more in a file below the top folder, of a function that kernels call."""
    before = machine_code.code_digest(H100)
    sources = tmp_path / "gpu_ops"
    shutil.copytree(machine_code.SOURCES, sources, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(machine_code, "SOURCES", sources)
    assert machine_code.code_digest(H100) == before  # where they lie does not matter
    path = sources / "image" / "cuda" / "pixels.py"
    path.write_text(path.read_text() + "\n")


def other_numba_cuda(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Another release."""
    monkeypatch.setattr(machine_code, "version", lambda package: "0.99")


def other_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Another release."""
    monkeypatch.setattr(machine_code.driver, "cuDriverGetVersion", lambda: (0, 12345))


def other_library(name: str) -> Callable[[pytest.MonkeyPatch, Path], None]:
    """Another file in the place of a library, as an upgrade leaves it; or none."""

    def change(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        original = machine_code.load_nvidia_dynamic_lib
        copy = tmp_path / Path(original(name).abs_path).name
        copy.write_bytes(b"")
        found = {name: SimpleNamespace(abs_path=str(copy))}
        monkeypatch.setattr(machine_code, "load_nvidia_dynamic_lib", lambda asked: found.get(asked) or original(asked))

    return change


@pytest.mark.parametrize(
    "change",
    [other_source, other_numba_cuda, other_driver, other_library("nvvm"), other_library("nvJitLink")],
    ids=["source", "numba-cuda", "driver", "nvvm", "nvJitLink"],
)
def test_what_decides_how_code_comes_out_changes_its_folder(
    change: Callable[[pytest.MonkeyPatch, Path], None],
    built: list[Any],
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine_code.machine_code(PACK, H100)
    machine_code.machine_code(PACK, H100)
    assert len(built) == 1
    change(monkeypatch, tmp_path)
    machine_code.machine_code(PACK, H100)
    assert len(built) == 2 and len(list(folder.iterdir())) == 2


def test_a_missing_library_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise machine_code.DynamicLibNotFoundError(name)

    before = machine_code.code_digest(H100)
    monkeypatch.setattr(machine_code, "load_nvidia_dynamic_lib", missing)
    assert machine_code.code_digest(H100) != before


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "cut short": lambda data: data[:-1],
    "cut to its seal": lambda data: data[:32],
    "longer": lambda data: data + b"\n",
    "a bit of the code": lambda data: data[:-3] + bytes([data[-3] ^ 4]) + data[-2:],
    "a bit of the name": lambda data: data[:33] + bytes([data[33] ^ 1]) + data[34:],
    "a bit of the seal": lambda data: bytes([data[0] ^ 1]) + data[1:],
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_is_built_anew(damage: Callable[[bytes], bytes], built: list[Any], folder: Path) -> None:
    machine_code.machine_code(PACK, H100)
    (path,) = folder.glob("*/*")
    path.write_bytes(damage(path.read_bytes()))
    again = machine_code.machine_code(PACK, H100)
    assert len(built) == 2 and again.entry == "kernel2"
    assert machine_code.machine_code(PACK, H100) == again and len(built) == 2


def test_the_file_of_another_kernel_is_not_taken(built: list[Any], folder: Path) -> None:
    machine_code.machine_code(PACK, H100)
    machine_code.machine_code(FLOAT16, H100)
    shutil.copy(next(folder.glob("*/render*")), next(folder.glob("*/pack*")))
    assert machine_code.machine_code(PACK, H100).entry == "kernel3"
    assert machine_code.machine_code(PACK, H100).entry == "kernel3" and len(built) == 3


def test_ranks_at_once_all_get_a_whole_kernel(built: list[Any], folder: Path) -> None:
    start, codes = threading.Barrier(8), []

    def rank() -> None:
        start.wait()
        codes.append([machine_code.machine_code(PACK, H100) for _ in range(20)])

    threads = [threading.Thread(target=rank) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(codes) == 8 and 1 <= len(built) <= 8
    possible = {f"kernel{number}".encode() for number in range(1, len(built) + 1)}
    assert {code.entry.encode() for each in codes for code in each} <= possible
    assert len(list(folder.glob("*/*"))) == 1


def test_a_folder_that_cannot_be_written_does_no_harm(
    built: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a file").write_text("in the way")
    monkeypatch.setenv("AUGPIPE_CACHE_DIR", str(tmp_path / "a file" / "below"))
    assert machine_code.machine_code(PACK, H100).entry == "kernel1"
    assert "compiled kernels cannot be kept in" in caplog.text


def test_a_folder_that_cannot_be_written_is_read(
    built: list[Any], folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert machine_code.machine_code(PACK, H100).entry == "kernel1"
    monkeypatch.setattr(places, "_may_write", lambda path: False)
    monkeypatch.setattr(machine_code, "cache_folder", lambda name: pytest.fail("nothing is to be written"))
    assert machine_code.machine_code(PACK, H100).entry == "kernel1"
    assert not caplog.messages


def test_a_full_disk_does_no_harm(
    built: list[Any], folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(path: Path, data: bytes) -> int:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(Path, "write_bytes", full)
    assert machine_code.machine_code(PACK, H100).entry == "kernel1"
    assert re.search("the kernel pack-.* cannot be kept in .*No space left", caplog.text)
    assert list(folder.glob("*/*")) == []


def test_a_launch_takes_the_code_of_the_current_device(built: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    devices = [H100]
    launched = []
    current = SimpleNamespace(get_current_device=lambda: SimpleNamespace(compute_capability=devices[-1]))
    monkeypatch.setattr(machine_code, "cuda", current)
    monkeypatch.setattr(
        machine_code,
        "ObjectCode",
        SimpleNamespace(from_cubin=lambda cubin: SimpleNamespace(get_kernel=lambda entry: (entry, cubin))),
    )
    monkeypatch.setattr(machine_code, "Stream", SimpleNamespace(from_handle=lambda handle: f"stream {handle}"))
    monkeypatch.setattr(machine_code, "launch", lambda *given: launched.append(given))
    machine_code._configured.cache_clear()
    kernel = Kernel(PACK)
    assert built == [(PACK, H100)]  # before the first launch
    kernel.launch((3, 2), (16, 8), 77, 1 << 40, -1)
    kernel.launch((5,), 128, 0, 7)
    devices.append((8, 0))
    kernel.launch((5,), 128, 0, 7)
    kernel.launch((5,), 128, 0, 7)
    machine_code._configured.cache_clear()
    assert built == [(PACK, H100), (PACK, (8, 0))]
    streams, sizes, codes = ([given[place] for given in launched] for place in range(3))
    assert streams == ["stream 77", "stream 1", "stream 1", "stream 1"]  # 1 is CUDA's name for the default stream
    assert [(size.grid, size.block) for size in sizes[:2]] == [((3, 2, 1), (16, 8, 1)), ((5, 1, 1), (128, 1, 1))]
    assert [code[0] for code in codes] == ["kernel1", "kernel1", "kernel2", "kernel2"]
    arguments = launched[0][3:]
    assert all(isinstance(argument, ctypes.c_int64) for argument in arguments)
    assert [argument.value for argument in arguments] == [1 << 40, -1]
