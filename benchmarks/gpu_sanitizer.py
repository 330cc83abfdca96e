"""Section of `gpu_check`: compute-sanitizer over every kernel, where it is installed and the machine lets it run."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
from gpu_common import Findings, OnDevice, Run, form, synchronize
from gpu_parity import packing

from augpipe import Recipe, ops, plan

PLACES = ("/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer", "/opt/nvidia/compute-sanitizer")
TOOLS = ("memcheck", "initcheck")
LIMIT_S = 120


def run(run: Run, findings: Findings) -> None:
    path = os.pathsep.join((os.environ.get("PATH", ""), *PLACES))
    tool = shutil.which("compute-sanitizer", path=path)
    if tool is None:
        findings.leave_out("compute-sanitizer", "it is neither on PATH nor in " + ", ".join(PLACES))
        return
    code = "import gpu_sanitizer; gpu_sanitizer.every_kernel()"
    # each tensor an allocation of its own: what lies side by side in torch's pool would hide a kernel's false step
    environment = os.environ | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    for name in TOOLS:
        with findings.attempt(name):
            done = subprocess.run(
                [tool, "--tool", name, "--error-exitcode", "97", sys.executable, "-c", code],
                cwd=Path(__file__).parent,
                env=environment,
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
            )
            lines = [line for line in done.stdout.splitlines() + done.stderr.splitlines() if line.startswith("=====")]
            if done.returncode not in (0, 97) or not any("ERROR SUMMARY" in line for line in lines):
                reason = (lines or done.stderr.splitlines())[-5:]
                findings.leave_out(name, f"it did not run (exit code {done.returncode}): {reason}")
                continue
            ours = [line for line in lines if "render" in line or "pack" in line]
            summary = next(line for line in lines if "ERROR SUMMARY" in line)
            findings.keep(name, {"summary": summary, "first_lines": lines[:25] if done.returncode else []})
            findings.check(f"{name}: clean", done.returncode == 0, {"kernels of ours named": ours[:10]})


def every_kernel(*, is_simulated: bool = False) -> None:
    """One small batch by each kernel: odd and even widths, borders, lenses, wide filters, 1, 3 and 4 channels."""
    run = Run(photographs=Path(), origin="", work=Path(), is_simulated=is_simulated)
    rng = np.random.default_rng(0)
    shapes = [(31, 45, 1), (40, 29, 3), (33, 33, 4), (90, 70, 3)]
    photographs = [rng.integers(0, 256, shape, np.uint8) for shape in shapes]
    steps = (ops.ColorCast(), ops.Vignette(), ops.BrownConrady(), ops.Rotate(max_deg=45, step=None))
    for dtype in ("float32", "float16", "bfloat16", "uint8"):
        for layout in ("NCHW", "NHWC"):
            for border in ("context", "constant"):
                for size in run.pick(((20, 17), (18, 32)), ((3, 3), (2, 4))):
                    recipe = Recipe(border=border, ops=(*steps, ops.RandomResizedCrop(size=size)))
                    made = plan(recipe, range(len(shapes)), sizes=[shape[:2] for shape in shapes])
                    OnDevice(run, photographs, recipe, form(dtype, layout)).render(made)
                    synchronize()
    packing(run, _Ignored(Path()))
    synchronize()


class _Ignored(Findings):
    """Findings that nobody keeps."""

    def _write(self) -> None:
        pass
