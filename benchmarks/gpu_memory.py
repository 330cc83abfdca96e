"""Section of `gpu_check`: how fast the host's memory reaches the device; memory over 1,000 batches must not grow."""

import os
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from gpu_common import Findings, Run, make_loader, synchronize, wall_seconds

NUM_BATCHES = 1000
EVERY = 100
SETTLED = 500
"""Batches after which nothing may be added: pools have reached the size of the largest batch."""

PAGE_MB = 2
"""The driver hands out memory in pages of this size."""


LOADERS: dict[str, dict[str, Any]] = {
    "the cache full, dali": {"backend": "dali", "cache": "device"},
    "from files, dali": {"backend": "dali"},
    "from files, native": {"backend": "native"},
}


def answers(run: Run) -> dict[str, Callable[[Findings], None]]:
    """Bandwidth, then a loader each."""
    return {"host to device": partial(_upload, run)} | {name: partial(_growth, run, name) for name in LOADERS}


def _upload(run: Run, findings: Findings) -> None:
    num_bytes = run.pick(1 << 28, 1 << 12)
    target = torch.empty(num_bytes, dtype=torch.uint8, device=run.device)
    for name in run.pick(("pinned", "pageable"), ("pageable",)):
        source = torch.ones(num_bytes, dtype=torch.uint8, pin_memory=name == "pinned")

        def copy(_: int, source: torch.Tensor = source) -> None:
            target.copy_(source, non_blocking=True)

        seconds = statistics.median(wall_seconds(copy, run.pick(10, 1)))
        findings.keep(f"host to device, {name}, GB/s", round(num_bytes / seconds / 1e9, 2))


def _growth(run: Run, name: str, findings: Findings) -> None:
    batch_size = run.pick(64, 2)
    series = _series(run, run.many(run.pick(2048, 4)), batch_size, LOADERS[name])
    settled = next(row for row in series if row["batches"] >= run.pick(SETTLED, 4))
    growth = {key: series[-1][key] - settled[key] for key in ("device_used_mb", "torch_reserved_mb")}
    findings.keep(name, {"growth_mb": growth, "batch_size": batch_size, "series": series})
    findings.check(f"{name}: no growth on the device", all(value <= PAGE_MB for value in growth.values()), growth)


def _series(run: Run, folder: Path, batch_size: int, options: dict[str, Any]) -> list[dict[str, float]]:
    loader = make_loader(run, folder, batch_size, **options)
    wanted, every = run.pick(NUM_BATCHES, 8), run.pick(EVERY, 2)
    series, num = [], 0
    while num < wanted:
        for batch in loader:
            batch.images.sum()  # somebody looks at them
            num += 1
            if num % every == 0:
                series.append({"batches": num} | _memory())
    return series


def _memory() -> dict[str, float]:
    synchronize()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    found = {"resident_mb": round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1)}
    if not torch.cuda.is_available():
        return found | dict.fromkeys(("device_used_mb", "torch_reserved_mb", "torch_allocated_mb"), 0.0)
    free, total = torch.cuda.mem_get_info()
    return found | {
        "device_used_mb": round((total - free) / 2**20, 1),
        "torch_reserved_mb": round(torch.cuda.memory_reserved() / 2**20, 1),
        "torch_allocated_mb": round(torch.cuda.memory_allocated() / 2**20, 1),
    }
