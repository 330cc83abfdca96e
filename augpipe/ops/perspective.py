"""Perspective: the frame as a plane that is seen from a side."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from augpipe.gpu_ops.image import affine
from augpipe.ops.draws import Draw, Scale, Within, from_zero
from augpipe.ops.frame import Frame
from augpipe.ops.op import Drawn, Op, Probability, Range, one_of_them, where_applied
from augpipe.ops.random_words import RandomWords, check_steps

__all__ = ["Perspective"]

Float = npt.NDArray[np.float64]

MAX_DISTORTION = 0.7
"""Beyond it the filter, whose width is that of the frame's centre, shows some images wider than their corners."""
ALWAYS_CONVEX = 0.6
"""From 2/3 on, a corner may be drawn onto the line between its neighbours, where no perspective puts it."""
MOST_UNEVEN = 13.0
"""Largest over smallest of the areas that corners span with their neighbours, where all move by `ALWAYS_CONVEX`."""

INNER = Within(0.0, 0.3, " of a side. Choose a range within it.")

CORNERS = np.array([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])
"""Upper left, upper right, lower right, lower left, in half widths and heights from the frame's centre."""


class Perspective(Op):
    """Move the image's four corners inwards, each by a way of its own, and the image with them.

    It is the projective map that takes the frame's corners to the drawn ones, as in torchvision's RandomPerspective;
    with `inner_std` it takes drawn ones to the frame's corners, and shows nothing from beyond the frame.
    What the image moves away from shows what lies beyond the crop. The filter's width is that of the frame's centre.
    Above a distortion of 0.6, corners that no perspective would give, or nearly so (1 image in 5,000 at 0.7), all move
    less: by 0.6 / distortion of their way.
    """

    op: Literal["perspective"] = "perspective"
    distortion: Annotated[float, Field(gt=0.0, le=MAX_DISTORTION)] = 0.5
    """How far a corner moves at most along each axis, as a fraction of half the frame's width or height."""
    corners: Literal["edges", "centres", "whole_px"] = "edges"
    """What moves so far: where the frame's edges meet, or the centres of its corner pixels, as in kornia. Or in
    torchvision's way: the upper left corners of its corner pixels, by whole pixels."""
    inner_std: Annotated[Range, INNER] | None = None
    """Show a part of the frame instead, as albumentations' Perspective: a quadrangle fills the frame, whose corners
    lie inwards along each axis by normal parts of the frame's width or height, regardless of their sign and at most
    0.3. This is the smallest and the largest standard deviation; one is drawn for all corners. None: `distortion`."""
    p: Probability = 1.0
    """How often the image is seen from a side."""

    is_geometry = is_projective = True
    draws = (Draw("moved", shape=(4, 2), num_words=9, neutral=0.0, scaled=("distortion",)),)
    formula = "the projective map that takes the frame's corners to the drawn ones, or drawn ones to those"

    @model_validator(mode="after")
    def _is_one_way(self) -> Self:
        one_of_them(self, "distortion", "inner_std", "how far corners move")
        if self.inner_std is not None:
            check_steps("inner_std", *self.inner_std, None)
            if not INNER.holds(self.inner_std):
                raise ValueError(f"inner_std={self.inner_std} {INNER.text}")
            if self.corners != "edges":
                raise ValueError(f"corners={self.corners!r} is of distortion. Leave it out with inner_std.")
        return self

    @property
    def scaled_fields(self) -> dict[str, Scale]:
        return super().scaled_fields if self.inner_std is None else {"inner_std": from_zero}

    @property
    def draws_text(self) -> str:
        if self.inner_std is None:
            return f"for each corner, 0 to {self.distortion:.3g} of half the width and half the height inwards"
        low, high = self.inner_std
        return f"corners of a part of the frame, normal with a standard deviation of {low:g} to {high:g} of its sides"

    def draw(self, words: RandomWords, frame: Frame) -> Drawn:
        if self.inner_std is not None:
            std = words.uniform(9, *self.inner_std)[:, None]
            normal = np.stack([number for place in range(1, 9, 2) for number in words.normals(place)], axis=1)
            inner: Float = np.minimum(2.0 * std * np.abs(normal), ALWAYS_CONVEX).reshape(-1, 4, 2)
            return {"moved": where_applied(words.happens(0, self.p), inner, 0.0)}
        ways = [words.uniform(position, 0.0, self.distortion) for position in range(1, 9)]
        moved: Float = np.stack(ways, axis=1).reshape(-1, 4, 2)
        if self.distortion > ALWAYS_CONVEX:
            moved = np.where(_is_possible(moved)[:, None, None], moved, moved * (ALWAYS_CONVEX / self.distortion))
        return {"moved": where_applied(words.happens(0, self.p), moved, 0.0)}

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        widths, heights = frame.out_widths.astype(np.float64), frame.out_heights.astype(np.float64)
        moved = drawn["moved"]
        if self.corners != "edges":
            sides = np.stack([widths, heights], axis=1)
            between = np.maximum(sides - 1.0, 1.0)
            if self.corners == "whole_px":
                most_px = np.floor(self.distortion * np.floor(0.5 * sides))[:, None]
                moved_px = np.minimum(np.floor(moved / self.distortion * (most_px + 1.0)), most_px)
                moved = 2.0 * moved_px / sides[:, None]
            moved = np.minimum(moved * (sides / between)[:, None], MAX_DISTORTION)  # of frames of a few pixels
            widths, heights = between.T
        looked_up = affine.projection(CORNERS * (1.0 - moved))
        if self.inner_std is not None:
            shown: Float = np.linalg.inv(looked_up).astype(np.float64)
            looked_up = shown / shown[:, 2:, 2:]
        looked_up = affine.scaled(looked_up, 0.5 * widths, 0.5 * heights)
        if self.corners == "whole_px":
            half = np.full(frame.num, 0.5)  # the centre of what moves lies up and left of the frame's
            moved_in = affine.compose(affine.translation(half, half), looked_up)
            looked_up = affine.compose(moved_in, affine.translation(-half, -half))
        frame.project(looked_up)

    def caption(self, drawn: Mapping[str, Any]) -> str:
        moved = drawn["moved"]
        return f"perspective {moved.max():.2f}" if moved.any() else ""


def _is_possible(moved: Float) -> npt.NDArray[np.bool_]:
    """(n,) whether corners stay corners of a convex quadrangle, and not nearly on the line between their neighbours."""
    corners = CORNERS * (1.0 - moved)
    before, after = corners - np.roll(corners, 1, axis=1), np.roll(corners, -1, axis=1) - corners
    areas = before[..., 0] * after[..., 1] - before[..., 1] * after[..., 0]
    least: Float = areas.min(axis=1)
    possible: npt.NDArray[np.bool_] = (least > 0.0) & (areas.max(axis=1) <= MOST_UNEVEN * least)
    return possible
