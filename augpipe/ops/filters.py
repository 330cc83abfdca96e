"""Filters over the rendered view: each pixel becomes a sum, or the median, of those around it.

They act among the colour ops in the order of the list. Beyond the view they see its mirror image without the outermost
pixel, as OpenCV, torchvision and albumentations do; the median sees the outermost pixel again.
"""

from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import AfterValidator, Field

from augpipe.gpu_ops.image.program_rows import CONVOLVE, MAX_LINE, MAX_RADIUS, MAX_SIDE, MEDIAN, SEPARABLE
from augpipe.ops.draws import Draw, Number, Within
from augpipe.ops.frame import Frame
from augpipe.ops.op import Drawn, Op, Probability, Range
from augpipe.ops.random_words import RandomWords
from augpipe.validation.models import broken, told

__all__ = ["BoxBlur", "Emboss", "GaussianBlur", "MedianBlur", "MotionBlur", "Sharpen"]

Bool = npt.NDArray[np.bool_]
Float = npt.NDArray[np.float64]
MAX_SIGMA_PX = 18.0
"""Of which a kernel of the usual size has `MAX_RADIUS`."""
RADIUS_PER_SIGMA = 3.5
"""Pillow's, and albumentations' since version 2."""


def _is_odd(sizes: Any) -> Any:
    are_several = isinstance(sizes, tuple)
    if any(size % 2 == 0 for size in (sizes if are_several else (sizes,)) if size is not None):
        raise broken(f"must be odd, so that a pixel lies in the middle: {{name}}={'[3, 7]' if are_several else 23}")
    return sizes


Side = Annotated[int, Field(ge=3, le=MAX_SIDE)]
Sides = Annotated[
    tuple[Side, Side],
    told(f"must be two odd numbers of pixels in 3..{MAX_SIDE}: {{name}}=[smallest, largest]"),
    AfterValidator(_is_odd),
]
LineSide = Annotated[int, Field(ge=3, le=MAX_LINE)]
LineSides = Annotated[
    tuple[LineSide, LineSide],
    told(f"must be two odd numbers of pixels in 3..{MAX_LINE}: {{name}}=[smallest, largest]"),
    AfterValidator(_is_odd),
]
WideSide = Annotated[int, Field(ge=3, le=2 * MAX_RADIUS + 1)]
WideSides = Annotated[
    tuple[WideSide, WideSide],
    told(f"must be two odd numbers of pixels in 3..{2 * MAX_RADIUS + 1}: {{name}}=[smallest, largest]"),
    AfterValidator(_is_odd),
]


class GaussianBlur(Op):
    """Soften the view by a Gaussian, cut off as torchvision and albumentations cut theirs.

    It acts where it is listed among the colour ops, and takes about as long at a turned view. `Blur` is a part of the
    look-up before them.
    """

    op: Literal["gaussian_blur"] = "gaussian_blur"
    sigma_px: Annotated[Range, Within(0.0, MAX_SIGMA_PX, " pixels. For more, make smaller images.")] = (0.1, 2.0)
    """Smallest and largest standard deviation, in pixels of the output; torchvision's is 0.1 to 2."""
    kernel_px: Annotated[
        Annotated[int, Field(ge=1, le=2 * MAX_RADIUS + 1)] | None,
        told(f"must be an odd number of pixels in 1..{2 * MAX_RADIUS + 1}: {{name}}=23"),
        AfterValidator(_is_odd),
    ] = None
    """How many pixels a sum goes over along each axis, torchvision's `kernel_size`; None for seven times sigma."""
    p: Probability = 0.5
    """How often the view is blurred."""

    draws = (Number("sigma_px"),)
    formula = "the sum of those around it by exp(-d² / 2 sigma²) along each axis"
    inspect_text = "a standard deviation of {sigma_px[0]:g} to {sigma_px[1]:g} px"
    caption_text = "blur {sigma_px:.2f} px"

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        sigma = drawn["sigma_px"]
        if self.kernel_px is None:
            radii = np.floor(RADIUS_PER_SIGMA * sigma).astype(np.int64)
        else:
            radii = np.full(frame.num, self.kernel_px // 2)
        distances = np.arange(MAX_RADIUS + 1)
        weights = np.exp(-0.5 * (distances / np.maximum(sigma, 1e-9)[:, None]) ** 2) * (distances <= radii[:, None])
        weights /= 2.0 * weights.sum(axis=1, keepdims=True) - weights[:, :1]
        frame.filter(SEPARABLE, radii, weights, (sigma > 0.0) & (radii > 0))


class BoxBlur(Op):
    """Make each pixel the mean of a square around it, as OpenCV's `blur` and albumentations' `Blur`."""

    op: Literal["box_blur"] = "box_blur"
    sizes: WideSides = (3, 7)
    """Smallest and largest side of the square, in pixels; each odd number between is as likely."""
    p: Probability = 0.5
    """How often the view is blurred."""

    draws = (Number("size_px", np.int16, of="sizes", step=2.0, neutral=1),)
    formula = "the mean of a square around it"
    inspect_text = "the mean of {sizes[0]} to {sizes[1]} px"
    caption_text = "box {size_px} px"

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        radii = drawn["size_px"].astype(np.int64) // 2
        weights = (np.arange(MAX_RADIUS + 1) <= radii[:, None]) / (2.0 * radii[:, None] + 1.0)
        frame.filter(SEPARABLE, radii, weights, self.changes(drawn))


class MedianBlur(Op):
    """Make each channel of each pixel the median of a square around it, as OpenCV's `medianBlur`."""

    op: Literal["median_blur"] = "median_blur"
    sizes: Sides = (3, 7)
    """Smallest and largest side of the square, in pixels: 3, 5 or 7."""
    p: Probability = 0.5
    """How often the view is blurred."""

    draws = (Number("size_px", np.int16, of="sizes", step=2.0, neutral=1),)
    formula = "the median of a square around it"
    inspect_text = "the median of {sizes[0]} to {sizes[1]} px"
    caption_text = "median {size_px} px"

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        frame.look_at_image(MEDIAN, drawn["size_px"][:, None].astype(np.float64), self.changes(drawn))


class MotionBlur(Op):
    """Smear the view along a line, as albumentations does: its pixels in a small square are added up."""

    op: Literal["motion_blur"] = "motion_blur"
    sizes: LineSides = (3, 7)
    """Shortest and longest line, in pixels; odd numbers from 3 to 15."""
    degrees: Annotated[Range, Within(-360.0, 360.0)] = (0.0, 360.0)
    """Smallest and largest angle of the line, anticlockwise from the right."""
    direction: Annotated[Range, Within(-1.0, 1.0)] = (-1.0, 1.0)
    """Where the line lies: 0 about the pixel, 1 from it on, -1 up to it."""
    shifts: bool = True
    """Whether the line is moved, by up to a quarter of its square along each axis; of `ends`, whether it stays where
    they are, and is not moved to the middle."""
    line: Literal["angle", "ends"] = "angle"
    """What is drawn of a line: its angle and where it lies; or, as in albumentations 1, two different pixels of the
    square, its ends."""
    p: Probability = 0.5
    """How often the view is smeared."""

    draws = (
        Number("size_px", np.int16, of="sizes", step=2.0, neutral=1),
        Number("degrees", neutral=None),
        Number("direction", neutral=None),
        Draw("shift", shape=(2,), num_words=2),
        Draw("ends", np.int8, shape=(4,), num_words=4),
    )
    formula = "the mean along a line of pixels"
    inspect_text = "a line of {sizes[0]} to {sizes[1]} px, its angle and place"
    caption_text = "motion {size_px} px at {degrees:.0f}°"

    def draw(self, words: RandomWords, frame: Frame) -> Drawn:
        shift = np.stack([words.uniform(4 + axis, -1.0, 1.0) for axis in range(2)], axis=1)
        drawn = super().draw(words, frame) | {"shift": shift if self.shifts else np.zeros_like(shift)}
        return drawn | {"ends": self._ends(words, drawn["size_px"].astype(np.int64))}

    def _ends(self, words: RandomWords, sides: npt.NDArray[np.int64]) -> npt.NDArray[np.int8]:
        """(n, 4) columns and rows of the pixels where lines begin and end; zeros where they are drawn by an angle."""
        if self.line == "angle":
            return np.zeros((len(words), 4), np.int8)
        x, last_x, y = (words.integer(place, sides) for place in (6, 7, 8))
        other_y = (y + 1 + words.integer(9, np.maximum(sides - 1, 1))) % sides
        ends = np.stack([x, y, last_x, np.where(x == last_x, other_y, words.integer(9, sides))], axis=1)
        return (ends if self.shifts else centred(ends, sides)).astype(np.int8)

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        sides = drawn["size_px"].astype(np.int64)
        if self.line == "ends":
            places = drawn_line(sides, drawn["ends"].astype(np.int64))
        else:
            places = line(sides, np.deg2rad(drawn["degrees"]), drawn["direction"], drawn["shift"])
        frame.smear(sides, places, self.changes(drawn))


def line(sides: npt.NDArray[np.int64], angles: Float, direction: Float, shift: Float) -> Bool:
    """(n, 225) whether pixels of squares of (n,) sides, row by row, are on a line."""
    half = (sides // 2)[:, None]
    starts = -half * (1.0 - np.maximum(direction, 0.0)[:, None])
    ends = half * (1.0 + np.minimum(direction, 0.0)[:, None])
    nth = np.minimum(np.arange(MAX_LINE), sides[:, None] - 1)
    along = starts + (ends - starts) * nth / (sides[:, None] - 1.0 + (sides[:, None] == 1))
    columns = half + np.cos(angles)[:, None] * along + shift[:, :1] * half / 2.0
    rows = half - np.sin(angles)[:, None] * along + shift[:, 1:] * half / 2.0
    columns, rows = (np.clip(np.rint(one), 0, sides[:, None] - 1).astype(np.int64) for one in (columns, rows))
    return _marked(rows * sides[:, None] + columns)


def centred(ends: npt.NDArray[np.int64], sides: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """(n, 4) ends in the middle of squares of (n,) sides; along an axis with an even number of pixels a line gets one
    less, at the end with the larger number."""
    pairs = ends.reshape(-1, 2, 2)
    is_even = (pairs[:, 0] - pairs[:, 1]) % 2 != 0
    pairs = pairs - np.stack([is_even & (pairs[:, 0] > pairs[:, 1]), is_even & (pairs[:, 1] > pairs[:, 0])], axis=1)
    middle = pairs.sum(axis=1, keepdims=True) // 2
    centred: npt.NDArray[np.int64] = (pairs - middle + (sides // 2)[:, None, None]).reshape(-1, 4)
    return centred


def drawn_line(sides: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> Bool:
    """(n, 225) whether pixels of squares of (n,) sides, row by row, are on Bresenham's line between (n, 4) ends.

    Halves are rounded towards the left end, as OpenCV's `line` rounds them.
    """
    ends = np.where((ends[:, 0] > ends[:, 2])[:, None], ends[:, [2, 3, 0, 1]], ends)
    along = ends[:, 2:] - ends[:, :2]
    num = np.abs(along).max(axis=1)[:, None]
    parts = np.minimum(np.arange(MAX_LINE), num) / np.maximum(num, 1)
    rounded = np.sign(along)[:, :, None] * np.ceil(np.abs(along)[:, :, None] * parts[:, None] - 0.5 - 1e-9)
    columns, rows = np.moveaxis(ends[:, :2, None] + rounded.astype(np.int64), 1, 0)
    return _marked(rows * sides[:, None] + columns)


def _marked(places: npt.NDArray[np.int64]) -> Bool:
    """(n, 225) True at (n, k) places."""
    marked: Bool = np.zeros((len(places), MAX_LINE**2), np.bool_)
    np.put_along_axis(marked, places, True, axis=1)
    return marked


IDENTITY = np.array([0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0])
"""Weights of a square of 3 that change nothing."""


def blended(frame: Frame, alpha: Float, weights: Float) -> None:
    """Blend the view with what (n, 9) weights make of it, a part `alpha` of that."""
    frame.filter(CONVOLVE, np.full(frame.num, 3), IDENTITY + alpha[:, None] * (weights - IDENTITY), alpha > 0.0)


class Sharpen(Op):
    """Blend the view with its edges, as albumentations' and imgaug's `Sharpen`."""

    op: Literal["sharpen"] = "sharpen"
    alpha: Annotated[Range, Within(0.0, 1.0)] = (0.2, 0.5)
    """Smallest and largest part of the sharpened view; 0 changes nothing."""
    lightness: Annotated[Range, Within(0.0, 10.0)] = (0.5, 1.0)
    """Smallest and largest weight of the view itself in the sharpened one; 1 keeps its brightness."""
    p: Probability = 0.5
    """How often the view is sharpened."""

    draws = (Number("alpha"), Number("lightness", neutral=None))
    formula = "(1 - alpha) v + alpha (lightness v + the sum of v's differences to its 8 neighbours)"
    caption_text = "sharpen {alpha:.2f}, {lightness:.2f}"

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        weights = np.full((frame.num, 9), -1.0)
        weights[:, 4] = 8.0 + drawn["lightness"]
        blended(frame, drawn["alpha"], weights)


class Emboss(Op):
    """Blend the view with a relief of it that is lit from the upper left, as albumentations' and imgaug's `Emboss`."""

    op: Literal["emboss"] = "emboss"
    alpha: Annotated[Range, Within(0.0, 1.0)] = (0.2, 0.5)
    """Smallest and largest part of the relief; 0 changes nothing."""
    strength: Annotated[Range, Within(0.0, 10.0)] = (0.2, 0.7)
    """Smallest and largest strength of the relief."""
    p: Probability = 0.5
    """How often the view is embossed."""

    draws = (Number("alpha"), Number("strength", neutral=None))
    formula = "(1 - alpha) v + alpha (v + differences along the falling diagonal)"
    caption_text = "emboss {alpha:.2f}, {strength:.2f}"

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        fall = np.array([-1.0, -1.0, 0.0, -1.0, 0.0, 1.0, 0.0, 1.0, 1.0])
        relief = np.array([-1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0])
        blended(frame, drawn["alpha"], relief + drawn["strength"][:, None] * fall)
