"""Section of `check`: from host to device; what a batch holds there; how soon it comes; no growth over 1,000."""

import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu.common import Findings, Run, make_loader, spread, synchronize, wall_seconds

NUM_BATCHES, EVERY, SETTLED = 1000, 100, 500
"""The last: batches after which nothing may be added: pools have reached the size of the largest batch."""
PAGE_MB = 2
"""The driver hands out memory in pages of this size."""
LOADERS: dict[str, dict[str, Any]] = {
    "the cache full, dali": {"backend": "dali", "cache": "device"},
    "from files, dali": {"backend": "dali"},
    "from files, native": {"backend": "native"},
}


def answers(run: Run) -> dict[str, Callable[[Findings], Any]]:
    """Bandwidth, what a batch holds, the start of each loader, then its growth."""
    found: dict[str, Callable[[Findings], Any]] = {"host to device": partial(_upload, run)}
    found |= {f"a batch {name}": partial(_batch, run, name) for name in LOADERS if "cache" not in LOADERS[name]}
    found |= {f"start, {name}": partial(_start, run, name) for name in LOADERS}
    return found | {name: partial(_growth, run, name) for name in LOADERS}


def _upload(run: Run, findings: Findings) -> None:
    num_bytes = run.pick(1 << 28, 1 << 12)
    target = torch.empty(num_bytes, dtype=torch.uint8, device=run.device)
    for name in run.pick(("pinned", "pageable"), ("pageable",)):
        source = torch.ones(num_bytes, dtype=torch.uint8, pin_memory=name == "pinned")

        def copy(_: int, source: torch.Tensor = source) -> None:
            target.copy_(source, non_blocking=True)

        seconds = statistics.median(wall_seconds(copy, run.pick(10, 1)))
        findings.keep(f"host to device, {name}, GB/s", round(num_bytes / seconds / 1e9, 2))


def _batch(run: Run, name: str, findings: Findings) -> None:
    """Device memory of batches of 256 that are waited for one by one, above what there was before the loader."""
    if not run.is_simulated:
        torch.cuda.empty_cache()
    before, series, batch_size = _memory(), [], run.pick(256, 2)
    loader = make_loader(run, run.many(run.pick(2048, 4)), batch_size, prefetch=1, **LOADERS[name])
    for batch in loader:
        now = _memory()
        peak_mb = now["torch_peak_mb"] - before["torch_allocated_mb"]
        series.append({"device_used_mb": now["device_used_mb"] - before["device_used_mb"], "torch_peak_mb": peak_mb})
        images_mb = batch.images.nbytes / 2**20
    found = {key: spread([row[key] for row in series], 1) for key in series[0]}
    findings.keep(f"a batch {name}", found | {"images_mb": round(images_mb, 3), "batch_size": batch_size})


def _start(run: Run, name: str, findings: Findings) -> None:
    """Seconds to build a loader, and to the first batch of three epochs; a cache is full from the second one on."""
    folder = run.many(run.pick(4096, 4))
    begin, batch_size, seconds = time.perf_counter(), run.pick(256, 2), []
    loader = make_loader(run, folder, batch_size, **LOADERS[name])
    built = time.perf_counter() - begin
    for _ in range(3):
        begin, batches = time.perf_counter(), iter(loader)
        next(batches)
        synchronize()
        seconds.append(round(time.perf_counter() - begin, 4))
        for _ in batches:
            pass
    found = {"seconds_to_build": round(built, 4), "seconds_to_the_first_batch_of_epochs": seconds}
    findings.keep(f"start, {name}", found | {"batch_size": batch_size})


def _growth(run: Run, name: str, findings: Findings) -> None:
    batch_size, series, num = run.pick(64, 2), list[dict[str, float]](), 0
    loader = make_loader(run, run.many(run.pick(2048, 4)), batch_size, **LOADERS[name])
    while num < run.pick(NUM_BATCHES, 8):
        for batch in loader:
            batch.images.sum()  # somebody looks at them
            num += 1
            series += [{"batches": num} | _memory()] if num % run.pick(EVERY, 2) == 0 else []
    settled = next(row for row in series if row["batches"] >= run.pick(SETTLED, 4))
    growth = {key: series[-1][key] - settled[key] for key in ("device_used_mb", "torch_reserved_mb")}
    findings.keep(name, {"growth_mb": growth, "batch_size": batch_size, "series": series})
    findings.check(f"{name}: no growth on the device", all(value <= PAGE_MB for value in growth.values()), growth)


def _memory() -> dict[str, float]:
    synchronize()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    found = {"resident_mb": round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1)}
    if not torch.cuda.is_available():
        names = ("device_used_mb", "torch_reserved_mb", "torch_allocated_mb", "torch_peak_mb")
        return found | dict.fromkeys(names, 0.0)
    free, total = torch.cuda.mem_get_info()
    found["torch_peak_mb"] = round(torch.cuda.max_memory_allocated() / 2**20, 1)
    torch.cuda.reset_peak_memory_stats()
    return found | {
        "device_used_mb": round((total - free) / 2**20, 1),
        "torch_reserved_mb": round(torch.cuda.memory_reserved() / 2**20, 1),
        "torch_allocated_mb": round(torch.cuda.memory_allocated() / 2**20, 1),
    }
