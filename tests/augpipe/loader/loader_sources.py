"""What the tests of the loader share: images in memory, recipes, batches cut into samples, new interpreters."""

import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe import Batch, Recipe, View
from augpipe.ops import (
    AutoContrast,
    Blur,
    Brightness,
    BrownConrady,
    CoarseDropout,
    ColorCast,
    ColorJitter,
    Equalize,
    Erase,
    Flip,
    Gamma,
    Grayscale,
    GridDropout,
    Identity,
    MultiResolutionCrop,
    Noise,
    Normalize,
    OneOf,
    Perspective,
    PixelDropout,
    Posterize,
    QuarterTurn,
    RandomResizedCrop,
    Rotate,
    Shadow,
    Sharpness,
    Shear,
    SomeOf,
    Stretch,
    Translate,
    Vignette,
    Zoom,
)
from augpipe.recipes import deep_image, evaluation
from tests.augpipe.decoding.image_files import encoded, scene

ROOT = Path(__file__).resolve().parents[3]
TIMEOUT_S = 60
COMPILING_TIMEOUT_S = 200
"""Far more than anything here takes: what runs into it hangs."""

PAPER = deep_image(16, (20, 40))
CENTRE = evaluation(16, 20)
CONTINUOUS = Recipe(
    name="continuous",
    border="reflect",
    ops=(
        RandomResizedCrop(size=(16, 24), step=None),
        Rotate(max_deg=30, step=None),
        Stretch(),
        BrownConrady(k2=(0.0, 0.1)),
        Flip(),
        ColorCast(step=None),
        Vignette(radius_step=None, strength_step=None),
    ),
)
SEVERAL_VIEWS = Recipe(
    name="several views",
    views=(
        View(ops=(RandomResizedCrop(size=20), Flip(), Normalize()), count=2),
        View(ops=(MultiResolutionCrop(size=8, scales=(12, 16)), Normalize())),
    ),
)
PROJECTED = Recipe(
    name="projected",
    ops=(
        Shear(about="corner"),
        Translate(),
        BrownConrady(p=0.5),
        QuarterTurn(),
        Perspective(p=0.7),
        Zoom(),
        Rotate(max_deg=(-200, 400), step=None),
        Blur(sigma_px=(0.1, 0.5)),
        RandomResizedCrop(size=(8, 10)),
    ),
)
MODERN = Recipe(
    name="modern",
    ops=(
        RandomResizedCrop(size=(12, 10)),
        Flip(),
        OneOf(ops=(Identity(), Rotate(), Brightness(), Posterize(), AutoContrast(), Translate(), Vignette())),
        ColorJitter(brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1, p=0.7),
        SomeOf(ops=(Equalize(), Sharpness(), Gamma(), Grayscale()), num=(0, 2)),
        Noise(),
        Erase(p=0.5),
        Normalize(),
    ),
)
LISTED = Recipe(
    name="three passes",
    ops=(
        Noise(p=0.8),
        Rotate(),
        RandomResizedCrop(size=(12, 10)),
        CoarseDropout(num=(1, 2), height=(2, 4), width=(2, 4), p=0.8),
        GridDropout(grid=(2, 3), p=0.8),
        PixelDropout(share=(0.05, 0.2), p=0.8),
        Shadow(p=0.8),
        Shear(),
        Normalize(),
    ),
)
RECIPES = {recipe.name: recipe for recipe in (PAPER, CENTRE, CONTINUOUS, PROJECTED, SEVERAL_VIEWS, MODERN, LISTED)}

TEXT = b"this is no picture"

Sample = tuple[bytes, ...]
"""One sample's pixels and plan records, of every view: equal only where every bit is."""


class MemorySource:
    """A source of `contents`: encoded files, arrays, or exceptions to raise instead."""

    def __init__(self, contents: Sequence[Any], labels: Sequence[int] | None = None) -> None:
        self.contents = list(contents)
        self.classes: Sequence[str] = ()
        self._labels = labels
        self.num_reads = 0

    def __len__(self) -> int:
        return len(self.contents)

    def read(self, sample_id: int) -> Any:
        self.num_reads += 1
        content = self.contents[sample_id]
        if isinstance(content, BaseException):
            raise content
        return content

    def label(self, sample_id: int) -> int:
        return sample_id * 10 if self._labels is None else self._labels[sample_id]

    def name(self, sample_id: int) -> str:
        return f"photo {sample_id}.jpg"


def jpegs(num: int, *, first: int = 0) -> list[bytes]:
    """`num` small JPEGs, no two neighbours of one size; some are large enough to be decoded at a DCT scale."""
    return [_jpeg(seed) for seed in range(first, first + num)]


@cache
def _jpeg(seed: int) -> bytes:
    return encoded(scene(40 + 7 * (seed % 9), 45 + 11 * (seed % 7), seed), "JPEG", quality=85)


def truncated(seed: int = 0) -> bytes:
    """A JPEG whose header is sound and whose pixels end halfway."""
    data = encoded(scene(60, 50, seed), "JPEG", quality=95)
    return data[: len(data) // 2]


def without_tables(seed: int = 0, height: int = 60, width: int = 50) -> bytes:
    """A JPEG without the tables that its pixels need: its header is sound, and no decoder makes anything of it."""
    data = encoded(scene(height, width, seed), "JPEG", quality=90)
    while (start := data.find(b"\xff\xdb")) >= 0:
        data = data[:start] + data[start + 2 + int.from_bytes(data[start + 2 : start + 4], "big") :]
    return data


def arrays(num: int, height: int = 40, width: int = 52) -> list[npt.NDArray[np.uint8]]:
    return [scene(height, width, seed) for seed in range(num)]


def views_of(batch: Batch) -> tuple[Any, ...]:
    return batch.images if isinstance(batch.images, tuple) else (batch.images,)


def as_array(images: Any) -> npt.NDArray[Any]:
    """An array or tensor as an array of its bits."""
    if isinstance(images, np.ndarray):
        return images
    import torch

    held: npt.NDArray[Any] = (images.view(torch.int16) if images.dtype == torch.bfloat16 else images).numpy()
    return held


def samples(batches: Iterable[Batch]) -> list[tuple[int, Sample]]:
    """(sample id, its bits) in the order in which they come."""
    found = []
    for batch in batches:
        for position, sample_id in enumerate(batch.sample_ids):
            pixels = [as_array(images)[position].tobytes() for images in views_of(batch)]
            plans = [rows[position].tobytes() for rows in batch.plan.views]
            found.append((int(sample_id), (*pixels, *plans)))
    return found


def ids_of(batches: Iterable[Batch]) -> list[int]:
    return [int(sample_id) for batch in batches for sample_id in batch.sample_ids]


def worker_threads() -> list[threading.Thread]:
    """The loaders' threads that are alive."""
    return [thread for thread in threading.enumerate() if thread.name.startswith("augpipe")]


def assert_no_worker_threads() -> None:
    if worker_threads():
        gc.collect()  # of a pass that nothing refers to but itself; it takes a while
    assert worker_threads() == []


def wait_until(condition: Any) -> None:
    """Return once `condition()` holds; fail where it never does."""
    ends = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < ends, "it never came about"
        time.sleep(0.005)


def together(num: int, work: Callable[[int], object]) -> None:
    """`work(number)` in `num` threads that start at once; raises what one of them raises."""
    start = threading.Barrier(num)

    def run(number: int) -> None:
        start.wait(TIMEOUT_S)
        work(number)

    with ThreadPoolExecutor(num) as threads:
        list(threads.map(run, range(num)))


def run_python(
    code: str, *, options: Sequence[str] = ("-W", "error"), timeout_s: float = TIMEOUT_S, **environment: str
) -> subprocess.CompletedProcess[str]:
    """A new interpreter that runs `code` in the checkout; killed, and the test failed, where it hangs."""
    return subprocess.run(
        [sys.executable, *options, "-c", code],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )
