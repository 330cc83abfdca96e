"""Frames that are bent between nodes: a grid whose lines move, an elastic field, and pixels that stay whole."""

from collections.abc import Mapping
from math import pi, sqrt
from typing import Annotated, Any, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from augpipe.gpu_ops.image import affine
from augpipe.gpu_ops.image.rows import NUM_NODES
from augpipe.ops.draws import Draw, Seed
from augpipe.ops.frame import Frame
from augpipe.ops.op import Drawn, Op, Probability, Range, Side, where_applied
from augpipe.ops.random_words import RandomWords

__all__ = ["ElasticTransform", "GridDistortion"]

MAX_CELLS = NUM_NODES - 1
Float = npt.NDArray[np.float64]

NODE_STD = sqrt(1.0 / 6.0) * 151.0 / 315.0
"""Standard deviation of a field of cubic B-splines whose nodes are triangular numbers in -1..1: these have a variance
of 1/6, and the mean over a cell of the sum of the squared weights along an axis is 151/315."""
NODES_APART = sqrt(3.0)
"""Standard deviations of a Gaussian from node to node: a cubic B-spline has a variance of a third of that squared."""
UNIFORM_STD = sqrt(1.0 / 3.0)
"""Standard deviation of evenly distributed numbers in -1..1."""
MAX_LEAN = 0.45
"""How far a corner of the affine part's triangle moves at most, in half sides of it: at 0.5 the picture may fold."""


class GridDistortion(Op):
    """Cut the image into cells, and draw how much of it each column and each row of cells shows.

    In the output all cells are alike. A column shows 1 + s of a cell's width, with s drawn from `distort_limit` for
    each, from where the column before it ends, and so do rows: albumentations' GridDistortion.
    """

    op: Literal["grid_distortion"] = "grid_distortion"
    num_steps: Annotated[int, Field(ge=1, le=MAX_CELLS)] = 5
    """Cells along each axis."""
    distort_limit: Range = (-0.3, 0.3)
    """Smallest and largest s."""
    normalized: bool = True
    """Whether all shares are multiplied so that together they show the image's width and height, and no more."""
    cells: Literal["alike", "whole_px", "to_edge"] = "alike"
    """alike divides the frame, and joins cells; whole_px has cells of whole pixels, and one more of those that are
    left, of which each begins with what the one before it showed last, as albumentations 2 does; of to_edge, as
    albumentations 1 does, the one more ends at the image's edge. Such cells are two pixels wide at least: of a frame
    of fewer pixels for each, the first ones are bent."""
    p: Probability = 1.0
    """How often the image is bent."""

    is_geometry = is_lens = True
    draws = (Draw("shares", shape=(2, MAX_CELLS), num_words=2 * MAX_CELLS, neutral=0.0, scaled=("distort_limit",)),)
    formula = "columns of cells show 1 + s of a cell's width, rows of its height, one after the other"
    inspect_text = "{num_steps} columns and rows, each {distort_limit[0]:g} to {distort_limit[1]:g} of one wider"

    @model_validator(mode="after")
    def _does_not_fold(self) -> Self:
        low, high = self.distort_limit
        if low > high or not low >= -1.0 or not -1.0 < high <= 1.0:
            raise ValueError(
                f"distort_limit={self.distort_limit} must be two numbers within -1..1, the smaller one first, and not "
                "both -1: below -1 a cell folds over. Choose (-0.3, 0.3)."
            )
        return self

    @model_validator(mode="after")
    def _has_room_for_one_more(self) -> Self:
        if self.cells != "alike" and self.num_steps == MAX_CELLS:
            raise ValueError(
                f"num_steps={MAX_CELLS} with cells={self.cells!r} may be {MAX_CELLS + 1} cells, and {MAX_CELLS} are "
                f"the most. Choose num_steps={MAX_CELLS - 1}, or cells='alike'."
            )
        return self

    def draw(self, words: RandomWords, frame: Frame) -> Drawn:
        shares = words.uniform(np.arange(1, 1 + 2 * MAX_CELLS), *self.distort_limit).reshape(-1, 2, MAX_CELLS)
        shares[:, :, self.num_steps + (self.cells != "alike") :] = 0.0
        return {"shares": where_applied(words.happens(0, self.p), shares, 0.0)}

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        if self.cells != "alike":
            return self._cut_by_pixels(frame, drawn)
        shown = 1.0 + drawn["shares"][:, :, : self.num_steps]
        if self.normalized:
            whole = np.cumsum(shown, axis=2)[:, :, -1:]  # a sum's order would depend on how many images there are
            shown = shown * (self.num_steps / np.maximum(whole, 1e-9))
        cell = np.stack([frame.out_widths, frame.out_heights], axis=1)[:, :, None] / self.num_steps
        frame.bend_by_grid(np.cumsum(shown - 1.0, axis=2) * cell, self.changes(drawn))

    def _cut_by_pixels(self, frame: Frame, drawn: Drawn) -> None:
        num = self.num_steps
        sides = np.stack([frame.out_widths, frame.out_heights], axis=1).astype(np.int64)
        cell = np.maximum(sides // num, 2)  # of frames of fewer than two pixels a cell, the first ones are bent
        left = np.minimum(np.maximum(sides - num * cell, 0), cell)
        shown = 1.0 + drawn["shares"][:, :, : num + 1]
        if self.normalized:
            shown[:, :, num] *= left / cell
            whole = np.cumsum(shown, axis=2)[:, :, -1:]
            shown = shown * ((sides / cell)[:, :, None] / np.maximum(whole, 1e-9))
        ends = np.cumsum(shown * cell[:, :, None], axis=2)  # where the image is cut, in pixels
        if self.cells == "to_edge":
            ends[:, :, num] = np.where(left > 0, sides, ends[:, :, num])
        # of the last cell, `left` pixels are seen, and from the first to the last of them the whole of it
        begins = ends[:, :, num - 1]
        seen = (ends[:, :, num] - begins) * (cell - 1) / np.maximum(left - 1, 1)
        ends[:, :, num] = begins + np.where(left > 1, seen, 0.0)
        moved: Float = ends - (cell[:, :, None] * np.arange(1, num + 2)).astype(np.float64)
        frame.bend_by_grid(moved, self.changes(drawn), cell)

    def caption(self, drawn: Mapping[str, Any]) -> str:
        shares = drawn["shares"]
        return f"grid {np.abs(shares).max():.2f}" if shares.any() else ""


class ElasticTransform(Op):
    """Bend the image by a smooth random field (Simard, Steinkraus and Platt 2003).

    A pixel is looked up where a displacement leads that is nearly distributed as `alpha` times noise in -1..1 filtered
    by a Gaussian of standard deviation `sigma`: along x and y on its own, normal, with a standard deviation of
    0.163 `alpha` / `sigma` pixels, and a correlation at distance d of exp(-d^2 / (4 sigma^2)). As in the libraries,
    large displacements over short distances fold the picture over itself.
    """

    op: Literal["elastic_transform"] = "elastic_transform"
    alpha: Annotated[float, Field(ge=0.0, le=1e6)] = 50.0
    """By what filtered noise is multiplied, in pixels of the frame."""
    sigma: Annotated[float, Field(ge=0.5, le=1e4)] = 5.0
    """Standard deviation of the filter, in pixels of the frame."""
    affine_px: Annotated[float, Field(ge=0.0, le=1e6)] = 0.0
    """How far each of three corners of a square about the centre, two thirds of the shorter side wide, moves at most
    along each axis, in pixels: an affine map that acts first. At most 0.45 of half that square's side."""
    same: bool = False
    """Whether the displacement along y is that along x."""
    side_px: Side | None = None
    """The side of a square frame that `alpha`, `sigma` and `affine_px` are meant for, in pixels: one of another area is
    bent alike, with all lengths enlarged or shrunk as its sides. None: they are pixels of the frame itself."""
    p: Probability = 0.5
    """How often the image is bent."""

    is_geometry = is_lens = True
    draws = (
        Draw("amplitude", neutral=0.0, num_words=0, scaled=("alpha",)),
        Draw("corners", shape=(3, 2), num_words=6, neutral=0.0, scaled=("affine_px",)),
        Draw("phase", shape=(2,), num_words=2),
        Seed(),
    )
    formula = "looks x up at x + `alpha` (noise * Gaussian of `sigma`), y alike"
    inspect_text = (
        "{alpha:g} times noise smoothed over {sigma:g} pixels, and corners moved by up to {affine_px:g} pixels"
    )

    def draw(self, words: RandomWords, frame: Frame) -> Drawn:
        applied = words.happens(0, self.p)
        enlarged = self._enlarged(frame)
        limit = np.minimum(self.affine_px * enlarged, MAX_LEAN * self._half_side(frame))
        std = enlarged * self.alpha * UNIFORM_STD / (2.0 * sqrt(pi) * self.sigma)
        corners = (words.uniform(np.arange(1, 7), -1.0, 1.0) * limit[:, None]).reshape(-1, 3, 2)
        return {
            "amplitude": np.where(applied, std, 0.0),
            "corners": where_applied(applied, corners, 0.0),
            "phase": words.uniform(np.array([7, 8]), 0.0, 1.0),
            "key": words.words[:, 9:11],
        }

    def _enlarged(self, frame: Frame) -> Float:
        """(n,) lengths of the frames in those of the one that the fields are meant for."""
        if self.side_px is None:
            return np.ones(frame.num)
        return np.sqrt(frame.out_heights.astype(np.float64) * frame.out_widths) / self.side_px

    @staticmethod
    def _half_side(frame: Frame) -> Float:
        return np.minimum(frame.out_heights, frame.out_widths) / 3.0

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        frame.transform(self._leaning(frame, drawn["corners"]))
        std = drawn["amplitude"] / NODE_STD
        matrix = std[:, None, None] * np.array([[1.0, 0.0], [1.0, 0.0]] if self.same else np.eye(2))
        spacing = NODES_APART * self.sigma * self._enlarged(frame)
        frame.bend_by_spline(matrix, spacing, drawn["phase"], drawn["key"], drawn["amplitude"] > 0.0)

    def _leaning(self, frame: Frame, moved: Float) -> Float:
        """The look-up of the map that moves the corners (s, s), (s, -s) and (-s, -s) from the centre by `moved`."""
        half = self._half_side(frame)
        forward = affine.homogeneous(affine.identity(len(half)))
        first, second, third = moved[:, 0], moved[:, 1], moved[:, 2]
        forward[:, :2, 0] += (second - third) / (2.0 * half)[:, None]
        forward[:, :2, 1] += (first - second) / (2.0 * half)[:, None]
        forward[:, :2, 2] = 0.5 * (first + third)
        return np.asarray(np.linalg.inv(forward), np.float64)

    def caption(self, drawn: Mapping[str, Any]) -> str:
        texts = [f"elastic {drawn['amplitude']:.1f} px"] if drawn["amplitude"] else []
        return " ".join(
            texts + ([f"corners {np.abs(drawn['corners']).max():.0f} px"] if drawn["corners"].any() else [])
        )
