"""Holes in a grid, and single pixels, that are filled over the rendered view."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import BeforeValidator, Field, model_validator

from augpipe.gpu_ops.image.program_rows import DROP, HOLES
from augpipe.ops.draws import Applied, Draw, Number, Seed, Within
from augpipe.ops.frame import Frame
from augpipe.ops.op import MAX_SIDE_PX, Drawn, Fill, Op, Probability, Range, for_all, one_of_them
from augpipe.ops.random_words import RandomWords, check_steps
from augpipe.validation.models import told

__all__ = ["GridDropout", "PixelDropout"]

LEAST_UNIT_PX = 2
"""The side of the smallest cell: one pixel of it is filled, and one is not."""
NUM_LIMITS = 2**24
"""Of so many words, how many drop a pixel is counted."""

Count = Annotated[int, Field(ge=1, le=MAX_SIDE_PX // LEAST_UNIT_PX)]
Unit = Annotated[int, Field(ge=LEAST_UNIT_PX, le=MAX_SIDE_PX)]
Shift = Annotated[int, Field(ge=0, le=MAX_SIDE_PX)]
Level = Annotated[float, Field(ge=0.0, le=255.0)]
Int = npt.NDArray[np.int64]


class GridDropout(Op):
    """Fill a hole in each cell of a grid, as albumentations' `GridDropout` (GridMask, Chen et al. 2020)."""

    op: Literal["grid_dropout"] = "grid_dropout"
    ratio: Annotated[float, Field(gt=0.0, le=1.0)] = 0.5
    """The sides of a hole, as parts of its cell's; they are a pixel at least, and one less than the cell's at most."""
    grid: Annotated[
        tuple[Count, Count],
        told(f"must be two numbers of cells in 1..{MAX_SIDE_PX // LEAST_UNIT_PX}: {{name}}=[10, 10]"),
    ] = (10, 10)
    """How many cells lie along the height, and along the width; fewer where a side would be less than 2 pixels."""
    unit_px: Annotated[
        tuple[Unit, Unit] | None,
        told(f"must be two whole numbers of pixels in {LEAST_UNIT_PX}..{MAX_SIDE_PX}: {{name}}=[smallest, largest]"),
    ] = None
    """Smallest and largest side of a cell in pixels, in place of `grid`; each whole number between is as likely."""
    fit: Literal["even", "cut", "square"] = "even"
    """even: the cells fill the view, some a pixel larger than others; cut: all are alike, and those at the right and at
    the bottom are cut off, as in albumentations 1; square: the same, and they are as high as they are wide."""
    place: Annotated[
        Literal["own", "shared"] | tuple[Shift, Shift],
        told("must be 'own', 'shared' or two numbers of pixels from 0 on, down and to the right: {name}=[0, 0]"),
    ] = "own"
    """Where a hole lies in its cell: drawn for each, or once for all of a view; or so many pixels down and to the right
    of the cell's corner, as far as there is room."""
    fill: Fill = (0.0, 0.0, 0.0)
    """R, G, B of the holes, in 0..255, or one number for all."""
    p: Probability = 0.5
    """How often holes are filled."""

    draws = (Applied(), Draw("unit_px", np.int32), Draw("shift_px", np.int32, (2,), num_words=2), Seed())
    is_within_output = True
    formula = "`fill` in a hole of each cell"

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        if self.unit_px is not None:
            check_steps("unit_px", *self.unit_px, None)
        one_of_them(self, "grid", "unit_px", "how large the cells are")
        return self

    @property
    def draws_text(self) -> str:
        cells = (
            "{} x {} cells".format(*self.grid) if self.unit_px is None else "cells of {} to {} px".format(*self.unit_px)
        )
        drawn = {"own": ", each at a place of its own", "shared": ", all at one place of their cells"}
        return f"holes in {cells}" + ("" if isinstance(self.place, tuple) else drawn[self.place])

    def draw(self, words: RandomWords, frame: Frame) -> Drawn:
        low, high = self.unit_px or (0, 0)
        unit = low + words.integer(1, high - low + 1)
        if self.place == "shared":
            rooms = [least - self.holes(least) for _, _, least in self.axes(frame, unit)]
            shift = np.stack([words.integer(2 + axis, room + 1) for axis, room in enumerate(rooms)], axis=1)
        else:
            shift = np.broadcast_to(-1 if self.place == "own" else np.array(self.place), (len(words), 2))
        drawn = {"applied": words.happens(0, self.p), "unit_px": unit.astype(np.int32)}
        return drawn | {"shift_px": shift.astype(np.int32), "key": words.words[:, 4:6]}

    def axes(self, frame: Frame, unit_px: Int) -> list[tuple[Int, Int, Int]]:
        """Along y and along x, each (n,): how many cells there are, the pixels of all, and of the smallest one."""
        both = frame.final_sides
        if self.unit_px is None:
            units = [np.maximum(sides // num, LEAST_UNIT_PX) for sides, num in zip(both, self.grid, strict=True)]
            if self.fit == "square":
                units[0] = np.maximum(np.minimum(units[1], both[0]), LEAST_UNIT_PX)
        else:
            units = [np.maximum(np.minimum(unit_px, sides), LEAST_UNIT_PX) for sides in both]
        if self.fit != "even":
            return [(nums := -(-sides // unit), nums * unit, unit) for sides, unit in zip(both, units, strict=True)]
        most = [np.maximum(sides // unit, 1) for sides, unit in zip(both, units, strict=True)]
        if self.unit_px is None:
            most = [np.minimum(nums, num) for nums, num in zip(most, self.grid, strict=True)]
        return [(nums, sides, sides // nums) for sides, nums in zip(both, most, strict=True)]

    def holes(self, cells: Int) -> Int:
        """The sides of holes in cells of some sides, in pixels."""
        sides: Int = np.minimum(np.maximum((cells * self.ratio).astype(np.int64), 1), cells - 1)
        return sides

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        of_axes = [
            np.stack([nums, lengths, self.holes(least) + self.holes(least + 1), drawn["shift_px"][:, axis]], axis=1)
            for axis, (nums, lengths, least) in enumerate(self.axes(frame, drawn["unit_px"].astype(np.int64)))
        ]
        levels = np.broadcast_to(np.array(self.fill), (frame.num, 3))
        frame.scatter(HOLES, np.concatenate([*reversed(of_axes), levels], axis=1), drawn["key"], self.changes(drawn))

    def caption(self, drawn: Mapping[str, Any]) -> str:
        cells = f"cells of {drawn['unit_px']} px" if drawn["unit_px"] else "{} x {} cells".format(*self.grid)
        return f"holes in {cells}" if drawn["applied"] else ""


class PixelDropout(Op):
    """Fill single pixels, each with the same probability, as albumentations' `PixelDropout`."""

    op: Literal["pixel_dropout"] = "pixel_dropout"
    share: Annotated[Range, Within(0.0, 1.0)] = (0.01, 0.01)
    """Smallest and largest share of the pixels; 0 changes nothing."""
    per_channel: bool = False
    """Whether each channel drops pixels of its own, instead of all three the same."""
    fill: Annotated[
        Literal["random"] | tuple[Level, Level, Level],
        BeforeValidator(
            for_all, json_schema_input_type=Literal["random"] | Level | tuple[Level] | tuple[Level, Level, Level]
        ),
        told("must be 'random', three levels in 0..255, for R, G and B, or one for all: {name}=[0, 0, 0]"),
    ] = (0.0, 0.0, 0.0)
    """R, G, B of the pixels, in 0..255, or one number for all; random draws three levels for a view."""
    p: Probability = 0.5
    """How often pixels are dropped."""

    draws = (Number("share"), Draw("levels", np.float32, (3,), num_words=3), Seed())
    formula = "`fill` where a pixel is dropped"
    caption_text = "dropped {share:.1%}"

    @property
    def draws_text(self) -> str:
        low, high = self.share
        share = f"{low:.1%}" if low == high else f"{low:.1%} to {high:.1%}"
        return f"{share} of the pixels" + (", and their level" if self.fill == "random" else "")

    def draw(self, words: RandomWords, frame: Frame) -> Drawn:
        if isinstance(self.fill, tuple):
            levels = np.broadcast_to(np.array(self.fill), (len(words), 3))
        else:
            levels = words.integer(slice(2, 5), 256)
        return super().draw(words, frame) | {"levels": levels.astype(np.float32)}

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        limits = np.stack([drawn["share"] * NUM_LIMITS, np.full(frame.num, 0.0 if self.per_channel else 1.0)], axis=1)
        frame.scatter(DROP, np.concatenate([limits, drawn["levels"]], axis=1), drawn["key"], self.changes(drawn))
