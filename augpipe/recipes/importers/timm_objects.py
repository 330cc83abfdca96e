"""What timm's `create_transform` has made, read back as its arguments."""

import sys
from collections.abc import Callable
from math import isclose
from typing import Any

Arguments = dict[str, Any]

ABSENT: Arguments = {"is_training": False, "hflip": 0.0, "color_jitter": None, "normalize": False}
"""The arguments of which a chain shows nothing."""
AUTO_AUGMENT = {"PosterizeOriginal": "original", "Posterize": "v0", "SolarizeAdd": "v0r", "Desaturate": "3a"}
"""An op -> the policy of AutoAugment that has it; the first that is found. The one that has none is "originalr"."""
RAND_AUGMENT = {(False, 3): "-t3a", (True, 14): "-t3aw", (True, 15): "-tweights"}
"""Whether ops have weights, and how many there are -> the set of RandAugment that says so."""
NO_NORMALIZE = (
    "normalize: the chain ends without it. timm's own loader normalises and erases behind a chain that was made with "
    "use_prefetcher=True; give from_timm its arguments then."
)
"""What is said of a chain for training without Normalize."""


ROUNDED = 1e-6
"""By how much numbers may differ that are the same: chains hold some in float32."""


class Unread(ValueError):
    """What `create_transform` does not make, or cannot make again."""


def arguments_of(transform: Any) -> Arguments:
    """The arguments of `create_transform` which make a chain like this one.

    Raises:
        Unread: it is not such a chain, or was changed since.
    """
    read, unmapped = dict(ABSENT), Arguments()
    for one in getattr(transform, "transforms", ()):
        name = type(one).__name__
        if name == "CenterCropOrPad" and one.padding_mode == "reflect":
            unmapped |= {"train_crop_mode": "rkrc", "is_training": True}
        elif name in NOT_MAPPED:
            unmapped |= NOT_MAPPED[name]
        elif (reader := READERS.get(name)) is not None:
            read |= reader(one)
        else:
            raise Unread(f"create_transform: {name} is not read back. Give from_timm its arguments.")
    if not unmapped and "input_size" not in read:
        raise Unread(f"a {type(transform).__name__} is not what create_transform makes. Give from_timm such a chain.")
    scale = () if read["is_training"] else read.pop("scale", ())
    if unmapped:  # refused by name
        return read | unmapped
    height, width = read["input_size"]
    if scale:  # sides of the image are rounded down
        pairs = [(side, resized) for side, resized in zip((height, width), scale, strict=True)]
        is_same = all(side == resized for side, resized in pairs)
        least, most = (
            max(side / (resized + 1) for side, resized in pairs),
            min(side / resized for side, resized in pairs),
        )
        read["crop_pct"] = 1.0 if is_same else 0.5 * (least + most)
    create = getattr(sys.modules.get("timm.data"), "create_transform", None)
    is_square = height == width or read["is_training"] or read.get("crop_mode") == "squash"
    if create is not None and is_square and not _alike(create(**read), transform):
        raise Unread("create_transform makes another chain of the arguments that this one shows. Give from_timm those.")
    return read


def _alike(one: Any, other: Any) -> bool:
    """Whether two transforms, or settings of such, are the same, apart from the type and rounding of numbers."""
    one, other = (value.tolist() if hasattr(value, "tolist") else value for value in (one, other))
    if isinstance(one, int | float) and isinstance(other, int | float):
        return isclose(one, other, rel_tol=ROUNDED, abs_tol=ROUNDED)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_alike, one, other))
    if isinstance(one, dict):
        return (
            isinstance(other, dict) and one.keys() == other.keys() and all(_alike(one[key], other[key]) for key in one)
        )
    if hasattr(one, "__dict__") and not callable(getattr(one, "__get__", None)):
        return type(one) is type(other) and _alike(vars(one), vars(other))
    return bool(one == other)


def _crop(one: Any) -> Arguments:
    return {"is_training": True, "input_size": one.size, "scale": one.scale, "ratio": one.ratio} | _interpolation(one)


def _interpolation(one: Any) -> Arguments:
    return {"interpolation": "random" if isinstance(one.interpolation, tuple) else one.interpolation.value}


def _resize(one: Any) -> Arguments:
    is_squashed = not isinstance(one.size, int)
    mode = {"crop_mode": "squash"} if is_squashed else {}
    return {"scale": tuple(one.size) if is_squashed else (one.size,) * 2} | mode | _interpolation(one)


def _rand_augment(one: Any) -> Arguments:
    names, first = [op.name for op in one.ops], one.ops[0]
    sets = RAND_AUGMENT.get((one.choice_weights is not None, len(names)), "")
    increasing = "-inc1" if not sets and "ColorIncreasing" in names else ""
    most = f"-mmax{first.magnitude_max}" if first.magnitude_max is not None else ""
    level = f"-m{first.magnitude}" if isinstance(first.magnitude, int) else ""  # where no name has given one
    numbers = f"{level}-n{one.num_layers}-p{first.prob}{_noise(first)}"
    return {"auto_augment": f"rand{numbers}{most}{increasing}{sets}"} | {"mean": _mean_of(first.kwargs["fillcolor"])}


def _auto_augment(one: Any) -> Arguments:
    names, first = {op.name for some in one.policy for op in some}, one.policy[0][0]
    name = next((policy for op, policy in AUTO_AUGMENT.items() if op in names), "originalr")
    return {"auto_augment": f"{name}{_noise(first)}"} | {"mean": _mean_of(first.kwargs["fillcolor"])}


def _noise(op: Any) -> str:
    return f"-mstd{min(op.magnitude_std, 101)}" if "magnitude_std" in op.hparams else ""


def _mean_of(fill: Any) -> tuple[float, ...]:
    """What a border is filled with where nothing normalises."""
    return tuple(level / 255.0 for level in fill)


def _jitter(one: Any) -> Arguments:
    parts = [one.brightness, one.contrast, one.saturation, *([one.hue] if one.hue else [])]
    is_off = not any(parts)  # of a strength of 0
    return {"color_jitter": 0.0 if is_off else tuple(0.0 if part is None else tuple(part) for part in parts)}


def _at_random(one: Any) -> Arguments:
    (inner,) = one.transforms
    if type(inner).__name__ == "ColorJitter":
        return _jitter(inner) | {"color_jitter_prob": one.p}
    return {"gaussian_blur_prob": one.p}


def _normalize(one: Any) -> Arguments:
    mean, std = ([round(float(number), 7) for number in numbers] for numbers in (one.mean, one.std))  # float32 there
    return {"normalize": True, "mean": tuple(mean), "std": tuple(std)}


def _erase(one: Any) -> Arguments:
    return {
        "re_prob": one.probability,
        "re_mode": one.mode,
        "re_count": one.max_count,
        "re_num_splits": one.num_splits,
    }


READERS: dict[str, Callable[[Any], Arguments]] = {
    "RandomResizedCropAndInterpolation": _crop,
    "Resize": _resize,
    "ResizeKeepRatio": lambda one: {"scale": tuple(one.size), "crop_mode": "border"} | _interpolation(one),
    "CenterCrop": lambda one: {"input_size": one.size},
    "CenterCropOrPad": lambda one: {"input_size": one.size, "mean": _mean_of(one.fill)},
    "RandomHorizontalFlip": lambda one: {"hflip": one.p},
    "RandomVerticalFlip": lambda one: {"vflip": one.p},
    "RandAugment": _rand_augment,
    "AutoAugment": _auto_augment,
    "ColorJitter": _jitter,
    "RandomApply": _at_random,
    "RandomGrayscale": lambda one: {"grayscale_prob": one.p},
    "MaybeToTensor": lambda one: {},
    "MaybePILToTensor": lambda one: {},
    "Normalize": _normalize,
    "RandomErasing": _erase,
}
"""The name of a transform -> the arguments that it shows."""
NOT_MAPPED: dict[str, Arguments] = {
    "AugMixAugment": {"auto_augment": "augmix"},
    "Patchify": {"patchify": True},
    "RandomCropOrPad": {"train_crop_mode": "rkrr", "is_training": True},
    "RandomResizedCropToSequence": {"naflex": True, "is_training": True},
    "ResizeToSequence": {"naflex": True},
    "TrimBorder": {"crop_border_pixels": 1},
}
"""The name of a transform -> arguments that have it made, one of which cannot be mapped."""
