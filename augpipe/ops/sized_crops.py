"""What crops of one size have in common, and those whose place is drawn."""

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from pydantic import model_validator

from augpipe.ops.frame import Frame
from augpipe.ops.keep_objects import KEPT, Float, KeepObjects, Rectangle, kept
from augpipe.ops.op import Drawn, Op, Size, pair
from augpipe.ops.random_words import RandomWords


class SizedCrop(Op):
    """What the crops of one size have in common."""

    size: Size = 224
    """Output height and width, in pixels; one number for a square."""

    is_crop = True
    cuts = True
    sides_px: ClassVar[tuple[str, ...]] = ("size",)

    def sides(self, heights: Any, widths: Any) -> tuple[Any, Any]:
        return pair(self.size)


class PlacedCrop(SizedCrop):
    """What the crops have in common whose place is drawn: it may be drawn again for the sake of the image's objects."""

    may_be_whole: ClassVar[bool] = False
    """Whether it may squeeze the whole frame to its size: what `whole` gives."""

    @property
    def keep(self) -> KeepObjects | None:
        """The field `keep_objects`, which each class has as its last one."""
        found: KeepObjects | None = getattr(self, "keep_objects", None)
        return found

    @model_validator(mode="after")
    def _can_fall_back(self) -> Self:
        if self.keep is not None and self.keep.fallback == "whole" and not self.may_be_whole:
            raise ValueError(
                f"keep_objects.fallback='whole' is for random_resized_crop, and {self.op} does not resize the whole "
                "image to its size. Write fallback='object' or fallback='last'."
            )
        return self

    @property
    def record(self) -> np.dtype[np.void]:
        own = [(draw.name, draw.dtype, draw.shape) for draw in self.draws]
        return np.dtype([*own, ("keep_objects", KEPT)] if self.keep else own)

    @property
    def kept_text(self) -> str:
        """What `draws_text` ends in."""
        return f"; {self.keep.text}" if self.keep else ""

    def draw(self, words: RandomWords, frame: Frame) -> Drawn:
        return self.place(words, frame) if self.keep is None else kept(self, self.keep, words, frame)

    def place(self, words: RandomWords, frame: Frame) -> Drawn:
        """Draw a crop, whatever it shows."""
        raise AssertionError(f"{type(self).__name__} does not say where it is")

    def rectangle(self, frame: Frame, drawn: Drawn) -> Rectangle:
        """(n,) left, top, width and height of the crops that were drawn, in pixels of the frame."""
        raise AssertionError(f"{type(self).__name__} does not say what it shows")

    def moved(self, frame: Frame, drawn: Drawn, x: Float, y: Float) -> Drawn:
        """The crops that were drawn, with their centres as near to (x, y) of the frame as it allows."""
        raise AssertionError(f"{type(self).__name__} does not say where it may lie")

    def whole(self, frame: Frame) -> Drawn:
        """The whole frame, squeezed to the crop's size."""
        raise AssertionError(f"{type(self).__name__} does not squeeze, and its recipe was checked for it")

    def caption(self, drawn: Mapping[str, Any]) -> str:
        text = super().caption(drawn)
        if self.keep is None or not drawn["keep_objects"]["tries"]:
            return text
        found = drawn["keep_objects"]
        return f"{text}, try {found['tries']}" + (f", fallback {self.keep.fallback}" if found["fell_back"] else "")


def nearest_place(middle: Float, length: Any, least: Any, most: Any, step: float | None) -> Float:
    """(n,) where crops of a length begin so that they lie about a middle, within limits, on whole pixels by `step`."""
    begin = middle - 0.5 * length
    placed: Float = np.clip(np.rint(begin) if step else begin, least, most)
    return placed
