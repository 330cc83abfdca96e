"""Section of `check`: compute-sanitizer over every kernel, where it is installed and the machine lets it run."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from augpipe import Loader, Recipe, ops, plan
from augpipe.gpu_ops.codec.cuda import launch
from augpipe.gpu_ops.image.cuda.ptx import KERNELS
from augpipe.trainer.codecs import codec, names
from augpipe.trainer.codecs.cuda import add_rows
from benchmarks.gpu.common import NO_FILES, Findings, OnDevice, Run, form, kernels_made, on_device, synchronize
from benchmarks.gpu.parity import LabelledNoise, packed

PLACES = ("/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer", "/opt/nvidia/compute-sanitizer")
TOOLS = {
    "memcheck": ("codecs", "fused", "filter", "finish", "mix", "labels", "pack_rgbx"),
    "racecheck": ("codecs", "filter", "finish"),
    "synccheck": ("codecs", "filter", "finish"),
    "initcheck": ("fused", "filter", "finish", "mix", "labels", "pack_rgbx"),
}
"""The kernels that each tool is to look at. Threads of the codecs' work together by shuffles, those that finish images
through shared memory with atomics and barriers; threads of the others have nothing to do with each other."""
DTYPES, LAYOUTS = ("float32", "float16", "bfloat16", "uint8"), ("NCHW", "NHWC")
FOUND_SOMETHING = 97


def answers(run: Run) -> dict[str, Callable[[Findings], None]]:
    """A tool each."""
    return on_device(run, {tool: partial(_checked, tool) for tool in TOOLS})


def _checked(tool: str, findings: Findings) -> None:
    path = os.pathsep.join((os.environ.get("PATH", ""), *PLACES))
    program = shutil.which("compute-sanitizer", path=path)
    if program is None:
        findings.leave_out(tool, "compute-sanitizer is neither on PATH nor in " + ", ".join(PLACES))
        return
    code = "from benchmarks.gpu import check; check.as_installed()"
    code += f"; from benchmarks.gpu import sanitizer; sanitizer.look_at(*{TOOLS[tool]})"
    # each tensor an allocation of its own: what lies side by side in torch's pool would hide a kernel's false step
    environment = os.environ | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    # CUDA's own bindings ask for functions that a driver may lack, which is no fault of a kernel
    quiet = ["--report-api-errors", "no"] if tool == "memcheck" else []
    command = [program, "--tool", tool, *quiet, "--error-exitcode", str(FOUND_SOMETHING), sys.executable, "-c", code]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], env=environment, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() + done.stderr.splitlines() if line.startswith("=====")]
    summary = [line for line in lines if "SUMMARY" in line]
    if done.returncode not in (0, FOUND_SOMETHING) or not summary:
        findings.fail(tool, [*lines[-5:], *done.stderr.splitlines()[-5:], f"it ended with exit code {done.returncode}"])
        return
    findings.keep(tool, {"kernels": TOOLS[tool], "summary": summary})
    findings.check(f"{tool}: clean", done.returncode == 0, lines[:25])


def look_at(*kinds: str) -> None:
    """Launch every kernel of these kinds, on batches that are small."""
    for kind in kinds:
        WORKLOADS[kind]()
        synchronize()
        num, wanted = kernels_made().get(kind, 0), sum(spec.name.split()[0] == kind for spec in KERNELS)
        assert num >= wanted, f"{kind}: {num} of {wanted} kernels were launched"


def _codecs() -> None:
    """Every codec's kernels by every way in: blocks of a part of a chunk, of one, of several, and one for all."""
    for name in names():
        for num, block in ((1, 256), (5_000, 100), (40_003, 256), (40_003, 4096), (40_003, None)):
            made = codec(name, block=block)
            x = torch.randn(num, device="cuda")
            payload = made.encode(x)
            made.decode_into(payload, x)
            made.decode_into(payload, x, add=True)
    rows = torch.randn(3, 5_000, device="cuda")
    add_rows(rows[0], rows[1:], share=0.5, factor=2.0)
    assert launch._kernel.cache_info().currsize == len(launch.CODEC_KERNELS), "a codec's kernel was not launched"


def _images(chain: tuple[ops.Op, ...], mixing: tuple[ops.MixUp | ops.CutMix, ...] = ()) -> None:
    """Small batches of every number type and layout: odd and even widths, borders, every number of channels."""
    rng = np.random.default_rng(0)
    shapes = NO_FILES.pick([(31, 45, 1), (40, 29, 3), (33, 33, 4), (90, 70, 3)], [(5, 9, 1), (8, 7, 3), (9, 6, 4)])
    partners = NO_FILES.pick([1, 0, 3, 2], [1, 2, 0])
    images = [rng.integers(0, 256, shape, np.uint8) for shape in shapes]
    borders = NO_FILES.pick(("context", "constant"), ("context",))
    sizes = NO_FILES.pick(((20, 17), (18, 32)), ((2, 3),))
    for dtype, layout, border, size in product(DTYPES, LAYOUTS, borders, sizes):
        recipe = Recipe(border=border, ops=(*chain, ops.RandomResizedCrop(size=size)), mixing=mixing).fused()
        made = plan(recipe, range(len(shapes)), sizes=[shape[:2] for shape in shapes], partners=partners)
        OnDevice(NO_FILES, images, recipe, form(dtype, layout)).render(made)


def _label_maps() -> None:
    """Of every number of bytes, at odd and even widths, in batches whose images look up pixels beyond their borders."""
    cached: dict[str, Any] = {"cache": "device", "cache_bytes": 1 << 24}
    for dtype in ("uint8", "uint16", "int32", "int64"):
        source = LabelledNoise(dtype, NO_FILES.pick([(31, 45), (40, 29), (33, 33)], [(5, 9), (8, 7)]))
        for border, size in product(("reflect", "constant"), NO_FILES.pick(((20, 17), (18, 32)), ((2, 3),))):
            recipe = Recipe(border=border, ops=(*WARPED, ops.RandomResizedCrop(size=size)))
            loader = Loader(source, recipe, batch_size=2, device="cuda", backend="native", **cached)
            assert len([*loader, *loader]) == 2 * len(loader)


WARPED = (ops.ColorCast(), ops.Vignette(), ops.BrownConrady(), ops.Rotate(max_deg=45, step=None))
FINISHED = (
    *(ops.Hue(), ops.AutoContrast(p=1.0), ops.Sharpness(p=1.0), ops.Posterize(p=1.0), ops.Equalize(p=1.0)),
    *(ops.Contrast(about="mean", p=1.0), ops.Erase(p=1.0), ops.Noise(p=1.0), ops.Sharpness(p=1.0), ops.Vignette()),
    *(ops.GridDropout(p=1.0), ops.PixelDropout(p=1.0), ops.Shadow(p=1.0)),
)
FILTERED = (
    *(
        ops.CLAHE(tiles=(2, 3), p=1.0),
        ops.GaussianBlur(sigma_px=(0.5, 1.0), p=1.0),
        ops.MedianBlur(sizes=(3, 3), p=1.0),
    ),
    *(ops.Equalize(p=1.0), ops.Sharpen(p=1.0), ops.JpegCompression(p=1.0)),
    ops.GridShuffle(p=1.0),
    ops.Downscale(p=1.0),
)
WORKLOADS: dict[str, Callable[[], object]] = {
    "codecs": _codecs,
    "fused": partial(_images, WARPED),
    "filter": partial(_images, FILTERED),
    "finish": partial(_images, FINISHED),
    "mix": partial(_images, (), (ops.MixUp(p=0.5), ops.CutMix(p=0.5))),
    "labels": _label_maps,
    "pack_rgbx": partial(packed, NO_FILES),
}
