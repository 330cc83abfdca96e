"""Perspective: the frame as a plane that is seen from a side."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from augpipe.gpu_ops.image import affine
from augpipe.ops.draws import Draw
from augpipe.ops.frame import Frame
from augpipe.ops.op import Drawn, Op, Probability, where_applied
from augpipe.ops.random_words import RandomWords

__all__ = ["Perspective"]

Float = npt.NDArray[np.float64]

MAX_DISTORTION = 0.7
"""Beyond it the filter, whose width is that of the frame's centre, shows some images wider than their corners."""
ALWAYS_CONVEX = 0.6
"""From 2/3 on, a corner may be drawn onto the line between its neighbours, where no perspective puts it."""
MOST_UNEVEN = 13.0
"""Largest over smallest of the areas that corners span with their neighbours, where all move by `ALWAYS_CONVEX`."""

CORNERS = np.array([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])
"""Upper left, upper right, lower right, lower left, in half widths and heights from the frame's centre."""


class Perspective(Op):
    """Move the image's four corners inwards, each by a way of its own, and the image with them.

    It is the projective map that takes the frame's corners to the drawn ones, as in torchvision's RandomPerspective.
    What the image moves away from shows what lies beyond the crop. The filter's width is that of the frame's centre.
    Above a distortion of 0.6, corners that no perspective would give, or nearly so (1 image in 5,000 at 0.7), all move
    less: by 0.6 / distortion of their way.
    """

    op: Literal["perspective"] = "perspective"
    distortion: Annotated[float, Field(gt=0.0, le=MAX_DISTORTION)] = 0.5
    """How far a corner moves at most along each axis, as a fraction of half the frame's width or height."""
    corners: Literal["edges", "centres"] = "edges"
    """What moves so far: where the frame's edges meet, or the centres of its corner pixels, as in kornia."""
    p: Probability = 1.0
    """How often the image is seen from a side."""

    is_geometry = is_projective = True
    draws = (Draw("moved", shape=(4, 2), num_words=8, neutral=0.0, scaled=("distortion",)),)
    formula = "the projective map that takes the frame's corners to the drawn ones"
    inspect_text = "for each corner, 0 to {distortion:.3g} of half the width and half the height inwards"

    def draw(self, words: RandomWords, frame: Frame) -> Drawn:
        ways = [words.uniform(position, 0.0, self.distortion) for position in range(1, 9)]
        moved: Float = np.stack(ways, axis=1).reshape(-1, 4, 2)
        if self.distortion > ALWAYS_CONVEX:
            moved = np.where(_is_possible(moved)[:, None, None], moved, moved * (ALWAYS_CONVEX / self.distortion))
        return {"moved": where_applied(words.happens(0, self.p), moved, 0.0)}

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        widths, heights = frame.out_widths.astype(np.float64), frame.out_heights.astype(np.float64)
        moved = drawn["moved"]
        if self.corners == "centres":
            sides = np.stack([widths, heights], axis=1)
            between = np.maximum(sides - 1.0, 1.0)
            moved = np.minimum(moved * (sides / between)[:, None], MAX_DISTORTION)  # of frames of a few pixels
            widths, heights = between.T
        frame.project(affine.scaled(affine.projection(CORNERS * (1.0 - moved)), 0.5 * widths, 0.5 * heights))

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
