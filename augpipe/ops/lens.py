"""Lens distortion: the four kinds of the Deep Image papers, a full Brown-Conrady lens, and albumentations' two."""

from collections.abc import Mapping
from itertools import product
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from augpipe.gpu_ops.image import affine
from augpipe.ops.draws import Draw, Limits, Number, Within
from augpipe.ops.frame import Frame
from augpipe.ops.op import Drawn, Op, Probability, Range
from augpipe.ops.random_words import RandomWords
from augpipe.validation.models import ListOf, told

__all__ = ["BrownConrady", "LensDistortion", "OpticalDistortion"]

LensKind = Literal["barrel", "pincushion", "stretch_horizontal", "stretch_vertical"]
KINDS: tuple[LensKind, ...] = ("barrel", "pincushion", "stretch_horizontal", "stretch_vertical")
COEFFICIENTS = ("k1", "k2", "k3", "p1", "p2")
"""In OpenCV's order: radial before tangential, except for k3."""


class LensDistortion(Op):
    """Barrel or pincushion distortion, or a stretch along one axis (Deep Image, section 4.1; Table 1: 4 x 65).

    The paper gives no formula. Here a barrel or pincushion lens looks a point at radius r up at r*(1 +- s*r^2), with
    r = 1 at the crop's corner, and a stretch magnifies by 1 + s, for a strength s of up to `max_strength`.
    """

    op: Literal["lens_distortion"] = "lens_distortion"
    kinds: Annotated[
        ListOf[LensKind],
        Field(min_length=1),
        told(f"must be a list of some of {', '.join(map(repr, KINDS))}: {{name}}=['barrel']"),
    ] = KINDS
    """Which distortions to choose from."""
    max_strength: Annotated[float, Field(gt=0.0, lt=1.0 / 3.0)] = 0.26
    """Strength of the largest degree, 0.004 a degree; at 1/3 a pincushion's corner would fold over."""
    degrees: Annotated[int, Field(ge=1)] | None = 65
    """How many strengths, evenly spaced up to `max_strength`; None for any strength."""
    p: Probability = 1.0
    """How often the image is distorted."""

    is_geometry = is_lens = True
    draws = (Draw("kind", np.int8), Number("strength", of="max_strength"))
    formula = "barrel and pincushion look radius r up at r (1 ± s r²), stretches magnify by 1 + s"

    @model_validator(mode="after")
    def _are_distinct(self) -> Self:
        if len(set(self.kinds)) < len(self.kinds):
            raise ValueError(f"kinds={self.kinds} names one kind twice. Name each once.")
        return self

    def step_of(self, draw: Number) -> float | None:
        return None if self.degrees is None else self.max_strength / self.degrees

    def range_of(self, draw: Number) -> Limits:
        return self.step_of(draw) or 0.0, self.max_strength

    @property
    def num_variants(self) -> int | None:
        return None if self.degrees is None else len(self.kinds) * self.degrees

    @property
    def draws_text(self) -> str:
        strengths = "any strength" if self.degrees is None else f"one of {self.degrees} strengths"
        return f"{', '.join(self.kinds)}; {strengths} up to {self.max_strength:g}"

    def draw(self, words: RandomWords, frame: Frame) -> Drawn:
        chosen = np.array([KINDS.index(kind) for kind in self.kinds], np.int8)[words.integer(1, len(self.kinds))]
        return {"kind": chosen, **super().draw(words, frame)}

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        kind, strength = drawn["kind"], drawn["strength"]
        coefficients = np.zeros((len(kind), 5))
        coefficients[:, 0] = np.where(kind == 0, strength, np.where(kind == 1, -strength, 0.0))
        frame.distort(coefficients)
        frame.transform(
            affine.magnification(1.0 + np.where(kind == 2, strength, 0.0), 1.0 + np.where(kind == 3, strength, 0.0))
        )

    def caption(self, drawn: Mapping[str, Any]) -> str:
        if not drawn["strength"]:
            return ""
        return f"{KINDS[int(drawn['kind'])].replace('_', ' ')} {drawn['strength']:.3f}"


class BrownConrady(Op):
    """A full lens model: radial k1, k2, k3 and tangential p1, p2 (Brown 1966), each drawn from a range of its own.

    A point (x, y) of the output, with radius r = 1 at the crop's corner, is looked up at
    x*(1 + k1*r^2 + k2*r^4 + k3*r^6) + 2*p1*x*y + p2*(r^2 + 2*x^2), and y alike with p1 and p2 swapped: the formula of
    OpenCV. Positive k distort like a barrel, negative ones like a pincushion.
    """

    op: Literal["brown_conrady"] = "brown_conrady"
    k1: Range = (-0.2, 0.2)
    """Range of the coefficient of r^2."""
    k2: Range = (0.0, 0.0)
    """Range of the coefficient of r^4."""
    k3: Range = (0.0, 0.0)
    """Range of the coefficient of r^6."""
    p1: Range = (-0.02, 0.02)
    """Range of the first tangential coefficient."""
    p2: Range = (-0.02, 0.02)
    """Range of the second tangential coefficient."""
    steps: Annotated[int, Field(ge=2)] | None = None
    """How many evenly spaced values each range of some width has, its ends included; None for any value."""
    p: Probability = 1.0
    """How often the image is distorted."""

    is_geometry = is_lens = True
    draws = tuple(Number(name) for name in COEFFICIENTS)
    formula = "OpenCV's: x (1 + k1 r² + k2 r⁴ + k3 r⁶) + 2 p1 x y + p2 (r² + 2 x²), y alike"

    @model_validator(mode="after")
    def _does_not_fold(self) -> Self:
        r2 = np.linspace(0.0, 1.0, 101) ** 2
        # along the direction (p2, p1), where both pull alike
        tangential = 6.0 * np.hypot(max(map(abs, self.p1)), max(map(abs, self.p2)))
        for k1, k2, k3 in product(self.k1, self.k2, self.k3):
            slope = 1.0 + r2 * (3.0 * k1 + r2 * (5.0 * k2 + r2 * 7.0 * k3)) - tangential * np.sqrt(r2)
            if slope.min() <= 0.0:
                raise ValueError(
                    f"k1={k1}, k2={k2}, k3={k3} with tangential coefficients up to {tangential / 6.0:g} lie within the "
                    "ranges and fold the picture over itself before its corner. Narrow the ranges."
                )
        return self

    def step_of(self, draw: Number) -> float | None:
        low, high = self.range_of(draw)
        return None if self.steps is None else (high - low) / (self.steps - 1) or 1.0

    @property
    def draws_text(self) -> str:
        return super().draws_text + ("" if self.steps is None else f", {self.steps} values each")

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        frame.distort(np.stack([drawn[name] for name in COEFFICIENTS], axis=1))

    def caption(self, drawn: Mapping[str, Any]) -> str:
        return " ".join(f"{name} {drawn[name]:+.2f}" for name in COEFFICIENTS if drawn[name])


class OpticalDistortion(Op):
    """Barrel or pincushion distortion by one number k, as albumentations' OpticalDistortion draws it.

    With x and y as parts of the frame's width and height from its centre and r^2 = x^2 + y^2, `camera` looks a point up
    at (x, y) * (1 + k r^2 + k r^4). `fisheye` has x and y in pixels and r = 1 at the corner, and looks it up at
    (x, y) * (1 + k r^2). As there, a k below -0.36 (`fisheye`: -0.33) folds the picture over itself near its corners.
    """

    op: Literal["optical_distortion"] = "optical_distortion"
    k: Annotated[Range, Within(-2.0, 2.0)] = (-0.05, 0.05)
    """Range of the coefficient; above 0 a barrel, below 0 a pincushion."""
    mode: Literal["camera", "fisheye"] = "camera"
    """Which formula: `camera` stretches its circles to the frame's shape."""
    p: Probability = 1.0
    """How often the image is distorted."""

    is_geometry = is_lens = True
    draws = (Number("k"),)
    caption_text = "optical k = {k:.2f}"
    formula = (
        "looks (x, y) up at (x, y) (1 + k r² + k r⁴), x and y in parts of width and height; `fisheye` at (1 + k r²)"
    )

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        k = drawn["k"]
        coefficients = np.zeros((len(k), 5))
        if self.mode == "fisheye":
            coefficients[:, 0] = k
            frame.distort(coefficients)
            return
        height, width = frame.out_heights, frame.out_widths
        shape = np.where(k == 0.0, 1.0, height / width)
        corner2 = 0.25 * (1.0 + shape**2)  # r^2 of the corner, where the lens has 1
        coefficients[:, 0], coefficients[:, 1] = k * corner2, k * corner2**2
        frame.transform(affine.magnification(np.ones(len(k)), 1.0 / shape))
        frame.distort(coefficients)
        frame.transform(affine.magnification(np.ones(len(k)), shape))
