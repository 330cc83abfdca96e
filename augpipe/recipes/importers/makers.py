"""What transforms of several libraries become, and what makes ops of a transform."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from augpipe import ops
from augpipe.ops import Op
from augpipe.ops.op import Beyond
from augpipe.recipes.importers.constants import PILLOW
from augpipe.recipes.importers.findings import Findings, Maker
from augpipe.recipes.importers.rows import Look

PILLOW_FILTERS = {nth: name.lower() for name, nth in PILLOW.items()}
OF_NUMPY = {"symmetric": "reflect", "reflect": "reflect_101"}
"""Borders that numpy calls otherwise."""
FIELD = "the field is made of B-splines, with the variance and nearly the correlation of filtered noise."
"""What differs in an elastic transform."""
UNEVEN = "corners that no perspective gives, or nearly so, move less."
"""What differs in a perspective of a distortion above 0.6."""
UNCLIPPED = "numbers are kept within 0..1, and there they may leave it."
"""What differs in noise."""
MOST_RECTANGLES = 8
"""That an image is erased in."""
SQUARE_PX = 224
"""The side of a frame, in pixels, where it depends on the image."""


def erase(p: float, scale: Any, ratio: Any, fill: Any, normalised: Op | None) -> ops.Erase:
    """An Erase, in terms of what normalisation makes of it."""
    erased = ops.Erase(p=p, scale=tuple(scale), ratio=tuple(ratio), fill=fill)
    if isinstance(normalised, ops.Normalize):
        return erased.model_copy(update={"mean": normalised.mean, "std": normalised.std})
    # before a Normalize noise is 0 +- 1 in numbers of 0..1
    return erased.model_copy(update={"mean": (0.0,) * 3, "std": (1.0,) * 3}) if fill == "noise" else erased


def erase_several(p: float, scale: Any, ratio: Any, fill: Any, normalised: Op | None, num: tuple[int, int]) -> Op:
    """As `erase`, of a drawn number of rectangles, which share the area: timm's."""
    if num == (1, 1):
        return erase(p, scale, ratio, fill, normalised)
    if not 1 <= num[0] <= num[1] <= MOST_RECTANGLES:
        raise ValueError(f"{num[0]} to {num[1]} rectangles are not mapped; 1 to {MOST_RECTANGLES} are")
    choices: list[Op] = []
    for count in range(num[0], num[1] + 1):
        parts = tuple(share / count for share in scale)
        each = tuple(erase(1.0, parts, ratio, fill, normalised) for _ in range(count))
        choices.append(each[0] if count == 1 else ops.AllOf.model_validate({"ops": each}))
    return ops.OneOf.model_validate({"ops": choices, "p": p})


def jitter(ranges: Mapping[str, Any], p: float = 1.0) -> ops.ColorJitter:
    """A ColorJitter as that of torchvision."""
    return ops.ColorJitter.model_validate({**ranges, "about": "mean", "space": "hsv", "p": p})


def noise_of_parts(mean: float, std: float, p: float) -> Op:
    """Noise in parts of the full level.

    Raises:
        ValueError: its mean is not 0.
    """
    if mean:
        raise ValueError(f"mean={mean} is not mapped; 0 is")
    return ops.Noise(std=(255.0 * std,) * 2, p=p)


def shifted(ranges: Sequence[tuple[float, float]], levels_of_one: float, p: float) -> Op:
    """Red, green and blue shifted by draws of their own.

    Raises:
        ValueError: ranges differ between channels, or are not the same both ways.
    """
    low, high = ranges[0]
    if len(set(ranges)) > 1 or low != -high:
        raise ValueError("limits that differ between channels, or are not the same both ways, are not mapped")
    return ops.ColorCast(max_shift=high * levels_of_one, step=None, channel_p=1.0, p=p)


def padded_crop(size: Any, padding: Sequence[int], pad_if_needed: bool, border: str, fill: Any) -> list[Op]:
    """A crop anywhere within an image that is padded by one, two or four numbers of pixels."""
    shown = {"border": border, "fill": fill}
    is_one = len(set(padding)) == 1
    made = {"size": size, "pad_if_needed": pad_if_needed, "padding": padding[0] if is_one else 0} | shown
    padded = [] if is_one else [ops.Pad.model_validate({"px": padding, **shown})]
    return [*padded, ops.RandomCrop.model_validate(made)]


def round_kernel(sizes: Sequence[int]) -> tuple[int, str]:
    """The side of a kernel that is as high as wide, and what differs in that."""
    side = max(sizes)
    return side, "" if len(set(sizes)) == 1 else f"kernel_size={list(sizes)} becomes {side} both ways."


def floored_centre(size: Any) -> Op:
    """The centre where half a pixel is cut off: `CenterCrop` rounds it, as torchvision does."""
    return ops.RandomCrop(size=tuple(size), p=0.0)


def levels(value: Any) -> tuple[float, float, float]:
    """R, G, B of a fill that is given as a number, a sequence or None.

    Raises:
        ValueError: it is a word.
    """
    if isinstance(value, str):
        raise ValueError(f"fill={value!r} is not mapped; levels are")
    value = 0.0 if value is None else value
    if isinstance(value, Sequence):
        red, green, blue = value if len(value) == 3 else (value[0],) * 3
        return float(red), float(green), float(blue)
    return (float(value),) * 3


def twice(value: Any) -> tuple[Any, ...]:
    """A range, or height and width, that may be given as one number."""
    return tuple(value) if isinstance(value, list | tuple) else (value, value)


def either_way(value: Any, centre: float = 0.0) -> tuple[float, float]:
    """A range that may be given as how far it reaches either way."""
    low, high = value if isinstance(value, list | tuple) else (centre - value, centre + value)
    return float(low), float(high)


def reaching(start: float, value: Any) -> tuple[float, float]:
    """A range, which begins or ends at `start` where it is given as one number."""
    low, high = value if isinstance(value, list | tuple) else sorted((start, value))
    return float(low), float(high)


def channels(value: Any, white: float = 1.0) -> Any:
    """A mean or std for `ops.Normalize`: the numbers of a sequence, an array or a tensor; what holds none as it is.

    Args:
        value: them, where white is that number.
        white: 1, or 255 of levels.
    """
    try:
        return tuple((np.asarray(value, np.float64).reshape(-1) / white).tolist())
    except (TypeError, ValueError):
        return value


def refused(told: str) -> Maker:
    """Refuse a transform that is known, and say why."""

    def add(found: Findings, one: Any) -> None:
        raise ValueError(told)

    return add


def same(
    kind: type[Op],
    *,
    note: str | Callable[[Any], str] = "",
    look: Callable[[Findings, Any], Look] | None = None,
    beyond: Callable[[Findings, Any], Beyond] | None = None,
    **fields: Any,
) -> Maker:
    """A row of a library's table: one op, as often as the transform.

    Args:
        kind: the op.
        note: what differs, or a function of the transform that tells it.
        look: how it looks between pixels, if it does.
        beyond: what it shows beyond the image, if it does.
        fields: those of the op, each a value or made of the transform; `p` is the transform's own unless it is one.
    """

    def add(found: Findings, one: Any) -> None:
        made = {name: value(one) if callable(value) else value for name, value in fields.items()}
        if "p" in kind.model_fields and "p" not in made:
            made["p"] = found.read(one, "p")
        told = note if isinstance(note, str) else note(one)
        own, shown = look(found, one) if look else None, beyond(found, one) if beyond else None
        found.add(found.name_of(one), kind.model_validate(made), note=told, look=own, beyond=shown)

    return add
