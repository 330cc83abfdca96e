"""What transforms of albumentations say, in either version's words: sizes, ranges, looks, borders."""

from collections.abc import Mapping
from typing import Any

from augpipe.ops.op import Beyond
from augpipe.recipes.importers.makers import either_way, levels
from augpipe.recipes.importers.rows import Look

BORDERS = {0: "constant", 1: "edge", 2: "reflect", 3: "wrap", 4: "reflect_101"}
"""OpenCV's border modes."""
INTERPOLATIONS = {0: "nearest", 1: "bilinear", 2: "bicubic", 3: "area", 4: "lanczos"}
"""OpenCV's; all except area look at a point's neighbours alone."""


def name_of(one: Mapping[str, Any]) -> str:
    """The name of a transform's class."""
    return str(one["__class_fullname__"]).rpartition(".")[2]


def size_of(one: Mapping[str, Any]) -> tuple[int, int]:
    """Height and width, in pixels."""
    height, width = one["size"] if one.get("size") else (one["height"], one["width"])
    return int(height), int(width)


def limits_of(one: Mapping[str, Any], name: str, centre: float = 0.0) -> tuple[float, float]:
    """A range that may be given as how far it reaches either way."""
    return either_way(one[name], centre)


def look_of(one: Mapping[str, Any]) -> Look:
    """How a map looks between pixels; OpenCV takes area for bilinear there."""
    look = look_of_resize(one)
    return Look(interpolation="bilinear", antialias=False) if look.interpolation == "area" else look


def look_of_resize(one: Mapping[str, Any]) -> Look:
    """How what makes images of another size looks between pixels: by area it averages."""
    mode = one.get("interpolation", 1)
    name = INTERPOLATIONS.get(mode, f"OpenCV's {mode}")
    averages = one.get("area_for_downscale") is not None  # which no pixel of a smaller image is left out of
    return Look(interpolation=name, antialias=averages or name == "area")


def border_of(one: Mapping[str, Any]) -> Beyond:
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
