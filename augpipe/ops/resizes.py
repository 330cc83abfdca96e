"""Resizing and padding: what a chain of them and of crops shows is one rectangle of the image, at one size."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from augpipe.ops.crops import seen_beyond
from augpipe.ops.draws import Draw, FactorsWithin, Number, Scale, Within
from augpipe.ops.frame import Frame
from augpipe.ops.op import (
    MAX_SIDE_PX,
    Beyond,
    Border,
    Drawn,
    Fill,
    Op,
    Probability,
    Range,
    Side,
    Size,
    one_of_them,
    pair,
)
from augpipe.ops.random_words import RandomWords
from augpipe.ops.sized_crops import SizedCrop
from augpipe.validation.models import told

__all__ = ["Letterbox", "Pad", "RandomResize", "Resize", "ResizeLongest", "ResizeShortest", "ZoomOut"]

Amount = Annotated[int, Field(ge=0, le=MAX_SIDE_PX)]
Position = Literal["center", "top_left", "top_right", "bottom_left", "bottom_right"]


class Resize(SizedCrop):
    """Resize to a height and a width; the image is squeezed where its proportions differ."""

    op: Literal["resize"] = "resize"
    align_corners: bool = False
    """Whether the centres of corner pixels stay where they are, and not the image's corners; as in torch and kornia."""

    cuts = False
    formula = "torchvision's `Resize((h, w))`"

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        _resize(frame, *pair(self.size), align_corners=self.align_corners)


class ResizeShortest(Op):
    """Resize the short side to a length; the proportions stay."""

    op: Literal["resize_shortest"] = "resize_shortest"
    size: Side = 256
    """The short side, in pixels."""
    max_size: Side | None = None
    """The longest that the long side may become, in pixels: then the short side becomes less. None: any length."""
    rounding: Literal["down", "nearest"] = "down"
    """How the long side becomes whole pixels: `"down"` as in torchvision, `"nearest"` as in albumentations."""
    align_corners: bool = False
    """Whether the centres of corner pixels stay where they are, and not the image's corners; as in torch and kornia."""

    is_crop = True
    sides_px = ("size", "max_size")
    formula = "torchvision's `Resize(size)`"

    def sides(self, heights: Any, widths: Any) -> tuple[Any, Any]:
        short, long = np.minimum(heights, widths), np.maximum(heights, widths)
        new_short: Any = self.size
        new_long = self.size * long // short if self.rounding == "down" else _fitted(long, long, self.size / short)[0]
        if self.max_size is not None:
            is_long = new_long > self.max_size
            shrunk = np.maximum(self.max_size * self.size // new_long, 1)
            new_short, new_long = np.where(is_long, shrunk, new_short), np.where(is_long, self.max_size, new_long)
        is_wide = heights <= widths
        return np.where(is_wide, new_short, new_long), np.where(is_wide, new_long, new_short)

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        sides = self.sides(frame.out_heights, frame.out_widths)
        _resize(frame, *sides, align_corners=self.align_corners)


class ResizeLongest(Op):
    """Resize the long side to a length; the proportions stay."""

    op: Literal["resize_longest"] = "resize_longest"
    size: Side = 256
    """The long side, in pixels."""
    rounding: Literal["down", "nearest"] = "nearest"
    """How the short side becomes whole pixels: `"down"` as in torchvision and kornia, else as in albumentations."""
    align_corners: bool = False
    """Whether the centres of corner pixels stay where they are, and not the image's corners; as in torch and kornia."""

    is_crop = True
    sides_px = ("size",)
    formula = "albumentations' `LongestMaxSize(size)`"

    def sides(self, heights: Any, widths: Any) -> tuple[Any, Any]:
        long = np.maximum(heights, widths)
        if self.rounding == "nearest":
            return _fitted(heights, widths, self.size / long)
        return np.maximum(self.size * heights // long, 1), np.maximum(self.size * widths // long, 1)

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        sides = self.sides(frame.out_heights, frame.out_widths)
        _resize(frame, *sides, align_corners=self.align_corners)


class RandomResize(Op):
    """Resize by a drawn factor, or the short side to a drawn length; the proportions stay, and sides are rounded down.

    Images of a batch have one size, so an op that makes them one stands behind it: a crop, mostly with `pad_if_needed`.
    """

    op: Literal["random_resize"] = "random_resize"
    factor: Annotated[Range, FactorsWithin(0.01, 100.0)] = (0.5, 2.0)
    """Smallest and largest factor of both sides; 1 changes nothing."""
    size: Annotated[
        tuple[Side, Side] | None,
        told(f"must be two short sides in pixels, each in 1..{MAX_SIDE_PX}: {{name}}=[smallest, largest]"),
    ] = None
    """Smallest and largest short side, in whole pixels, each as likely, instead of `factor`; None: `factor`."""
    within: Size | None = None
    """The height and width, in pixels, that a factor of 1 fits the image into, as in torchvision's ScaleJitter. None: a
    factor of 1 is the image's own size."""
    p: Probability = 1.0
    """How often a factor or a length is drawn; otherwise the factor is 1."""

    is_crop = True
    sides_px = ("size", "within")
    draws = (Number("factor", neutral=1.0), Draw("short", np.int32, neutral=0))
    inspect_text = "both sides times {factor[0]:g} to {factor[1]:g}"
    formula = "sides times `factor`, as `RandomScale`, or a short side of `size`, as `RandomResize`"

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        if self.size is not None and self.size[0] > self.size[1]:
            raise ValueError(f"size={self.size} must hold the smaller number first.")
        one_of_them(self, "factor", "size")
        if self.size is not None and self.within is not None:
            raise ValueError(
                f"size={self.size} is a length of the short side, and within={self.within} goes with factor. Leave one "
                "of them out."
            )
        return self

    @property
    def draws_size(self) -> bool:
        return True

    @property
    def scaled_fields(self) -> dict[str, Scale]:
        return {} if self.size is not None else super().scaled_fields

    @property
    def num_variants(self) -> int | None:
        return None

    @property
    def draws_text(self) -> str:
        return f"a short side of {self.size[0]} to {self.size[1]} px" if self.size else super().draws_text

    @property
    def centred(self) -> Op:
        """The factor nearest to 1, or the geometric mean of the short sides: what 0.5 to 2 times a size is about."""
        if self.size is not None:
            return ResizeShortest(size=round((self.size[0] * self.size[1]) ** 0.5))
        factor = float(np.clip(1.0, *self.factor))
        return self.model_copy(update={"factor": (factor, factor), "p": 1.0})

    def draw(self, words: RandomWords, frame: Frame) -> Drawn:
        drawn = super().draw(words, frame)
        if self.size is None:
            return drawn | {"short": np.zeros(frame.num, np.int32)}
        low, high = self.size
        short = np.where(words.happens(0, self.p), low + words.integer(2, high - low + 1), 0)
        return {"factor": np.ones(frame.num), "short": short.astype(np.int32)}

    def sides(self, heights: Any, widths: Any) -> tuple[Any, Any]:
        """The smallest that it may draw: what is too small for the ops behind it is found before it is drawn."""
        may_stay = self.p < 1.0
        if self.size is None:
            return self._sides(heights, widths, min(self.factor[0], 1.0) if may_stay else self.factor[0], 0)
        short = np.minimum(heights, widths)
        return self._sides(heights, widths, 1.0, np.minimum(self.size[0], short) if may_stay else self.size[0])

    def _sides(self, heights: Any, widths: Any, factor: Any, short: Any) -> tuple[Any, Any]:
        """Sides by the factor where the short side is 0."""
        if self.size is not None:
            own = np.minimum(heights, widths)
            short = np.where(np.equal(short, 0), own, short).astype(np.int64)
            return heights * short // own, widths * short // own
        if self.within is not None:
            height, width = pair(self.within)
            factor = np.minimum(height / heights, width / widths) * factor
        high, wide = (np.maximum(np.floor(sides * factor), 1.0).astype(np.int64) for sides in (heights, widths))
        return high, wide

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        _resize(frame, *self._sides(frame.out_heights, frame.out_widths, drawn["factor"], drawn["short"]))

    def caption(self, drawn: Mapping[str, Any]) -> str:
        if drawn["short"]:
            return f"short side {drawn['short']} px"
        return f"times {drawn['factor']:.2f}" if drawn["factor"] != 1.0 else ""


class Pad(Op):
    """Add pixels outside the image: by amounts, up to a size, or up to a multiple; where several are given, in turn."""

    op: Literal["pad"] = "pad"
    px: Annotated[
        Amount | tuple[Amount, Amount] | tuple[Amount, Amount, Amount, Amount],
        told(
            f"must be whole pixels in 0..{MAX_SIDE_PX} for all sides, [left and right, top and bottom], or [left, top, "
            "right, bottom]"
        ),
    ] = 0
    """Pixels to add: one number for all sides, (left and right, top and bottom), or (left, top, right, bottom)."""
    size: Size | None = None
    """The least height and width, in pixels; what is smaller is padded up to it."""
    multiple: Side | None = None
    """Height and width become multiples of it, in pixels."""
    position: Position = "center"
    """Where the image lies in what `size` and `multiple` ask for; an odd pixel is added right or below."""
    border: Border = "constant"
    """What is shown there: `fill`, the outermost pixel (`edge`), or the image by a border of `Recipe`."""
    fill: Fill = (0.0, 0.0, 0.0)
    """R, G, B of a constant border, in 0..255, or one number for all."""

    is_crop = True
    sides_px = ("px", "size", "multiple")
    formula = "torchvision's `Pad(px)`, albumentations' `PadIfNeeded`"

    @property
    def beyond(self) -> Beyond:
        return seen_beyond(self.border, self.fill)

    @property
    def _edges(self) -> tuple[int, int, int, int]:
        given = (self.px,) if isinstance(self.px, int) else self.px
        left, top, right, bottom = given * (4 // len(given))
        return left, top, right, bottom

    def sides(self, heights: Any, widths: Any) -> tuple[Any, Any]:
        left, top, right, bottom = self._edges
        heights, widths = heights + top + bottom, widths + left + right
        if self.size is not None:
            height, width = pair(self.size)
            heights, widths = np.maximum(heights, height), np.maximum(widths, width)
        if self.multiple is not None:
            heights, widths = -(-heights // self.multiple) * self.multiple, -(-widths // self.multiple) * self.multiple
        return heights, widths

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        left, top, right, bottom = self._edges
        heights, widths = self.sides(frame.out_heights, frame.out_widths)
        added_x, added_y = widths - (frame.out_widths + left + right), heights - (frame.out_heights + top + bottom)
        x = _before(added_x, self.position, "right") + left
        y = _before(added_y, self.position, "bottom") + top
        frame.pad(-x, -y, widths, heights)


class Letterbox(SizedCrop):
    """Resize the whole image to fit into a height and a width, and fill the rest, as detectors do."""

    op: Literal["letterbox"] = "letterbox"
    enlarge: bool = True
    """Whether an image that is smaller becomes larger."""
    position: Position = "center"
    """Where the image lies; in the centre, an odd pixel is added right or below."""
    border: Border = "constant"
    """What is shown around it: `fill`, the outermost pixel (`edge`), or the image by a border of `Recipe`."""
    fill: Fill = (114.0, 114.0, 114.0)
    """R, G, B of a constant border, in 0..255, or one number for all; YOLO's gray by default."""

    cuts = False
    formula = "scaled by min(h / H, w / W), and padded"

    @property
    def beyond(self) -> Beyond:
        return seen_beyond(self.border, self.fill)

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        height, width = pair(self.size)
        factors = np.minimum(height / frame.out_heights, width / frame.out_widths)
        heights, widths = _fitted(
            frame.out_heights, frame.out_widths, factors if self.enlarge else np.minimum(factors, 1.0)
        )
        _resize(frame, heights, widths)
        x = _before(width - widths, self.position, "right")
        y = _before(height - heights, self.position, "bottom")
        frame.pad(-x, -y, width, height)


class ZoomOut(Op):
    """Place the image in a larger canvas, so that its objects become smaller (SSD's expansion, Liu et al. 2016).

    The canvas takes whole pixels of the image, and is scaled to the image's size: a crop or resize that follows in
    parts of the frame sees what torchvision's RandomZoomOut shows it, and pixels are looked up once.
    """

    op: Literal["zoom_out"] = "zoom_out"
    factor: Annotated[Range, Within(1.0, 20.0)] = (1.0, 4.0)
    """Smallest and largest side of the canvas, in sides of the image; 1 changes nothing."""
    border: Border = "constant"
    """What the canvas shows: `fill`, the outermost pixel (`edge`), or the image by a border of `Recipe`."""
    fill: Fill = (0.0, 0.0, 0.0)
    """R, G, B of a constant border, in 0..255, or one number for all; in SSD the mean of all images."""
    p: Probability = 0.5
    """How often the image is placed in a larger canvas."""

    is_crop = True
    draws = (Number("factor", neutral=1.0), Draw("x"), Draw("y"))
    formula = "the image at a drawn place of a canvas of `factor` times its sides, scaled to its size"
    inspect_text = "a canvas of {factor[0]:g} to {factor[1]:g} times the sides, and the image's place in it"
    caption_text = "zoomed out {factor:.2f}, x {x:.0%}, y {y:.0%}"

    @property
    def beyond(self) -> Beyond:
        return seen_beyond(self.border, self.fill)

    @property
    def centred(self) -> Op:
        return self.model_copy(update={"p": 0.0})

    def draw(self, words: RandomWords, frame: Frame) -> Drawn:
        """`x` and `y`: where the image lies, in parts of the room that the canvas leaves it."""
        places = {"x": words.uniform(2, 0.0, 1.0), "y": words.uniform(3, 0.0, 1.0)}
        return super().draw(words, frame) | places

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        sides = frame.out_widths, frame.out_heights
        canvas = tuple(np.floor(side * drawn["factor"]).astype(np.int64) for side in sides)
        is_first = frame.padded is None
        x, y = (
            np.floor(drawn[name] * (large - side + 1)) for name, large, side in zip("xy", canvas, sides, strict=True)
        )
        frame.pad(-x, -y, *canvas)
        if is_first:
            frame.is_edge_kept = (canvas[0] == sides[0]) & (canvas[1] == sides[1])
        _resize(frame, sides[1], sides[0])


UNLIKE_SIZES = ((1, 1), (1, 60_000), (60_000, 1), (375, 500), (4_001, 2_999))
"""Heights and widths of images: crops make one size if they do of all of these."""


def one_size(crops: Sequence[Op]) -> tuple[int, int] | None:
    """(height, width) of what crops, resizes and paddings make of any image; None where it depends on the image."""
    sides = np.array(UNLIKE_SIZES).T
    for op in crops:
        sides = np.stack(np.broadcast_arrays(*op.sides(*sides), sides[0])[:2])
    height, width = (int(side) for side in sides[:, 0])
    return (height, width) if (sides == sides[:, :1]).all() else None


def left_unlike(crops: Sequence[Op]) -> Op | None:
    """The last of them that draws a size, where those before it make images of one size and those behind it do not."""
    for place in reversed(range(len(crops))):
        before = one_size(crops[:place])
        if crops[place].draws_size_of(before):
            return None if one_size(crops[place + 1 :]) or not before else crops[place]
    return None


def _resize(frame: Frame, heights: Any, widths: Any, align_corners: bool = False) -> None:
    """All of what is there, at another size in pixels."""
    left, top = np.zeros(frame.num), np.zeros(frame.num)
    frame.crop(left, top, frame.out_widths, frame.out_heights, heights, widths, align_corners)


def _fitted(heights: Any, widths: Any, factors: Any) -> tuple[Any, Any]:
    """Sides times factors, in whole pixels."""
    new_heights, new_widths = (np.maximum(np.rint(sides * factors), 1.0) for sides in (heights, widths))
    return new_heights.astype(np.int64), new_widths.astype(np.int64)


def _before(added: Any, position: Position, far: str) -> Any:
    """How many of the added pixels lie left of the image or above it; `far` is the end at which all of them do."""
    return added // 2 if position == "center" else added if far in position else 0 * added
