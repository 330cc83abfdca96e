"""Settings of the image processors of transformers (`preprocessor_config.json`) as ops, for evaluation."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from augpipe import ops
from augpipe.recipes.importers.findings import PILLOW_FILTERS, Findings, Look, channels, floored_centre

SQUARE_BY_TYPE = {"ViT": True, "DeiT": True, "Beit": True, "CLIP": False, "ConvNext": False}
"""What one number of `size` means in old settings, by the first letters of their type: a square, or the short side."""
UNMAPPED = ("do_flip_channel_order", "do_thumbnail", "do_align_long_axis")
"""Switches of steps that are not mapped."""
SQUASHES_FROM_PX = 384
"""ConvNext's processor resizes to a square from this size on, and below cuts a part of `crop_pct` out."""


def found_in(settings: Mapping[str, Any] | str | Path) -> Findings:
    """The ops of a processor's settings, and what cannot be mapped.

    Raises:
        ValueError: they are none.
        OSError: the file cannot be read.
    """
    if not isinstance(settings, Mapping):
        try:
            settings = json.loads(Path(settings).read_text(encoding="utf-8"))
        except json.JSONDecodeError as error:
            raise ValueError(f"{settings} is not JSON ({error}). Give a preprocessor_config.json.") from None
    if not isinstance(settings, Mapping) or not {"image_processor_type", "image_mean", "do_resize"} & set(settings):
        raise ValueError("these are not settings of an image processor: they have no image_processor_type.")
    kind = str(settings.get("image_processor_type", settings.get("feature_extractor_type", "")))
    found = Findings(
        source="transformers", measured_as=("transformers",), name_of=str, read=lambda one, name: one[name]
    )
    for name in UNMAPPED:
        if settings.get(name):
            found.refuse(name, "is not mapped")
    steps = {"do_resize": _resize, "do_center_crop": _crop, "do_normalize": _normalize}
    for name, add in steps.items():
        if name == "do_normalize" or settings.get(name):
            try:
                add(found, settings, kind)
            except (KeyError, TypeError, ValueError) as error:
                found.refuse(name, f"has no {error}" if isinstance(error, KeyError) else str(error).splitlines()[0])
    return found


def _sides(value: Any) -> Any:
    """(height, width) of what is given as a number or by name."""
    return (value["height"], value["width"]) if isinstance(value, Mapping) else (value, value)


def _resize(found: Findings, settings: Mapping[str, Any], kind: str) -> None:
    size = settings["size"]
    look = Look(interpolation=PILLOW_FILTERS.get(settings.get("resample", 2), "another"), antialias=True)
    if isinstance(size, int):
        square = next((square for start, square in SQUARE_BY_TYPE.items() if kind.startswith(start)), None)
        if square is None:
            raise ValueError(f"size={size} may be a square or the short side; write height and width, or shortest_edge")
        size = {"height": size, "width": size} if square else {"shortest_edge": size}
    if "height" in size:
        found.add("resize", ops.Resize(size=_sides(size)), look=look)
    elif "shortest_edge" not in size:
        found.add("resize", ops.ResizeLongest(size=size["longest_edge"]), look=look)
    elif "crop_pct" in settings:
        px = size["shortest_edge"]
        if px < SQUASHES_FROM_PX:
            resized = ops.ResizeShortest(size=int(px / settings["crop_pct"]))
            found.add("resize", resized, floored_centre((px, px)), look=look)
        else:
            found.add("resize", ops.Resize(size=(px, px)), look=look)
    else:
        made = ops.ResizeShortest(size=size["shortest_edge"], max_size=size.get("longest_edge"))
        found.add("resize", made, look=look)


def _crop(found: Findings, settings: Mapping[str, Any], kind: str) -> None:
    found.add("center_crop", floored_centre(_sides(settings["crop_size"])))


def _normalize(found: Findings, settings: Mapping[str, Any], kind: str) -> None:
    rescales = settings.get("do_rescale", True)
    factor = settings.get("rescale_factor", 1.0 / 255.0)
    if rescales and abs(255.0 * factor - 1.0) > 1e-3:
        raise ValueError(f"rescale_factor={factor} is not mapped; 1/255 is")
    if settings.get("do_normalize"):
        if not rescales:
            raise ValueError("do_rescale=False is not mapped: mean and std are of 0..1 here")
        mean, std = channels(settings["image_mean"]), channels(settings["image_std"])
        found.add("normalize", ops.Normalize(mean=mean, std=std))
    elif rescales:
        found.add("rescale", ops.Normalize(mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0)))
