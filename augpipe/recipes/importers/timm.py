"""The arguments of timm's `create_transform`, as a recipe."""

import math
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

from augpipe import ops
from augpipe.ops import Op
from augpipe.ops.groups import each_within
from augpipe.policies.timm_policies import read_name
from augpipe.recipes.importers.findings import Findings
from augpipe.recipes.importers.looks import finished_in_turn, note_of
from augpipe.recipes.importers.makers import channels, erase_several, jitter, levels
from augpipe.recipes.importers.rows import Look
from augpipe.validation.suggest import nearest

DEFAULTS: dict[str, Any] = {
    "input_size": 224,
    "is_training": True,
    "no_aug": False,
    "train_crop_mode": None,
    "scale": None,
    "ratio": None,
    "hflip": 0.5,
    "vflip": 0.0,
    "color_jitter": 0.4,
    "color_jitter_prob": None,
    "force_color_jitter": False,
    "grayscale_prob": 0.0,
    "gaussian_blur_prob": 0.0,
    "auto_augment": None,
    "interpolation": "bilinear",
    "mean": (0.485, 0.456, 0.406),
    "std": (0.229, 0.224, 0.225),
    "re_prob": 0.0,
    "re_mode": "const",
    "re_count": 1,
    "re_num_splits": 0,
    "crop_pct": None,
    "crop_mode": None,
    "crop_border_pixels": None,
    "use_prefetcher": False,
    "normalize": True,
    "separate": False,
}
"""timm's own, except for `is_training`."""
_MIXED = "mixes a batch, which is the recipe's to say; write Recipe(mixing=[ops.{}(alpha={{}})])"
UNMAPPED: dict[str, Any] = {
    "tf_preprocessing": False,
    "naflex": False,
    "patch_size": 16,
    "max_seq_len": 576,
    "patchify": False,
    "patchify_channels_last": True,
    "patchify_flatten": True,
}
"""What is taken at timm's own value alone, at which it changes nothing."""
OF_BATCHES = {
    **dict.fromkeys(("mixup", "mixup_alpha"), _MIXED.format("MixUp")),
    **dict.fromkeys(("cutmix", "cutmix_alpha"), _MIXED.format("CutMix")),
    **dict.fromkeys(
        ("smoothing", "label_smoothing"), "is the loss's; write torch.nn.CrossEntropyLoss(label_smoothing={})"
    ),
}
"""Settings of timm's training script that act on a batch -> what to write instead, of the value."""
OF_EVALUATION = ("crop_pct", "crop_mode", "crop_border_pixels")
BY_POSITION = ("input_size", "is_training")
"""What comes first in every version of timm; behind these they differ."""
DEFAULT_CROP_PCT = 0.875
INTERPOLATIONS = ("bilinear", "bicubic", "random", "nearest", "box", "hamming", "lanczos")
VALUES = ("interpolation", "input_size", "scale", "ratio", "color_jitter", "crop_pct")
"""Arguments whose value is refused before ops are made of it."""
ERASED = {"const": "mean", "pixel": "noise"}
"""The `mode` of timm's RandomErasing -> the fill of an Erase."""


def found_in(arguments: Mapping[str, Any]) -> Findings:
    """The ops of `timm.data.create_transform(**arguments)`, and what cannot be mapped."""
    found = Findings(source="timm", measured_as=("timm",), name_of=str)
    for name, value in arguments.items():
        if name in UNMAPPED:
            if value != UNMAPPED[name]:
                found.refuse(name, f"{value!r} is not mapped; {UNMAPPED[name]!r} is")
        elif name in OF_BATCHES:
            found.refuse(name, OF_BATCHES[name].format(value))
        elif name not in DEFAULTS:
            near = nearest(name, list(DEFAULTS))
            found.refuse(name, "is not an argument that is known here" + (f"; {near!r} is" if near else ""))
    if "is_training" not in arguments and not arguments.get("no_aug"):
        for name in OF_EVALUATION:
            if arguments.get(name) is not None:
                found.refuse(
                    name,
                    "is a setting of evaluation, and is_training, not given, is True here and False in timm: give it",
                )
    given = {**DEFAULTS, **{name: value for name, value in arguments.items() if name in DEFAULTS}}
    if given["train_crop_mode"] not in (None, "rrc"):
        found.refuse("train_crop_mode", f"{given['train_crop_mode']!r} is not mapped; 'rrc' is")
    if given["crop_mode"] not in (None, "center", "squash", "border"):
        found.refuse("crop_mode", f"{given['crop_mode']!r} is not mapped; 'center', 'squash' and 'border' are")
    if given["crop_border_pixels"]:
        found.refuse("crop_border_pixels", "trims the border, which is not mapped; None is")
    if given["separate"]:
        found.refuse("separate", "a recipe is one list; import without it")
    _refuse_values(found, given)
    if found.problems:
        given = {**given, **{row.name: DEFAULTS[row.name] for row in found.rows if row.name in VALUES}}
    try:
        made = ops.Normalize(mean=channels(given["mean"]), std=channels(given["std"]))
        given["mean"] = made.mean
        if given["is_training"] and not given["no_aug"]:
            _train(found, given)
        else:
            _evaluate(found, given)
        if given["normalize"]:
            found.add("Normalize", made)
        if given["is_training"] and not given["no_aug"] and given["normalize"]:  # else timm erases nothing
            _erase(found, given, made)
    except (TypeError, ValueError) as error:
        told = " ".join(str(error).split("\n"))
        found.refuse("arguments", told.replace("Erase: p=", "re_prob=").replace("Flip: p=", "hflip or vflip="))
    return found


def _refuse_values(found: Findings, given: Mapping[str, Any]) -> None:
    """Refuse values that timm does not take, and ours would be other ones for."""
    look = given["interpolation"]
    if look == "random" and not given["is_training"]:
        found.refuse("interpolation", "'random' is not one of evaluation; write 'bilinear' or 'bicubic'")
    elif look and look not in INTERPOLATIONS:
        near = nearest(str(look), INTERPOLATIONS)
        found.refuse("interpolation", f"{look!r} is not known here" + (f"; {near!r} is" if near else ""))
    size = given["input_size"]
    sides = tuple(size) if isinstance(size, list | tuple) else (size, size)
    if not 2 <= len(sides) <= 3 or not all(isinstance(side, Integral) for side in sides[-2:]):
        found.refuse("input_size", f"{size!r} is not mapped; whole pixels, as 224 or (3, 224, 224), are")
    for name in ("scale", "ratio"):
        if given[name] and not (isinstance(given[name], list | tuple) and len(given[name]) == 2):
            found.refuse(name, f"{given[name]!r} is not two numbers, the smallest and the largest")
    jitter_by = given["color_jitter"]
    if isinstance(jitter_by, list | tuple) and len(jitter_by) not in (3, 4):
        found.refuse("color_jitter", f"{jitter_by!r} is not one number, three or four")
    if not given["is_training"] and (given["crop_pct"] or 0.0) > 1.0:
        found.refuse("crop_pct", f"{given['crop_pct']} pads what it resizes, which is not mapped; at most 1 is")


def by_position(values: Sequence[Any]) -> dict[str, Any]:
    """The arguments of a call by name.

    Raises:
        ValueError: there are more than versions of timm agree on.
    """
    if len(values) > len(BY_POSITION):
        raise ValueError(
            f"create_transform takes two arguments by position here, {' and '.join(BY_POSITION)}, as versions of timm "
            "differ behind them. Give all others by name."
        )
    return dict(zip(BY_POSITION, values, strict=False))


def _size(given: Mapping[str, Any]) -> tuple[int, int]:
    size = given["input_size"]
    sides = (size, size) if isinstance(size, int) else tuple(size)[-2:]
    return int(sides[0]), int(sides[1])


def _evaluate(found: Findings, given: Mapping[str, Any]) -> None:
    size, is_training = _size(given), given["is_training"]  # without augmentation: it crops to the size, by no others
    crop_pct = 1.0 if is_training else float(given["crop_pct"] or DEFAULT_CROP_PCT)
    scale = math.floor(size[0] / crop_pct), math.floor(size[1] / crop_pct)
    crop = ops.CenterCrop(size=size[0] if size[0] == size[1] else size)
    if not isinstance(given["input_size"], int) if is_training else given["crop_mode"] == "squash":
        made: list[Op] = [ops.Resize(size=scale), *([crop] if scale != size else [])]
    elif size[0] != size[1]:
        found.refuse(
            "input_size", f"{size[0]}x{size[1]} of evaluation is not square; crop_mode='squash' is mapped of such"
        )
        return
    elif not is_training and given["crop_mode"] == "border":
        fill = levels([round(255 * x) for x in given["mean"]])
        made = [ops.ResizeLongest(size=scale[0]), ops.Pad(size=size, fill=fill), crop]
    else:
        made = [ops.CenterCrop(size=size, scale=scale[0])]
    is_random = is_training and given["interpolation"] == "random"  # which timm takes for bilinear there
    found.add("Resize, CenterCrop", *made, look=_look({**given, "interpolation": None} if is_random else given))


def _look(given: Mapping[str, Any]) -> Look:
    return Look(interpolation=str(given["interpolation"] or "bilinear"), antialias=True)


def _train(found: Findings, given: Mapping[str, Any]) -> None:
    scale, ratio = given["scale"] or (0.08, 1.0), given["ratio"] or (3.0 / 4.0, 4.0 / 3.0)
    made = ops.RandomResizedCrop(size=_size(given), scale=tuple(scale), ratio=tuple(ratio))
    found.add("crop", made, look=_look(given))
    for name, direction in (("hflip", "horizontal"), ("vflip", "vertical")):
        if given[name]:
            found.add(name, ops.Flip.model_validate({"direction": direction, "p": given[name]}))
    policy = given["auto_augment"]
    if policy:
        try:
            read = read_name(policy)
        except ValueError as error:
            found.refuse("auto_augment", str(error))
        else:
            look = Look(interpolation=_look(given).interpolation)
            made_of = read.ops() if look.interpolation == "bilinear" else map(each_within(_filtered), read.ops())
            groups = finished_in_turn(made_of, look.interpolation)
            told = " ".join(filter(None, [*read.notes, note_of(groups)]))
            if any(inner.is_geometry for op in groups for inner in op.flat):
                beyond = ("constant", levels([min(255, round(255 * x)) for x in given["mean"]]))
                found.add("auto_augment", *groups, note=told, look=look, beyond=beyond)
            else:
                found.add("auto_augment", *groups, note=told)
    if given["color_jitter"] and (not policy or given["force_color_jitter"] or "3a" in policy):
        _jitter(found, given)
    if given["grayscale_prob"]:
        found.add("grayscale_prob", ops.Grayscale(p=given["grayscale_prob"]))
    if given["gaussian_blur_prob"]:
        blurred = ops.GaussianBlur(sigma_px=(0.1, 2.0), kernel_px=23, p=given["gaussian_blur_prob"])
        found.add("gaussian_blur_prob", blurred)


def _filtered(op: Op) -> Op:
    """A blur that does not widen the look-up, which only a bilinear one can be."""
    return ops.GaussianBlur(sigma_px=op.sigma_px, p=op.p) if isinstance(op, ops.Blur) else op


def _jitter(found: Findings, given: Mapping[str, Any]) -> None:
    strength = given["color_jitter"]
    parts = tuple(strength) if isinstance(strength, list | tuple) else (float(strength),) * 3
    fields = dict(zip(("brightness", "contrast", "saturation", "hue"), parts, strict=False))
    p = 1.0 if given["color_jitter_prob"] is None else given["color_jitter_prob"]
    found.add("color_jitter", jitter(fields, p))


def _erase(found: Findings, given: Mapping[str, Any], normalised: ops.Normalize) -> None:
    if not given["re_prob"]:
        return
    mode = given["re_mode"] or "const"
    if mode not in ERASED:
        found.refuse("re_mode", f"{mode!r} is not mapped; 'const' and 'pixel' are")
        return
    area, ratio, num = (0.02, 1.0 / 3.0), (0.3, 1.0 / 0.3), (1, int(given["re_count"] or 1))
    made = erase_several(given["re_prob"], area, ratio, ERASED[mode], normalised, num)
    found.add("re_prob", made)
    if given["use_prefetcher"] and (num_splits := int(given["re_num_splits"] or 0)) > 1:
        found.note(
            f"re_num_splits: there, the first 1/{num_splits} of each batch is not erased; here any image may be."
        )
