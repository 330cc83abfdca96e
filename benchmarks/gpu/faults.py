"""Section of `check`: what a user is told when something is wrong, and that the run goes on where it can.

What leaves the CUDA context unusable happens in a process of its own. Corrupt files, and a device that is full while
the cache fills, are among the tests marked gpu. No driver, an old driver, and packages that do not go together cannot
be had on a machine that works; tests/augpipe/cuda/test_device.py puts them in its place.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch

from augpipe import Augment, Recipe, ops, plan
from augpipe.cuda.device_name import require_device
from augpipe.cuda.failures import KernelError
from benchmarks.gpu.common import NO_FILES, Findings, OnDevice, Run, form, on_device


def answers(run: Run) -> dict[str, Callable[[Findings], None]]:
    """The simulator has one device, and no streams nor allocator."""
    more = {"batch too large": partial(_batch_too_large, run), "stream under capture": partial(_captured, run)}
    return {"index out of range": _no_such_device} | on_device(run, more | {"bad kernel": _bad_kernel})


def _no_such_device(findings: Findings) -> None:
    _refused(findings, "index out of range", lambda: require_device("cuda:99"), ValueError, "cuda:99")


def _refused(findings: Findings, name: str, work: object, kind: type[BaseException], *said: str) -> None:
    """Check that `work` raises `kind`, and that the message says what it must."""
    try:
        work()  # type: ignore[operator]
    except kind as error:
        findings.check(name, all(word in str(error) for word in said), f"{type(error).__name__}: {error}")
    else:
        findings.check(name, False, "nothing was raised")


def _batch_too_large(run: Run, findings: Findings) -> None:
    recipe = Recipe(name="huge", ops=(ops.CenterCrop(size=20_000, scale=20_000),))
    images = [torch.zeros(30, 40, 3, dtype=torch.uint8, device=run.device)] * 300
    said = ("out of device memory for a batch's images", "Lower the batch size")
    _refused(findings, "batch too large", lambda: Augment(recipe)(images), torch.OutOfMemoryError, *said)
    small = Augment(Recipe(ops=(ops.CenterCrop(size=20),)))(images[:2])
    findings.check("the device works on after a batch too large", small.shape == (2, 3, 20, 20))


def _captured(run: Run, findings: Findings) -> None:
    """A batch is planned anew each time, so a CUDA graph cannot hold it."""
    augment = Augment(Recipe(ops=(ops.CenterCrop(size=20),)))
    images = [torch.zeros(30, 40, 3, dtype=torch.uint8, device=run.device)]
    augment(images)  # compiled
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        graph.capture_begin()
        try:
            _refused(findings, "stream under capture", lambda: augment(images), RuntimeError, "CUDA graph")
        finally:
            graph.capture_end()


def _bad_kernel(findings: Findings) -> None:
    code = "from benchmarks.gpu import check; check.as_installed()"
    code += "; from benchmarks.gpu import faults; faults.launch_badly()"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=90
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        findings.check("a CUDA error in a kernel", False, done.stderr.splitlines()[-15:])
        return
    said = json.loads(lines[-1])
    passed = said["kind"] == "KernelError" and said["recipe"] == "faulty" and said["sample_ids"] == [70, 71]
    findings.check("a CUDA error in a kernel names recipe and sample ids", passed, said)


def launch_badly() -> None:
    """Render images that lie nowhere, and print what is raised; the process is of no use afterwards."""
    recipe = Recipe(name="faulty", ops=(ops.CenterCrop(size=20),))
    images = [np.zeros((30, 40, 4), np.uint8)] * 2
    batch = OnDevice(NO_FILES, images, recipe, form())
    made = plan(recipe, [70, 71], sizes=[(30, 40)] * 2)
    batch.render(made)
    batch.renderer.drain()
    batch.table[:, 0] = 16  # no process has memory there
    said: dict[str, object] = {"kind": "nothing was raised"}
    try:
        batch.render(made)
        batch.renderer.drain()
    except Exception as error:
        said = {"kind": type(error).__name__, "message": str(error)}
        said |= {"recipe": error.recipe, "sample_ids": error.sample_ids} if isinstance(error, KernelError) else {}
    print(json.dumps(said), flush=True)
    os._exit(0)  # destructors wait for a device that answers no more
