"""What weather and a camera in little light put between the image and who looks at it, within the rendered view."""

from collections.abc import Mapping
from functools import cached_property
from math import prod
from typing import Annotated, Any, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from augpipe.gpu_ops.image.program_rows import GRAIN, HAZE, MAX_EDGES, MAX_RADIUS, SEPARABLE
from augpipe.ops.draws import Draw, Number, Seed, Within
from augpipe.ops.frame import Frame
from augpipe.ops.op import Drawn, Op, Probability, Range
from augpipe.ops.random_words import RandomWords, check_steps
from augpipe.validation.models import told

__all__ = ["Fog", "ISONoise", "Shadow"]

LEAST_DISC_PX = 10
"""The width of the smallest disc."""
MOST_SHADOWS = 8
"""Polygons that a step of the program has room for."""
RINGS_PER_DISC = 3
"""By how many widths of a disc both sides of a ring grow together."""


class Fog(Op):
    """Blend the view with white discs, densest about its middle, and blur it: albumentations 1's `RandomFog`.

    A disc is as wide as a third of the view times the density. Their number grows as they shrink, down to a width of 10
    pixels, below which there are none.
    """

    op: Literal["fog"] = "fog"
    density: Annotated[Range, Within(0.0, 1.0)] = (0.3, 1.0)
    """Smallest and largest density; 0 changes nothing."""
    alpha: Annotated[float, Field(ge=0.0, le=1.0)] = 0.08
    """The part of white in a disc at density 1; at others, in proportion."""
    p: Probability = 0.5
    """How often the view is foggy."""

    draws = (Number("density"), Seed())
    is_within_output = True
    formula = "255 - (1 - alpha density)^k (255 - v) under k discs, then the mean of a square a tenth as wide as one"
    inspect_text = "a density of {density[0]:g} to {density[1]:g}, and the places of its discs"
    caption_text = "fog {density:.2f}"

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        heights, widths = frame.final_sides
        disc = (widths // 3 * drawn["density"]).astype(np.int64)
        side, wide = np.maximum(disc, 1), np.maximum(disc, LEAST_DISC_PX)
        first_x, first_y = widths // 2 - 2 * side, heights // 2 - side
        growth = [np.maximum(RINGS_PER_DISC * side * sides // (heights + widths), 1) for sides in (widths, heights)]
        rings = [-((first + side) // -grown) for first, grown in zip((first_x, first_y), growth, strict=True)]
        num_rings = np.maximum(np.maximum(*rings), 0)
        clear = 1.0 - self.alpha * drawn["density"]
        numbers = [first_x, first_y, *growth, num_rings, side // 10, side, wide // 2, clear]
        frame.scatter(HAZE, np.stack(numbers, axis=1), drawn["key"], self.changes(drawn))
        radii = np.minimum(wide // 10 // 2, MAX_RADIUS)
        weights = (np.arange(MAX_RADIUS + 1) <= radii[:, None]) / (2.0 * radii[:, None] + 1.0)
        frame.filter(SEPARABLE, radii, weights, self.changes(drawn) & (radii > 0))


class ISONoise(Op):
    """Add the grain of a camera in little light, in hue and lightness of HLS, as albumentations' `ISONoise`.

    albumentations counts the lightness' grain by how much the image's own lightness varies; here `contrast` says it.
    """

    op: Literal["iso_noise"] = "iso_noise"
    hue: Annotated[Range, Within(0.0, 1.0)] = (0.01, 0.05)
    """Smallest and largest standard deviation of the hue at intensity 1, in turns."""
    intensity: Annotated[Range, Within(0.0, 10.0)] = (0.1, 0.5)
    """Smallest and largest factor of both; 0 changes nothing."""
    contrast: Annotated[float, Field(ge=0.0, le=0.5)] = 0.2
    """The standard deviation of a usual image's lightness, in 0..1: in the mean, grain brightens black by this times
    the intensity."""
    p: Probability = 0.5
    """How often grain is added."""

    draws = (Number("hue", neutral=None), Number("intensity"), Seed())
    formula = "HLS with hue + n hue intensity and L + (1 - L) m, n normal and m a count of mean 255 contrast intensity"
    inspect_text = "grain of an intensity of {intensity[0]:g} to {intensity[1]:g}"
    caption_text = "grain {intensity:.2f}"

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        counted = 255.0 * self.contrast * drawn["intensity"]
        numbers = [6.0 * drawn["hue"] * drawn["intensity"], counted, np.sqrt(counted)]
        frame.scatter(GRAIN, np.stack(numbers, axis=1), drawn["key"], self.changes(drawn))


class Shadow(Op):
    """Darken polygons whose corners lie anywhere in a region of the view, as albumentations' `RandomShadow`."""

    op: Literal["shadow"] = "shadow"
    num: Annotated[
        tuple[Annotated[int, Field(ge=1, le=MOST_SHADOWS)], Annotated[int, Field(ge=1, le=MOST_SHADOWS)]],
        told(f"must be two numbers of polygons in 1..{MOST_SHADOWS}: {{name}}=[fewest, most]"),
    ] = (1, 2)
    """Fewest and most polygons; each number between is as likely."""
    num_corners: Annotated[int, Field(ge=3, le=MAX_EDGES)] = 5
    """How many corners a polygon has; edges may cross, and then it has holes by the even-odd rule."""
    region: tuple[float, float, float, float] = (0.0, 0.5, 1.0, 1.0)
    """Left, top, right and bottom of where the corners lie, in parts of the view's sides."""
    loss: Range = (0.5, 0.5)
    """Smallest and largest part of the light that a polygon takes; 0 changes nothing."""
    of: Literal["levels", "lightness"] = "levels"
    """levels: those of all channels, by each of the polygons that lie over a pixel; lightness: that of HLS, by the
    darkest of them, as in albumentations 1."""
    p: Probability = 0.5
    """How often polygons are darkened."""

    draws = (Draw("num", np.int8, neutral=0), Draw("at", np.int32), Draw("loss", scaled=("loss",)))
    num_words = 2
    is_within_output = True
    formula = "(1 - loss) v in a polygon, or the same of the lightness of HLS"
    inspect_text = (
        "{num[0]} to {num[1]} polygons of {num_corners} corners, a loss of {loss[0]:g} to {loss[1]:g} in each"
    )

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        left, top, right, bottom = self.region
        if self.num[0] > self.num[1]:
            raise ValueError(f"num={self.num} must hold the smaller number first.")
        if (most := self.num[1] * self.num_corners) > MAX_EDGES:
            raise ValueError(
                f"num={self.num} and num_corners={self.num_corners} are up to {most} corners, and there is room for "
                f"{MAX_EDGES} in all. Lower one of them."
            )
        if not (0.0 <= left <= right <= 1.0 and 0.0 <= top <= bottom <= 1.0):
            raise ValueError(f"region={self.region} must be left, top, right and bottom in 0..1, smaller ones first.")
        check_steps("loss", *self.loss, None)
        if not Within(0.0, 1.0).holds(self.loss):
            raise ValueError(f"loss={self.loss} {Within(0.0, 1.0).text}")
        return self

    @cached_property
    def record(self) -> np.dtype[np.void]:
        most = self.num[1]
        return np.dtype(
            [("num", np.int8), ("at", np.int32, (most, self.num_corners, 2)), ("loss", np.float64, (most,))]
        )

    def draw(self, words: RandomWords, frame: Frame) -> Drawn:
        fewest, most = self.num
        num = np.where(words.happens(0, self.p), fewest + words.integer(1, most - fewest + 1), 0)
        corners, heights = np.arange(most * self.num_corners), most * self.num_corners
        nested = words.nested("polygons", 2 * heights + most, slice(None))
        at = np.empty((len(words), heights, 2), np.int32)
        for axis, sides in ((0, frame.final_sides[1]), (1, frame.final_sides[0])):
            first, end = ((part * sides).astype(np.int64) for part in self.region[axis::2])
            at[:, :, axis] = first[:, None] + nested.integer(
                corners + axis * heights, np.maximum(end - first, 1)[:, None]
            )
        loss = nested.uniform(2 * heights + np.arange(most), *self.loss)
        return {"num": num.astype(np.int8), "at": at.reshape(len(words), most, self.num_corners, 2), "loss": loss}

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        is_of_lightness = np.full(frame.num, float(self.of == "lightness"))
        counts = np.stack([drawn["num"], np.full(frame.num, self.num_corners), is_of_lightness], axis=1)
        frame.shade(np.concatenate([counts, 1.0 - drawn["loss"]], axis=1), edges(drawn["at"]), self.changes(drawn))

    def caption(self, drawn: Mapping[str, Any]) -> str:
        return f"{drawn['num']} shadow{'s' if drawn['num'] > 1 else ''}" if drawn["num"] else ""


def edges(corners: npt.NDArray[np.int32]) -> npt.NDArray[np.uint32]:
    """(n, most, k, 2) of columns and rows as (n, most * k * 2) words: of each edge, the upper end and the lower one."""
    ends = np.stack([np.roll(corners, 1, axis=2), corners], axis=3)
    swapped = ends[:, :, :, 0, 1] > ends[:, :, :, 1, 1]
    ends = np.where(swapped[:, :, :, None, None], ends[:, :, :, ::-1], ends).astype(np.uint32)
    packed: npt.NDArray[np.uint32] = ends[..., 0] | ends[..., 1] << np.uint32(16)
    return packed.reshape(len(corners), prod(packed.shape[1:]))
