"""Mosaics on a simulated device next to those on the CPU, mixed and with their targets."""

from typing import Any

import numpy as np
import pytest

from augpipe import Loader, Recipe, TargetOptions, View, ops
from augpipe.gpu_ops.cuda.functions import IS_SIMULATED
from tests.augpipe.loader.loader_sources import TEXT, as_array, views_of
from tests.augpipe.loader.target_sources import ObjectSource, object_source, targets_by_id

assert IS_SIMULATED, "run these tests in the simulator's session: NUMBA_ENABLE_CUDASIM=1 pytest"

NUM, SIZE = 5, 8
TURNED = Recipe(
    mosaic=ops.Mosaic(size=SIZE, p=0.9),
    ops=(ops.Rotate(max_deg=30, step=None, p=0.7), ops.Zoom(factor=(0.7, 1.3)), ops.CenterCrop(size=SIZE)),
    mixing=(ops.CutMix(),),
)
BENT = Recipe(
    mosaic=ops.Mosaic(size=SIZE),
    views=(
        View(ops=(ops.Perspective(), ops.RandomResizedCrop(size=(SIZE, 6)))),
        View(ops=(ops.CenterCrop(size=6), ops.Flip(), ops.ColorCast())),
    ),
)


def made(recipe: Recipe, source: ObjectSource, device: str, **options: Any) -> Loader:
    given = {"batch_size": 4, "num_threads": 2, "seed": 3, "targets": TargetOptions(drop_empty=False), **options}
    return Loader(source, recipe, device=device, dtype="uint8", on_error="skip", **given)


@pytest.mark.parametrize(
    ("recipe", "options"),
    [(TURNED, {"cache": "device"}), (BENT, {"layout": "NHWC"})],
    ids=["turned", "bent"],
)
def test_as_on_the_cpu(recipe: Recipe, options: dict[str, Any]) -> None:
    source = object_source(NUM, maps=True)
    source.contents[2] = TEXT
    loaders = [made(recipe, source, device, **options) for device in ("cpu", "cuda")]
    num = 0
    for _ in range(2 if recipe is TURNED else 1):
        for expected, found in zip(*loaders, strict=True):
            assert targets_by_id([found]) == targets_by_id([expected])
            for one, other in zip(views_of(found), views_of(expected), strict=True):
                apart = np.abs(as_array(one).astype(int) - as_array(other))
                assert apart.max() <= 1 and (apart > 0).mean() < 0.01
                num += apart.size
    assert num >= NUM * SIZE * SIZE * 3
