"""What `albumentations.to_dict` writes, as ops."""

import json
from collections.abc import Iterator, Mapping, Sequence
from operator import getitem
from typing import Any

import numpy as np

from augpipe import ops
from augpipe.ops import Op
from augpipe.recipes.importers.albumentations_geometry import GEOMETRY
from augpipe.recipes.importers.albumentations_pixels import PIXELS
from augpipe.recipes.importers.albumentations_values import BORDERS, INTERPOLATIONS, name_of
from augpipe.recipes.importers.chosen import IN_ORDER, all_of, one_of, some_of
from augpipe.recipes.importers.findings import Findings, Maker
from augpipe.recipes.importers.functions import NOT_HELD, NOTE, WithSides, custom, with_functions
from augpipe.recipes.importers.makers import channels, same
from augpipe.recipes.importers.sides import swap_sides
from augpipe.recipes.importers.units import FUNCTION, UNIT

VERSIONS = ("1", "2")
"""Those whose transforms are mapped; arguments and defaults changed with the second."""
FROM_0_TO_1 = "images are in 0..1 there, as max_pixel_value=1 says."
OF_FIRST_CHANNEL = "by a list of one number, version 1.3 changes only the first channel of an image that has three."
"""What differs of a Normalize by such: OpenCV takes the others as 0."""
REPLAYED = "ReplayCompose: what it draws is kept by a plan here, which replays it: augpipe.plan."
"""What differs of the Compose that hands out what it has drawn."""
SEEDED = "seed: there all transforms draw the same numbers, so two flips come together; here each draws its own."
"""What differs of a Compose with a seed, of version 2."""
_BOTH = ("bbox_params", "keypoint_params")
CUT_UNDER_HOLES: dict[str, dict[str, tuple[str, ...]]] = {
    "1": {"CoarseDropout": ("keypoint_params",)},
    "2": dict.fromkeys(("CoarseDropout", "ConstrainedCoarseDropout", "Erasing", "GridDropout", "XYMasking"), _BOTH),
}
"""By version, the transforms that cut or drop what lies under holes, and by which arguments that is given."""


def found_in(data: Any, version: str = "") -> Findings:
    """The ops of a transform, of `A.to_dict(transform)` or of its JSON text, and what cannot be mapped.

    Its version, "1" or "2", is taken from the data where they tell it.

    Raises:
        ValueError: it is none.
    """
    if isinstance(data, str):
        try:
            data = json.loads(data)
        except json.JSONDecodeError as error:
            raise ValueError(
                f"the text is not JSON ({error}). Give what json.dumps(A.to_dict(transform)) is."
            ) from error
    seed = getattr(data, "seed", None)  # of an object, whose dict leaves it out
    if hasattr(data, "to_dict"):
        data = with_functions(data).to_dict()
    if isinstance(data, Mapping):
        version = _version(str(data["__version__"])) if "__version__" in data else version
        data = data.get("transform", data)
    if not isinstance(data, Mapping) or not isinstance(data.get("__class_fullname__"), str):
        raise ValueError("this is not a transform of albumentations. Give one, or what A.to_dict(transform) returns.")
    versions = (version,) if version in VERSIONS else VERSIONS
    measured_as = tuple(f"albumentations-{one}" for one in versions)
    found = Findings(source="albumentations", measured_as=measured_as, name_of=name_of, read=getitem)
    found.only = ONLY
    found.changes_units = ("Normalize", "ToFloat", "FromFloat", "ToTensor", FUNCTION)
    found.clips_blurs = "2" in versions
    for one in _flattened(data):
        found.add_by(MADE, one)
    swap_sides(found)
    if name_of(data) == "ReplayCompose":
        found.note(REPLAYED)
    if data.get("seed", seed) is not None:
        found.note(SEEDED)
    every = list(_each(data))
    found.mask_fills.update(filter(None, map(_mask_fill, every)))
    for name in sorted({name_of(one) for one in every if _interpolates_masks(one)}):
        found.note(f"label maps: {name} interpolates them there, and here each pixel has one of their labels.")
    if data.get("bbox_params"):
        turned = {(name_of(one), one["rotate_method"]) for one in every if "rotate_method" in one}
        call = _call_with_boxes(data["bbox_params"], sorted(turned))
        found.note(f"bbox_params: boxes are given to the call: {call}")
    looks = {"image": "linear", "mask": "nearest", "masks": "nearest"}
    kinds = (data.get("additional_targets") or {}).items()
    if further := {name: looks[kind] for name, kind in kinds if kind in looks}:
        given_too = "".join(f", {name}=..." if name.isidentifier() else f", **{{{name!r}: ...}}" for name in further)
        call = f"augment(image=...{given_too}, targets=TargetOptions(paired={further}))"
        found.note(f"additional_targets: further images, which keep their colours here, are given to the call: {call}.")
    given = {name for name in _BOTH if data.get(name)}
    cuts = CUT_UNDER_HOLES[versions[-1]]
    if names := sorted({name for name in map(name_of, every) if given.intersection(cuts.get(name, ()))}):
        found.note(f"holes: {', '.join(names)} cut or drop objects and points under them there; here all stay.")
    if data.get("keypoint_params"):
        found.note(f"keypoint_params: points are given to the call: {_call_with_points(data['keypoint_params'])}")
    return found


def _held(one: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list(one.get("transforms") or [one[name] for name in ("first", "second") if one.get(name)])


def _each(one: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """All transforms, those that hold others behind these."""
    for inner in _held(one):
        yield from _each(inner)
    yield one


def _mask_fill(one: Mapping[str, Any]) -> tuple[int, str] | None:
    """The label that a transform shows beyond the image, 0 unless it is given, and its name."""
    is_constant = BORDERS.get(one.get("border_mode", one.get("mode"))) == "constant"  # others show the image's labels
    is_within = name_of(one) == "Perspective" or not one.get("pad_if_needed", True) or one.get("p") == 0
    given = (one.get(name) for name in ("fill_mask", "mask_value", "cval_mask"))
    value = next((value for value in given if value is not None), 0)
    is_label = isinstance(value, int | float) and value >= 0 and value % 1 == 0
    return (int(value), name_of(one)) if is_constant and not is_within and is_label else None


def _interpolates_masks(one: Mapping[str, Any]) -> bool:
    """Whether a transform makes labels between those of label maps."""
    return INTERPOLATIONS.get(one.get("mask_interpolation", 0), "nearest") != "nearest"


def _lambda(found: Findings, one: Mapping[str, Any]) -> None:
    if "functions" not in one:
        raise ValueError(NOT_HELD)
    functions = {name: fn for name, fn in one["functions"].items() if getattr(fn, "__name__", "") != "noop"}
    fn = functions.pop("image", None)
    if functions:
        raise ValueError(f"changes {', '.join(functions)} as well, which ops.Custom does not; leave them out of it")
    if fn is not None:
        found.add("Lambda", custom(WithSides(fn), one["p"], one["name"]), note=NOTE)


def _version(text: str) -> str:
    """Which of the `VERSIONS` one belongs to; "" for those between."""
    numbers = [int(part) for part in text.split(".")[:2] if part.isdecimal()]
    return "1" if [0] <= numbers < [1, 4] else "2" if numbers >= [2] else ""


def _call_with_boxes(params: Mapping[str, Any], turned: Sequence[tuple[str, str]]) -> str:
    """The call of `Augment` that treats boxes as `BboxParams` does, and what it does not do."""
    boxes = "ellipse" if {way for _, way in turned} == {"ellipse"} else "corners"
    kept = {name: params[name] for name in ("min_area", "min_visibility", "clip") if params.get(name)}
    options = ", ".join(f"{name}={value!r}" for name, value in {"boxes": boxes, **kept}.items())
    fields = "".join(f", {name}=..." for name in params.get("label_fields") or ())
    given = f"image=..., bboxes=..., bbox_format={params.get('format')!r}{fields}"
    call = f"augment({given}, targets=TargetOptions({options}))"
    lost = [name for name in ("min_width", "min_height", "max_accept_ratio") if params.get(name)]
    if boxes == "corners":
        lost += [f"rotate_method={way!r} of {name}" for name, way in turned if way == "ellipse"]
    judged = [name for name in ("min_area", "min_visibility") if name in kept]
    told = f" {' and '.join(judged)}: of the output, and there of what each transform gives." if judged else ""
    return f"{call}. A Loader takes the same targets.{told}" + (f" Not mapped: {', '.join(lost)}." if lost else "")


def _call_with_points(params: Mapping[str, Any]) -> str:
    """The call of `Augment` that takes points, and what it does not do with them."""
    fields = "".join(f", {name}=..." for name in params.get("label_fields") or ())
    call = f"augment(image=..., keypoints=...{fields}), of (M, 2) x and y."
    if params.get("format", "xy") != "xy":
        call += f" format={params['format']!r} is not known: leave out angles and scales, and put x before y."
    if params.get("remove_invisible") is False:
        call += " Points that are not shown are left out."
    return call


def _flattened(one: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    if name_of(one) in ("Compose", "ReplayCompose", "Sequential") and one.get("p", 1.0) == 1.0:
        return [flat for inner in one["transforms"] for flat in _flattened(inner)]
    return [{**one, "p": 1.0} if one.get("always_apply") else one]  # before version 2


def _normalize(found: Findings, one: Mapping[str, Any]) -> None:
    if one.get("p", 1.0) != 1.0:
        raise ValueError(f"p={one['p']}: some images of a batch would stay in levels; set p=1")
    white = float(one.get("max_pixel_value") or 255.0)
    if white not in (1.0, 255.0):
        raise ValueError(f"max_pixel_value={white:g} is not mapped: levels are in 0..255 here; set 255")
    mean, std = (channels(one[name]) for name in ("mean", "std"))
    is_of_parts = white == 255.0 or max(*mean, *std) <= 1.0  # of images that were divided before, where white is 1
    unit = 1.0 if is_of_parts else 255.0
    made = ops.Normalize(mean=channels(mean, unit), std=channels(std, unit))
    notes = [FROM_0_TO_1] if white == 1.0 and is_of_parts else []
    if "albumentations-1" in found.measured_as and any(np.shape(one[name]) == (1,) for name in ("mean", "std")):
        notes.append(OF_FIRST_CHANNEL)
    found.add("Normalize", made, note=" ".join(notes))


def _to_float(found: Findings, one: Mapping[str, Any]) -> None:
    white = float(255.0 if one.get("max_value") is None else one["max_value"])
    if not 0.0 < white <= 255.0:
        raise ValueError(f"max_value={white:g} is not mapped: levels are in 0..255 here; set 255")
    note = "" if white == 255.0 else f"images hold levels, and so numbers go up to {255.0 / white:g}."
    found.add("ToFloat", ops.Normalize(mean=UNIT.mean, std=(white / 255.0,) * 3), note=note)


def _forced(found: Findings, held: Mapping[str, Any]) -> Mapping[str, Any]:
    """A transform that is chosen, and so applied whatever its p is; some that hold others look at it all the same.

    In version 1 a Sequential, which looks at no p, has the first of its transforms be applied so.
    """
    name, is_old = name_of(held), found.measured_as == ("albumentations-1",)
    if is_old and name == "Sequential" and held["transforms"]:
        first, *others = held["transforms"]
        return {**held, "transforms": [_forced(found, first), *others]}
    draws = ("OneOrOther",) if is_old else ("OneOrOther", "RandomOrder", "SomeOf")
    is_never = not is_old and held.get("p") == 0.0 and not _held(held)
    return held if name in draws or is_never or "p" not in held else {**held, "p": 1.0}


def _members(found: Findings, one: Mapping[str, Any], with_p: bool) -> list[tuple[Op, ...]]:
    members = []
    for held in one["transforms"]:
        inner = found.within()
        for flat in _flattened(held if with_p else _forced(found, held)):
            inner.add_by(MADE, flat)
        members.append(tuple(inner.ops))
    return members


def _some_of(found: Findings, one: Mapping[str, Any]) -> None:
    """Version 2 chooses evenly, and each that is chosen has its own chance."""
    if found.measured_as != ("albumentations-2",):
        raise ValueError(
            "of version 1 weighs transforms by p and may choose one twice, which is not mapped; write OneOf"
        )
    if one.get("replace"):
        raise ValueError("replace=True may choose one twice, which is not mapped; leave it out")
    members = _members(found, one, with_p=True)
    made = some_of(found, members, min(int(one["n"]), len(members)), one["p"])
    is_drawn = name_of(one) == "RandomOrder" and int(one["n"]) > 1
    found.add(name_of(one), made, note=IN_ORDER if is_drawn else "", holds=True)


def _one_of(found: Findings, one: Mapping[str, Any]) -> None:
    weights = [float(held.get("p", 1.0)) for held in one["transforms"]]  # there p is how often one is chosen
    found.add("OneOf", one_of(found, _members(found, one, with_p=False), weights, one["p"]), holds=True)


def _one_or_other(found: Findings, one: Mapping[str, Any]) -> None:
    """The first by its chance, else the last; what they are held by does not look at theirs."""
    members = _members(found, {"transforms": _held(one)}, with_p=False)
    found.add("OneOrOther", one_of(found, members[:1] + members[-1:], [one["p"], 1.0 - one["p"]]), holds=True)


def _all_of(found: Findings, one: Mapping[str, Any]) -> None:
    is_old = found.measured_as == ("albumentations-1",)
    p = 1.0 if is_old and name_of(one) == "Sequential" else one["p"]  # which does not look at its p
    always = {name_of(inner): None for inner in _each(one) if inner.get("always_apply")} if is_old and p < 1.0 else {}
    note = f"applies {', '.join(always)} to all images there, as always_apply=True says, and here with the others."
    found.add(
        name_of(one), all_of(found, _members(found, one, with_p=True), p), note=note if always else "", holds=True
    )


def _to_tensor(found: Findings, one: Mapping[str, Any]) -> None:
    """That of the versions before ToTensorV2: it divides levels by 255, and may normalise them."""
    given = one.get("normalize")
    if given is not None or found.normalize is None:
        mean, std = (given["mean"], given["std"]) if given else ((0.0,), (1.0,))
        found.add("ToTensor", ops.Normalize(mean=channels(mean), std=channels(std)))


ONLY: dict[str, dict[str, tuple[Any, str]]] = {
    "Affine": {"fit_output": (False, "makes images of several sizes")},
    "AtLeastOneBBoxRandomCrop": {"erosion_factor": (0.0, "lets the box be cut")},
    "Crop": {"pad_if_needed": (False, "pads, as PadIfNeeded before it does")},
    "ElasticTransform": {"approximate": (False, "is a filter of 17 pixels whatever sigma is")},
    "GaussNoise": {"noise_scale_factor": (1.0, "draws fewer numbers than pixels")},
    "Normalize": {"normalization": ("standard", "")},
    "Perspective": {
        "keep_size": (True, "makes frames of other sides"),
        "fit_output": (False, "makes frames of other sides"),
    },
    "RandomBrightnessContrast": {"brightness_by_max": (True, "")},
    "RandomSizedBBoxSafeCrop": {"erosion_rate": (0.0, "lets boxes be cut")},
    "Rotate": {"crop_border": (False, "cuts the border off")},
    "Sharpen": {"method": ("kernel", "")},
}
"""See `Findings.only`."""
MADE: dict[str, Maker] = (
    GEOMETRY
    | PIXELS
    | {
        "Normalize": _normalize,
        "ToFloat": _to_float,
        "ToTensor": _to_tensor,
        "ToTensorV2": lambda found, one: None,
        "Lambda": _lambda,
        "NoOp": same(ops.Identity),
        "OneOf": _one_of,
        "SomeOf": _some_of,
        "RandomOrder": _some_of,
        "OneOrOther": _one_or_other,
        "Compose": _all_of,
        "ReplayCompose": _all_of,
        "Sequential": _all_of,
    }
)
"""The name of a transform -> what makes ops of it."""
