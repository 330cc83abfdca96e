"""What every benchmark needs: images, timings taken in turn, the machine's name, and dated results."""

import io
import json
import math
import os
import platform
import statistics
import tarfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from augpipe.native.workers import num_usable_cores

RESULTS = Path(__file__).parent / "results"
NUM_DRAWN = 250
"""Images drawn by `augpipe sample` where no real ones are at hand."""


def photographs() -> tuple[list[bytes], str]:
    """Encoded images, and where they are from: photos.tar in $AUGPIPE_DATA, else the sample dataset."""
    folder = os.environ.get("AUGPIPE_DATA")
    if folder:
        with tarfile.open(Path(folder) / "photos.tar") as tar:
            files = sorted((member for member in tar if member.isfile()), key=lambda member: member.name)
            return [tar.extractfile(member).read() for member in files], f"{len(files)} ImageNet photographs"
    from tempfile import TemporaryDirectory

    from augpipe.datasets.synthetic.generate import generate

    with TemporaryDirectory() as out:
        generate(Path(out) / "sample", num=NUM_DRAWN)
        files = sorted(Path(out).rglob("*.jpg"))
        return [file.read_bytes() for file in files], f"{len(files)} pictures of the sample dataset"


def imagenet_sized(encoded: list[bytes], num: int) -> list[npt.NDArray[np.uint8]]:
    """The first `num` images at the area of 500x375 pixels, ImageNet's usual size, as (H, W, 4) RGBX arrays."""
    resized = []
    for data in encoded[:num]:
        image = Image.open(io.BytesIO(data)).convert("RGB")
        scale = math.sqrt(500 * 375 / (image.width * image.height))
        size = round(image.width * scale), round(image.height * scale)
        resized.append(np.array(image.resize(size, Image.Resampling.LANCZOS).convert("RGBX")))
    return resized


def in_turn(
    contenders: dict[str, Callable[[], int]],
    rounds: int,
    *,
    settle_s: float = 0.0,
    before: Callable[[], None] = lambda: None,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Seconds an item of each contender, one entry a round, after one round that is not counted.

    A contender does its work and returns how many items that was. They take turns, so that a machine that slows down
    slows all of them. One that works ahead of what it was asked for (DALI) gets `settle_s` seconds after its turn to
    end that: uncounted there, but not at the cost of the next one. `before` is called before each turn, uncounted.
    Work of one thread alone can be timed by another `clock`, `time.thread_time`.
    """
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(rounds + 1):
        for name, work in contenders.items():
            before()
            start = clock()
            num = work()
            elapsed = clock() - start
            time.sleep(settle_s)
            if turn:
                seconds[name].append(elapsed / num)
    return seconds


def touch_memory(num_bytes: int) -> None:
    """Write to memory and free it, so that whoever asks next gets some that is there.

    A virtual machine hands pages that were freed some seconds ago back to its host, and writing to such ones again was
    seen to take 2.8 ms a MiB, where it takes 0.1 ms else: work that allocates its buffers anew paid for what others
    had freed.
    """
    np.empty(num_bytes, np.uint8)[::4096] = 1


def ratio(seconds: dict[str, list[float]], above: str, below: str) -> float:
    """Median over the rounds of one contender's time over another's in the same round."""
    return statistics.median(a / b for a, b in zip(seconds[above], seconds[below], strict=True))


def machine() -> dict[str, object]:
    """CPU, cores and the versions that matter."""
    cpu = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.exists():
        cpu = next(
            (line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if "model name" in line), cpu
        )
    from llvmlite.binding import get_host_cpu_name

    versions = {}
    for name in (
        "augpipe",
        "numpy",
        "numba",
        "simplejpeg",
        "pillow",
        "torch",
        "torchvision",
        "timm",
        "opencv-python-headless",
        "albumentations",
        "nvidia-dali-cuda130",
        "numba-cuda",
        "bitsandbytes",
    ):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return {
        "cpu": cpu,
        "llvm_cpu": get_host_cpu_name(),
        "cores": num_usable_cores(),
        "python": platform.python_version(),
        "versions": versions,
    }


def save(name: str, result: dict[str, object]) -> Path:
    """Write a dated result and print it."""
    now = datetime.now(UTC)
    report = {"benchmark": name, "date": now.strftime("%Y-%m-%d"), "machine": machine()} | result
    path = RESULTS / f"{now:%Y-%m-%d}-{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(result, indent=2))
    print(f"kept in {path}")
    return path


def summary(seconds: dict[str, list[float]], unit: float = 1e3) -> dict[str, dict[str, float]]:
    """Minimum, median and maximum of each contender, in 1/unit seconds."""
    return {
        name: {
            "min": round(min(values) * unit, 4),
            "median": round(statistics.median(values) * unit, 4),
            "max": round(max(values) * unit, 4),
        }
        for name, values in seconds.items()
    }


def half_width(values: Sequence[float]) -> float:
    """Half the width of the mean's 95 % confidence interval (Student's t); of two values at least."""
    from scipy import stats

    return float(stats.t.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / len(values) ** 0.5


def interval(values: Sequence[float]) -> dict[str, float | None]:
    """The mean and `half_width` in percent; one value has no interval."""
    half = round(100 * half_width(values), 2) if len(values) > 1 else None
    return {"mean, %": round(100 * statistics.mean(values), 2), "95 % confidence, +- %": half}
