"""Transforms of albumentations that move pixels, as ops."""

from collections.abc import Callable, Mapping
from typing import Any

from augpipe import ops
from augpipe.ops import Op
from augpipe.ops.bends import MAX_CELLS
from augpipe.recipes.importers.albumentations_affine import (
    add_affine_of_imgaug,
    affine,
    look_of_imgaug,
    piecewise_affine,
)
from augpipe.recipes.importers.albumentations_values import (
    border_of,
    limits_of,
    look_of,
    look_of_resize,
    name_of,
    size_of,
)
from augpipe.recipes.importers.chosen import at_times
from augpipe.recipes.importers.findings import Findings, Maker
from augpipe.recipes.importers.makers import FIELD, floored_centre, reaching, refused, same, twice
from augpipe.recipes.importers.sides import KEEPS_SHAPE

ALL_BOXES = (
    "crops are drawn until one holds all boxes, else the whole image is shown; there each edge is drawn between the "
    "boxes and the image's. With COCO's boxes 58 % of the views are whole images (14 % there), and views hold 90 % of "
    "the image in the mean (79 % there); images without boxes, which stay whole there, are cropped."
)
"""What differs of RandomSizedBBoxSafeCrop."""
UPPER_LEFT = (
    "Version 2.0.8 shows only the upper left of that part: with scale=(0.1, 0.2) corners lie at 11 and 78 % of the "
    "sides in the mean, and at 12 and 88 % here."
)
"""What differs of a Perspective of version 2, which scales the part to the frame twice."""
LARGEST_NORMAL = 4.55
"""The mean of the largest of 2 * 224 * 224 normal numbers, regardless of their sign."""


def _at_times(one: Mapping[str, Any], crop: Op) -> Op:
    """A crop, which images that it leaves out keep all of: something behind it makes them one size."""
    return at_times(crop, float(one.get("p", 1.0)))


def _resized(make: Callable[[Mapping[str, Any]], Op], note: str = "") -> Maker:
    """What makes images of another size."""

    def add(found: Findings, one: Mapping[str, Any]) -> None:
        found.add(name_of(one), _at_times(one, make(one)), note=note, look=look_of_resize(one))

    return add


def _length(one: Mapping[str, Any]) -> int:
    size = twice(one["max_size"])
    if len(set(size)) > 1:
        raise ValueError(f"max_size={list(size)} chooses among several, which is not mapped; give one")
    return int(size[0])


def _pad(found: Findings, one: Mapping[str, Any]) -> None:
    border, fill = border_of(one)
    least: tuple[Any, Any] = one.get("min_height"), one.get("min_width")
    multiples = {one.get("pad_height_divisor"), one.get("pad_width_divisor")}
    if len(multiples) > 1 or (None in least and any(least)):
        raise ValueError("height and width are not padded alike, which is not mapped; give both min_ or one divisor")
    position = str(one.get("position", "center")).rpartition(".")[2].lower()
    if position == "random" and None not in least and one.get("p", 1.0) == 1.0:
        _pad_anywhere(found, (int(least[0]), int(least[1])), border, fill)
        return
    fields = {"size": None if None in least else least, "multiple": multiples.pop(), "position": position}
    made = ops.Pad.model_validate({**fields, "border": border, "fill": fill})
    found.add("PadIfNeeded", _at_times(one, made))


def _pad_by(found: Findings, one: Mapping[str, Any]) -> None:
    """Columns and rows, or the four sides from the left one on."""
    border, fill = border_of(one)
    made = ops.Pad.model_validate({"px": one["padding"], "border": border, "fill": fill})
    found.add("Pad", _at_times(one, made))


def _pad_anywhere(found: Findings, size: tuple[int, int], border: Any, fill: Any) -> None:
    """Put an image of at most `size` anywhere within it.

    Raises:
        ValueError: how large it is depends on the file.
    """
    sides = found.sides if len(found.sides) == 2 else found.sides * 2
    if not sides or sides[0] > size[0] or sides[1] > size[1]:
        raise ValueError("position='random' is mapped behind LongestMaxSize or a Resize of at most that size alone")
    made = ops.RandomCrop.model_validate({"size": size, "pad_if_needed": True, "border": border, "fill": fill})
    found.add("PadIfNeeded", made)


def _add_crop(found: Findings, one: Mapping[str, Any], crop: Op) -> None:
    """A crop, behind a padding where what is smaller is padded."""
    if not one.get("pad_if_needed"):
        found.add(name_of(one), _at_times(one, crop))
        return
    p, position = one.get("p", 1.0), one.get("pad_position", "center")
    if p != 1.0 or position == "random":
        told = f"p={p:g}" if p != 1.0 else f"pad_position={position!r}"
        raise ValueError(f"pad_if_needed with {told} is not mapped; put PadIfNeeded before it")
    border, fill = border_of(one)
    fields = {"size": size_of(one), "position": position, "border": border, "fill": fill}
    found.add(name_of(one), ops.Pad.model_validate(fields), crop)


def _crop_at(found: Findings, one: Mapping[str, Any]) -> None:
    for axis in "xy":
        if one[f"{axis}_min"] >= one[f"{axis}_max"]:
            ends = f"{axis}_min={one[f'{axis}_min']} and {axis}_max={one[f'{axis}_max']}"
            raise ValueError(f"{ends} leave no pixel between them")
    size = one["y_max"] - one["y_min"], one["x_max"] - one["x_min"]
    found.add("Crop", _at_times(one, ops.RandomCrop(size=size, at=(one["x_min"], one["y_min"]))))


def _sized_crop(one: Mapping[str, Any], **fields: Any) -> Op:
    return ops.RandomResizedCrop.model_validate({"size": size_of(one), **fields})


def _random_scale(found: Findings, one: Mapping[str, Any]) -> None:
    low, high = limits_of(one, "scale_limit")
    found.add("RandomScale", ops.RandomResize(factor=(1.0 + low, 1.0 + high), p=one["p"]), look=look_of_resize(one))


def _safe_crop(one: Mapping[str, Any]) -> Op:
    keep = ops.KeepObjects(rule="all", tries=200, fallback="whole")  # 1000: 48 % are whole, planned in 4x the time
    return _sized_crop(one, scale=(0.05, 1.0), ratio=(0.5, 2.0), keep_objects=keep)


def _crop_of_a_box(found: Findings, one: Mapping[str, Any]) -> None:
    made = ops.RandomCrop(size=size_of(one), keep_objects=ops.KeepObjects(rule="whole"))
    note = "crops are drawn until one holds a box, where a box is drawn first and then a crop around it."
    found.add("AtLeastOneBBoxRandomCrop", _at_times(one, made), note=note)


def _add_map(found: Findings, one: Mapping[str, Any], op: Op, note: str = "") -> None:
    """A map that looks between pixels and beyond the image."""
    found.add(name_of(one), op, note=note, look=look_of(one), beyond=border_of(one))


def _safe_rotate(found: Findings, one: Mapping[str, Any]) -> None:
    """All of what is turned, shrunk; the centre is half a pixel further right and down there, before in version 1."""
    is_new = "fill" in one
    fields = {"max_deg": limits_of(one, "limit"), "step": None, "fit_frame": "down" if is_new else "up"}
    first = [] if is_new else [_moved_px(-0.5)]
    _add_map(found, one, ops.AllOf(ops=(*first, ops.Rotate.model_validate(fields), _moved_px(0.5)), p=one["p"]))


def _moved_px(by: float) -> Op:
    return ops.Translate(horizontal=(by, by), vertical=(by, by), unit="px")


def _shift_scale_rotate(found: Findings, one: Mapping[str, Any]) -> None:
    low, high = limits_of(one, "scale_limit")  # about 0: to_dict writes what stood before the 1 was added
    along_x = "shift_limit" if one.get("shift_limit_x") is None else "shift_limit_x"
    along_y = "shift_limit" if one.get("shift_limit_y") is None else "shift_limit_y"
    factor = (1.0 + low, 1.0 + high)
    is_new = "fill" in one  # version 2 draws a factor a side, and drops parts of pixels
    made = (
        ops.Stretch(horizontal=factor, vertical=factor) if is_new else ops.Zoom(factor=factor),
        ops.Rotate(max_deg=limits_of(one, "rotate_limit"), step=None),
        ops.Translate(
            horizontal=limits_of(one, along_x),
            vertical=limits_of(one, along_y),
            whole_px="towards_zero" if is_new else "no",
        ),
    )
    _add_map(found, one, ops.AllOf(ops=made, p=one["p"]))


def _perspective(found: Findings, one: Mapping[str, Any]) -> None:
    made = ops.Perspective(inner_std=reaching(0.0, one["scale"]), p=one["p"])
    is_new = found.measured_as == ("albumentations-2",)
    limit = "0.32, counted from 0 again" if is_new else "1"
    note = (
        f"corners lie inwards by at most 0.3 of a side, where there it is {limit}; it looks up once, where there the "
        "part is cut out in whole pixels, and then resized."
    )
    if is_new:
        note += f" {UPPER_LEFT}"
    found.add(name_of(one), made, note=note, look=look_of(one))


def _piecewise_affine(found: Findings, one: Mapping[str, Any]) -> None:
    if "border_mode" in one:
        raise ValueError(
            "of version 2 weighs all nodes by their distance, which pulls the image together, and is not mapped; read "
            "version 1 by version='1', or write ElasticTransform"
        )
    look, _ = look_of_imgaug(one, one["order"] if "order" in one else one["interpolation"])
    note = "the field is smooth, with the variance and nearly the correlation; at the edge it looks beyond the image."
    beyond = ("edge", (0.0, 0.0, 0.0))  # nodes stay within the image there: nothing beyond it is ever shown
    found.add(name_of(one), piecewise_affine(one, found.sides), note=note, look=look, beyond=beyond)


def _grid_distortion(found: Findings, one: Mapping[str, Any]) -> None:
    is_new, num = "fill" in one, one["num_steps"]
    fields = {"distort_limit": limits_of(one, "distort_limit"), "normalized": one.get("normalized", False)}
    note = ""
    if num < MAX_CELLS:
        fields["cells"] = "whole_px" if is_new else "to_edge"
    else:
        note = "cells are alike and joined, where there the last one takes what is left and each begins a pixel later."
    if not any(fields["distort_limit"]):
        note = "bends nothing here, and there by up to a pixel: about 2 levels."
    _add_map(found, one, ops.GridDistortion.model_validate({"num_steps": num, **fields, "p": one["p"]}), note)


def _elastic_transform(found: Findings, one: Mapping[str, Any]) -> None:
    alpha, note = float(one["alpha"]), FIELD
    if one.get("noise_distribution", "uniform") == "gaussian":  # newer versions, which divide it by its largest number
        alpha *= 3.0**0.5 / LARGEST_NORMAL
        note = f"{FIELD} Its noise is as strong as that of a 224x224 image there."
    if one.get("alpha_affine"):
        note += " The corners of its affine part move by at most 0.15 of the shorter side, so that it does not fold."
    fields = {"sigma": one["sigma"], "affine_px": one.get("alpha_affine") or 0.0, "same": one.get("same_dxdy", False)}
    _add_map(found, one, ops.ElasticTransform.model_validate({"alpha": alpha, **fields, "p": one["p"]}), note)


def _optical_distortion(found: Findings, one: Mapping[str, Any]) -> None:
    shifts = limits_of(one, "shift_limit") if "shift_limit" in one else (0.0, 0.0)
    if max(map(abs, shifts)) > 0.5:  # below, they are rounded to 0
        raise ValueError("shift_limit above 0.5 moves the centre by whole pixels, which is not mapped; lower it")
    mode = one.get("mode", "camera")
    bent = ops.OpticalDistortion.model_validate({"k": limits_of(one, "distort_limit"), "mode": mode, "p": 1.0})
    # the centre is half a pixel further right and down there: of the image, and in fisheye mode of the view, too
    then = [_moved_px(0.5)] if mode == "fisheye" else []
    _add_map(found, one, ops.AllOf(ops=(_moved_px(-0.5), bent, *then), p=one["p"]))


def _flip(found: Findings, one: Mapping[str, Any]) -> None:
    across, down = ops.Flip(p=1.0), ops.Flip(direction="vertical", p=1.0)
    found.add("Flip", ops.OneOf(ops=(across, down, ops.AllOf(ops=(across, down))), p=one["p"]))


def _turn(make: Callable[[float], Op]) -> Maker:
    """A turn after which height and width have changed places."""

    def add(found: Findings, one: Mapping[str, Any]) -> None:
        found.add(name_of(one), make(one["p"]), note="" if found.is_square else KEEPS_SHAPE)

    return add


def _d4(p: float) -> Op:
    return ops.AllOf(ops=(ops.QuarterTurn(), ops.Flip()), p=p)


GEOMETRY: dict[str, Maker] = {
    "RandomResizedCrop": _resized(lambda one: _sized_crop(one, scale=one["scale"], ratio=one["ratio"])),
    "RandomScale": _random_scale,
    "RandomSizedCrop": _resized(
        lambda one: _sized_crop(one, height_px=one["min_max_height"], ratio=(one["w2h_ratio"],) * 2)
    ),
    "CenterCrop": lambda found, one: _add_crop(found, one, floored_centre(size_of(one))),
    "Resize": _resized(lambda one: ops.Resize(size=size_of(one))),
    "SmallestMaxSize": _resized(lambda one: ops.ResizeShortest(size=_length(one), rounding="nearest")),
    "LongestMaxSize": _resized(lambda one: ops.ResizeLongest(size=_length(one))),
    "Pad": _pad_by,
    "PadIfNeeded": _pad,
    "RandomCrop": lambda found, one: _add_crop(found, one, ops.RandomCrop(size=size_of(one))),
    "Crop": _crop_at,
    "RandomSizedBBoxSafeCrop": _resized(_safe_crop, ALL_BOXES),
    "AtLeastOneBBoxRandomCrop": _crop_of_a_box,
    "BBoxSafeRandomCrop": refused(
        "leaves each crop at its own size; write RandomSizedBBoxSafeCrop, or here RandomResizedCrop(size=..., "
        "keep_objects=KeepObjects(rule='all', fallback='whole'))"
    ),
    "CropNonEmptyMaskIfExists": refused(
        "looks at a mask, and crops here look at boxes; write RandomCrop, here with keep_objects=KeepObjects()"
    ),
    **dict.fromkeys(("HorizontalFlip", "IAAFliplr"), same(ops.Flip)),
    **dict.fromkeys(("VerticalFlip", "IAAFlipud"), same(ops.Flip, direction="vertical")),
    "RandomRotate90": _turn(lambda p: ops.QuarterTurn(p=p)),
    "Rotate": lambda found, one: _add_map(
        found, one, ops.Rotate(max_deg=limits_of(one, "limit"), step=None, p=one["p"])
    ),
    "SafeRotate": _safe_rotate,
    "ShiftScaleRotate": _shift_scale_rotate,
    "Affine": lambda found, one: _add_map(found, one, affine(one)),
    "IAAAffine": add_affine_of_imgaug,
    "Perspective": _perspective,
    "PiecewiseAffine": _piecewise_affine,
    "IAAPiecewiseAffine": _piecewise_affine,
    "GridDistortion": _grid_distortion,
    "ElasticTransform": _elastic_transform,
    "OpticalDistortion": _optical_distortion,
    "Flip": _flip,
    "D4": _turn(_d4),
    "SquareSymmetry": _turn(_d4),
    "Transpose": _turn(lambda p: ops.Transpose(p=p)),
}
"""The name of a transform -> what makes ops of it."""
