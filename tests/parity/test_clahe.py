"""CLAHE beside OpenCV's lightness and tables by the formula, in float64."""

from collections.abc import Callable

import cv2
import numpy as np
import numpy.typing as npt
import pytest

from augpipe import Augment, Recipe, ops
from tests.parity.images import Pixels, noise, smooth

Float = npt.NDArray[np.float64]
TO_XYZ = np.array([[0.412453, 0.357580, 0.180423], [0.212671, 0.715160, 0.072169], [0.019334, 0.119193, 0.950227]])
WHITE = np.array([0.950456, 1.0, 1.088754])
LEVEL_TOLERANCE = 0.05


def tables_of(plane: Pixels, limit: float, tiles: tuple[int, int], side: tuple[int, int]) -> Float:
    """(rows, columns, 256) new levels of each tile, of a plane that they fill."""
    made, area = np.zeros((*tiles, 256)), side[0] * side[1]
    for down, across in np.ndindex(tiles):
        tile = plane[down * side[0] : (down + 1) * side[0], across * side[1] : (across + 1) * side[1]]
        counts = np.bincount(tile.ravel(), minlength=256)
        most = max(int(limit * area / 256), 1)
        excess = np.maximum(counts - most, 0).sum()
        counts = np.minimum(counts, most) + excess // 256
        if rest := excess % 256:
            counts[:: max(256 // rest, 1)][:rest] += 1
        made[down, across] = np.rint(np.cumsum(counts) * 255 / area)
    return np.minimum(made, 255)


def equalized(plane: Pixels, limit: float, tiles: tuple[int, int]) -> Float:
    """Each level between those of the tables of the tiles about its pixel."""
    missing = [num - side % num for side, num in zip(plane.shape, tiles, strict=True)]
    if missing == list(tiles):
        missing = [0, 0]
    padded = np.pad(plane, [(0, more) for more in missing], mode="reflect")
    side = padded.shape[0] // tiles[0], padded.shape[1] // tiles[1]
    tables = tables_of(padded, limit, tiles, side)
    y, x = (np.arange(length) / one - 0.5 for length, one in zip(plane.shape, side, strict=True))
    weigh = [
        np.maximum(0, 1 - abs(np.clip(at, 0, num - 1)[:, None] - np.arange(num)))
        for at, num in ((y, tiles[0]), (x, tiles[1]))
    ]
    looked_up = tables[:, :, plane]  # (rows, columns, height, width)
    return np.einsum("rchw,hr,wc->hw", looked_up, *weigh)


def relit(image: Pixels, lightness: Float) -> Float:
    """The image of another lightness in 0..255, with a* and b* as they were."""
    values = image / 255
    light = np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4) @ TO_XYZ.T / WHITE
    roots = np.where(light > 0.008856, np.cbrt(light), 7.787 * light + 16 / 116)
    new = (lightness / 2.55 + 16) / 116
    roots += (new - roots[:, :, 1])[:, :, None]
    light = np.where(roots > 6 / 29, roots**3, (roots - 16 / 116) / 7.787) * WHITE
    light = np.clip(light @ np.linalg.inv(TO_XYZ).T, 0, 1)
    return np.clip(255 * np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055), 0, 255)


def lightness_of(image: Pixels) -> Pixels:
    lightness: Pixels = cv2.cvtColor(image, cv2.COLOR_RGB2LAB)[:, :, 0]
    return lightness


@pytest.mark.parametrize("make", [noise, smooth])
@pytest.mark.parametrize(
    ("size", "tiles"),
    [
        ((64, 80), (8, 8)),
        ((61, 80), (8, 8)),
        ((67, 45), (3, 2)),
        ((50, 60), (1, 1)),
        ((9, 13), (8, 8)),
        ((1, 1), (2, 2)),
    ],
)
@pytest.mark.parametrize("limit", [1.0, 4.0, 40.0])
def test_as_the_formula_has_it(
    make: Callable[..., Pixels], size: tuple[int, int], tiles: tuple[int, int], limit: float
) -> None:
    image = make(*size)
    recipe = Recipe(ops=(ops.CLAHE(clip_limit=(limit, limit), tiles=tiles, p=1.0),))
    expected = relit(image, equalized(lightness_of(image), limit, tiles))
    for layout in ("NHWC", "NCHW"):
        found = Augment(recipe, layout=layout)(image)
        found = found if layout == "NHWC" else found.transpose(1, 2, 0)
        assert np.abs(found - expected).max() < LEVEL_TOLERANCE


@pytest.mark.parametrize("limit", [1.0, 4.0, 40.0])
@pytest.mark.parametrize(("size", "tiles"), [((64, 80), (8, 8)), ((67, 45), (3, 2))])
def test_the_formula_is_opencvs_but_for_its_last_rounding(
    size: tuple[int, int], tiles: tuple[int, int], limit: float
) -> None:
    lightness = lightness_of(smooth(*size))
    found = cv2.createCLAHE(limit, (tiles[1], tiles[0])).apply(lightness)
    assert np.abs(equalized(lightness, limit, tiles) - found).max() < 0.5 + 1e-3


def test_whole_levels_are_taken() -> None:
    """As the libraries are given them."""
    recipe = Recipe(ops=(ops.Brightness(factor=(0.703125, 0.703125)), ops.CLAHE(p=1.0)))
    image = smooth(40, 48)
    dark = np.floor(0.703125 * image + 0.5).astype(np.uint8)
    alone = Augment(Recipe(ops=(ops.CLAHE(p=1.0),)))(dark)
    assert np.array_equal(Augment(recipe)(image), alone)
