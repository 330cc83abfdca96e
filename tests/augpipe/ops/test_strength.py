"""Strengths: what is drawn moves along a line from what changes nothing, on the same random words."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from augpipe import Recipe, ops, plan
from augpipe.ops.draws import Number
from augpipe.ops.op import KINDS, Op
from augpipe.ops.strength import NAMES, at_strength, has_strength


def from_zero(drawn: Any, strength: float) -> Any:
    return strength * drawn


def from_one(drawn: Any, strength: float) -> Any:
    return 1.0 + strength * (drawn - 1.0)


def power(drawn: Any, strength: float) -> Any:
    return drawn**strength


def by_tangent(drawn: Any, strength: float) -> Any:
    return np.rad2deg(np.arctan(strength * np.tan(np.deg2rad(drawn))))


CASES: dict[str, tuple[Op, Callable[[Any, float], Any], tuple[str, ...]]] = {
    "blur": (ops.Blur(), from_zero, ("sigma_px",)),
    "brightness": (ops.Brightness(step=0.1), from_one, ("factor",)),
    "brown_conrady": (ops.BrownConrady(k1=(-0.1, 0.1), steps=5), from_zero, ("k1", "k2", "k3", "p1", "p2")),
    "color_cast": (ops.ColorCast(), from_zero, ("shift",)),
    "color_jitter": (ops.ColorJitter(brightness=0.2, contrast=(0.8, 1.1)), from_one, ("brightness", "contrast")),
    "contrast": (ops.Contrast(), from_one, ("factor",)),
    "downscale": (ops.Downscale(scale=(0.5, 0.9)), from_one, ("scale",)),
    "elastic_transform": (ops.ElasticTransform(affine_px=2.0), from_zero, ("corners", "amplitude")),
    "fog": (ops.Fog(density=(0.1, 0.4)), from_zero, ("density",)),
    "gamma": (ops.Gamma(), power, ("gamma",)),
    "grid_distortion": (ops.GridDistortion(), from_zero, ("shares",)),
    "hue": (ops.Hue(step=0.02), from_zero, ("turn",)),
    "lens_distortion": (ops.LensDistortion(max_strength=0.15), from_zero, ("strength",)),
    "lens of any strength": (ops.LensDistortion(max_strength=0.15, degrees=None), from_zero, ("strength",)),
    "lighting": (ops.Lighting(), from_zero, ("amounts",)),
    "noise": (ops.Noise(speckle=(0.1, 0.2)), from_zero, ("std", "speckle")),
    "pixel_dropout": (ops.PixelDropout(share=(0.1, 0.4)), from_zero, ("share",)),
    "perspective of a part": (ops.Perspective(inner_std=(0.02, 0.04)), from_zero, ("moved",)),
    "perspective": (ops.Perspective(distortion=0.3), from_zero, ("moved",)),
    "rotate": (ops.Rotate(), from_zero, ("degrees",)),
    "rotate one way": (ops.Rotate(max_deg=(5.0, 20.0), step=5.0), from_zero, ("degrees",)),
    "saturation": (ops.Saturation(), from_one, ("factor",)),
    "shadow": (ops.Shadow(loss=(0.1, 0.4)), from_zero, ("loss",)),
    "sharpness": (ops.Sharpness(), from_one, ("factor",)),
    "shear": (ops.Shear(step=5.0), from_zero, ("horizontal_deg", "vertical_deg")),
    "shear by tangents": (ops.Shear(even_in="tangent"), by_tangent, ("horizontal_deg", "vertical_deg")),
    "stretch": (ops.Stretch(step=0.05), from_one, ("horizontal", "vertical")),
    "translate": (ops.Translate(), from_zero, ("horizontal", "vertical")),
    "vignette": (ops.Vignette(strengths=(0.02, 0.5)), from_zero, ("strength",)),
    "zoom": (ops.Zoom(), from_one, ("factor",)),
}
"""Name -> op, how what it draws moves with its strength, and the fields that move; all others stay."""
for _kind in KINDS.values():  # those that are not listed, by what changes nothing
    _numbers = [draw for draw in _kind.draws if isinstance(draw, Number) and draw.scaled_fields]
    if _numbers and _kind not in {type(op) for op, _, _ in CASES.values()}:
        _moved = power if _numbers[0].log else from_one if _numbers[0].neutral else from_zero
        _op = _kind()  # type: ignore[call-arg]
        CASES[_op.op] = (_op, _moved, tuple(draw.name for draw in _numbers))


def drawn(op: Op) -> Any:
    """What is drawn for 200 images, half of which are left as they are."""
    half = op.model_copy(update={"p": 0.5})
    recipe = Recipe(ops=(half, ops.Resize(size=32)) if op.draws_size else (ops.CenterCrop(size=32), half))
    return plan(recipe, range(200), sizes=[(40, 48)] * 200, seed=3).rows["drawn"][op.op]


@pytest.mark.parametrize("strength", [0.25, 1.0, 1.5])
@pytest.mark.parametrize("name", CASES)
def test_what_is_drawn_moves_with_the_strength(name: str, strength: float) -> None:
    op, moved, fields = CASES[name]
    plain, found = drawn(op), drawn(at_strength(op, strength))
    for field in plain.dtype.names:
        expected = moved(plain[field], strength) if field in fields else plain[field]
        np.testing.assert_allclose(found[field], expected, rtol=0, atol=1e-9, err_msg=field)
    assert len(np.unique(found[fields[0]])) > 3


def test_every_op_with_a_strength_is_tried() -> None:
    assert {op.op for op, _, _ in CASES.values()} == set(NAMES)
    assert all(has_strength(op) for op, _, _ in CASES.values())
    assert not any(map(has_strength, (ops.Flip(), ops.CenterCrop(size=8), ops.Invert(), ops.Normalize())))


@pytest.mark.parametrize("name", CASES)
def test_strength_1_is_the_op_itself(name: str) -> None:
    op = CASES[name][0]
    found = at_strength(op, 1.0).model_dump()
    for field, value in op.model_dump().items():
        assert found[field] == (value if value is None or isinstance(value, str) else pytest.approx(value)), field


def test_strengths_that_there_are_none_of() -> None:
    with pytest.raises(
        ValueError, match=r"flip is done or not: .* Those that have one: blur, brightness, .*zoom, zoom_out\."
    ):
        at_strength(ops.Flip(), 0.5)
    for strength in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match=f"strength={strength} must be above 0"):
            at_strength(ops.Rotate(), strength)
    with pytest.raises(ValueError, match="max_strength"):
        at_strength(ops.LensDistortion(), 1.5)
