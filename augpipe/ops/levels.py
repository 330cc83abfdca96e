"""Ops that replace each of 256 levels by another one, by a table a sample, or by one that the image itself decides."""

from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from augpipe.gpu_ops.image.program_rows import AUTO_CONTRAST, EQUALIZE, MAX_TILES, SHARPNESS
from augpipe.gpu_ops.image.program_rows import CLAHE as CLAHE_STEP
from augpipe.ops.common_ops import FactorOp, SwitchOp
from augpipe.ops.draws import Applied, Draw, Limits, Number, Within
from augpipe.ops.frame import Frame
from augpipe.ops.op import Drawn, Op, Probability, Range
from augpipe.ops.random_words import RandomWords
from augpipe.validation.models import told

__all__ = [
    "CLAHE",
    "AutoContrast",
    "Equalize",
    "Gamma",
    "Invert",
    "Posterize",
    "Sharpness",
    "Solarize",
    "SolarizeAdd",
    "ToneCurve",
]

LEVELS = np.arange(256)
ROUNDING = 1e-6
"""Levels by which a threshold may miss a whole one, and still be it."""
Level = Annotated[int, Field(ge=0, le=256)]
LevelRange = Annotated[tuple[Level, Level], told("must be two levels in 0..256: {name}=[smallest, largest]")]
Bits = Annotated[int, Field(ge=0, le=8)]
Tiles = Annotated[int, Field(ge=1, le=MAX_TILES)]


class LevelsOp(Op):
    """An op that replaces each level, whatever pixel and channel it is of, by a table of what was drawn."""

    def table(self, drawn: Drawn) -> Any:
        """(m, 256) levels, of (m, 1) drawn values or the same for all of them; kept within 0..255 and rounded down."""
        raise AssertionError(f"{type(self).__name__} does not say what becomes of a level")

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        applied = self.changes(drawn)
        levels = self.table({name: values[applied][:, None] for name, values in drawn.items()})
        frame.look_up_levels(np.clip(levels, 0, 255).astype(np.uint8), applied)


class Gamma(LevelsOp):
    """Raise the levels, in 0..1, to a power: above 1 darkens, below 1 brightens."""

    op: Literal["gamma"] = "gamma"
    gamma: Annotated[Range, Within(0.01, 100.0, ". Choose powers nearer to 1.")] = (0.7, 1.5)
    """Smallest and largest power."""
    even_in: Literal["logarithm", "power"] = "logarithm"
    """Whether logarithms of powers lie evenly in the range, or the powers, as in albumentations."""
    p: Probability = 1.0
    """How often the op is applied."""

    draws = (Number("gamma", neutral=1.0, log=True),)
    formula = "255 (v / 255)^gamma"
    inspect_text = "a power of {gamma[0]:g} to {gamma[1]:g}"

    def evenly(self, draw: Number, limits: Limits) -> Limits:
        return limits if self.even_in == "power" else super().evenly(draw, limits)

    def unevenly(self, draw: Number, numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return numbers if self.even_in == "power" else super().unevenly(draw, numbers)

    def table(self, drawn: Drawn) -> Any:
        return 255.0 * (LEVELS / 255.0) ** drawn["gamma"] + 0.5


class ToneCurve(LevelsOp):
    """Bend the curve from old levels to new ones by moving two of its points, as albumentations' `RandomToneCurve`."""

    op: Literal["tone_curve"] = "tone_curve"
    scale: Annotated[float, Field(ge=0.0, le=1.0)] = 0.1
    """Standard deviation of both points' heights in 0..1, about 0.25 and 0.75; at 0 there is one curve, an S."""
    p: Probability = 0.5
    """How often the op is applied."""

    draws = (Draw("low"), Draw("high"), Applied())
    formula = "255 (3 (1 - t)² t low + 3 (1 - t) t² high + t³), t = v / 255"
    inspect_text = "two normal heights about 0.25 and 0.75, of standard deviation {scale:g}"
    caption_text = "tone curve {low:.2f}, {high:.2f}"

    def draw(self, words: RandomWords, frame: Frame) -> Drawn:
        low, high = (
            np.clip(mean + self.scale * normal, 0.0, 1.0)
            for mean, normal in zip((0.25, 0.75), words.normals(1), strict=True)
        )
        return {"low": low, "high": high, "applied": words.happens(0, self.p)}

    def table(self, drawn: Drawn) -> Any:
        t = LEVELS / 255.0
        return np.rint(255.0 * (3 * (1 - t) ** 2 * t * drawn["low"] + 3 * (1 - t) * t**2 * drawn["high"] + t**3))


class Posterize(LevelsOp):
    """Keep the highest bits of each level alone."""

    op: Literal["posterize"] = "posterize"
    bits: Annotated[tuple[Bits, Bits], told("must be two numbers of bits in 0..8: {name}=[smallest, largest]")] = (4, 8)
    """Fewest and most bits that are kept; 8 changes nothing."""
    p: Probability = 1.0
    """How often the op is applied."""

    draws = (Number("bits", np.int8, step=1.0, neutral=8),)
    formula = "the highest bits of v; the lower ones become 0"
    inspect_text = "{bits[0]} to {bits[1]} bits of each level"
    caption_text = "posterize {bits} bits"

    def table(self, drawn: Drawn) -> Any:
        return LEVELS & (256 - (256 >> drawn["bits"].astype(np.int64)))


class Solarize(LevelsOp):
    """Invert the levels from a threshold on."""

    op: Literal["solarize"] = "solarize"
    threshold: LevelRange = (128, 128)
    """Smallest and largest level from which on levels are inverted; 256 changes nothing."""
    step: Annotated[float, Field(gt=0.0)] = 1.0
    """From one threshold to the next; a fraction is rounded up, which inverts the same levels."""
    p: Probability = 0.5
    """How often the op is applied."""

    draws = (
        Number("threshold", np.int16, step="step", neutral=256, rounded=lambda levels: np.ceil(levels - ROUNDING)),
    )
    formula = "255 - v from the threshold on"
    inspect_text = "inverted from level {threshold[0]} to {threshold[1]} on{steps}"
    caption_text = "solarize from {threshold}"

    def table(self, drawn: Drawn) -> Any:
        return np.where(drawn["threshold"] <= LEVELS, 255 - LEVELS, LEVELS)


class SolarizeAdd(LevelsOp):
    """Add to the levels below a threshold."""

    op: Literal["solarize_add"] = "solarize_add"
    addition: LevelRange = (0, 110)
    """Fewest and most levels that are added; sums are kept within 255."""
    threshold: Annotated[int, Field(ge=1, le=256)] = 128
    """The first level that stays as it is."""
    p: Probability = 1.0
    """How often the op is applied."""

    draws = (Number("addition", np.int16, step=1.0),)
    formula = "v + what is drawn below the threshold, up to 255"
    inspect_text = "{addition[0]} to {addition[1]} more below level {threshold}"
    caption_text = "solarize +{addition}"

    def table(self, drawn: Drawn) -> Any:
        return np.where(self.threshold > LEVELS, LEVELS + drawn["addition"], LEVELS)


class Invert(LevelsOp):
    """Turn each level into 255 minus it."""

    op: Literal["invert"] = "invert"
    p: Probability = 0.5
    """How often the op is applied."""

    draws = (Applied(),)
    formula = "255 - v"

    def table(self, drawn: Drawn) -> Any:
        return 255 - LEVELS


class AutoContrast(SwitchOp):
    """Stretch the levels of each channel to 0..255, as Pillow's `autocontrast`; looks at the rendered image."""

    op: Literal["auto_contrast"] = "auto_contrast"

    formula = "Pillow's, of the rendered image"

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        frame.look_at_image(AUTO_CONTRAST, np.zeros((frame.num, 0)), drawn["applied"])


class Equalize(SwitchOp):
    """Spread the levels of each channel evenly, as Pillow's `equalize`; looks at the rendered image."""

    op: Literal["equalize"] = "equalize"

    formula = "Pillow's, of the rendered image"

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        frame.look_at_image(EQUALIZE, np.zeros((frame.num, 0)), drawn["applied"])


class Sharpness(FactorOp):
    """Move each pixel away from the mean about it, as Pillow's `ImageEnhance.Sharpness`; below 1 it blurs."""

    op: Literal["sharpness"] = "sharpness"

    formula = "Pillow's, of the rendered image"

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        frame.look_at_image(SHARPNESS, drawn["factor"][:, None], self.changes(drawn))


class CLAHE(Op):
    """Spread the levels of lightness (L of L*a*b*) evenly in each of many tiles, as OpenCV and albumentations do."""

    op: Literal["clahe"] = "clahe"
    clip_limit: Annotated[Range, Within(1.0, 256.0)] = (1.0, 4.0)
    """Smallest and largest limit of how much more often than evenly a level may occur in a tile."""
    tiles: Annotated[tuple[Tiles, Tiles], told(f"must be two numbers in 1..{MAX_TILES}: {{name}}=[8, 8]")] = (8, 8)
    """How many tiles lie along the height, and along the width."""
    p: Probability = 0.5
    """How often the op is applied."""

    draws = (Number("clip_limit", neutral=None), Applied())
    formula = "OpenCV's, of the lightness of the rendered image"
    inspect_text = "a clip limit of {clip_limit[0]:g} to {clip_limit[1]:g}"
    caption_text = "CLAHE {clip_limit:.1f}"

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        tiles = np.broadcast_to(np.array(self.tiles, np.float64), (frame.num, 2))
        numbers = np.concatenate([drawn["clip_limit"][:, None], tiles], axis=1)
        frame.look_at_image(CLAHE_STEP, numbers, drawn["applied"])
