"""What the contracts share: the backends, tiny images of every kind, recipes, and what a loader did.

The simulator takes about a thousandth of a second a pixel, so images and crops are tiny, for all backends alike.
"""

import importlib.util
import logging
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np
import pytest
import torch

from augpipe import Batch, Loader, MixedLabels, Recipe, View
from augpipe.cache import CacheStatistics
from augpipe.decoding import MAX_PIXELS, probe
from augpipe.ops import (
    CenterCrop,
    Flip,
    MultiResolutionCrop,
    Noise,
    Normalize,
    RandomCrop,
    RandomResizedCrop,
    Rotate,
    Vignette,
)
from augpipe.planning.kernel_rows import dct_factors
from tests.augpipe.decoding.image_files import encoded, exif, scene
from tests.augpipe.loader.loader_sources import MemorySource, as_array, views_of

PLENTY = 1_000_000
"""A cache of so many bytes holds everything here."""

GRAY = scene(15, 16, 6)[..., 0]
FILES: list[Any] = [
    encoded(scene(20, 25, 0), "JPEG", quality=90),
    encoded(scene(19, 15, 1), "JPEG", quality=90),
    encoded(scene(16, 21, 2)[..., 0], "JPEG", quality=90),
    encoded(scene(18, 17, 3), "JPEG", quality=90, exif=exif(6)),
    encoded(scene(16, 18, 4), "PNG"),
    scene(17, 16, 5),
    GRAY,
    np.dstack([scene(15, 16, 7), GRAY]),
    *[encoded(scene(70, 60 + 10 * i, i), "JPEG", quality=80) for i in range(1, 4)],  # decoded at a half and less
    encoded(scene(66, 64, 9), "JPEG", quality=80, exif=exif(3)),
]
NUM = len(FILES)
JPEGS = [encoded(scene(14 + i % 5, 13 + i % 7, i), "JPEG", quality=90) for i in range(16)]

CROPS = Recipe(name="crops", ops=(RandomResizedCrop(size=(4, 3)), Rotate(), Flip(), Vignette(p=1.0), Normalize()))
LEVELS = Recipe(name="levels", border="edge", ops=(MultiResolutionCrop(size=(4, 3), scales=(8, 14, 30)), Rotate()))
"""Ends in levels 0..255, so uint8 holds it; of a file of 64 pixels a side it wants every DCT scale in turn."""
CENTRE = Recipe(name="centre", ops=(CenterCrop(size=(4, 3), scale=14),))
VIEWS = Recipe(
    name="views",
    views=(
        View(ops=(RandomResizedCrop(size=3), Flip(), Normalize()), count=2),
        View(ops=(CenterCrop(size=(2, 4), scale=9), Normalize())),
    ),
)
PASSES = Recipe(
    name="passes",
    border="constant",
    ops=(RandomCrop(size=(12, 11)), Noise(p=0.5), RandomResizedCrop(size=(4, 3)), Normalize()),
)
"""Its first pass looks up whole pixels, so that levels between the passes are the same on a device."""
RECIPES = {recipe.name: recipe for recipe in (CROPS, LEVELS, CENTRE, VIEWS, PASSES)}

MOST_ON_DEVICE = {"float32": 1e-4, "float16": 4e-3, "bfloat16": 3e-2, "uint8": 1.0}
"""How far a device's normalised pixels may be apart; float32 rounds in another order, others take the next number."""
MOST_OF_LEVELS = {"float32": 1e-3, "float16": 0.125, "bfloat16": 1.0, "uint8": 1.0}
"""The same of levels 0..255, among which the next number is so far away."""


def labels_of(batch: Batch) -> tuple[Any, ...]:
    """Its labels, or all that they are made of."""
    return tuple(batch.labels) if isinstance(batch.labels, MixedLabels) else (batch.labels,)


@dataclass(frozen=True)
class Backend:
    """One way in which a loader works, beside the plain one: `native` on one thread of the CPU."""

    name: str
    device: str

    @property
    def is_device(self) -> bool:
        """Whether batches lie on a device, so that pixels are near those of the CPU and not the same bits."""
        return self.device != "cpu"

    def loader(self, contents: Sequence[Any] = FILES, recipe: Recipe = CROPS, **options: Any) -> Loader:
        """A loader over `contents`, in batches of 4 on two threads unless told otherwise."""
        return self.of(MemorySource(contents), recipe, **options)

    def of(self, source: Any, recipe: Recipe = CROPS, **options: Any) -> Loader:
        """The same over a source, or the path of one."""
        settings = {"batch_size": 4, "num_threads": 2, "seed": 4, "backend": self.name, "device": self.device} | options
        if settings.get("cache", "off") != "off":
            settings.setdefault("cache_bytes", PLENTY)
        return Loader(source, recipe, **settings)

    def most(self, batch: Batch) -> float:
        """How far the pixels of a batch may be from the plain loader's."""
        if not self.is_device:
            return 0.0
        dtype = str(views_of(batch)[0].dtype).removeprefix("torch.")
        normalised = any(isinstance(op, Normalize) for view in batch.plan.recipe.all_views for op in view.ops)
        return (MOST_ON_DEVICE if normalised else MOST_OF_LEVELS)[dtype]

    def assert_as_plain(self, found: Iterable[Batch], expected: Iterable[Batch]) -> int:
        """Fail unless plans, ids and labels are the same and pixels are, on a device near; the number of samples."""
        num = 0
        for batch, wanted in zip_longest(found, expected):
            assert batch is not None and wanted is not None, "one of them has more batches"
            assert batch.sample_ids.tolist() == wanted.sample_ids.tolist()
            for labels, others in zip(labels_of(batch), labels_of(wanted), strict=True):
                assert labels.dtype == others.dtype and labels.tolist() == others.tolist()
            assert [rows.tobytes() for rows in batch.plan.views] == [rows.tobytes() for rows in wanted.plan.views]
            for images, wanted_images in zip(views_of(batch), views_of(wanted), strict=True):
                assert type(images) is type(wanted_images) and images.dtype == wanted_images.dtype
                assert images.shape == wanted_images.shape
                if isinstance(images, torch.Tensor):
                    assert images.stride() == wanted_images.stride()
                if not self.is_device:
                    np.testing.assert_array_equal(as_array(images), as_array(wanted_images), strict=True)
                elif images.numel():
                    assert (images.double() - wanted_images.double()).abs().max() <= self.most(wanted)
            num += len(batch)
        return num


PLAIN = Backend("native", "cpu")


def plain(contents: Sequence[Any] = FILES, recipe: Recipe = CROPS, **options: Any) -> Loader:
    """The loader that others are compared with."""
    return PLAIN.loader(contents, recipe, **({"num_threads": 1, "prefetch": 1} | options))


def assert_same(found: Iterable[Batch], expected: Iterable[Batch]) -> int:
    """Fail unless they are the same in every bit, on whatever device; the number of samples."""
    return PLAIN.assert_as_plain(found, expected)


HAS_DALI = importlib.util.find_spec("nvidia") is not None and importlib.util.find_spec("nvidia.dali") is not None
needs_dali = pytest.mark.skipif(not HAS_DALI, reason="DALI is not installed")
DEVICE = "cuda" if os.environ.get("NUMBA_ENABLE_CUDASIM") == "1" else "cpu"
"""The simulator's session runs the contracts on its device, the normal one on the CPU."""
BACKENDS = [
    pytest.param(Backend("native", DEVICE), id=f"native-{DEVICE}"),
    pytest.param(Backend("dali", DEVICE), id=f"dali-{DEVICE}", marks=[needs_dali, pytest.mark.slow]),
]


def numbers(loader: Loader) -> CacheStatistics:
    """The statistics of a loader that has a cache."""
    statistics = loader.cache_statistics
    assert statistics is not None
    return statistics


def num_reads(loader: Loader) -> int:
    """How often the source was read since the last call."""
    source: Any = loader.source
    found: int = source.num_reads
    source.num_reads = 0
    return found


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The lines of warnings since the last call."""
    found = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    caplog.clear()
    return found


Scaled = tuple[int, int]
"""A sample's number and the DCT factor at which it is decoded."""


def scaled_images_of(batches: Iterable[Batch], contents: Sequence[Any] = FILES) -> list[Scaled]:
    """Those that batches were made of, worked out from what their plans say."""
    found = []
    for batch in batches:
        for sample_id, factor in zip(batch.sample_ids.tolist(), dct_factors(batch.plan.views).tolist(), strict=True):
            content = contents[sample_id]
            may_scale = isinstance(content, bytes) and probe(content, max_pixels=MAX_PIXELS).may_scale
            found.append((sample_id, factor if may_scale else 1))
    return found


def held_bytes(scaled: Iterable[Scaled], contents: Sequence[Any] = FILES) -> int:
    """What these images take in the cache: four bytes a pixel, each image up to a multiple of 16."""
    total = 0
    for sample_id, factor in scaled:
        content = contents[sample_id]
        header = probe(content, max_pixels=MAX_PIXELS) if isinstance(content, bytes) else None
        height, width = (header.height, header.width) if header else content.shape[:2]
        total += -(-(-(-height // factor) * -(-width // factor) * 4) // 16) * 16
    return total
