"""Peak memory of `augpipe prepare` on few and on many small files: the parent, and the largest of its workers.

Each run is a command of its own. The peak is the kernel's own count of resident memory (VmHWM), read as long as the
process lives.
"""

import io
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from common import save
from PIL import Image

from augpipe.native.workers import num_usable_cores

NUMS = (2_000, 20_000)
SIDE_PX = 48
SHARD_BYTES = "1MB"
_PERIOD_S = 0.02


def write_files(folder: Path, num: int) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (64, 6, 8, 3), dtype=np.uint8)
    encoded = []
    for small in pixels:
        file = io.BytesIO()
        Image.fromarray(small).resize((SIDE_PX, SIDE_PX), Image.Resampling.BICUBIC).save(file, "JPEG")
        encoded.append(file.getvalue())
    for number in range(num):
        place = folder / f"{number % 10}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number:06}.jpg").write_bytes(encoded[number % len(encoded)])


def peak_bytes(pid: int) -> int:
    """So far; 0 where the process has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM")), 0)


def measure(source: Path, out: Path, cores: int) -> dict[str, float]:
    command = [sys.executable, "-m", "augpipe", "prepare", str(source), str(out), "--scales", "32"]
    command += ["--shard-bytes", SHARD_BYTES, "--workers", str(cores), "--originals", "never"]
    parent_bytes, worker_bytes = 0, 0
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        while process.poll() is None:
            parent_bytes = max(parent_bytes, peak_bytes(process.pid))
            try:
                workers = [int(child) for child in children.read_text().split()]
            except (FileNotFoundError, ProcessLookupError):
                break
            worker_bytes = max([worker_bytes, *map(peak_bytes, workers)])
            time.sleep(_PERIOD_S)
    assert process.returncode == 0
    return {
        "seconds": round(time.perf_counter() - start, 1),
        "parent_mib": round(parent_bytes / 2**20, 1),
        "worker_mib": round(worker_bytes / 2**20, 1),
    }


def main() -> None:
    cores = num_usable_cores()
    found = {}
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        for num in NUMS:
            write_files(root / f"photos{num}", num)
            found[str(num)] = measure(root / f"photos{num}", root / f"out{num}", cores)
    few, many = (found[str(num)] for num in NUMS)
    save(
        "prepare_memory",
        {
            "files": found,
            "processes": cores,
            "side_px": SIDE_PX,
            "shard_bytes": SHARD_BYTES,
            "bytes_a_further_file": {
                name: round((many[f"{name}_mib"] - few[f"{name}_mib"]) * 2**20 / (NUMS[1] - NUMS[0]), 1)
                for name in ("parent", "worker")
            },
        },
    )


if __name__ == "__main__":
    sys.exit(main())
