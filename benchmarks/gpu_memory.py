"""Section of `gpu_check`: the device's and the host's memory over 1,000 batches must not grow."""

import os
from pathlib import Path
from typing import Any

import torch
from gpu_common import Findings, Run, synchronize
from gpu_loader import make_loader

NUM_BATCHES = 1000
EVERY = 100
SETTLED = 500
"""Batches after which nothing may be added: pools have reached the size of the largest batch."""

PAGE_MB = 2
"""The driver hands out memory in pages of this size."""


def run(run: Run, findings: Findings) -> None:
    batch_size = run.pick(64, 2)
    folder = run.many(run.pick(2048, 4))
    for name, options in {
        "the cache full, dali": {"backend": "dali", "cache": "device"},
        "from files, dali": {"backend": "dali"},
        "from files, native": {"backend": "native"},
    }.items():
        with findings.attempt(name):
            series = _series(run, folder, batch_size, options)
            settled = next(row for row in series if row["batches"] >= run.pick(SETTLED, 4))
            growth = {key: series[-1][key] - settled[key] for key in ("device_used_mb", "torch_reserved_mb")}
            findings.keep(name, {"growth_mb": growth, "batch_size": batch_size, "series": series})
            findings.check(
                f"{name}: no growth on the device", all(value <= PAGE_MB for value in growth.values()), growth
            )


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
