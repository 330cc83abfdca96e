"""Numbers that libraries take in several forms: held against the pixels that albumentations itself makes."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from augpipe import Augment, Recipe, importers, ops
from tests.augpipe.importers.test_albumentations import compose, one

RAMP = np.stack(
    [f(*np.mgrid[:24, :32]) for f in (lambda y, x: x * 7, lambda y, x: y * 9, lambda y, x: (x + y) * 4)], -1
)
RAMP = RAMP.astype(np.uint8)
"""24 × 32: red rises along x, green along y."""
ZOOMED_RED = [10, 35, 61, 86, 112, 137, 163, 188]
ZOOMED_GREEN = [9, 42, 75, 108, 140, 173]
"""Each fourth pixel of RAMP after albumentations 1.3.1 and 2.0.8 (the same pixels) with
ShiftScaleRotate(shift_limit=0, scale_limit=(0.1, 0.1), rotate_limit=0, border_mode=1): enlarged by 1.1."""


@pytest.mark.parametrize("limit", [(0.1, 0.1), (0.10000000000000009, 0.10000000000000009)], ids=["typed", "to_dict"])
def test_a_scale_limit_is_added_to_one(limit: tuple[float, float]) -> None:
    """Both versions' `to_dict` write what was given, without the one."""
    turned = one("ShiftScaleRotate", shift_limit=0.0, scale_limit=limit, rotate_limit=0.0, border_mode=1)
    found = importers.from_albumentations(compose(turned, one("CenterCrop", height=24, width=32)))
    (moved,) = (op for op in found.recipe.ops if isinstance(op, ops.AllOf))
    assert moved.ops[0] == ops.Zoom(factor=(limit[0] + 1, limit[1] + 1))
    pixels = Augment(found.recipe, dtype="uint8", layout="NHWC")(RAMP)
    assert np.abs(pixels[0, ::4, 0].astype(int) - ZOOMED_RED).max() <= 1
    assert np.abs(pixels[::4, 0, 1].astype(int) - ZOOMED_GREEN).max() <= 1


@pytest.mark.parametrize("number", [0.5, [0.5], (0.5,)])
def test_one_number_normalises_all_channels(number: Any) -> None:
    expected = ops.Normalize(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
    assert ops.Normalize(mean=number, std=number) == expected
    assert Recipe.model_validate({"ops": [{"op": "normalize", "mean": number, "std": number}]}).ops == (expected,)
    normalize = one("Normalize", mean=number, std=number, max_pixel_value=255.0)
    made = importers.from_albumentations(compose(one("CenterCrop", height=8, width=8), normalize))
    assert made.recipe.ops[-1] == expected
    theirs = type("Normalize", (SimpleNamespace,), {})(mean=number, std=number)
    crop = type("CenterCrop", (SimpleNamespace,), {})(size=(8, 8))
    chain = type("Compose", (SimpleNamespace,), {})(transforms=[crop, theirs])
    assert importers.from_torchvision(chain).recipe.ops[-1] == expected


def test_numbers_for_two_channels_are_refused_with_the_rule() -> None:
    with pytest.raises(ValueError, match=r"mean=\(0\.5, 0\.5\) must be one finite number in 0\.\.1, or three"):
        ops.Normalize(mean=(0.5, 0.5))  # type: ignore[arg-type]
    normalize = one("Normalize", mean=[0.5, 0.5], std=[0.5, 0.5], max_pixel_value=255.0)
    with pytest.raises(ValueError, match=r"Normalize: mean=\[0\.5, 0\.5\] must be one finite number"):
        importers.from_albumentations(compose(one("CenterCrop", height=8, width=8), normalize))
