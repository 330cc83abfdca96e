"""Mosaics on a simulated device next to those on the CPU, mixed and with their targets."""

from typing import Any

import numpy as np
import pytest

from augpipe import Loader, Recipe, TargetOptions, View, ops
from augpipe.gpu_ops.cuda.functions import IS_SIMULATED
from tests.augpipe.loader.loader_sources import TEXT, as_array, views_of
from tests.augpipe.loader.target_sources import ObjectSource, object_source, targets_by_id

assert IS_SIMULATED, "run these tests in the simulator's session: NUMBA_ENABLE_CUDASIM=1 pytest"

NUM, SIZE = 9, 14
MOSAIC = ops.Mosaic(size=SIZE, p=0.9)
TURNED = Recipe(
    mosaic=MOSAIC,
    ops=(ops.Rotate(max_deg=30, step=None, p=0.7), ops.Zoom(factor=(0.7, 1.3)), ops.CenterCrop(size=SIZE)),
    mixing=(ops.CutMix(),),
)
BENT = Recipe(
    mosaic=ops.Mosaic(size=SIZE, num_images=9),
    views=(
        View(ops=(ops.Perspective(), ops.RandomResizedCrop(size=(SIZE, 10)))),
        View(ops=(ops.CenterCrop(size=10), ops.Flip(), ops.ColorCast())),
    ),
)


def made(recipe: Recipe, source: ObjectSource, device: str, **options: Any) -> Loader:
    targets = TargetOptions(drop_empty=False)
    return Loader(source, recipe, batch_size=4, num_threads=2, seed=3, device=device, targets=targets, **options)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("recipe", [TURNED, BENT], ids=["turned", "bent"])
def test_as_on_the_cpu(recipe: Recipe, layout: Any) -> None:
    source = object_source(NUM, maps=True)
    source.contents[2] = TEXT
    options = {"dtype": "uint8", "layout": layout, "on_error": "skip"}
    expected, found = ([*made(recipe, source, device, **options)] for device in ("cpu", "cuda"))
    for ours, theirs in zip(found, expected, strict=True):
        assert targets_by_id([ours]) == targets_by_id([theirs])
        for one, other in zip(views_of(ours), views_of(theirs), strict=True):
            apart = np.abs(as_array(one).astype(int) - as_array(other))
            assert apart.max() <= 1 and (apart > 0).mean() < 0.01


def test_two_cached_epochs_are_those_without_a_cache() -> None:
    source = object_source(NUM)
    plain, cached = (made(TURNED, source, "cuda", dtype="float32", cache=cache) for cache in ("off", "device"))
    for _ in range(2):
        for one, other in zip(plain, cached, strict=True):
            np.testing.assert_array_equal(as_array(one.images), as_array(other.images))
            assert targets_by_id([one]) == targets_by_id([other])
