"""Which ops give the same before a Normalize as after it, and fills of numbers that were normalised, in levels."""

from augpipe import ops
from augpipe.ops import Op
from augpipe.ops.commuting import acts_in_look_up
from augpipe.validation.models import changed

OF_NUMBERS = ops.BrightnessContrast | ops.ColorJitter
"""Ops that can be told to change what a Normalize made."""
FILLING = ops.CoarseDropout | ops.GridDropout | ops.PixelDropout
"""Ops that fill with levels, or, behind a Normalize, with its numbers."""
UNITLESS = (
    *(ops.BoxBlur, ops.ChannelShuffle, ops.GaussianBlur, ops.GridShuffle, ops.Identity, ops.MedianBlur),
    ops.MotionBlur,
)
"""Steps that do the same whatever numbers count in, where channels count in the same."""
CLIPPED = ops.GaussianBlur | ops.MedianBlur | ops.MotionBlur
"""Those of them that keep floats within 0..1 in version 2 of albumentations, where a Normalize leaves that."""
WHOLE_PIXELS = (ops.QuarterTurn, ops.Transpose)
"""Geometry that moves whole pixels."""


def shows_means(op: Op, normalize: ops.Normalize) -> bool:
    """Whether its levels are means of those before it, or its fill, which a Normalize behind it makes the same of."""
    if isinstance(op, ops.ChannelShuffle):
        return len(set(normalize.mean)) == len(set(normalize.std)) == 1
    return acts_in_look_up(op) or _filled(op) is not None or isinstance(op, (*UNITLESS, OF_NUMBERS))


def in_levels(op: Op, normalize: ops.Normalize) -> Op:
    """An op that is not a group, and fills in numbers that are normalised, in terms of levels.

    Raises:
        ValueError: they are those of no level.
    """
    if isinstance(op, ops.OneCrop):
        chains = tuple(tuple(in_levels(inner, normalize) for inner in chain) for chain in op.chains)
        return op if op.beyond is None else changed(op, chains=chains)
    if isinstance(op, OF_NUMBERS):
        return _of_numbers(op, normalize)
    if (fill := _filled(op)) is not None:
        return changed(op, fill=level(fill, normalize))
    return changed(op, fill=level(op.beyond[1], normalize)) if op.beyond and op.beyond[0] == "constant" else op


def _filled(op: Op) -> tuple[float, float, float] | None:
    """What an op fills with, if it always fills with the same."""
    return op.fill if isinstance(op, FILLING) and not isinstance(op.fill, str) else None


def _of_numbers(op: Op, normalize: ops.Normalize) -> Op:
    """An op that changes what a Normalize made, and keeps it within 0..1."""
    mean, std = normalize.mean, normalize.std
    if set(mean) == {0.0} and set(std) == {1.0}:
        return op
    if min(mean) < 0.0 or max(map(sum, zip(mean, std, strict=True))) > 1.0:
        raise ValueError(
            "stands behind Normalize, and keeps numbers within 0..1, which by its mean and std are those of no levels; "
            "put it before Normalize"
        )
    return changed(op, of_normalized=(mean, std))


class NoLevel(ValueError):
    """Numbers that fill an image, and are those of no levels."""

    def __init__(self, fill: tuple[float, float, float], levels: tuple[float, float, float]) -> None:
        self.fill = fill
        numbers, instead = (", ".join(f"{one:{form}}" for one in of) for of, form in ((fill, "g"), (levels, ".0f")))
        super().__init__(f"fills with {numbers}, which stand for levels of {instead}; levels are in 0..255")


def level(fill: tuple[float, float, float], normalize: ops.Normalize) -> tuple[float, float, float]:
    """The levels that normalise to these numbers.

    Raises:
        NoLevel: none do.
    """
    red, green, blue = (
        255.0 * (number * std + mean) for number, mean, std in zip(fill, normalize.mean, normalize.std, strict=True)
    )
    if not -0.5 <= min(red, green, blue) <= max(red, green, blue) <= 255.5:
        raise NoLevel(fill, (red, green, blue))
    return min(max(red, 0.0), 255.0), min(max(green, 0.0), 255.0), min(max(blue, 0.0), 255.0)
