"""Section of `gpu_check`: where a batch's time goes, on the host and on the device, and the kernel's launch shapes."""

import statistics
import sys
import threading
from collections import Counter
from typing import Any

import torch
from gpu_batches import CachedBatches
from gpu_common import Findings, Run, event_seconds, host_seconds, spread, wall_seconds
from gpu_loader import make_loader

from augpipe import Loader, plan, recipes
from augpipe.cuda.render import DeviceRenderer
from augpipe.cuda.upload import UploadRing
from augpipe.gpu_ops.cuda import launch
from augpipe.gpu_ops.cuda.fused import FUSED_LAUNCH_BOUNDS
from augpipe.planning.kernel_rows import dct_factors, kernel_rows
from augpipe.planning.regions import source_regions

BLOCKS = tuple(
    (x, y)
    for x in (8, 16, 32, 64, 112)
    for y in (1, 2, 4, 8, 16)
    if 64 <= x * y <= FUSED_LAUNCH_BOUNDS[0] and x % 8 == 0
)
"""Threads along x and y; the kernel is compiled for so many at most."""

ROWS_PER_THREAD = (1, 2, 4, 8, 16)
SAMPLE_S = 0.002


def run(run: Run, findings: Findings) -> None:
    size, side = run.pick((256, 341), (8, 10)), run.pick(224, 6)
    batches = CachedBatches(run, recipes.deep_image(side, (size[0],)), "float16", "NCHW", size=size)
    _host(run, findings, batches)
    _device(run, findings, batches)
    with findings.attempt("where the loader's threads are"):
        _sampled(run, findings)
    with findings.attempt("launch shapes"):
        _shapes(run, findings, batches)


def _host(run: Run, findings: Findings, batches: CachedBatches) -> None:
    """Each step of the host for one batch, alone, in microseconds."""
    times = run.pick(60, 2)
    num = batches.batch_size
    height, width = batches.photographs.shape[1:3]
    sizes = [(height, width)] * num
    made, rows, tables = batches.plans[0], batches.rows[0], batches.tables[0]
    renderer = DeviceRenderer(run.device, batches.recipe, batches.form, max_pending=1000)
    ring = UploadRing(renderer._streams)
    out_size = (batches.height, batches.width)
    steps = {
        "plan": lambda turn: plan(batches.recipe, batches.order[0], sizes=sizes, epoch=turn % 1000),
        "dct_factors": lambda _: dct_factors(made.views),
        "kernel_rows": lambda _: kernel_rows(made.rows),
        "source_regions (without a cache)": lambda _: source_regions([rows], [out_size]),
        "render, all of it": lambda turn: renderer.render(tables, [rows], [out_size], [], batches.order[0]),
        "launch alone": batches.launch,
    }
    found = {name: spread([s * 1e6 for s in host_seconds(work, times)], 2) for name, work in steps.items()}

    def upload(_: int) -> None:
        slot = ring.take([tables, rows])
        slot.upload([tables, rows])
        ring.give_back(slot)

    found["upload of the tables alone"] = spread([s * 1e6 for s in host_seconds(upload, times)], 2)
    renderer.drain()
    findings.keep(f"host, microseconds for a batch of {num}", found)


def _device(run: Run, findings: Findings, batches: CachedBatches) -> None:
    renderer = DeviceRenderer(run.device, batches.recipe, batches.form, max_pending=1000)
    size = (batches.height, batches.width)
    kernel = event_seconds(batches.launch, run.pick(100, 2), batches.num_batches)
    rendered = event_seconds(
        lambda turn: renderer.render(
            batches.tables[turn % batches.num_batches],
            [batches.rows[turn % batches.num_batches]],
            [size],
            [],
            batches.order[0],
        ),
        run.pick(100, 2),
    )
    both = {"kernel": spread([s * 1e6 for s in kernel], 2), "upload and kernel": spread([s * 1e6 for s in rendered], 2)}
    findings.keep("device, microseconds for a batch", both)
    renderer.drain()


def _sampled(run: Run, findings: Findings) -> None:
    """Where threads are, looked at every few milliseconds while loaders run through epochs."""
    folder, batch_size = run.many(run.pick(4096, 4)), run.pick(256, 2)
    for name, options in {
        "the cache full, native": {"backend": "native", "cache": "device"},
        "from files, native": {"backend": "native"},
        "from files, dali": {"backend": "dali"},
    }.items():
        loader = make_loader(run, folder, batch_size, **options)
        for _ in range(2):
            for _ in loader:
                pass
        findings.keep(f"where threads are, {name}", _watched(loader, run.pick(4, 1)))
        del loader


def _watched(loader: Loader, num_epochs: int) -> dict[str, Any]:
    def epoch(_: int) -> None:
        for _ in loader:
            pass

    sampler = Sampler()
    seconds = wall_seconds(epoch, num_epochs, 0)
    found = sampler.stop()
    return {"seconds_an_epoch": spread(seconds), "batches_an_epoch": len(loader), "threads_seen_at": found}


class Sampler:
    """Notes the innermost function of augpipe, DALI or torch that each thread is in, again and again."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._times = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._main = threading.main_thread().ident
        self._thread.start()

    def stop(self) -> dict[str, float]:
        """Threads on average at each place, the twenty most frequent."""
        self._stopped.set()
        self._thread.join()
        return {place: round(num / max(self._times, 1), 3) for place, num in self._counts.most_common(20)}

    def _run(self) -> None:
        own = threading.get_ident()
        while not self._stopped.wait(SAMPLE_S):
            self._times += 1
            for ident, frame in sys._current_frames().items():
                if ident == own:
                    continue
                role = "main" if ident == self._main else "worker"
                innermost, line = frame.f_code, frame.f_lineno
                at: object = frame
                while at is not None and "augpipe" not in at.f_code.co_filename:  # type: ignore[attr-defined]
                    at = at.f_back  # type: ignore[attr-defined]
                if at is None:
                    continue
                code = at.f_code  # type: ignore[attr-defined]
                file = code.co_filename.rpartition("augpipe/")[2]
                what = "" if code is innermost else f" in {innermost.co_name}"
                self._counts[f"{role}: {file}:{code.co_name}{what or f' line {line}'}"] += 1


def _shapes(run: Run, findings: Findings, batches: CachedBatches) -> None:
    """The kernel alone with other blocks of threads and rows a thread; what the launcher takes is put back."""
    before = launch.BLOCK, launch.MAX_ROWS_PER_THREAD
    expected = batches.launch(0).clone()
    found = {}
    try:
        for block in run.pick(BLOCKS, ((2, 2),)):
            for num_rows in run.pick(ROWS_PER_THREAD, (2,)):
                launch.BLOCK, launch.MAX_ROWS_PER_THREAD = block, num_rows
                name = _name(block, num_rows)
                findings.check(f"{name}: the same images", torch.equal(batches.launch(0), expected))
                seconds = event_seconds(batches.launch, run.pick(60, 1), batches.num_batches)
                found[name] = round(statistics.median(seconds) * 1e6, 2)
    finally:
        launch.BLOCK, launch.MAX_ROWS_PER_THREAD = before
    best = dict(sorted(found.items(), key=lambda item: item[1])[:8])
    now = {_name(*before): found.get(_name(*before))}
    findings.keep("launch shapes, microseconds", {"now": now, "best": best, "all": found})


def _name(block: tuple[int, int], num_rows: int) -> str:
    return f"{block[0]}x{block[1]} threads, {num_rows} rows each at most"
