"""Which ops give the same before others as after them, and fills of numbers that were normalised, in levels."""

from augpipe import ops
from augpipe.ops import Op
from augpipe.validation.models import changed

POINTWISE = (
    *(
        ops.Brightness,
        ops.BrightnessContrast,
        ops.Saturation,
        ops.Hue,
        ops.HueSaturationValue,
        ops.Grayscale,
        ops.Invert,
        ops.Posterize,
    ),
    *(ops.Solarize, ops.Gamma, ops.ChannelShuffle, ops.ChannelDropout, ops.ColorJitter),
)
"""Ops of pixels alone: the same before a crop as after it."""
WHOLE_PIXELS = (ops.QuarterTurn, ops.Transpose)
"""Geometry that moves whole pixels: noise and holes before it are as if they were after it."""
IN_PLACE = (ops.Flip, ops.Identity, ops.Blur)
"""Ops that, as all geometry, act where they stand among crops and paddings."""
KEEPS_BLACK = (
    *(ops.Brightness, ops.Saturation, ops.Hue, ops.HueSaturationValue, ops.Grayscale, ops.Gamma, ops.ChannelShuffle),
    *(ops.ChannelDropout, ops.Posterize),
)
"""Ops that leave a black border black."""


def acts_in_place(op: Op) -> bool:
    """Whether it acts where it stands among crops and paddings."""
    return op.is_geometry or isinstance(op, IN_PLACE)


def turns_alike(op: Op) -> bool:
    """Whether rows are to it what columns are, so that it may as well come after a quarter turn."""
    return not isinstance(op, ops.GridShuffle) or op.grid[0] == op.grid[1]


def shows_means(op: Op) -> bool:
    """Whether its levels are means of those before it, or its fill."""
    return acts_in_place(op) or isinstance(op, ops.CoarseDropout)


def in_levels(op: Op, normalize: ops.Normalize) -> Op:
    """An op that fills in numbers that are normalised, in terms of levels.

    Raises:
        ValueError: they are those of no level.
    """
    if isinstance(op, ops.OneOf | ops.SomeOf | ops.AllOf):
        return changed(op, ops=tuple(in_levels(inner, normalize) for inner in op.ops))
    if isinstance(op, ops.CoarseDropout):
        return changed(op, fill=level(op.fill, normalize))
    return changed(op, fill=level(op.beyond[1], normalize)) if op.beyond and op.beyond[0] == "constant" else op


def level(fill: tuple[float, float, float], normalize: ops.Normalize) -> tuple[float, float, float]:
    """The levels that normalise to these numbers."""
    red, green, blue = (
        255.0 * (number * std + mean) for number, mean, std in zip(fill, normalize.mean, normalize.std, strict=True)
    )
    if not -0.5 <= min(red, green, blue) <= max(red, green, blue) <= 255.5:
        levels = f"{red:.0f}, {green:.0f}, {blue:.0f}"
        raise ValueError(f"stands before a fill of {fill}, which is {levels} before it, and levels are in 0..255")
    return min(max(red, 0.0), 255.0), min(max(green, 0.0), 255.0), min(max(blue, 0.0), 255.0)
