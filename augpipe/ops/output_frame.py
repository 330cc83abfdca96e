"""Ops on the output's pixels: rectangles that are filled over the image, cells that change places, and noise."""

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from augpipe.gpu_ops.image.program_rows import MAX_TILES
from augpipe.ops.draws import Applied, Draw, Limits, Number, Seed, Within
from augpipe.ops.frame import Frame
from augpipe.ops.op import MAX_SIDE_PX, Drawn, Fill, Op, Probability, Range, where_applied
from augpipe.ops.random_words import RandomWords, check_steps
from augpipe.ops.tone import Normalize
from augpipe.validation.models import told

__all__ = ["CoarseDropout", "Erase", "GridShuffle", "Noise"]

NUM_TRIES = 10
"""Rectangles that are drawn until one fits, as in torchvision's RandomErasing; after them nothing is erased."""

Level = Annotated[float, Field(ge=0.0, le=255.0)]
IMAGENET = Normalize()


class Erase(Op):
    """Fill a rectangle over the image (random erasing, Zhong et al. 2017; Cutout, DeVries and Taylor 2017)."""

    op: Literal["erase"] = "erase"
    scale: Range = (0.02, 0.33)
    """Smallest and largest part of the image's area, as in torchvision and timm."""
    ratio: Range = (0.3, 3.3)
    """Smallest and largest height over width."""
    fill: Annotated[
        Literal["noise", "mean"] | tuple[Level, Level, Level],
        told("must be 'noise', 'mean' or three levels in 0..255: {name}=[0, 0, 0]"),
    ] = "noise"
    """noise is normal, with the mean and the standard deviation of `mean` and `std`, and kept within 0..255 in uint8
    alone; mean is that mean; else levels."""
    mean: tuple[float, float, float] = IMAGENET.mean
    """Per channel R, G, B, in 0..1; the default is ImageNet's, so that noise is 0 +- 1 after Normalize()."""
    std: tuple[float, float, float] = IMAGENET.std
    """The standard deviation per channel R, G, B, in 0..1, of which the noise is made."""
    p: Probability = 0.25
    """How often a rectangle is filled."""

    draws = (Draw("edges", np.int32, (4,), num_words=2 + 2 * NUM_TRIES, neutral=0), Seed())
    is_within_output = True
    formula = "filled with noise, the mean or a colour"

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        if not 0.0 < self.scale[0] <= self.scale[1] <= 1.0:
            raise ValueError(f"scale={self.scale} is not a range of shares of the area: 0..1, smaller one first.")
        if not 0.01 <= self.ratio[0] <= self.ratio[1] <= 100.0:
            raise ValueError(f"ratio={self.ratio} is not a range within 0.01..100, smaller one first.")
        if min(self.std) < 0.0 or max(self.std) > 1.0 or min(self.mean) < 0.0 or max(self.mean) > 1.0:
            raise ValueError(f"mean={self.mean}, std={self.std} are given in 0..1. Divide 8-bit values by 255.")
        return self

    @property
    def draws_text(self) -> str:
        low, high = self.scale
        return f"a rectangle of {low:.0%} to {high:.0%} of the area, and its place"

    def draw(self, words: RandomWords, frame: Frame) -> Drawn:
        heights, widths = frame.final_sides
        chosen = np.zeros((len(words), 2), np.int64)
        for attempt in range(NUM_TRIES):
            area = words.uniform(5 + 2 * attempt, *self.scale) * heights * widths
            ratio = np.exp(words.uniform(6 + 2 * attempt, *np.log(self.ratio)))
            size = np.stack([np.rint(np.sqrt(area * ratio)), np.rint(np.sqrt(area / ratio))], axis=1).astype(np.int64)
            fits = (size[:, 0] < heights) & (size[:, 1] < widths) & (size > 0).all(axis=1)
            chosen = np.where((chosen[:, :1] == 0) & fits[:, None], size, chosen)
        top = words.integer(1, np.maximum(heights - chosen[:, 0] + 1, 1))
        left = words.integer(2, np.maximum(widths - chosen[:, 1] + 1, 1))
        edges = np.stack([left, top, left + chosen[:, 1], top + chosen[:, 0]], axis=1)
        edges = where_applied(words.happens(0, self.p) & (chosen[:, 0] > 0), edges, 0)
        return {"edges": edges.astype(np.int32), "key": words.words[:, 3:5]}

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        num, edges = len(drawn["edges"]), drawn["edges"].astype(np.float64)
        levels = 255.0 * np.array(self.mean) if isinstance(self.fill, str) else np.array(self.fill)
        spread = 255.0 * np.array(self.std) if self.fill == "noise" else np.zeros(3)
        filled = np.broadcast_to(levels, (num, 3)), np.broadcast_to(spread, (num, 3))
        frame.fill(edges, *filled, drawn["key"], edges[:, 2] > edges[:, 0])

    def caption(self, drawn: Mapping[str, Any]) -> str:
        left, top, right, bottom = drawn["edges"]
        return f"erased {right - left}x{bottom - top}" if right > left else ""


class CoarseDropout(Op):
    """Fill several rectangles over the image, each of its own size and place (Cutout is one square)."""

    op: Literal["coarse_dropout"] = "coarse_dropout"
    num: Annotated[
        tuple[Annotated[int, Field(ge=1, le=64)], Annotated[int, Field(ge=1, le=64)]],
        told("must be two numbers of rectangles in 1..64: {name}=[fewest, most]"),
    ] = (1, 8)
    """Fewest and most rectangles; each number between is as likely."""
    height: Annotated[Range, Within(0.0, MAX_SIDE_PX)] = (8.0, 32.0)
    """Smallest and largest height, in `unit`."""
    width: Annotated[Range, Within(0.0, MAX_SIDE_PX)] = (8.0, 32.0)
    """Smallest and largest width, in `unit`."""
    unit: Literal["px", "fraction"] = "px"
    """px counts in whole pixels of the output, fraction in its heights (or widths)."""
    fill: Fill = (0.0, 0.0, 0.0)
    """R, G, B of the rectangles, in 0..255, or one number for all."""
    from_centers: bool = False
    """Draw where centres are, anywhere in the output, as albumentations 1's Cutout: a rectangle that reaches beyond its
    upper or left edge is moved in, and one beyond the others is cut off. Else rectangles lie whole within it."""
    p: Probability = 0.5
    """How often rectangles are filled."""

    draws = (Draw("edges", np.int32, neutral=0),)
    num_words = 2
    is_within_output = True
    formula = "`fill` in each rectangle"

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        if self.num[0] > self.num[1]:
            raise ValueError(f"num={self.num} must hold the smaller number first.")
        for name, limits in (("height", self.height), ("width", self.width)):
            check_steps(name, *limits, None)
            if not Within(0.0, 1.0 if self.unit == "fraction" else MAX_SIDE_PX).holds(limits):
                raise ValueError(f"{name}={limits} with unit={self.unit!r} is given in 0..1. Or give unit='px'.")
        return self

    @cached_property
    def record(self) -> np.dtype[np.void]:
        return np.dtype([("edges", np.int32, (self.num[1], 4))])

    @property
    def draws_text(self) -> str:
        return f"{self.num[0]} to {self.num[1]} rectangles, their sizes and places"

    def draw(self, words: RandomWords, frame: Frame) -> Drawn:
        fewest, most = self.num
        num = np.where(words.happens(0, self.p), fewest + words.integer(1, most - fewest + 1), 0)
        nested, places = words.nested("rectangles", 4 * most, slice(None)), 4 * np.arange(most)
        edges = np.zeros((len(words), most, 4), np.int32)
        heights, widths = frame.final_sides
        for axis, (low, high), sides in ((0, self.width, widths[:, None]), (1, self.height, heights[:, None])):
            if self.unit == "px":
                drawn = nested.uniform(places + axis, low, high + 1.0)
            else:
                drawn = nested.uniform(places + axis, low, high) * sides
            lengths = drawn.astype(np.int64)
            if self.from_centers:
                first = np.maximum(nested.integer(places + 2 + axis, sides + 1) - lengths // 2, 0)
            else:
                first = nested.integer(places + 2 + axis, np.maximum(sides - lengths, 0) + 1)
            edges[:, :, axis], edges[:, :, 2 + axis] = first, np.minimum(first + lengths, sides)
        return {"edges": np.where((np.arange(most) < num[:, None])[:, :, None], edges, 0)}

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        levels, nothing = np.broadcast_to(np.array(self.fill), (frame.num, 3)), np.zeros((frame.num, 3))
        for nth in range(self.num[1]):
            edges = drawn["edges"][:, nth].astype(np.float64)
            applied = (edges[:, 2] > edges[:, 0]) & (edges[:, 3] > edges[:, 1])
            frame.fill(edges, levels, nothing, np.zeros((frame.num, 2), np.uint32), applied)

    def caption(self, drawn: Mapping[str, Any]) -> str:
        num = int((drawn["edges"][:, 2] > drawn["edges"][:, 0]).sum())
        return f"{num} rectangles" if num > 1 else "a rectangle" if num else ""


class GridShuffle(Op):
    """Cut the view into cells, and let those of the same size change places, as albumentations' RandomGridShuffle does.

    Where a side is not whole cells, some are a pixel wider (or higher), and change places among themselves alone.
    """

    op: Literal["grid_shuffle"] = "grid_shuffle"
    grid: Annotated[
        tuple[Annotated[int, Field(ge=1, le=MAX_TILES)], Annotated[int, Field(ge=1, le=MAX_TILES)]],
        told(f"must be two numbers of cells in 1..{MAX_TILES}: {{name}}=[3, 3]"),
    ] = (3, 3)
    """How many cells lie along the height, and along the width."""
    p: Probability = 0.5
    """How often cells change places."""

    draws = (Applied(), Draw("moves", np.int16, num_words=0))
    is_within_output = True
    formula = "each cell shows one of its size, all permutations alike"
    inspect_text = "where each of {grid[0]} x {grid[1]} cells comes from"

    @cached_property
    def record(self) -> np.dtype[np.void]:
        return np.dtype([("applied", np.bool_), ("moves", np.int16, (self.grid[0] * self.grid[1],))])

    def draw(self, words: RandomWords, frame: Frame) -> Drawn:
        """`moves`: how many cells later, row by row, stands what a cell shows."""
        down, across = self.grid
        heights, widths = (
            np.diff(np.arange(num + 1) * sides[:, None] // num)
            for num, sides in zip(self.grid, frame.final_sides, strict=True)
        )
        kinds = 2 * (heights - heights[:, :1])[:, :, None] + (widths - widths[:, :1])[:, None, :]
        kinds, cells = kinds.reshape(len(words), down * across), np.arange(down * across)
        drawn = words.nested("cells", down * across, slice(None)).words.astype(np.int64)
        places = np.argsort(kinds, axis=1, kind="stable")
        shuffled = np.argsort((kinds << 32) + drawn, axis=1, kind="stable")
        sources = np.empty_like(places)
        np.put_along_axis(sources, places, shuffled, axis=1)
        return {"applied": words.happens(0, self.p), "moves": (sources - cells).astype(np.int16)}

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        frame.shuffle(self.grid, drawn["moves"] + np.arange(self.grid[0] * self.grid[1]), self.changes(drawn))

    def caption(self, drawn: Mapping[str, Any]) -> str:
        return f"{int((drawn['moves'] != 0).sum())} cells moved" if drawn["applied"] else ""


class Noise(Op):
    """Add normal noise to each pixel, and speckle, which grows with the level."""

    op: Literal["noise"] = "noise"
    std: Annotated[Range, Within(0.0, 255.0)] = (2.0, 20.0)
    """Smallest and largest standard deviation, in levels of 255."""
    speckle: Annotated[Range, Within(0.0, 10.0)] = (0.0, 0.0)
    """Smallest and largest standard deviation of the speckle, as a part of the level."""
    per_channel: bool = True
    """Whether each channel has noise of its own, instead of all three the same."""
    even_in: Literal["std", "variance"] = "std"
    """Whether standard deviations lie evenly in their range, or their squares, as in albumentations 1."""
    p: Probability = 0.5
    """How often noise is added."""

    draws = (Number("std"), Number("speckle"), Seed())
    formula = "v + n (std + speckle v), n normal"

    @property
    def draws_text(self) -> str:
        texts = [f"noise of {self.std[0]:g} to {self.std[1]:g} levels"] if self.std[1] else []
        texts += [f"speckle of {self.speckle[0]:g} to {self.speckle[1]:g}"] if self.speckle[1] else []
        return ", ".join(texts) or "no noise"

    def evenly(self, draw: Number, limits: Limits) -> Limits:
        is_squared = self.even_in == "variance" and draw.name == "std"
        return (limits[0] ** 2, limits[1] ** 2) if is_squared else limits

    def unevenly(self, draw: Number, numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return np.sqrt(numbers) if self.even_in == "variance" and draw.name == "std" else numbers

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        frame.add_noise(drawn["std"], drawn["speckle"], not self.per_channel, drawn["key"], self.changes(drawn))

    def caption(self, drawn: Mapping[str, Any]) -> str:
        texts = [f"noise {drawn['std']:.1f}"] if drawn["std"] else []
        return " ".join(texts + ([f"speckle {drawn['speckle']:.2f}"] if drawn["speckle"] else []))
