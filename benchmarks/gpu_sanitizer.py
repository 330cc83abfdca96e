"""Section of `gpu_check`: compute-sanitizer over every kernel, where it is installed and the machine lets it run."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from gpu_common import Findings, OnDevice, Run, form, is_on_cuda, synchronize
from gpu_parity import packing

from augpipe import Recipe, ops, plan
from augpipe.trainer.codecs import codec, names

PLACES = ("/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer", "/opt/nvidia/compute-sanitizer")
RUNS = {"memcheck": ("codecs", "fused"), "racecheck": ("codecs",), "synccheck": ("codecs",), "initcheck": ("fused",)}
"""What each tool is to look at: codecs' kernels work together through shared memory and shuffles, the others do not."""


def answers(run: Run) -> dict[str, Callable[[Findings], None]]:
    """A tool over some kernels each."""
    return {f"{tool}, {what}": partial(_checked, tool, what) for tool, kinds in RUNS.items() for what in kinds}


def _checked(tool: str, what: str, findings: Findings) -> None:
    path = os.pathsep.join((os.environ.get("PATH", ""), *PLACES))
    program = shutil.which("compute-sanitizer", path=path)
    if program is None:
        findings.leave_out("compute-sanitizer", "it is neither on PATH nor in " + ", ".join(PLACES))
        return
    code = f"import gpu_check; gpu_check.as_installed(); import gpu_sanitizer; gpu_sanitizer.{what}()"
    # each tensor an allocation of its own: what lies side by side in torch's pool would hide a kernel's false step
    done = subprocess.run(
        [
            program,
            "--tool",
            tool,
            "--error-exitcode",
            "97",
            sys.executable,
            "-c",
            code,
        ],
        cwd=Path(__file__).parent,
        env=os.environ | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
        capture_output=True,
        text=True,
    )
    lines = [line for line in done.stdout.splitlines() + done.stderr.splitlines() if line.startswith("=====")]
    summary = [line for line in lines if "SUMMARY" in line]
    if done.returncode not in (0, 97) or not summary:
        reason = (lines or done.stderr.splitlines())[-5:]
        findings.leave_out(f"{tool}, {what}", f"it did not run (exit code {done.returncode}): {reason}")
        return
    findings.keep(f"{tool}, {what}", {"summary": summary, "first_lines": lines[:25] if done.returncode else []})
    findings.check(f"{tool}, {what}: clean", done.returncode == 0, lines[:10])


def codecs() -> None:
    """Every codec's kernels by every way in: blocks of a part of a chunk, of one, of several, and one for all."""
    for name in names():
        for num, block in ((1, 256), (5_000, 100), (40_003, 256), (40_003, 4096), (40_003, None)):
            made = codec(name, block=block)
            x = torch.randn(num, device="cuda")
            payload = made.encode(x)
            made.decode_into(payload, x)
            made.decode_into(payload, x, add=True)
    synchronize()


def fused() -> None:
    """One small batch by each of the other kernels: odd and even widths, borders, lenses, wide filters."""
    run = Run(photographs=Path(), origin="", work=Path(), is_simulated=not is_on_cuda())
    rng = np.random.default_rng(0)
    shapes = [(31, 45, 1), (40, 29, 3), (33, 33, 4), (90, 70, 3)]
    images = [rng.integers(0, 256, shape, np.uint8) for shape in shapes]
    steps = (ops.ColorCast(), ops.Vignette(), ops.BrownConrady(), ops.Rotate(max_deg=45, step=None))
    for dtype in ("float32", "float16", "bfloat16", "uint8"):
        for layout in ("NCHW", "NHWC"):
            for border in ("context", "constant"):
                for size in run.pick(((20, 17), (18, 32)), ((3, 3), (2, 4))):
                    recipe = Recipe(border=border, ops=(*steps, ops.RandomResizedCrop(size=size)))
                    made = plan(recipe, range(len(shapes)), sizes=[shape[:2] for shape in shapes])
                    OnDevice(run, images, recipe, form(dtype, layout)).render(made)
                    synchronize()
    packing(run, _Ignored(Path()))
    synchronize()


class _Ignored(Findings):
    """Findings that nobody keeps."""

    def _write(self) -> None:
        pass
