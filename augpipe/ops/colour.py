"""Colour ops that are a matrix a sample: each channel becomes a sum over red, green, blue and 1, kept within 0..255."""

from collections.abc import Mapping
from itertools import permutations
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from augpipe.gpu_ops.image.program_rows import CONTRAST, HSV, MATRIX
from augpipe.ops.colour_matrices import (
    brightened,
    contrasted,
    into_numbers,
    linear,
    out_of_numbers,
    saturated,
    shifted,
    turned,
)
from augpipe.ops.colour_program import ColourStep
from augpipe.ops.common_ops import FactorOp, Factors, SwitchOp
from augpipe.ops.draws import Draw, Limits, Number, Within
from augpipe.ops.frame import Frame
from augpipe.ops.op import Drawn, Op, Probability, Range, where_applied
from augpipe.ops.random_words import RandomWords
from augpipe.validation.models import told

__all__ = [
    "Brightness",
    "BrightnessContrast",
    "ChannelDropout",
    "ChannelShuffle",
    "ColorJitter",
    "Contrast",
    "Grayscale",
    "Hue",
    "HueSaturationValue",
    "Lighting",
    "Saturation",
    "Sepia",
]

PERMUTATIONS = np.array(list(permutations(range(3))))
SEPIA = np.array([[402, 787, 194], [357, 702, 172], [279, 547, 134]]) / 1024.0
"""albumentations' weights of sepia, in 1024ths: OpenCV's `transform`, which it calls, rounds them for 8-bit levels."""
About = Literal["mid_grey", "mean"]
Space = Literal["yiq", "hsv"]
HALF_A_TURN = Within(-0.5, 0.5, ", half a turn either way. Choose a range within it.")
A_TURN = Within(-1.0, 1.0, ", a turn either way. Choose a range within it.")

PCA_VECTORS = np.array([[-0.5675, 0.7192, 0.4009], [-0.5808, -0.0045, -0.8140], [-0.5836, -0.6948, 0.4203]])
PCA_VALUES = np.array([0.2175, 0.0188, 0.0045])
"""Principal components of ImageNet's colours in 0..1 (Krizhevsky et al. 2012, section 4.1): fb.resnet.torch."""


def make_gray(frame: Frame) -> None:
    """Make each channel the gray level."""
    frame.combine_channels(saturated(np.zeros(frame.num)), np.ones(frame.num, np.bool_))


Share = Annotated[float, Field(ge=0.0, le=1.0)]
Spread = Annotated[float, Field(ge=0.001, le=1.0)]
Normalized = Annotated[
    tuple[tuple[Share, Share, Share], tuple[Spread, Spread, Spread]],
    told("must be a mean in 0..1 and a std in 0.001..1, each of R, G and B: {name}=[[0.5, 0.5, 0.5], [0.5, 0.5, 0.5]]"),
]
"""The mean and the std of a `Normalize`."""


class Brightness(FactorOp):
    """Multiply all levels, as torchvision's `adjust_brightness` does."""

    op: Literal["brightness"] = "brightness"

    formula = "f v"

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        frame.combine_channels(brightened(drawn["factor"]), self.changes(drawn))


class Contrast(FactorOp):
    """Move the levels away from mid-grey, or from the image's mean brightness."""

    op: Literal["contrast"] = "contrast"
    about: About = "mid_grey"
    """mid_grey is level 127.5, and costs nothing; mean is the rendered image's, as in torchvision and Pillow, and
    takes a second pass over it."""

    formula = "g + f (v - g) about mid-grey g = 127.5, or the image's mean"

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        if self.about == "mean":
            frame.look_at_image(CONTRAST, drawn["factor"][:, None], self.changes(drawn))
        else:
            frame.combine_channels(contrasted(drawn["factor"]), self.changes(drawn))


class BrightnessContrast(Op):
    """Multiply levels and add to them, as albumentations' `RandomBrightnessContrast`: contrast away from black."""

    op: Literal["brightness_contrast"] = "brightness_contrast"
    brightness: Annotated[Range, Within(-1.0, 1.0)] = (-0.2, 0.2)
    """Smallest and largest part of the full level, 255, that is added."""
    contrast: Annotated[Range, Within(-1.0, 10.0)] = (-0.2, 0.2)
    """Smallest and largest part by which levels grow."""
    of_normalized: Normalized | None = None
    """The mean and the std, in 0..1, of a `Normalize` that stood before it: what it changes is (v / 255 - mean) / std,
    which it keeps within 0..1, as where tensors are normalised first. None: levels."""
    p: Probability = 0.5
    """How often the op is applied."""

    draws = (Number("brightness"), Number("contrast"))
    formula = "(1 + contrast) v + 255 brightness"
    caption_text = "brightness {brightness:+.2f}, contrast {contrast:+.2f}"

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        shifts = np.repeat(255.0 * drawn["brightness"][:, None], 3, axis=1)
        matrices = linear((1.0 + drawn["contrast"])[:, None, None] * np.eye(3), shifts)
        if self.of_normalized is None:
            frame.combine_channels(matrices, self.changes(drawn))
            return
        into, back = into_numbers(*self.of_normalized), out_of_numbers(*self.of_normalized)
        matrices = np.concatenate(
            [matrices[:, :, :3] @ into[:, :3], matrices[:, :, :3] @ into[:, 3:] + matrices[:, :, 3:]], axis=2
        )
        frame.combine_channels(matrices, self.changes(drawn))
        frame.combine_channels(np.repeat(back[None], frame.num, axis=0), self.changes(drawn))


class Saturation(FactorOp):
    """Move each pixel away from its own gray, as torchvision's `adjust_saturation` does; 0 leaves gray."""

    op: Literal["saturation"] = "saturation"

    formula = "g + f (v - g) about the pixel's own gray g"

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        frame.combine_channels(saturated(drawn["factor"]), self.changes(drawn))


class Hue(Op):
    """Turn the colours about the gray axis, in YIQ or in HSV.

    In YIQ brightness stays as it is, in HSV the largest channel: the two are alike for small turns.
    """

    op: Literal["hue"] = "hue"
    turns: Annotated[Range, HALF_A_TURN] = (-0.1, 0.1)
    """Smallest and largest part of a whole turn, within -0.5..0.5 as in torchvision."""
    step: float | None = None
    """From one turn to the next; None for any."""
    space: Space = "yiq"
    """What colours turn in: yiq, or hsv as in torchvision."""
    p: Probability = 1.0
    """How often the op is applied."""

    draws = (Number("turn", of="turns", step="step"),)
    formula = "chroma turned in YIQ, brightness kept; or the hue of HSV"
    inspect_text = "{turns[0]:g} to {turns[1]:g} of a turn of the hue"

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        if self.space == "hsv":
            nothing = np.zeros(frame.num)
            frame.shift_hsv(drawn["turn"], nothing, nothing, self.changes(drawn))
        else:
            frame.combine_channels(turned(drawn["turn"]), self.changes(drawn))

    def caption(self, drawn: Mapping[str, Any]) -> str:
        return f"hue {360 * drawn['turn']:+.0f}°" if drawn["turn"] else ""


LEAST_CHROMA = 0.5
"""The chroma, in levels, that whole levels round to none."""


class HueSaturationValue(Op):
    """Shift hue, saturation and value of HSV, as albumentations does."""

    op: Literal["hue_saturation_value"] = "hue_saturation_value"
    hue: Annotated[Range, HALF_A_TURN] = (-0.1, 0.1)
    """Smallest and largest part of a turn that is added to the hue; 20 of OpenCV's 180 are 0.11."""
    saturation: Annotated[Range, Within(-255.0, 255.0)] = (-30.0, 30.0)
    """Smallest and largest number that is added to the saturation, which is in 0..255 here."""
    value: Annotated[Range, Within(-255.0, 255.0)] = (-20.0, 20.0)
    """Smallest and largest number of levels that are added to the value, the largest of a pixel's channels."""
    keeps_gray: bool = False
    """Whether pixels without a colour get none, as in albumentations 2; else they turn reddish as saturation grows."""
    p: Probability = 0.5
    """How often the op is applied."""

    draws = (Number("hue"), Number("saturation"), Number("value"))
    formula = "HSV's hue, saturation and value, each with what is drawn added and kept in its range"
    caption_text = "HSV {hue:+.2f}, {saturation:+.0f}, {value:+.0f}"

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        least = LEAST_CHROMA if self.keeps_gray else 0.0
        frame.shift_hsv(drawn["hue"], drawn["saturation"] / 255.0, drawn["value"], self.changes(drawn), least)


class Grayscale(SwitchOp):
    """Show brightness alone, in all three channels."""

    op: Literal["grayscale"] = "grayscale"
    p: Probability = 0.1
    """How often the colours are taken."""

    formula = "0.299 R + 0.587 G + 0.114 B in all three channels"

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        frame.combine_channels(saturated(np.where(drawn["applied"], 0.0, 1.0)), drawn["applied"])


class Sepia(SwitchOp):
    """Show brightness alone, in the brown of old photographs, as albumentations' `ToSepia`."""

    op: Literal["sepia"] = "sepia"

    formula = "0.393 R + 0.769 G + 0.189 B for R; 0.349, 0.686 and 0.168 of them for G; 0.272, 0.534 and 0.131 for B"

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        frame.combine_channels(linear(np.repeat(SEPIA[None], frame.num, axis=0)), drawn["applied"])


class ChannelShuffle(Op):
    """Let red, green and blue change places: one of the five other orders."""

    op: Literal["channel_shuffle"] = "channel_shuffle"
    p: Probability = 0.5
    """How often they do."""

    draws = (Draw("order", np.int8, neutral=0),)
    formula = "channels change places"
    inspect_text = "one of five orders of the channels"

    @property
    def num_variants(self) -> int | None:
        return len(PERMUTATIONS)

    def draw(self, words: RandomWords, frame: Frame) -> Drawn:
        order = 1 + words.integer(1, len(PERMUTATIONS) - 1)
        return {"order": where_applied(words.happens(0, self.p), order, 0).astype(np.int8)}

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        frame.combine_channels(linear(np.eye(3)[PERMUTATIONS[drawn["order"]]]), self.changes(drawn))

    def caption(self, drawn: Mapping[str, Any]) -> str:
        return "channels " + "".join("RGB"[i] for i in PERMUTATIONS[drawn["order"]]) if drawn["order"] else ""


class ChannelDropout(Op):
    """Make one or two of the channels black, or another level."""

    op: Literal["channel_dropout"] = "channel_dropout"
    max_channels: Annotated[int, Field(ge=1, le=2)] = 1
    """How many channels are dropped at most; each number from 1 on is as likely."""
    fill: Annotated[float, Field(ge=0.0, le=255.0)] = 0.0
    """The level of a dropped channel."""
    p: Probability = 0.5
    """How often channels are dropped."""

    draws = (Draw("dropped", np.bool_, (3,), num_words=2, neutral=False),)
    formula = "`fill` in a channel or two"

    @property
    def num_variants(self) -> int | None:
        return 1 + 3 * self.max_channels

    @property
    def draws_text(self) -> str:
        return "a channel" if self.max_channels == 1 else "one or two channels"

    def draw(self, words: RandomWords, frame: Frame) -> Drawn:
        chosen = words.integer(1, 3)[:, None] == np.arange(3)
        is_other = words.integer(2, self.max_channels) == 1  # where two are dropped, the chosen one stays
        return {"dropped": where_applied(words.happens(0, self.p), chosen ^ is_other[:, None], 0).astype(np.bool_)}

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        dropped = drawn["dropped"]
        matrices = np.where(dropped[:, :, None], 0.0, np.eye(3))
        frame.combine_channels(linear(matrices, np.where(dropped, self.fill, 0.0)), self.changes(drawn))

    def caption(self, drawn: Mapping[str, Any]) -> str:
        names = "".join(name for name, is_dropped in zip("RGB", drawn["dropped"], strict=True) if is_dropped)
        return f"without {names}" if names else ""


class Lighting(Op):
    """Shift all pixels along the principal components of ImageNet's colours (Krizhevsky et al. 2012, section 4.1)."""

    op: Literal["lighting"] = "lighting"
    std: Annotated[float, Field(gt=0.0, le=10.0)] = 0.1
    """Standard deviation of the three normal draws; 0.1 in the paper."""
    p: Probability = 1.0
    """How often the op is applied."""

    draws = (Draw("amounts", shape=(3,), num_words=4, neutral=0.0, scaled=("std",)),)
    formula = "a shift along the principal components of ImageNet's colours"
    inspect_text = "three normal numbers of standard deviation {std:g}"

    def draw(self, words: RandomWords, frame: Frame) -> Drawn:
        amounts = self.std * np.stack([*words.normals(1), words.normals(3)[0]], axis=1)
        return {"amounts": where_applied(words.happens(0, self.p), amounts, 0.0)}

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        shifts = 255.0 * (drawn["amounts"] * PCA_VALUES) @ PCA_VECTORS.T
        frame.combine_channels(shifted(shifts), self.changes(drawn))

    def caption(self, drawn: Mapping[str, Any]) -> str:
        return "light " + " ".join(f"{value:+.2f}" for value in drawn["amounts"]) if drawn["amounts"].any() else ""


Strength = Annotated[
    Annotated[float, Field(ge=0.0)] | Factors,
    told("must be a number from 0 on, or the smallest and largest factor in 0..100: {name}=0.4 or {name}=[0.6, 1.4]"),
]


class ColorJitter(Op):
    """Change brightness, contrast, saturation and hue in a drawn order, with torchvision's arguments.

    With `about="mean"` and `space="hsv"` it does what torchvision's does; the defaults take one pass less.
    """

    op: Literal["color_jitter"] = "color_jitter"
    brightness: Strength = 0.0
    """The factor is drawn from 1 - this (at least 0) to 1 + this, or from a range; 0 leaves brightness alone."""
    contrast: Strength = 0.0
    """The factor of the contrast, as for brightness."""
    saturation: Strength = 0.0
    """The factor of the saturation, as for brightness."""
    hue: Annotated[
        Annotated[float, Field(ge=0.0, le=0.5)] | Range,
        told(
            "must be a number in 0..0.5, or the smallest and largest part of a turn: {name}=0.1 or {name}=[-0.1, 0.1]"
        ),
        A_TURN,
    ] = 0.0
    """The part of a turn is drawn from minus this to this, or from a range within -1..1."""
    about: About = "mid_grey"
    """What contrast moves away from; see `Contrast`."""
    space: Space = "yiq"
    """What hue turns in; see `Hue`."""
    of_normalized: Normalized | None = None
    """As for `BrightnessContrast`; numbers are kept within 0..1 before the first change, too."""
    p: Probability = 1.0
    """How often the op is applied."""

    draws = (
        *(Number(name, neutral=1.0) for name in ("brightness", "contrast", "saturation")),
        Number("hue"),
        Draw("order", np.int8),
    )
    formula = "torchvision's arguments"

    def range_of(self, draw: Number) -> Limits:
        value, centre, least = getattr(self, draw.field), draw.neutral or 0.0, 0.0 if draw.neutral else -0.5
        return value if isinstance(value, tuple) else (max(centre - value, least), centre + value)

    @property
    def draws_text(self) -> str:
        return f"{super().draws_text}; and their order"

    def draw(self, words: RandomWords, frame: Frame) -> Drawn:
        return super().draw(words, frame) | {"order": words.integer(5, len(JITTER_ORDERS)).astype(np.int8)}

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        made = (brightened, contrasted, saturated, turned)
        values = np.stack([drawn[name] for name in ("brightness", "contrast", "saturation", "hue")], axis=1)
        matrices = np.stack([make(values[:, i]) for i, make in enumerate(made)], axis=1)
        changed = values != (1.0, 1.0, 1.0, 0.0)
        rows, orders = np.arange(len(values)), JITTER_ORDERS[drawn["order"]]
        apart = {}
        if self.about == "mean":
            apart[1] = ColourStep.of(CONTRAST, values[:, 1:2], changed[:, 1])
        if self.space == "hsv":
            apart[3] = ColourStep.of(HSV, 6.0 * values[:, 3:], changed[:, 3])
        acts = changed.any(axis=1)
        if self.of_normalized is not None:
            frame.combine_channels(np.repeat(into_numbers(*self.of_normalized)[None], frame.num, axis=0), acts)
        for place in range(len(made)):
            which = orders[:, place]
            step = ColourStep.of(MATRIX, matrices[rows, which].reshape(-1, 12), changed[rows, which])
            for nth, other in apart.items():
                step.put(own := np.flatnonzero(which == nth), other.of_rows(own))
            frame.steps.append(step)
        if self.of_normalized is not None:
            frame.combine_channels(np.repeat(out_of_numbers(*self.of_normalized)[None], frame.num, axis=0), acts)

    def caption(self, drawn: Mapping[str, Any]) -> str:
        factors = ("brightness", "contrast", "saturation")
        texts = [f"{name} {drawn[name]:.2f}" for name in factors if drawn[name] != 1.0]
        return ", ".join(texts + ([f"hue {360 * drawn['hue']:+.0f}°"] if drawn["hue"] else []))


JITTER_ORDERS = np.array(list(permutations(range(4))))
"""The orders in which brightness, contrast, saturation and hue may be changed."""
