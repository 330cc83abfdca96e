"""The ways to choose a crop: at one of several resolutions, of random area, at a random place, or the centre."""

from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from augpipe.gpu_ops.image.crop_tries import choose_crops
from augpipe.ops.draws import Draw
from augpipe.ops.frame import Frame
from augpipe.ops.keep_objects import Float, KeepObjects, Rectangle
from augpipe.ops.op import MAX_SIDE_PX, Beyond, Border, Drawn, Fill, Op, Probability, Range, Side, one_of_them, pair
from augpipe.ops.random_words import RandomWords
from augpipe.ops.sized_crops import PlacedCrop, SizedCrop, nearest_place
from augpipe.validation.models import ListOf, told

__all__ = ["CenterCrop", "MultiResolutionCrop", "RandomCrop", "RandomResizedCrop"]

Int = npt.NDArray[np.int64]
ANY_RATIO = 1e-3, 1e3
"""Width over height of any image, for crops that are all of one."""


def resized(frame: Frame, scales: Int) -> tuple[Int, Int]:
    """(heights, widths) with the short side `scales` pixels long; the long side is rounded down, as in torchvision."""
    short = np.minimum(frame.out_heights, frame.out_widths)
    return frame.out_heights * scales // short, frame.out_widths * scales // short


def crop_resized(
    frame: Frame, x: npt.NDArray[Any], y: npt.NDArray[Any], heights: Int, widths: Int, size: tuple[int, int]
) -> None:
    """Crop `size` pixels at (x, y) of what is there, resized to `heights` x `widths`."""
    scale_x, scale_y = frame.out_widths / widths, frame.out_heights / heights
    frame.crop(x * scale_x, y * scale_y, size[1] * scale_x, size[0] * scale_y, *size)


def usual_scale(size: int) -> int:
    """The short side that evaluation takes the central `size` of: 8/7 of it, rounded up; 256 for 224, as torchvision.

    Args:
        size: the longer side of the crop, in pixels.
    """
    return -(-size * 8 // 7)


def seen_beyond(border: str, fill: tuple[float, float, float]) -> Beyond:
    """The border and the fill, which is nothing to other borders than a constant one."""
    return border, fill if border == "constant" else (0.0, 0.0, 0.0)


def check_fits(size: int | tuple[int, int], scale: int, name: str, told: str) -> None:
    """Raise ValueError where a crop is larger than the image whose short side is resized to `scale` pixels.

    Args:
        size: of the crop.
        scale: in pixels.
        name: the field that the scale is of.
        told: the scale in words.
    """
    side = max(pair(size))
    if side > scale:
        raise ValueError(
            f"size={side} is larger than {told}: a crop cannot exceed the resized image. "
            f"Lower size, or raise {name} to at least {side}."
        )


class MultiResolutionCrop(PlacedCrop):
    """Resize the short side to one of several scales, then crop at a random place (Deep Image, sections 4.1 and 4.2).

    A low resolution shows the whole object, a high one its details. The paper counts (512 - 224)^2 crops, so a crop's
    offset takes one of max(1, length - size) whole values along each axis.
    """

    op: Literal["multi_resolution_crop"] = "multi_resolution_crop"
    scales: Annotated[
        ListOf[Side],
        Field(min_length=1),
        told(f"must be a list of short sides in pixels, each in 1..{MAX_SIDE_PX}: {{name}}=[256]"),
    ] = (256, 512)
    """The short side that the image is resized to, in pixels; one is drawn. 256 and 512 in the paper."""
    step: Literal[1] | None = 1
    """Offsets in whole pixels of the resized image; None for any offset."""
    p: Probability = 1.0
    """How often the crop's place is drawn; otherwise it is the centre. The image is cropped either way."""
    keep_objects: KeepObjects | None = None
    """What the crop must show of the image's objects: it is drawn again until it does, see `KeepObjects`. It needs a
    source with boxes, or `bboxes` in a call of `Augment`. None: objects do not matter."""

    acts_first = True
    sides_px = ("size", "scales")
    draws = (Draw("scale", np.int32), Draw("x"), Draw("y"))
    formula = "resize, then crop `size` at the place: one of max(1, length - size) whole offsets along each axis"
    caption_text = "scale {scale} px, x {x:.0f}, y {y:.0f}"

    @model_validator(mode="after")
    def _fits(self) -> Self:
        least = min(self.scales)
        check_fits(self.size, least, "scales", f"{least}, the smallest of scales={list(self.scales)}")
        return self

    @property
    def num_variants(self) -> int | None:
        if self.step is None or self.keep_objects is not None:
            return None
        height, width = pair(self.size)
        return sum(max(1, scale - height) * max(1, scale - width) for scale in self.scales)

    @property
    def draws_text(self) -> str:
        scales = " or ".join(map(str, self.scales))
        place = "a place in whole pixels" if self.step else "any place"
        counted = "" if self.keep_objects else "; variants are of a square photograph"
        return f"the short side's length ({scales} px), {place}{counted}{self.kept_text}"

    @property
    def centred(self) -> Op:
        return CenterCrop(size=self.size, scale=min(self.scales))

    def place(self, words: RandomWords, frame: Frame) -> Drawn:
        size = pair(self.size)
        scales = np.array(self.scales)[words.integer(1, len(self.scales))]
        heights, widths = resized(frame, scales)
        room_x, room_y = widths - size[1], heights - size[0]
        if self.step is None:
            x, y = words.uniform(2, 0.0, 1.0) * room_x, words.uniform(3, 0.0, 1.0) * room_y
        else:
            x = words.integer(2, np.maximum(room_x, 1)).astype(np.float64)
            y = words.integer(3, np.maximum(room_y, 1)).astype(np.float64)
        if self.p < 1.0:
            applied = words.happens(0, self.p)
            x, y = np.where(applied, x, room_x // 2), np.where(applied, y, room_y // 2)
        return {"scale": scales, "x": x, "y": y}

    def rectangle(self, frame: Frame, drawn: Drawn) -> Rectangle:
        heights, widths = resized(frame, drawn["scale"].astype(np.int64))
        scale_x, scale_y = frame.out_widths / widths, frame.out_heights / heights
        height, width = pair(self.size)
        return drawn["x"] * scale_x, drawn["y"] * scale_y, width * scale_x, height * scale_y

    def moved(self, frame: Frame, drawn: Drawn, x: Float, y: Float) -> Drawn:
        heights, widths = resized(frame, drawn["scale"].astype(np.int64))
        height, width = pair(self.size)
        x, y = x * (widths / frame.out_widths), y * (heights / frame.out_heights)
        return {
            "x": nearest_place(x, width, 0, widths - width, self.step),
            "y": nearest_place(y, height, 0, heights - height, self.step),
        }

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        heights, widths = resized(frame, drawn["scale"].astype(np.int64))
        crop_resized(frame, drawn["x"], drawn["y"], heights, widths, pair(self.size))


class CenterCrop(SizedCrop):
    """The centre of the image, resized first where a scale is given: what evaluation uses."""

    op: Literal["center_crop"] = "center_crop"
    scale: Side | None = None
    """The short side that the image is resized to, in pixels; None leaves its resolution alone."""

    sides_px = ("size", "scale")
    formula = "torchvision's `Resize(scale)` and `CenterCrop(size)`"

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.scale is not None:
            check_fits(self.size, self.scale, "scale", f"scale={self.scale}")
        return self

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        size = pair(self.size)
        if self.scale is None:
            heights, widths = frame.out_heights, frame.out_widths
        else:
            heights, widths = resized(frame, np.full(frame.num, self.scale))
        # halves to even, as torchvision's round() does
        x, y = np.rint((widths - size[1]) / 2), np.rint((heights - size[0]) / 2)
        crop_resized(frame, x, y, heights, widths, size)

    def refuses(self, height: int, width: int) -> str | None:
        need = pair(self.size)
        if self.scale is not None or (height >= need[0] and width >= need[1]):
            return None
        return (
            f"the photograph is {height}x{width} pixels, smaller than the crop of {need[0]}x{need[1]}. "
            "Give center_crop a scale to resize it first, or lower size."
        )


class RandomCrop(PlacedCrop):
    """A crop at a random place, in whole pixels, of the image as it is, or padded first: as torchvision's."""

    op: Literal["random_crop"] = "random_crop"
    padding: Annotated[int, Field(ge=0, le=MAX_SIDE_PX)] = 0
    """Pixels that are added on all four sides before the crop, as 4 for images of CIFAR-10."""
    pad_if_needed: bool = False
    """Put an image that is smaller than the crop at a random place within it, instead of refusing it."""
    border: Border = "constant"
    """What padding shows: `fill`, the outermost pixel (`edge`), or the image by a border of `Recipe`."""
    fill: Fill = (0.0, 0.0, 0.0)
    """R, G, B of a constant border, in 0..255, or one number for all."""
    at: Annotated[
        tuple[Annotated[int, Field(ge=0, le=MAX_SIDE_PX)], Annotated[int, Field(ge=0, le=MAX_SIDE_PX)]] | None,
        told("must be two whole numbers of pixels from 0 on, column and row: {name}=[10, 20]"),
    ] = None
    """Column and row of the crop's first pixel in the image, for a crop that is always at one place. None: any."""
    p: Probability = 1.0
    """How often the crop's place is drawn; otherwise it is the centre. The image is cropped either way."""
    keep_objects: KeepObjects | None = None
    """What the crop must show of the image's objects: it is drawn again until it does, see `KeepObjects`. It needs a
    source with boxes, or `bboxes` in a call of `Augment`. None: objects do not matter."""

    sides_px = ("size", "padding", "at")
    draws = (Draw("x", np.int32), Draw("y", np.int32))
    formula = "torchvision's `RandomCrop(size, padding)`"
    caption_text = "crop x {x}, y {y}"

    @model_validator(mode="after")
    def _has_one_place(self) -> Self:
        others = {
            f"p={self.p:g} when it is elsewhere": self.p != 1.0,
            "keep_objects draws another place": self.keep is not None,
            f"padding={self.padding} how far outside it may be": self.padding > 0,
        }
        for other, is_given in others.items():
            if self.at is not None and is_given:
                raise ValueError(f"at={self.at} says where the crop is, and {other}. Leave one of them out.")
        return self

    @property
    def num_variants(self) -> int | None:
        return None if self.at is None else 1

    @property
    def draws_text(self) -> str:
        if self.at is not None:
            return "nothing"
        outside = f", up to {self.padding} px outside" if self.padding else ""
        return f"a place in whole pixels{outside}{self.kept_text}"

    @property
    def beyond(self) -> Beyond | None:
        return seen_beyond(self.border, self.fill) if self.padding or self.pad_if_needed else None

    @property
    def centred(self) -> Op:
        if self.at is not None:
            return self
        return self.model_copy(update={"p": 0.0, "keep_objects": None}) if self.beyond else CenterCrop(size=self.size)

    def place(self, words: RandomWords, frame: Frame) -> Drawn:
        if self.at is not None:
            return {name: np.full(frame.num, place, np.int32) for name, place in zip("xy", self.at, strict=True)}
        height, width = pair(self.size)
        applied = words.happens(0, self.p)
        places = []
        for word, sides, side in ((1, frame.out_widths, width), (2, frame.out_heights, height)):
            room = sides + 2 * self.padding - side
            place = np.where(applied, words.integer(word, np.abs(room) + 1) + np.minimum(room, 0), room // 2)
            places.append((place - self.padding).astype(np.int32))
        return {"x": places[0], "y": places[1]}

    def rectangle(self, frame: Frame, drawn: Drawn) -> Rectangle:
        height, width = (np.full(frame.num, float(side)) for side in pair(self.size))
        return drawn["x"].astype(np.float64), drawn["y"].astype(np.float64), width, height

    def moved(self, frame: Frame, drawn: Drawn, x: Float, y: Float) -> Drawn:
        height, width = pair(self.size)
        places = {}
        for name, middle, sides, side in (("x", x, frame.out_widths, width), ("y", y, frame.out_heights, height)):
            room = sides + 2 * self.padding - side
            least, most = np.minimum(room, 0) - self.padding, np.maximum(room, 0) - self.padding
            places[name] = nearest_place(middle, side, least, most, 1).astype(np.int32)
        return places

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        height, width = pair(self.size)
        if self.beyond:
            frame.pad(drawn["x"], drawn["y"], width, height)
        else:
            frame.crop(drawn["x"], drawn["y"], width, height, height, width)

    def refuses(self, height: int, width: int) -> str | None:
        need = pair(self.size)
        remedy = "Put a ResizeShortest before it, or set pad_if_needed."
        if self.at is not None:
            column, row = self.at
            if self.pad_if_needed or (height >= row + need[0] and width >= column + need[1]):
                return None
            told = f"and takes {need[0]}x{need[1]} from column {column} and row {row} on"
            return f"random_crop gets {height}x{width} pixels, {told}. {remedy}"
        if self.pad_if_needed or min(height - need[0], width - need[1]) + 2 * self.padding >= 0:
            return None
        padded = f" and {self.padding} pixels of padding" if self.padding else ""
        return f"random_crop gets {height}x{width} pixels{padded}, fewer than its {need[0]}x{need[1]}. {remedy}"


class RandomResizedCrop(PlacedCrop):
    """A crop of random area and aspect ratio, resized to one size (the Inception crop, as in torchvision).

    Ten rectangles are tried; where none fits, the largest centred one within `ratio` is taken.
    """

    op: Literal["random_resized_crop"] = "random_resized_crop"
    scale: Range = (0.08, 1.0)
    """Smallest and largest area, as a fraction of the image's. A try above 1, up to 4, never fits."""
    ratio: Range = (3.0 / 4.0, 4.0 / 3.0)
    """Smallest and largest width over height; drawn evenly in its logarithm."""
    height_px: Annotated[
        tuple[Side, Side] | None,
        told(f"must be two heights in pixels, each in 1..{MAX_SIDE_PX}: {{name}}=[smallest, largest]"),
    ] = None
    """Smallest and largest height in whole pixels of the image, at most all of it, each as likely, instead of `scale`:
    as in albumentations' RandomSizedCrop. None: `scale`."""
    step: Literal[1] | None = 1
    """Corners on whole pixels of the image; None for anywhere."""
    align_corners: bool = False
    """Whether the centres of the crop's corner pixels stay where they are, and not its corners; as in kornia."""
    own_size: bool = False
    """Whether the crop is resized to the size of what it is taken from, as `ZoomOut` makes it, and not to `size`."""
    p: Probability = 1.0
    """How often the crop's area, ratio and place are drawn; otherwise the crop is the largest centred rectangle within
    `ratio`. The image is cropped and resized either way."""
    keep_objects: KeepObjects | None = None
    """What the crop must show of the image's objects: it is drawn again until it does, see `KeepObjects`. It needs a
    source with boxes, or `bboxes` in a call of `Augment`. None: objects do not matter."""

    may_be_whole = True
    num_tries: ClassVar[int] = 10
    num_words = 4 + 4 * 10
    draws = (Draw("x"), Draw("y"), Draw("width"), Draw("height"))
    formula = "torchvision's, ten tries"
    inspect_text = "an area of {scale[0]:.0%} to {scale[1]:.0%}, a ratio of {ratio[0]:.3g} to {ratio[1]:.3g}, a place"
    caption_text = "crop {width:.0f}x{height:.0f}, x {x:.0f}, y {y:.0f}"

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        for name, (low, high), limit in (("scale", self.scale, 4.0), ("ratio", self.ratio, 1000.0)):
            if not 0.0 < low <= high <= limit:
                raise ValueError(
                    f"{name}=({low}, {high}) is not a range within 0..{limit:g}. Give the smaller number first, "
                    "above 0."
                )
        if self.scale[0] > 1.0:
            raise ValueError(f"scale={self.scale} is above 1, and no such crop fits. Give the smaller number in 0..1.")
        if self.height_px is not None and self.height_px[0] > self.height_px[1]:
            raise ValueError(f"height_px={self.height_px} must hold the smaller number first.")
        one_of_them(self, "scale", "height_px")
        if self.own_size and self.size != type(self).model_fields["size"].default:
            raise ValueError(f"size={self.size} and own_size both say how large the result is. Leave one of them out.")
        return self

    def sides(self, heights: Any, widths: Any) -> tuple[Any, Any]:
        return (heights, widths) if self.own_size else pair(self.size)

    @property
    def scaled_px(self) -> tuple[str, ...]:
        return () if self.own_size else self.sides_px

    @property
    def draws_text(self) -> str:
        if self.height_px is None:
            return super().draws_text + self.kept_text
        (least, most), (low, high) = self.height_px, self.ratio
        return f"a height of {least} to {most} px, a ratio of {low:.3g} to {high:.3g}, a place{self.kept_text}"

    @property
    def centred(self) -> Op:
        if self.own_size:
            return self.model_copy(update={"p": 0.0, "ratio": ANY_RATIO, "keep_objects": None})
        return CenterCrop(size=self.size, scale=usual_scale(max(pair(self.size))))

    def place(self, words: RandomWords, frame: Frame) -> Drawn:
        end = 4 + 4 * self.num_tries
        ratios = np.exp(words.uniform(slice(5, end, 4), *map(np.log, self.ratio)))
        if self.height_px is None:
            sizes = words.uniform(slice(4, end, 4), *self.scale)
        else:
            low, high = self.height_px
            sizes = low + words.integer(slice(4, end, 4), high - low + 1).astype(np.float64)
        chosen = np.empty((4, frame.num))
        if frame.num:
            is_open, all_words = words.happens(0, self.p), np.ascontiguousarray(words.words)
            how = *map(float, self.ratio), self.height_px is not None, self.step is not None
            choose_crops(frame.out_heights, frame.out_widths, is_open, sizes, ratios, *how, all_words, chosen)
        return dict(zip(("x", "y", "width", "height"), chosen, strict=True))

    def rectangle(self, frame: Frame, drawn: Drawn) -> Rectangle:
        return drawn["x"], drawn["y"], drawn["width"], drawn["height"]

    def moved(self, frame: Frame, drawn: Drawn, x: Float, y: Float) -> Drawn:
        width, height = drawn["width"], drawn["height"]
        return {
            "x": nearest_place(x, width, 0, frame.out_widths - width, self.step),
            "y": nearest_place(y, height, 0, frame.out_heights - height, self.step),
        }

    def whole(self, frame: Frame) -> Drawn:
        """The whole frame, squeezed to the crop's size."""
        nothing = np.zeros(frame.num)
        width, height = frame.out_widths.astype(np.float64), frame.out_heights.astype(np.float64)
        return {"x": nothing, "y": nothing, "width": width, "height": height}

    def apply(self, frame: Frame, drawn: Drawn) -> None:
        rectangle = drawn["x"], drawn["y"], drawn["width"], drawn["height"]
        sides = self.sides(frame.out_heights, frame.out_widths)
        frame.crop(*rectangle, *sides, align_corners=self.align_corners)
