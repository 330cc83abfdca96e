"""Resizing and padding: what a chain of them and of crops shows is one rectangle of the image, at one size."""

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from augpipe.ops.crops import seen_beyond
from augpipe.ops.draws import Draw, Number, Within
from augpipe.ops.frame import Frame
from augpipe.ops.op import MAX_SIDE_PX, Beyond, Border, Drawn, Fill, Op, Probability, Range, Side, Size, pair
from augpipe.ops.random_words import RandomWords
from augpipe.ops.sized_crops import SizedCrop
from augpipe.validation.models import told

__all__ = ["Letterbox", "Pad", "Resize", "ResizeLongest", "ResizeShortest", "ZoomOut"]

Amount = Annotated[int, Field(ge=0, le=MAX_SIDE_PX)]
Position = Literal["center", "top_left", "top_right", "bottom_left", "bottom_right"]


class Resize(SizedCrop):
    """Resize to a height and a width; the image is squeezed where its proportions differ."""

    op: Literal["resize"] = "resize"

    cuts = False
    formula = "torchvision's `Resize((h, w))`"

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        _resize(frame, *pair(self.size))


class ResizeShortest(Op):
    """Resize the short side to a length; the proportions stay, and the long side is rounded down as in torchvision."""

    op: Literal["resize_shortest"] = "resize_shortest"
    size: Side = 256
    """The short side, in pixels."""
    max_size: Side | None = None
    """The longest that the long side may become, in pixels: then the short side becomes less. None: any length."""

    is_crop = True
    sides_px = ("size", "max_size")
    formula = "torchvision's `Resize(size)`"

    def sides(self, heights: Any, widths: Any) -> tuple[Any, Any]:
        short, long = np.minimum(heights, widths), np.maximum(heights, widths)
        new_short: Any = self.size
        new_long = self.size * long // short
        if self.max_size is not None:
            is_long = new_long > self.max_size
            shrunk = np.maximum(self.max_size * self.size // new_long, 1)
            new_short, new_long = np.where(is_long, shrunk, new_short), np.where(is_long, self.max_size, new_long)
        is_wide = heights <= widths
        return np.where(is_wide, new_short, new_long), np.where(is_wide, new_long, new_short)

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        _resize(frame, *self.sides(frame.out_heights, frame.out_widths))


class ResizeLongest(Op):
    """Resize the long side to a length; the proportions stay, and the short side is rounded, as in albumentations."""

    op: Literal["resize_longest"] = "resize_longest"
    size: Side = 256
    """The long side, in pixels."""

    is_crop = True
    sides_px = ("size",)
    formula = "albumentations' `LongestMaxSize(size)`"

    def sides(self, heights: Any, widths: Any) -> tuple[Any, Any]:
        return _fitted(heights, widths, self.size / np.maximum(heights, widths))

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        _resize(frame, *self.sides(frame.out_heights, frame.out_widths))


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


def _resize(frame: Frame, heights: Any, widths: Any) -> None:
    """All of what is there, at another size in pixels."""
    frame.crop(np.zeros(frame.num), np.zeros(frame.num), frame.out_widths, frame.out_heights, heights, widths)


def _fitted(heights: Any, widths: Any, factors: Any) -> tuple[Any, Any]:
    """Sides times factors, in whole pixels."""
    new_heights, new_widths = (np.maximum(np.rint(sides * factors), 1.0) for sides in (heights, widths))
    return new_heights.astype(np.int64), new_widths.astype(np.int64)


def _before(added: Any, position: Position, far: str) -> Any:
    """How many of the added pixels lie left of the image or above it; `far` is the end at which all of them do."""
    return added // 2 if position == "center" else added if far in position else 0 * added
