"""Section of `gpu_check`: what a user is told when something is wrong, and that the run goes on where it can.

What leaves the CUDA context unusable happens in a process of its own. No driver, an old driver, and packages that do
not go together cannot be had on a machine that works; tests/unit/test_device.py puts them in its place.
"""

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
from gpu_common import Findings, OnDevice, Run, form
from gpu_loader import make_loader

from augpipe import Augment, Loader, Recipe, ops, plan
from augpipe.cuda.device import require_device
from augpipe.cuda.failures import KernelError
from augpipe.errors import SampleError

SEGMENT_BYTES = 1 << 28
"""Of the device cache: what it asks for at once."""

TRUNCATED, NO_PICTURE = 3, 9
"""Which of the corrupt folder's files are bad; in order, in different batches."""


def run(run: Run, findings: Findings) -> None:
    with findings.attempt("index out of range"):
        _refused(findings, "index out of range", lambda: require_device("cuda:99"), ValueError, "cuda:99")
    with findings.attempt("corrupt photographs, dali"):
        _corrupt(run, findings)
    if run.is_simulated:
        return
    with findings.attempt("batch too large"):
        _batch_too_large(run, findings)
    with findings.attempt("stream under capture"):
        _captured(run, findings)
    with findings.attempt("device full while the cache fills"):
        _cache_full(run, findings)
    with findings.attempt("bad kernel"):
        _bad_kernel(findings)


def _refused(findings: Findings, name: str, work: object, kind: type[BaseException], *said: str) -> None:
    """Check that `work` raises `kind`, and that the message says what it must."""
    try:
        work()  # type: ignore[operator]
    except kind as error:
        findings.check(name, all(word in str(error) for word in said), f"{type(error).__name__}: {error}")
    else:
        findings.check(name, False, "nothing was raised")


def _corrupt(run: Run, findings: Findings) -> None:
    """A truncated photograph, and a file that is none, on the device as on the CPU."""
    folder = run.work / "corrupt"
    folder.mkdir()
    encoded = run.encoded()
    for number in range(run.pick(24, 12)):
        data = encoded[number % len(encoded)]
        if number == TRUNCATED:
            data = data[: len(data) * 2 // 3]
        (folder / f"{number:05}.jpg").write_bytes(b"no picture" if number == NO_PICTURE else data)
    skipping = make_loader(run, folder, run.pick(8, 4), backend="dali", dtype="float32", on_error="skip")
    found = list(skipping)
    reference = Loader(
        folder, skipping.recipe, batch_size=skipping.batch_size, device="cpu", backend="native", on_error="skip"
    )
    expected = list(reference)
    same_ids = all(np.array_equal(a.sample_ids, b.sample_ids) for a, b in zip(found, expected, strict=True))
    same_plans = all(a.plan.rows.tobytes() == b.plan.rows.tobytes() for a, b in zip(found, expected, strict=True))
    skipped = {key: str(value)[:200] for key, value in skipping.skipped.items()}
    findings.check("corrupt photographs are skipped as on the CPU", same_ids and same_plans, skipped)
    findings.check("both bad files are named", sorted(skipping.skipped) == [TRUNCATED, NO_PICTURE], sorted(skipped))
    again = [batch.sample_ids.tolist() for batch in skipping]
    findings.check("the next epoch runs, too", sum(map(len, again)) == len(skipping.source))
    raising = make_loader(run, folder, run.pick(8, 4), backend="dali", shuffle=False)
    _refused(findings, "a corrupt photograph ends the run by name", lambda: list(raising), SampleError, "00003.jpg")


def _batch_too_large(run: Run, findings: Findings) -> None:
    recipe = Recipe(name="huge", ops=(ops.CenterCrop(size=20_000, scale=20_000),))
    photographs = [torch.zeros(30, 40, 3, dtype=torch.uint8, device=run.device)] * 300
    said = ("out of device memory for a batch's images", "Lower the batch size")
    _refused(findings, "batch too large", lambda: Augment(recipe)(photographs), torch.OutOfMemoryError, *said)
    small = Augment(Recipe(ops=(ops.CenterCrop(size=20),)))(photographs[:2])
    findings.check("the device works on after a batch too large", small.shape == (2, 3, 20, 20))


def _captured(run: Run, findings: Findings) -> None:
    """A batch is planned anew each time, so a CUDA graph cannot hold it."""
    augment = Augment(Recipe(ops=(ops.CenterCrop(size=20),)))
    photographs = [torch.zeros(30, 40, 3, dtype=torch.uint8, device=run.device)]
    augment(photographs)  # compiled
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        graph.capture_begin()
        try:
            _refused(findings, "stream under capture", lambda: augment(photographs), RuntimeError, "CUDA graph")
        finally:
            graph.capture_end()


def _cache_full(run: Run, findings: Findings) -> None:
    """The device fills up while the cache grows: it stops growing, says so once, and every batch comes out right."""
    folder, options = run.many(1000), {"backend": "native", "prefetch": 1}
    expected = [batch.images.cpu() for batch in make_loader(run, folder, 16, **options)]
    torch.cuda.synchronize()
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("augpipe").addHandler(handler)
    total = torch.cuda.mem_get_info()[1]
    # room for one segment, and not for another one even if torch lets go of what it holds for the next batches
    room = torch.cuda.memory_reserved() + SEGMENT_BYTES * 9 // 8
    torch.cuda.set_per_process_memory_fraction(room / total)
    try:
        loader = make_loader(run, folder, 16, cache="device", cache_bytes=20 * SEGMENT_BYTES, **options)
        missed = [batch.images.cpu() for batch in loader]
        loader.set_epoch(0)
        hit = [batch.images.cpu() for batch in loader]
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
        logging.getLogger("augpipe").removeHandler(handler)
    statistics = loader.cache_statistics
    assert statistics is not None
    told = [line for line in lines if "stops growing" in line]
    findings.keep("device full while the cache fills", {"statistics": str(statistics), "said": told})
    findings.check("the cache says once that it stops growing", len(told) == 1, told)
    held = statistics.num_held > 0 and statistics.num_did_not_fit > 0 and statistics.hits >= statistics.num_held
    findings.check("what fitted is held, and the rest is decoded", held, str(statistics))
    alike = [torch.equal(a, b) and torch.equal(a, c) for a, b, c in zip(expected, missed, hit, strict=True)]
    findings.check("batches are those without a cache, bit by bit", all(alike))


def _bad_kernel(findings: Findings) -> None:
    code = "import gpu_faults; gpu_faults.launch_badly()"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parent, capture_output=True, text=True, timeout=90
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        findings.check("a CUDA error in a kernel", False, done.stderr.splitlines()[-15:])
        return
    said = json.loads(lines[-1])
    passed = said["kind"] == "KernelError" and said["recipe"] == "faulty" and said["sample_ids"] == [70, 71]
    findings.check("a CUDA error in a kernel names recipe and sample ids", passed, said)


def launch_badly() -> None:
    """Render photographs that lie nowhere, and print what is raised; the process is of no use afterwards."""
    recipe = Recipe(name="faulty", ops=(ops.CenterCrop(size=20),))
    run = Run(photographs=Path(), origin="", work=Path(), is_simulated=False)
    photographs = [np.zeros((30, 40, 4), np.uint8)] * 2
    batch = OnDevice(run, photographs, recipe, form())
    made = plan(recipe, [70, 71], sizes=[(30, 40)] * 2)
    batch.render(made)
    batch.renderer.drain()
    batch.table[:, 0] = 16  # no process has memory there
    said: dict[str, object] = {"kind": "nothing was raised"}
    try:
        batch.render(made)
        batch.renderer.drain()
    except KernelError as error:
        said = {"kind": "KernelError", "recipe": error.recipe, "sample_ids": error.sample_ids, "message": str(error)}
    except Exception as error:
        said = {"kind": type(error).__name__, "message": str(error)}
    print(json.dumps(said), flush=True)
    os._exit(0)  # destructors wait for a device that answers no more
