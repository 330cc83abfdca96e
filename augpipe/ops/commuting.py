"""Which steps give the same before a look-up as behind it: what decides how many passes a view takes.

A look-up is whatever moves what is seen: crops, geometry, flips and `Blur`. A step changes the levels of what was
looked up. Where each output pixel of a look-up is a mean of pixels that the step has seen one by one, the two commute.
"""

from dataclasses import dataclass

from augpipe import ops
from augpipe.ops import Op
from augpipe.ops.levels import LevelsOp
from augpipe.ops.op import Beyond

BLACK = (0.0, 0.0, 0.0)

LINEAR = (
    *(ops.Brightness, ops.BrightnessContrast, ops.ChannelDropout, ops.ChannelShuffle, ops.ColorCast, ops.Grayscale),
    *(ops.Invert, ops.Lighting, ops.Saturation, ops.Sepia),
)
"""Steps that make a pixel's channels sums of them, kept within 0..255, as some of `Contrast`, `Hue`, `ColorJitter`."""
OF_A_PIXEL = (LevelsOp, ops.Hue, ops.HueSaturationValue)
"""Steps that make something else of each pixel by itself; as are some of `ColorJitter`."""
ALIKE = (
    *(ops.AutoContrast, ops.BoxBlur, ops.CoarseDropout, ops.ColorJitter, ops.Contrast, ops.Equalize, ops.Erase),
    *(ops.Fog, ops.GaussianBlur, ops.ISONoise, ops.MedianBlur, ops.Noise, ops.PixelDropout, ops.Sharpen),
    *(ops.Sharpness, ops.Vignette),
)
"""Steps that look at the place of a pixel or at others, and to which rows are what columns are, either way round."""
DIRECTED = (
    *(ops.CLAHE, ops.Downscale, ops.Emboss, ops.GridDropout, ops.GridShuffle, ops.JpegCompression, ops.MotionBlur),
    ops.Shadow,
)
"""Steps that begin at the upper left; some do not where their tiles or blocks are all whole."""
BLOCK_PX = 16
"""The side of a block of `JpegCompression`, in pixels of the frame."""
NO_STEPS = (ops.Custom, ops.Identity, ops.Normalize)
"""What is neither: a function, which begins a pass; a choice that changes nothing; and the numbers that a batch is
handed out in."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """What is known where a look-up stands in a recipe."""

    beyond: Beyond
    """The border of the view, and its fill."""
    is_nearest: bool
    """Whether the look-up shows single pixels: by the recipe's interpolation."""
    sides: tuple[int, int] | None
    """Height and width of the frames there; None where they depend on the image."""


def acts_in_look_up(op: Op) -> bool:
    """Whether it is part of a look-up."""
    return op.is_crop or op.is_geometry or isinstance(op, ops.Flip | ops.Blur)


def is_step(op: Op) -> bool:
    """Whether it may change levels behind the look-up."""
    return not (acts_in_look_up(op) or isinstance(op, NO_STEPS) or getattr(op, "p", 1.0) == 0.0)


def commutes(step: Op, look_up: Op, place: Place) -> bool:
    """Whether a step before a look-up gives what it gives behind it; of noise and of holes, as they are distributed."""
    if shows_the_same_pixels(look_up, place):
        return _is_alike(step, look_up, place)
    if not (_is_linear(step) or (_is_of_a_pixel(step) and _shows_single_pixels(look_up, place))):
        return False
    border, fill = place.beyond
    shows_fill = border == "constant" and not (keeps_pixels(look_up) and look_up.beyond is None)
    return not shows_fill or _keeps(step, fill)


def _is_linear(op: Op) -> bool:
    if getattr(op, "of_normalized", None) is not None:
        return False  # it keeps levels within a part of 0..255
    if isinstance(op, ops.Contrast):
        return op.about == "mid_grey"
    if isinstance(op, ops.Hue):
        return op.space == "yiq"
    if isinstance(op, ops.ColorJitter):
        return not (_looks_at_the_mean(op) or _turns_hsv(op))
    return isinstance(op, LINEAR)


def _is_of_a_pixel(op: Op) -> bool:
    if isinstance(op, ops.ColorJitter):
        return not _looks_at_the_mean(op)
    return isinstance(op, (*OF_A_PIXEL, ops.BrightnessContrast)) or _is_linear(op)


def _looks_at_the_mean(op: ops.ColorJitter) -> bool:
    return op.about == "mean" and op.contrast not in (0.0, (1.0, 1.0))


def _turns_hsv(op: ops.ColorJitter) -> bool:
    return op.space == "hsv" and op.hue not in (0.0, (0.0, 0.0))


def _is_alike(step: Op, look_up: Op, place: Place) -> bool:
    if isinstance(step, ops.MotionBlur):
        return step.line == "ends" or step.degrees[1] - step.degrees[0] >= 360.0
    if isinstance(step, ops.CLAHE):  # which counts from its tiles' centres half a pixel off, as OpenCV
        tiles = step.tiles
        return isinstance(look_up, ops.Transpose) and tiles[0] == tiles[1] and _are_whole(place, tiles)
    if isinstance(step, ops.GridShuffle):
        return _are_whole(place, step.grid) and (isinstance(look_up, ops.Flip) or step.grid[0] == step.grid[1])
    if isinstance(step, ops.GridDropout):
        is_own = step.place == "own" and step.unit_px is None and step.fit != "square"
        is_whole = is_own and _are_whole(place, step.grid)
        return is_whole and (isinstance(look_up, ops.Flip) or step.grid[0] == step.grid[1])
    if isinstance(step, ops.JpegCompression):  # whose table of quanta is not the same for rows and for columns
        is_whole = place.sides is not None and not any(side % BLOCK_PX for side in place.sides)
        return is_whole and (isinstance(look_up, ops.Flip) or _only_turns_by_half(look_up))
    if not (isinstance(look_up, ops.Flip) or _only_turns_by_half(look_up) or _is_alike_turned(step)):
        return False
    return isinstance(step, ALIKE) or _is_of_a_pixel(step)


def _only_turns_by_half(look_up: Op) -> bool:
    return isinstance(look_up, ops.QuarterTurn) and not {1, 3}.intersection(look_up.turns)


def _is_alike_turned(step: Op) -> bool:
    """Whether rectangles are as often high as they are wide, and nothing counts from the width alone."""
    if isinstance(step, ops.CoarseDropout):
        return step.height == step.width
    if isinstance(step, ops.Fog):
        return False
    if isinstance(step, ops.Erase):
        return abs(step.ratio[0] * step.ratio[1] - 1.0) < 0.02  # of 0.3..3.3, torchvision's, it is 0.99
    return True


def _are_whole(place: Place, cells: tuple[int, int]) -> bool:
    return place.sides is not None and not any(side % num for side, num in zip(place.sides, cells, strict=True))


def shows_the_same_pixels(look_up: Op, place: Place) -> bool:
    """Whether it only puts the pixels of a frame elsewhere in it."""
    is_square = place.sides is not None and place.sides[0] == place.sides[1]
    if isinstance(look_up, ops.QuarterTurn):
        return is_square or look_up.swaps_sides or _only_turns_by_half(look_up)
    if isinstance(look_up, ops.Transpose):
        return is_square or look_up.swaps_sides
    return isinstance(look_up, ops.Flip)


def _shows_single_pixels(look_up: Op, place: Place) -> bool:
    if isinstance(look_up, ops.Translate) and look_up.whole_px != "no":
        return True
    return (place.is_nearest and not isinstance(look_up, ops.Blur)) or keeps_pixels(look_up)


def keeps_pixels(look_up: Op) -> bool:
    """Whether it cuts whole pixels out of a frame, or adds some around it."""
    is_centre = isinstance(look_up, ops.CenterCrop) and look_up.scale is None
    return is_centre or isinstance(look_up, ops.RandomCrop | ops.Pad)


def _keeps(step: Op, fill: tuple[float, float, float]) -> bool:
    """Whether a border of that fill is the same behind it."""
    if isinstance(step, ops.ChannelShuffle | ops.Grayscale | ops.Hue | ops.Saturation):
        return len(set(fill)) == 1
    if fill != BLACK:
        return False
    if isinstance(step, ops.ColorJitter):
        return step.contrast in (0.0, (1.0, 1.0)) and step.of_normalized is None
    if isinstance(step, ops.ChannelDropout):
        return step.fill == 0.0
    if isinstance(step, ops.Solarize):
        return step.threshold[0] > 0
    if isinstance(step, ops.HueSaturationValue):
        return step.value[1] <= 0.0
    return isinstance(step, ops.Brightness | ops.Gamma | ops.Posterize | ops.Sepia | ops.ToneCurve)
