"""What `albumentations.to_dict` writes, as ops."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from operator import getitem
from typing import Any

from augpipe import ops
from augpipe.ops import Op
from augpipe.ops.bends import MAX_CELLS
from augpipe.ops.op import Beyond
from augpipe.recipes.importers.albumentations_affine import (
    add_affine_of_imgaug,
    affine,
    look_of_imgaug,
    piecewise_affine,
)
from augpipe.recipes.importers.findings import (
    FIELD,
    Findings,
    Look,
    Maker,
    channels,
    floored_centre,
    levels,
    refused,
    same,
)
from augpipe.recipes.importers.functions import NOT_HELD, NOTE, WithSides, custom, with_functions
from augpipe.recipes.importers.sides import KEEPS_SHAPE, swap_sides

VERSIONS = ("1", "2")
"""Those whose transforms are mapped."""
BORDERS = {0: "constant", 1: "edge", 2: "reflect", 3: "wrap", 4: "reflect_101"}
"""OpenCV's border modes."""
LARGEST_NORMAL = 4.55
"""The mean of the largest of 2 * 224 * 224 normal numbers, regardless of their sign."""
INTERPOLATIONS = {0: "nearest", 1: "bilinear", 2: "bicubic", 3: "area", 4: "lanczos"}
"""OpenCV's; all except area look at a point's neighbours alone."""
SEEDED = "seed: there all transforms draw the same numbers, so two flips come together; here each draws its own."
"""What differs of a Compose with a seed, of version 2."""


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
    found = Findings(source="albumentations", measured_as=measured_as, name_of=_name, read=getitem)
    _add_all(found, _flattened(data))
    swap_sides(found)
    if data.get("seed", seed) is not None:
        found.note(SEEDED)
    for value in sorted(set(_mask_fills(data))):
        found.note(
            f"label maps: they show {value} beyond the image by targets=TargetOptions(mask_fill={value}), else 255."
        )
    if data.get("bbox_params"):
        found.note(f"bbox_params: boxes are given to the call: {_call_with_boxes(data['bbox_params'])}")
    if data.get("keypoint_params"):
        found.note(f"keypoint_params: points are given to the call: {_call_with_points(data['keypoint_params'])}")
    return found


def _mask_fills(one: Mapping[str, Any]) -> Iterator[int]:
    """The labels that transforms show beyond the image, but for the default there and that here."""
    for inner in one.get("transforms") or ():
        yield from _mask_fills(inner)
    if BORDERS.get(one.get("border_mode", one.get("mode"))) == "constant":  # others show the image's own labels
        values = (one.get(name) for name in ("fill_mask", "mask_value", "cval_mask"))
        yield from (
            int(value)
            for value in values
            if isinstance(value, int | float) and value > 0 and value % 1 == 0 and value != 255
        )


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


def _call_with_boxes(params: Mapping[str, Any]) -> str:
    """The call of `Augment` that treats boxes as `BboxParams` does, and what it does not do."""
    kept = {name: params[name] for name in ("min_area", "min_visibility", "clip") if params.get(name)}
    options = ", ".join(f"{name}={value!r}" for name, value in {"boxes": "corners", **kept}.items())
    fields = "".join(f", {name}=..." for name in params.get("label_fields") or ())
    given = f"image=..., bboxes=..., bbox_format={params.get('format')!r}{fields}"
    call = f"augment({given}, targets=TargetOptions({options}))"
    lost = [name for name in ("min_width", "min_height", "max_accept_ratio") if params.get(name)]
    return f"{call}." + (f" Not mapped: {', '.join(lost)}." if lost else "")


def _call_with_points(params: Mapping[str, Any]) -> str:
    """The call of `Augment` that takes points, and what it does not do with them."""
    fields = "".join(f", {name}=..." for name in params.get("label_fields") or ())
    call = f"augment(image=..., keypoints=...{fields}), of (M, 2) x and y."
    if params.get("format", "xy") != "xy":
        call += f" format={params['format']!r} is not known: leave out angles and scales, and put x before y."
    if params.get("remove_invisible") is False:
        call += " Points that are not shown are left out."
    return call


def _name(one: Mapping[str, Any]) -> str:
    return str(one["__class_fullname__"]).rpartition(".")[2]


def _flattened(one: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    if _name(one) in ("Compose", "Sequential") and one.get("p", 1.0) == 1.0:
        return [flat for inner in one["transforms"] for flat in _flattened(inner)]
    return [{**one, "p": 1.0} if one.get("always_apply") else one]  # before version 2


def _add_all(found: Findings, transforms: list[Mapping[str, Any]]) -> None:
    for one in transforms:
        found.add_by(MADE, one)


def _size(one: Mapping[str, Any]) -> tuple[int, int]:
    height, width = one["size"] if one.get("size") else (one["height"], one["width"])
    return int(height), int(width)


def _limits(one: Mapping[str, Any], name: str, centre: float = 0.0) -> tuple[float, float]:
    """A range that may be given as how far it reaches either way."""
    value = one[name]
    low, high = value if isinstance(value, list | tuple) else (centre - value, centre + value)
    return float(low), float(high)


def _look(one: Mapping[str, Any]) -> Look:
    mode = one.get("interpolation", 1)
    averages = one.get("area_for_downscale") is not None  # which no pixel of a smaller image is left out of
    return Look(interpolation=INTERPOLATIONS.get(mode, f"OpenCV's {mode}"), antialias=averages)


def _look_of_resize(one: Mapping[str, Any]) -> Look:
    """That of what makes images of another size: by area it averages."""
    look = _look(one)
    return replace(look, antialias=True) if look.interpolation == "area" else look


def _always(one: Mapping[str, Any]) -> None:
    if one.get("p", 1.0) != 1.0:
        raise ValueError(f"p={one['p']}: a crop makes images of one size, and is always applied; set p=1")


def _border(one: Mapping[str, Any]) -> Beyond:
    """Border and fill of a transform."""
    mode = one.get("border_mode", one.get("mode", 0))
    if mode not in BORDERS:
        raise ValueError(f"border_mode={mode} is not mapped")
    if "fill" in one:
        return BORDERS[mode], levels(one["fill"])
    fill = one.get("value", one.get("cval", 0))
    return BORDERS[mode], (float(fill), 0.0, 0.0) if isinstance(fill, int | float) else levels(
        fill
    )  # red alone, in 1.x


OPENCV_SIGMAS = {3: 0.8493, 5: 1.08, 7: 1.42}
"""The sigmas that are nearest to the kernels that OpenCV has of these sizes for a sigma of 0."""
CLAHE_NOTE = "OpenCV rounds L*, a* and b* to 256 levels; here the new ones are not rounded."


def _resize(found: Findings, one: Mapping[str, Any]) -> None:
    _always(one)
    found.add("Resize", ops.Resize(size=_size(one)), look=_look_of_resize(one))


def _to_length(kind: type[ops.ResizeShortest | ops.ResizeLongest], note: str) -> Maker:
    def add(found: Findings, one: Mapping[str, Any]) -> None:
        _always(one)
        size = _twice(one["max_size"])
        if len(set(size)) > 1:
            raise ValueError(f"max_size={list(size)} chooses among several, which is not mapped; give one")
        found.add(_name(one), kind(size=int(size[0])), note=note, look=_look_of_resize(one))

    return add


def _pad(found: Findings, one: Mapping[str, Any]) -> None:
    _always(one)
    border, fill = _border(one)
    least = one.get("min_height"), one.get("min_width")
    multiples = {one.get("pad_height_divisor"), one.get("pad_width_divisor")}
    if len(multiples) > 1 or (None in least and any(least)):
        raise ValueError("height and width are not padded alike, which is not mapped; give both min_ or one divisor")
    position = str(one.get("position", "center")).rpartition(".")[2].lower()
    fields = {"size": None if None in least else least, "multiple": multiples.pop(), "position": position}
    found.add("PadIfNeeded", ops.Pad.model_validate({**fields, "border": border, "fill": fill}))


def _without_padding(one: Mapping[str, Any]) -> None:
    if one.get("pad_if_needed"):
        raise ValueError("pad_if_needed is not mapped; put PadIfNeeded before it")


def _random_crop(found: Findings, one: Mapping[str, Any]) -> None:
    _always(one)
    _without_padding(one)
    found.add("RandomCrop", ops.RandomCrop(size=_size(one)))


def _random_resized_crop(found: Findings, one: Mapping[str, Any]) -> None:
    _always(one)
    made = ops.RandomResizedCrop(size=_size(one), scale=tuple(one["scale"]), ratio=tuple(one["ratio"]))
    found.add("RandomResizedCrop", made, look=_look_of_resize(one))


def _random_sized_crop(found: Findings, one: Mapping[str, Any]) -> None:
    _always(one)
    fields = {"height_px": tuple(one["min_max_height"]), "ratio": (one["w2h_ratio"],) * 2}
    found.add("RandomSizedCrop", ops.RandomResizedCrop.model_validate({"size": _size(one), **fields}), look=_look(one))


def _random_scale(found: Findings, one: Mapping[str, Any]) -> None:
    low, high = _limits(one, "scale_limit")
    found.add("RandomScale", ops.RandomResize(factor=(1.0 + low, 1.0 + high), p=one["p"]), look=_look(one))


def _safe_crop(found: Findings, one: Mapping[str, Any]) -> None:
    _always(one)
    if one.get("erosion_rate"):
        raise ValueError(f"erosion_rate={one['erosion_rate']} lets boxes be cut, which is not mapped; set 0")
    keep = ops.KeepObjects(rule="all", fallback="whole")
    made = ops.RandomResizedCrop(size=_size(one), scale=(0.05, 1.0), ratio=(0.5, 2.0), keep_objects=keep)
    note = "crops are drawn until one holds all boxes, where each edge is drawn between the boxes and the image's."
    found.add("RandomSizedBBoxSafeCrop", made, note=note, look=_look(one))


def _crop_of_a_box(found: Findings, one: Mapping[str, Any]) -> None:
    _always(one)
    if one.get("erosion_factor"):
        raise ValueError(f"erosion_factor={one['erosion_factor']} lets the box be cut, which is not mapped; set 0")
    made = ops.RandomCrop(size=_size(one), keep_objects=ops.KeepObjects(rule="whole"))
    note = "crops are drawn until one holds a box, where a box is drawn first and then a crop around it."
    found.add("AtLeastOneBBoxRandomCrop", made, note=note)


def _center_crop(found: Findings, one: Mapping[str, Any]) -> None:
    _always(one)
    _without_padding(one)
    found.add("CenterCrop", floored_centre(_size(one)))


def _rotate(found: Findings, one: Mapping[str, Any]) -> None:
    if one.get("crop_border"):
        raise ValueError("crop_border is not mapped")
    found.add(
        "Rotate", ops.Rotate(max_deg=_limits(one, "limit"), step=None, p=one["p"]), look=_look(one), beyond=_border(one)
    )


def _shift_scale_rotate(found: Findings, one: Mapping[str, Any]) -> None:
    low, high = _limits(one, "scale_limit")  # about 0: to_dict writes what stood before the 1 was added
    along_x = "shift_limit" if one.get("shift_limit_x") is None else "shift_limit_x"
    along_y = "shift_limit" if one.get("shift_limit_y") is None else "shift_limit_y"
    factor, is_new = (
        (1.0 + low, 1.0 + high),
        "fill" in one,
    )  # version 2 draws a factor a side, and drops parts of pixels
    made = (
        ops.Stretch(horizontal=factor, vertical=factor) if is_new else ops.Zoom(factor=factor),
        ops.Rotate(max_deg=_limits(one, "rotate_limit"), step=None),
        ops.Translate(
            horizontal=_limits(one, along_x),
            vertical=_limits(one, along_y),
            whole_px="towards_zero" if is_new else "no",
        ),
    )
    found.add("ShiftScaleRotate", ops.AllOf(ops=made, p=one["p"]), look=_look(one), beyond=_border(one))


def _affine(found: Findings, one: Mapping[str, Any]) -> None:
    found.add("Affine", affine(one), look=_look(one), beyond=_border(one))
    if one.get("rotate_method", "largest_box") != "largest_box":
        found.note(
            f"rotate_method: boxes hold what they held, where {one['rotate_method']!r} there makes them smaller."
        )


def _perspective(found: Findings, one: Mapping[str, Any]) -> None:
    if not one["keep_size"] or one.get("fit_output"):
        raise ValueError("keep_size=False and fit_output=True make frames of other sides, and are not mapped")
    low, high = (float(end) for end in _from_zero(one["scale"]))
    made = ops.Perspective(inner_std=(low, high), p=one["p"])
    limit = "0.32, counted from 0 again" if found.measured_as == ("albumentations-2",) else "1"
    note = (
        f"corners lie inwards by at most 0.3 of a side, where there it is {limit}; it looks up once, where there the "
        "part is cut out in whole pixels, and then resized."
    )
    found.add(_name(one), made, note=note, look=_look(one))


def _piecewise_affine(found: Findings, one: Mapping[str, Any]) -> None:
    if "border_mode" in one:
        raise ValueError(
            "of version 2 weighs all nodes by their distance, which pulls the image together, and is not mapped; read "
            "version 1 by version='1', or write ElasticTransform"
        )
    look, _ = look_of_imgaug(one, one["order"] if "order" in one else one["interpolation"])
    note = "the field is smooth, with the variance and nearly the correlation; at the edge it looks beyond the image."
    beyond = ("edge", (0.0, 0.0, 0.0))  # nodes stay within the image there: nothing beyond it is ever shown
    found.add(_name(one), piecewise_affine(one, found.sides), note=note, look=look, beyond=beyond)


def _grid_distortion(found: Findings, one: Mapping[str, Any]) -> None:
    is_new, num = "fill" in one, one["num_steps"]
    fields = {"distort_limit": _limits(one, "distort_limit"), "normalized": one.get("normalized", False)}
    note = ""
    if num < MAX_CELLS:
        fields["cells"] = "whole_px" if is_new else "to_edge"
    else:
        note = "cells are alike and joined, where there the last one takes what is left and each begins a pixel later."
    made = ops.GridDistortion.model_validate({"num_steps": num, **fields, "p": one["p"]})
    found.add("GridDistortion", made, note=note, look=_look(one), beyond=_border(one))


def _elastic_transform(found: Findings, one: Mapping[str, Any]) -> None:
    if one.get("approximate"):
        raise ValueError("approximate=True, a filter of 17 pixels whatever sigma is, is not mapped; set it to False")
    alpha, note = float(one["alpha"]), FIELD
    if one.get("noise_distribution", "uniform") == "gaussian":  # newer versions, which divide it by its largest number
        alpha *= 3.0**0.5 / LARGEST_NORMAL
        note = f"{FIELD} Its noise is as strong as that of a 224x224 image there."
    if one.get("alpha_affine"):
        note += " The corners of its affine part move by at most 0.15 of the shorter side, so that it does not fold."
    fields = {"sigma": one["sigma"], "affine_px": one.get("alpha_affine") or 0.0, "same": one.get("same_dxdy", False)}
    made = ops.ElasticTransform.model_validate({"alpha": alpha, **fields, "p": one["p"]})
    found.add("ElasticTransform", made, note=note, look=_look(one), beyond=_border(one))


def _optical_distortion(found: Findings, one: Mapping[str, Any]) -> None:
    shifts = _limits(one, "shift_limit") if "shift_limit" in one else (0.0, 0.0)
    if max(map(abs, shifts)) > 0.5:  # below, they are rounded to 0
        raise ValueError("shift_limit above 0.5 moves the centre by whole pixels, which is not mapped; lower it")
    mode = one.get("mode", "camera")
    made: list[Op] = [
        ops.OpticalDistortion.model_validate({"k": _limits(one, "distort_limit"), "mode": mode, "p": 1.0})
    ]
    # the centre is half a pixel further right and down there: of the image, and in fisheye mode of the view, too
    made.insert(0, ops.Translate(horizontal=(-0.5, -0.5), vertical=(-0.5, -0.5), unit="px"))
    if mode == "fisheye":
        made.append(ops.Translate(horizontal=(0.5, 0.5), vertical=(0.5, 0.5), unit="px"))
    moved = ops.AllOf.model_validate({"ops": made, "p": one["p"]})
    found.add("OpticalDistortion", moved, look=_look(one), beyond=_border(one))


def _jitter(found: Findings, one: Mapping[str, Any]) -> None:
    fields: dict[str, Any] = {name: _limits(one, name, 1.0) for name in ("brightness", "contrast", "saturation")}
    hue = _limits(one, "hue")
    if max(map(abs, hue)) > 0.5:
        if found.measured_as == ("albumentations-2",):
            raise ValueError(f"hue={hue} leaves -0.5..0.5, which version 2 refuses; read version 1 by version='1'")
        if isinstance(one["hue"], list | tuple):
            raise ValueError(f"hue={hue} leaves -0.5..0.5, which version 1 refuses of a range; choose one within it")
    fields |= {"hue": hue, "about": "mean", "space": "hsv", "p": one["p"]}
    found.add("ColorJitter", ops.ColorJitter.model_validate(fields))


def _hue_saturation_value(found: Findings, one: Mapping[str, Any]) -> None:
    hue = tuple(limit / 180.0 for limit in _limits(one, "hue_shift_limit"))
    fields = {"saturation": _limits(one, "sat_shift_limit"), "value": _limits(one, "val_shift_limit"), "p": one["p"]}
    keeps_gray = found.measured_as == ("albumentations-2",)
    made = ops.HueSaturationValue.model_validate({"hue": hue, **fields, "keeps_gray": keeps_gray})
    note = "OpenCV's HSV is whole numbers, 180 hues; here it is not rounded."
    found.add("HueSaturationValue", made, note=note)


def _brightness_contrast(found: Findings, one: Mapping[str, Any]) -> None:
    if not one.get("brightness_by_max", True):
        raise ValueError("brightness_by_max=False is not mapped; set it to True")
    bright, contrast = _limits(one, "brightness_limit"), _limits(one, "contrast_limit")
    made = ops.BrightnessContrast(brightness=bright, contrast=contrast, p=one["p"])
    found.add("RandomBrightnessContrast", made)


def _multiply(found: Findings, one: Mapping[str, Any]) -> None:
    if one["per_channel"] or one["elementwise"]:
        raise ValueError("per_channel and elementwise, a factor a channel or a pixel, are not mapped; leave them out")
    low, high = _twice(one["multiplier"])
    contrast = {"brightness": (0.0, 0.0), "contrast": (low - 1.0, high - 1.0), "p": one["p"]}
    found.add("MultiplicativeNoise", ops.BrightnessContrast.model_validate(contrast))


def _fancy_pca(found: Findings, one: Mapping[str, Any]) -> None:
    if found.measured_as != ("albumentations-1",):
        raise ValueError(
            "of version 2 stretches an image along its own principal components, which is not mapped; read version 1 "
            "by version='1', or write Lighting here"
        )
    note = (
        "components are those of ImageNet's colours, each with a draw of its own; there the image's own, by one draw."
    )
    found.add("FancyPCA", ops.Lighting(std=one["alpha"], p=one["p"]), note=note)


def _one_of_both(found: Findings, one: Mapping[str, Any], name: str) -> None:
    """What newer versions made one transform, of the older ones that change brightness or contrast alone."""
    found.add(
        _name(one),
        ops.BrightnessContrast.model_validate(
            {"brightness": (0, 0), "contrast": (0, 0), "p": one["p"]} | {name: _limits(one, "limit")}
        ),
    )


def _to_gray(found: Findings, one: Mapping[str, Any]) -> None:
    if one.get("method", "weighted_average") != "weighted_average" or one.get("num_output_channels", 3) != 3:
        raise ValueError("only the weighted average in three channels is mapped; Recipe(channels=1) keeps one")
    found.add("ToGray", ops.Grayscale(p=one["p"]))


def _noise(found: Findings, one: Mapping[str, Any]) -> None:
    if one.get("noise_scale_factor", 1.0) != 1.0:
        raise ValueError("noise_scale_factor is not mapped; set it to 1")
    if any(_twice(one.get("mean", one.get("mean_range", 0.0)))):
        raise ValueError("noise whose mean is not 0 is not mapped; set it to 0")
    if "std_range" in one:  # parts of the full level, in newer versions
        std, even_in = [255.0 * part for part in _twice(one["std_range"])], "std"
    else:
        limits = one["var_limit"] if isinstance(one["var_limit"], list | tuple) else (0.0, one["var_limit"])
        std, even_in = [variance**0.5 for variance in limits], "variance"
    fields = {"std": std, "even_in": even_in, "per_channel": one.get("per_channel", True), "p": one["p"]}
    found.add("GaussNoise", ops.Noise.model_validate(fields))


def _fog(found: Findings, one: Mapping[str, Any]) -> None:
    if "fog_coef_lower" not in one:
        raise ValueError(
            "of version 2 draws about a thousand small discs, which is not mapped; read version 1 by version='1', or "
            "write Fog here"
        )
    fields = {"density": (one["fog_coef_lower"], one["fog_coef_upper"]), "alpha": one["alpha_coef"], "p": one["p"]}
    note = "a square of an even number of pixels, which the blur goes over there, has one more; levels are not rounded."
    found.add("RandomFog", ops.Fog.model_validate(fields), note=note)


def _iso_noise(found: Findings, one: Mapping[str, Any]) -> None:
    made = ops.ISONoise(hue=tuple(one["color_shift"]), intensity=tuple(one["intensity"]), p=one["p"])
    note = "grain is as strong as in an image whose lightness varies by 0.2; there by how much the image's own does."
    found.add("ISONoise", made, note=note)


def _additive_noise(found: Findings, one: Mapping[str, Any]) -> None:
    """imgaug's, whose standard deviations are in levels."""
    if any(_twice(one["loc"])):
        raise ValueError(f"loc={one['loc']}, a mean that is not 0, is not mapped; set it to 0")
    fields = {"std": _from_zero(one["scale"]), "per_channel": one["per_channel"], "p": one["p"]}
    found.add("IAAAdditiveGaussianNoise", ops.Noise.model_validate(fields))


def _coarse_dropout(found: Findings, one: Mapping[str, Any]) -> None:
    if "num_holes_range" in one:  # newer versions
        fields = {"num": one["num_holes_range"], "height": one["hole_height_range"], "width": one["hole_width_range"]}
    else:
        fields = {
            name: (one[f"max_{of}"] if one.get(f"min_{of}") is None else one[f"min_{of}"], one[f"max_{of}"])
            for name, of in (("num", "holes"), ("height", "height"), ("width", "width"))
        }
    _holes(found, one, fields)


def _cutout(found: Findings, one: Mapping[str, Any]) -> None:
    num, height, width = one["num_holes"], one["max_h_size"], one["max_w_size"]
    fields = {"num": (num, num), "height": (height, height), "width": (width, width)}
    _holes(found, one, fields, note="rectangles lie whole within the image, where Cutout's are cut off at its edges.")


def _holes(found: Findings, one: Mapping[str, Any], fields: dict[str, Any], note: str = "") -> None:
    fill = one.get("fill", one.get("fill_value", 0))
    if isinstance(fill, str):
        raise ValueError(f"fill={fill!r} is not mapped; levels are")
    if one.get("mask_fill_value", one.get("fill_mask")) is not None:
        note = f"{note} masks are not filled.".strip()
    is_fraction = all(isinstance(length, float) for name in ("height", "width") for length in fields[name])
    unit = "fraction" if is_fraction else "px"
    made = ops.CoarseDropout.model_validate({**fields, "unit": unit, "fill": levels(fill), "p": one["p"]})
    found.add(_name(one), made, note=note)


def _rgb_shift(found: Findings, one: Mapping[str, Any]) -> None:
    limits = {_limits(one, f"{channel}_shift_limit") for channel in "rgb"}
    low, high = limits.pop()
    if limits or low != -high:
        raise ValueError("limits that differ between channels, or are not the same both ways, are not mapped")
    is_part = any(isinstance(limit, float) and 0.0 < abs(limit) < 1.0 for limit in _twice(one["r_shift_limit"]))
    levels_of_one = 255.0 if is_part else 1.0  # parts of the full level, in newer versions
    found.add("RGBShift", ops.ColorCast(max_shift=high * levels_of_one, step=None, channel_p=1.0, p=one["p"]))


def _flip(found: Findings, one: Mapping[str, Any]) -> None:
    across, down = ops.Flip(p=1.0), ops.Flip(direction="vertical", p=1.0)
    found.add("Flip", ops.OneOf(ops=(across, down, ops.AllOf(ops=(across, down))), p=one["p"]))


def _turn(make: Callable[[float], Op]) -> Maker:
    """A turn after which height and width have changed places."""

    def add(found: Findings, one: Mapping[str, Any]) -> None:
        found.add(_name(one), make(one["p"]), note="" if found.is_square else KEEPS_SHAPE)

    return add


def _d4(p: float) -> Op:
    return ops.AllOf(ops=(ops.QuarterTurn(), ops.Flip()), p=p)


def _odd(size: int) -> int:
    return size if size % 2 else size + 1


def _sides(one: Mapping[str, Any]) -> tuple[int, int]:
    """Smallest and largest side of a kernel, odd ones."""
    value = one["blur_limit"]
    low, high = value if isinstance(value, list | tuple) else (3, value)
    return _odd(max(3, int(low))), _odd(max(3, int(high)))


def _gaussian_blur(found: Findings, one: Mapping[str, Any]) -> None:
    """Each size of kernel that is drawn, or none, which leaves it to sigma; or a sigma that follows from the size."""
    low, high = _limits(one, "sigma_limit")
    smallest, largest = (int(size) for size in _twice(one["blur_limit"]))
    if smallest == 0 and low == 0.0 and found.measured_as == ("albumentations-1",):  # there neither says how much
        smallest, largest = 3, max(3, largest)
    sizes = Counter(_odd(size) if size else 0 for size in range(smallest, largest + 1))
    made = []
    for size in sizes:
        own = OPENCV_SIGMAS.get(size, 0.3 * ((size - 1) * 0.5 - 1.0) + 0.8)
        sigma = (low, high) if high > 0.0 else (own, own)
        made.append(ops.GaussianBlur.model_validate({"sigma_px": sigma, "kernel_px": size or None, "p": 1.0}))
    if len(made) == 1:
        found.add("GaussianBlur", made[0].model_copy(update={"p": one["p"]}))
    else:
        weights = tuple(float(num) for num in sizes.values())
        found.add("GaussianBlur", ops.OneOf(ops=tuple(made), weights=weights, p=one["p"]))


def _advanced_blur(found: Findings, one: Mapping[str, Any]) -> None:
    """A round Gaussian of the sigmas along x, in a kernel of each size that is drawn."""
    smallest, largest = _sides(one)
    sigma = _from_zero(one["sigma_x_limit"] if "sigma_x_limit" in one else one["sigmaX_limit"])
    sizes = range(smallest, largest + 1, 2)
    made = [ops.GaussianBlur.model_validate({"sigma_px": sigma, "kernel_px": size, "p": 1.0}) for size in sizes]
    one_of = made[0].model_copy(update={"p": one["p"]}) if len(made) == 1 else ops.OneOf(ops=tuple(made), p=one["p"])
    note = "a round Gaussian, where the kernel there is wider one way, with a tail and noise that are drawn."
    found.add("AdvancedBlur", one_of, note=note)


def _motion_blur(found: Findings, one: Mapping[str, Any]) -> None:
    fields: dict[str, Any] = {"sizes": _sides(one), "shifts": one.get("allow_shifted", True), "p": one["p"]}
    if "angle_range" in one:  # newer versions; there angles count clockwise
        low, high = one["angle_range"]
        fields |= {"degrees": (-high, -low), "direction": one["direction_range"]}
    else:
        fields["line"] = "ends"
    found.add("MotionBlur", ops.MotionBlur.model_validate(fields))


def _clahe(found: Findings, one: Mapping[str, Any]) -> None:
    value = one["clip_limit"]
    limits = tuple(value) if isinstance(value, list | tuple) else (1.0, value)
    across, down = one["tile_grid_size"]
    made = ops.CLAHE.model_validate({"clip_limit": limits, "tiles": (down, across), "p": one["p"]})
    found.add("CLAHE", made, note=CLAHE_NOTE)


def _compression(found: Findings, one: Mapping[str, Any]) -> None:
    kind = one.get("compression_type", "jpeg")
    if str(kind).rpartition(".")[2].lower() not in ("jpeg", "0"):
        remedy = "; read version 1, where a quality comes first, by version='1'" if isinstance(kind, int) else ""
        raise ValueError(f"compression_type={kind!r} is not mapped, 'jpeg' is{remedy}")
    limits = one["quality_range"] if "quality_range" in one else (one["quality_lower"], one["quality_upper"])
    quality = tuple(max(1, end) for end in limits)
    found.add(_name(one), ops.JpegCompression.model_validate({"quality": quality, "blue_first": True, "p": one["p"]}))


def _downscale(found: Findings, one: Mapping[str, Any]) -> None:
    scale = one["scale_range"] if "scale_range" in one else (one["scale_min"], one["scale_max"])
    given = one.get("interpolation_pair", one.get("interpolation"))  # a mode, or one each way
    modes = set(given.values()) if isinstance(given, Mapping) else {given or 0}
    if modes != {0}:
        raise ValueError(f"interpolation={given} is not mapped; 0, that of nearest pixels both ways, is")
    found.add("Downscale", ops.Downscale.model_validate({"scale": tuple(scale), "p": one["p"]}))


def _grid_shuffle(found: Findings, one: Mapping[str, Any]) -> None:
    note = "where cells are not all of one size, version 2 draws which are the larger ones."
    made = ops.GridShuffle.model_validate({"grid": tuple(one["grid"]), "p": one["p"]})
    found.add("RandomGridShuffle", made, note=note)


def _sharpen(found: Findings, one: Mapping[str, Any]) -> None:
    if one.get("method", "kernel") != "kernel":
        raise ValueError(f"method={one['method']!r} is not mapped; 'kernel' is")
    _blend(ops.Sharpen, "lightness")(found, one)


def _blend(kind: type[ops.Sharpen | ops.Emboss], name: str) -> Maker:
    def add(found: Findings, one: Mapping[str, Any]) -> None:
        alpha, other = (_from_zero(one.get(field, kind.model_fields[field].default)) for field in ("alpha", name))
        found.add(_name(one), kind.model_validate({"alpha": alpha, name: other, "p": one["p"]}))

    return add


def _from_zero(value: Any) -> tuple[Any, ...]:
    """A range that may be given as its end."""
    return tuple(value) if isinstance(value, list | tuple) else (0.0, value)


def _twice(value: Any) -> tuple[Any, ...]:
    """A range that may be given as one number."""
    return tuple(value) if isinstance(value, list | tuple) else (value, value)


def _threshold(one: Mapping[str, Any]) -> tuple[int, ...]:
    if "threshold_range" in one:  # parts of the full level, in newer versions
        return tuple(round(255.0 * part) for part in _twice(one["threshold_range"]))
    return tuple(round(level) for level in _twice(one["threshold"]))


def _normalize(found: Findings, one: Mapping[str, Any]) -> None:
    if one.get("max_pixel_value", 255.0) != 255.0 or one.get("normalization", "standard") != "standard":
        raise ValueError("only the standard normalisation of levels in 0..255 is mapped")
    _always(one)
    found.add("Normalize", ops.Normalize(mean=channels(one["mean"]), std=channels(one["std"])))


def _to_float(found: Findings, one: Mapping[str, Any]) -> None:
    if one.get("max_value") not in (None, 255, 255.0):
        raise ValueError(f"max_value={one['max_value']} is not mapped; 255 is")
    found.add("ToFloat", ops.Normalize(mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0)))


def _members(found: Findings, one: Mapping[str, Any], with_p: bool) -> tuple[Op, ...]:
    members: list[Op] = []
    for held in one["transforms"]:
        inner = found.within()
        _add_all(inner, _flattened(held if with_p or "p" not in held else {**held, "p": 1.0}))
        own = tuple(inner.ops) or (ops.Identity(),)
        members.append(own[0] if len(own) == 1 else ops.AllOf.model_validate({"ops": own}))
    return tuple(members)


def _one_of(found: Findings, one: Mapping[str, Any]) -> None:
    weights = tuple(float(held.get("p", 1.0)) for held in one["transforms"])  # there p is how often one is chosen
    made = {"ops": _members(found, one, with_p=False), "weights": weights, "p": one["p"]}
    found.add("OneOf", ops.OneOf.model_validate(made), holds=True)


def _all_of(found: Findings, one: Mapping[str, Any]) -> None:
    is_always = _name(one) == "Sequential" and found.measured_as == (
        "albumentations-1",
    )  # which does not look at its p
    made = ops.AllOf.model_validate({"ops": _members(found, one, with_p=True), "p": 1.0 if is_always else one["p"]})
    found.add(_name(one), made, holds=True)


def _nothing(found: Findings, one: Mapping[str, Any]) -> None:
    pass


MADE: dict[str, Maker] = {
    "RandomResizedCrop": _random_resized_crop,
    "RandomScale": _random_scale,
    "RandomSizedCrop": _random_sized_crop,
    "CenterCrop": _center_crop,
    "Resize": _resize,
    "SmallestMaxSize": _to_length(ops.ResizeShortest, "the long side is rounded down."),
    "LongestMaxSize": _to_length(ops.ResizeLongest, ""),
    "PadIfNeeded": _pad,
    "RandomCrop": _random_crop,
    "RandomSizedBBoxSafeCrop": _safe_crop,
    "AtLeastOneBBoxRandomCrop": _crop_of_a_box,
    "BBoxSafeRandomCrop": refused(
        "leaves each crop at its own size; write RandomSizedBBoxSafeCrop, or here RandomResizedCrop(size=..., "
        "keep_objects=KeepObjects(rule='all', fallback='whole'))"
    ),
    "CropNonEmptyMaskIfExists": refused(
        "looks at a mask, and crops here look at boxes; write RandomCrop, here with keep_objects=KeepObjects()"
    ),
    "HorizontalFlip": same(ops.Flip),
    "VerticalFlip": same(ops.Flip, direction="vertical"),
    "RandomRotate90": _turn(lambda p: ops.QuarterTurn(p=p)),
    "Rotate": _rotate,
    "ShiftScaleRotate": _shift_scale_rotate,
    "Affine": _affine,
    "IAAAffine": add_affine_of_imgaug,
    "Perspective": _perspective,
    "PiecewiseAffine": _piecewise_affine,
    "IAAPiecewiseAffine": _piecewise_affine,
    "GridDistortion": _grid_distortion,
    "ElasticTransform": _elastic_transform,
    "OpticalDistortion": _optical_distortion,
    "ColorJitter": _jitter,
    "RandomBrightnessContrast": _brightness_contrast,
    "RandomBrightness": lambda found, one: _one_of_both(found, one, "brightness"),
    "RandomContrast": lambda found, one: _one_of_both(found, one, "contrast"),
    "MultiplicativeNoise": _multiply,
    "FancyPCA": _fancy_pca,
    "HueSaturationValue": _hue_saturation_value,
    "CoarseDropout": _coarse_dropout,
    "Cutout": _cutout,
    "RGBShift": _rgb_shift,
    "GaussNoise": _noise,
    "IAAAdditiveGaussianNoise": _additive_noise,
    "Flip": _flip,
    "D4": _turn(_d4),
    "SquareSymmetry": _turn(_d4),
    "Transpose": _turn(lambda p: ops.Transpose(p=p)),
    "RandomGamma": same(
        ops.Gamma,
        gamma=lambda one: tuple(limit / 100.0 for limit in _limits(one, "gamma_limit")),
        even_in="power",
    ),
    "ToGray": _to_gray,
    "InvertImg": same(ops.Invert),
    "Equalize": same(ops.Equalize, note="by Pillow's formula, each channel on its own."),
    "Posterize": same(ops.Posterize, bits=lambda one: _twice(one["num_bits"])),
    "Solarize": same(ops.Solarize, threshold=_threshold),
    "ChannelShuffle": same(
        ops.ChannelShuffle,
        p=lambda one: one["p"] * 5 / 6,
        note="p is that of the five orders that change anything.",
    ),
    "GaussianBlur": _gaussian_blur,
    "Blur": same(ops.BoxBlur, sizes=_sides),
    "MedianBlur": same(ops.MedianBlur, sizes=_sides),
    "AdvancedBlur": _advanced_blur,
    "MotionBlur": _motion_blur,
    "CLAHE": _clahe,
    "Downscale": _downscale,
    "RandomGridShuffle": _grid_shuffle,
    "ImageCompression": _compression,
    "JpegCompression": _compression,
    "Sharpen": _sharpen,
    "IAASharpen": _sharpen,
    "Emboss": _blend(ops.Emboss, "strength"),
    "IAAEmboss": _blend(ops.Emboss, "strength"),
    "Normalize": _normalize,
    "ToFloat": _to_float,
    "ToTensor": _nothing,
    "ToTensorV2": _nothing,
    "ISONoise": _iso_noise,
    "RandomFog": _fog,
    "MaskDropout": refused("looks at objects of a mask; write CoarseDropout, which fills rectangles wherever they lie"),
    "Lambda": _lambda,
    "NoOp": same(ops.Identity),
    "OneOf": _one_of,
    "Compose": _all_of,
    "Sequential": _all_of,
}
"""The name of a transform -> what makes ops of it."""
