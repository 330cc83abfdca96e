"""Every CUDA kernel compiles for every supported capability without a device, and to what it should be."""

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

numba_cuda = pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from augpipe.gpu_ops.codec.cuda import launch  # noqa: E402 - loads numba.cuda
from augpipe.gpu_ops.image.cuda import ptx as kernels  # noqa: E402
from benchmarks.gpu import sanitizer  # noqa: E402

CAPABILITIES = ((7, 5), (8, 0), (9, 0), (10, 0))
EVERY_RUNS = (9, 0)
"""The one that every run compiles for; the others are `make test-deep`'s."""
HELD_AS = ("float32", "float16", "bfloat16", "uint8")
LARGEST_NUM_REGISTERS = 80
LARGEST_FOR_ONE_BLOCK = 128
"""With which a multiprocessor still holds a block of the kernel of filters."""


def is_every_runs(spec: kernels.KernelSpec) -> bool:
    """Of each kind one, and of the kind that most recipes use every number type: the others are `make test-deep`'s."""
    if spec.held_as is None or spec.filters or spec.finishes:
        return spec.planar is not False and spec.held_as in (None, "float32")
    return HELD_AS.index(spec.held_as) % 2 != spec.planar


def on_each(specs: Iterable[kernels.KernelSpec], capabilities: Iterable[tuple[int, int]] = CAPABILITIES) -> list[Any]:
    """(spec, cc) cases."""
    return [
        pytest.param(
            spec,
            cc,
            marks=() if cc == EVERY_RUNS and is_every_runs(spec) else pytest.mark.deep,
            id=f"sm_{cc[0]}{cc[1]}-{spec.name}",
        )
        for cc in capabilities
        for spec in specs
    ]


ONE_PASS = [spec for spec in kernels.KERNELS if not (spec.finishes or spec.filters or spec.mixes)]
FINISHING = [spec for spec in kernels.KERNELS if spec.finishes or spec.filters]
MIXING = [spec for spec in kernels.KERNELS if spec.mixes]
WORKS_TOGETHER = re.compile(r"\.shared\b|\bbar(rier)?\.|\batom\.shared")
"""In PTX: a kernel whose threads work together through shared memory, or wait for each other."""
compile_once = cache(kernels.compile_ptx_of)


def compiled(spec: kernels.KernelSpec, cc: tuple[int, int]) -> str:
    """The kernel's PTX, in which all is inlined and in registers."""
    ptx = compile_once(spec, cc)
    assert f".target sm_{cc[0]}{cc[1]}" in ptx and ptx.count(".entry") == 1
    assert "call" not in ptx
    assert ".local" not in ptx
    return ptx


@pytest.mark.slow
@pytest.mark.parametrize(("spec", "cc"), on_each(ONE_PASS))
def test_every_kernel_of_one_pass_compiles(spec: kernels.KernelSpec, cc: tuple[int, int]) -> None:
    ptx = compiled(spec, cc)
    assert ".f64" not in ptx  # consumer cards do float64 at 1/64 of the rate
    loads = re.findall(r"\bld\.global\S*", ptx)
    assert loads and all(load.startswith("ld.global.nc.") for load in loads)
    stores = {(vector, int(bits)) for vector, bits in re.findall(r"\bst\.global\.(v2\.)?[a-z](\d+)", ptx)}
    two_items = {"float32": ("v2.", 32), "uint8": ("", 16)}.get(spec.held_as or "", ("", 32))
    two_items = ("", 64) if spec.looks_up_labels else two_items  # each by itself: a pair of them is two labels
    assert two_items in stores and max(bits for _, bits in stores) == two_items[1]
    taken, reason = kernels.resources(ptx, cc)
    if taken is None:
        assert reason
        return
    assert taken.spill_bytes == taken.stack_bytes == taken.shared_bytes == 0
    assert 16 < taken.registers <= LARGEST_NUM_REGISTERS


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "cc"),
    [*on_each(FINISHING, [EVERY_RUNS]), *on_each(FINISHING[:1], [cc for cc in CAPABILITIES if cc != EVERY_RUNS])],
)
def test_every_kernel_behind_it_compiles(spec: kernels.KernelSpec, cc: tuple[int, int]) -> None:
    taken, reason = kernels.resources(compiled(spec, cc), cc)
    if taken is None:
        assert reason
        return
    assert taken.spill_bytes == taken.stack_bytes == 0 and taken.shared_bytes == 2 * 4 * 768
    assert 16 < taken.registers <= (LARGEST_FOR_ONE_BLOCK if spec.filters else LARGEST_NUM_REGISTERS)


@pytest.mark.slow
@pytest.mark.parametrize(("spec", "cc"), on_each(MIXING))
def test_every_kernel_that_mixes_compiles(spec: kernels.KernelSpec, cc: tuple[int, int]) -> None:
    ptx = compiled(spec, cc)
    assert ".f64" not in ptx
    # what it reads it may have written: only the jobs are read through the cache for memory that does not change
    bits = {"float32": 32, "uint8": 8}.get(spec.held_as or "", 16)
    changing = {int(found) for found in re.findall(r"\bld\.global\.[a-z](\d+)", ptx)}
    assert changing == {int(found) for found in re.findall(r"\bst\.global\.[a-z](\d+)", ptx)} == {bits}
    taken, reason = kernels.resources(ptx, cc)
    if taken is None:
        assert reason
        return
    assert taken.spill_bytes == taken.stack_bytes == taken.shared_bytes == 0
    assert 16 < taken.registers <= LARGEST_NUM_REGISTERS


def test_the_list_holds_every_kernel() -> None:
    assert len({spec.name for spec in kernels.KERNELS}) == len(kernels.KERNELS) == 28
    assert {(spec.held_as, spec.planar, spec.finishes) for spec in kernels.KERNELS if spec.held_as} == {
        (held_as, planar, finishes)
        for held_as in ("float32", "float16", "bfloat16", "uint8")
        for planar in (True, False)
        for finishes in (True, False)
    }


def kinds_that_work_together(found: dict[str, str]) -> list[str]:
    """The kinds, by the names that the sanitizer's tools have for them, of the kernels whose threads do."""
    return [kind_of(name) for name, text in found.items() if WORKS_TOGETHER.search(text)]


def kind_of(name: str) -> str:
    return "codecs" if name in launch.CODEC_KERNELS else name.split()[0]


@pytest.mark.slow
def test_racecheck_looks_at_kernels_whose_threads_work_together() -> None:
    """Those are the ones that finish and that filter."""
    found = {spec.name: compile_once(spec, EVERY_RUNS) for spec in kernels.KERNELS if is_every_runs(spec)}
    assert Counter(kinds_that_work_together(found)) == {"finish": 1, "filter": 1}
    assert {"finish", "filter"} <= set(sanitizer.TOOLS["racecheck"]) & set(sanitizer.TOOLS["synccheck"])
    assert {kind_of(name) for name in (*found, *launch.CODEC_KERNELS)} == set(sanitizer.TOOLS["memcheck"])


@pytest.mark.deep
def test_they_are_those_of_every_number_type_and_layout_and_no_codecs() -> None:
    found = {spec.name: compile_once(spec, EVERY_RUNS) for spec in kernels.KERNELS}
    found |= {name: launch.compile_ptx_of(name, EVERY_RUNS) for name in launch.CODEC_KERNELS}
    assert Counter(kinds_that_work_together(found)) == {"finish": 8, "filter": 2}


FAKE_PTXAS = """#!/bin/sh
echo "ptxas info    : 0 bytes gmem" >&2
echo "    24 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads" >&2
echo "ptxas info    : Used 91 registers, used 0 barriers, 24 bytes cumulative stack size{shared}" >&2
exit {code}
"""


def put_ptxas(folder: Path, monkeypatch: pytest.MonkeyPatch, **replaced: object) -> None:
    program = folder / "ptxas"
    text = FAKE_PTXAS
    for name, value in ({"shared": "", "code": 0} | replaced).items():
        text = text.replace("{" + name + "}", str(value))
    program.write_text(text)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(kernels.importlib.util, "find_spec", lambda name: None)


def test_what_ptxas_says_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_ptxas(tmp_path, monkeypatch)
    expected = kernels.Resources(registers=91, spill_bytes=20, stack_bytes=24, shared_bytes=0)
    assert kernels.resources("", (9, 0)) == (expected, "")
    put_ptxas(tmp_path, monkeypatch, shared=", 512 bytes smem")
    taken, _ = kernels.resources("", (9, 0))
    assert taken is not None and taken.shared_bytes == 512


def test_no_ptxas_and_one_that_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_ptxas(tmp_path, monkeypatch, code=255)
    taken, reason = kernels.resources("", (9, 0))
    assert taken is None and f"{tmp_path / 'ptxas'} refuses the PTX: " in reason
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    assert kernels.find_ptxas() is None
    taken, reason = kernels.resources("", (9, 0))
    assert taken is None and reason.startswith("there is no ptxas: pip install nvidia-cuda-nvcc")


@pytest.mark.parametrize("module", ["augpipe", "augpipe.gpu_ops", "augpipe.gpu_ops.image.cuda.records"])
def test_numba_cuda_is_loaded_by_those_who_ask(module: str) -> None:
    look = f"import sys, {module}; print(any(name.startswith(('numba.cuda', 'numba_cuda.')) for name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
    done = subprocess.run(
        [sys.executable, "-c", look.replace(module, "numba.cuda", 1)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "True\n"
