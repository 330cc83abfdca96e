"""Peak memory: of the loader over 50 epochs of the images, and of `augpipe prepare` on few and on many small files.

    python -m benchmarks.pipeline.memory loader     # it must not grow from epoch to epoch
    python -m benchmarks.pipeline.memory prepare    # the parent, and the largest of its workers

The peak is the kernel's own count of resident memory (VmHWM). Each run of prepare is a command of its own, looked at as
long as it lives.
"""

import io
import resource
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from PIL import Image

from augpipe import Loader, recipes
from augpipe.native.workers import num_usable_cores
from benchmarks.harness import Bench

NUM_EPOCHS, WARM_EPOCHS = 50, 3
NUM_FILES, SIDE_PX, SHARD_BYTES = (2_000, 20_000), 48, "1MB"
PERIOD_S = 0.02


def run_loader(bench: Bench) -> None:
    num, peaks = bench.pick(NUM_EPOCHS, WARM_EPOCHS), []
    with bench.files() as (folder, origin):
        loader = Loader(folder, recipes.deep_image(), batch_size=32)
        for _ in range(num):
            sum(map(len, loader))
            peaks.append(round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1))
    warm = peaks[WARM_EPOCHS - 1]
    told = {"first": peaks[0], f"epoch {WARM_EPOCHS}": warm, "last": peaks[-1]}
    what = f"peak resident MB after each of {num} epochs of {origin}, batches of 32"
    growth = round(peaks[-1] - warm, 1)
    bench.keep("memory", {"what": what, "peak_mb": told, "growth_after_warm_up_mb": growth, "peaks_mb": peaks})


def write_files(folder: Path, num: int) -> Path:
    """Small files in ten classes."""
    pixels = np.random.default_rng(0).integers(0, 256, (64, 6, 8, 3), dtype=np.uint8)
    encoded = []
    for small in pixels:
        file = io.BytesIO()
        Image.fromarray(small).resize((SIDE_PX, SIDE_PX), Image.Resampling.BICUBIC).save(file, "JPEG")
        encoded.append(file.getvalue())
    for number in range(num):
        (folder / f"{number % 10}").mkdir(parents=True, exist_ok=True)
        (folder / f"{number % 10}" / f"{number:06}.jpg").write_bytes(encoded[number % len(encoded)])
    return folder


def peak_bytes(pid: int | str) -> int:
    """So far; 0 where the process has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM")), 0)


def prepared(source: Path, out: Path) -> dict[str, float]:
    """Seconds and peaks of preparing a folder."""
    command = [sys.executable, "-m", "augpipe", "prepare", str(source), str(out), "--scales", "32"]
    command += ["--shard-bytes", SHARD_BYTES, "--workers", str(num_usable_cores()), "--originals", "never"]
    parent_bytes, worker_bytes, start = 0, 0, time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        while process.poll() is None:
            parent_bytes = max(parent_bytes, peak_bytes(process.pid))
            try:
                workers = children.read_text().split()
            except (FileNotFoundError, ProcessLookupError):
                break
            worker_bytes = max([worker_bytes, *map(peak_bytes, workers)])
            time.sleep(PERIOD_S)
    assert process.returncode == 0
    mib = {"parent_mib": parent_bytes / 2**20, "worker_mib": worker_bytes / 2**20}
    return {name: round(value, 1) for name, value in ({"seconds": time.perf_counter() - start} | mib).items()}


def run_prepare(bench: Bench) -> None:
    nums, found = bench.pick(NUM_FILES, (100, 200)), dict[str, dict[str, Any]]()
    with TemporaryDirectory() as temporary:
        for num in nums:
            found[str(num)] = prepared(write_files(Path(temporary, f"photos{num}"), num), Path(temporary, f"out{num}"))
    few, many = found.values()
    more = {
        name: round((many[f"{name}_mib"] - few[f"{name}_mib"]) * 2**20 / (nums[1] - nums[0]), 1)
        for name in ("parent", "worker")
    }
    about = {"processes": num_usable_cores(), "side_px": SIDE_PX, "shard_bytes": SHARD_BYTES}
    bench.keep("prepare_memory", {"files": found, **about, "bytes_a_further_file": more})


def main() -> None:
    runs = {"loader": run_loader, "prepare": run_prepare}
    bench = Bench(__doc__, names=runs)
    for name in bench.names:
        runs[name](bench)


if __name__ == "__main__":
    main()
