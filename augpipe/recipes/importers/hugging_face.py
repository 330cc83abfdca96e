"""Settings of the image processors of transformers (`preprocessor_config.json`) as ops, for evaluation."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from augpipe import ops
from augpipe.ops import Op
from augpipe.recipes.importers.findings import Findings
from augpipe.recipes.importers.makers import PILLOW_FILTERS, channels, floored_centre
from augpipe.recipes.importers.rows import Look
from augpipe.recipes.importers.units import UNIT

SQUARE_BY_TYPE = {
    **dict.fromkeys(("ViT", "DeiT", "Beit", "DPT", "Segformer"), True),
    **dict.fromkeys(("CLIP", "ConvNext", "Levit", "PoolFormer", "Bit", "MobileNet"), False),
    **dict.fromkeys(("Detr", "ConditionalDetr", "DeformableDetr", "Yolos"), False),
}
"""What one number of `size` means in old settings, by the first letters of their type: a square, or the short side."""
LONGEST_OF_DETECTION = ("Detr", "ConditionalDetr", "DeformableDetr", "Yolos")
"""Types whose old settings give the longest side by `max_size`, which is 1333 where it is not there."""
UNMAPPED = (
    *("do_flip_channel_order", "do_thumbnail", "do_align_long_axis", "do_crop_margin", "do_color_quantize"),
    *("do_image_splitting", "do_pan_and_scan", "crop_to_patches", "image_grid_pinpoints"),
    *("keep_aspect_ratio", "size_divisor", "size_divisibility", "patch_size", "merge_size", "max_num_patches"),
    *("min_pixels", "max_pixels", "offset", "rescale_offset"),
)
"""Settings of steps, and of sides, that are not mapped."""
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
    if isinstance(settings, Mapping) and "pretrained_cfg" in settings:
        raise ValueError(
            "these are settings of a model of timm. Give importers.from_timm input_size, crop_pct, interpolation, mean "
            "and std of its pretrained_cfg, and is_training=False."
        )
    if not isinstance(settings, Mapping) or not {"image_processor_type", "image_mean", "do_resize"} & set(settings):
        raise ValueError("these are not settings of an image processor: they have no image_processor_type.")
    kind = str(settings.get("image_processor_type", settings.get("feature_extractor_type", "")))
    found = Findings(source="transformers", measured_as=("transformers",), name_of=str)
    for name in UNMAPPED:
        if settings.get(name):
            found.refuse(name, f"{settings[name]!r} is not mapped; remove it, and do that step yourself")
    if kind.startswith("Perceiver"):
        found.refuse("do_center_crop", "crops before it resizes there, which is not mapped")
    steps = {"do_resize": _resize, "do_center_crop": _crop, "do_normalize": _normalize, "do_pad": _pad}
    for name, add in steps.items():
        if name == "do_normalize" or _is_on(settings, name):
            try:
                add(found, settings, kind)
            except (KeyError, TypeError, ValueError) as error:
                found.refuse(name, f"has no {error}" if isinstance(error, KeyError) else str(error).splitlines()[0])
    if settings.get("do_reduce_labels") or settings.get("reduce_labels"):
        found.note("label maps: label 0 becomes 255 there, and all others one less; do so to those that you pass.")
    return found


def _is_on(settings: Mapping[str, Any], name: str) -> bool:
    """Whether a step is done: settings that are left out are true where there is something that they go by."""
    goes_by = {"do_resize": "size", "do_center_crop": "crop_size", "do_normalize": "image_mean"}.get(name)
    return bool(settings.get(name, goes_by is not None and settings.get(goes_by) is not None))


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
        if kind.startswith(LONGEST_OF_DETECTION):
            size["longest_edge"] = settings.get("max_size", 1333)
    multiple = settings.get("ensure_multiple_of") or 1
    if "height" in size and any(side % multiple for side in _sides(size)):
        raise ValueError(f"ensure_multiple_of: {multiple} is not mapped; give sides that are multiples of it")
    px: Any = size.get("shortest_edge")
    is_whole = kind.startswith("PoolFormer")  # others cut the part out
    cut: list[Op] = []
    made: Op
    if "height" in size:
        made = ops.Resize(size=_sides(size))
    elif px is None:
        made = ops.ResizeLongest(size=size["longest_edge"])
    elif kind.startswith("Levit"):
        made = ops.ResizeShortest(size=int(256 / 224 * px))
    elif "crop_pct" in settings and px >= SQUASHES_FROM_PX and not is_whole:
        made = ops.Resize(size=(px, px))
    elif "crop_pct" in settings:
        made = ops.ResizeShortest(size=int(px / settings["crop_pct"]))
        cut = [] if is_whole else [floored_centre((px, px))]
    else:
        made = ops.ResizeShortest(size=px, max_size=size.get("longest_edge"))
    found.add("resize", made, *cut, look=look)


def _crop(found: Findings, settings: Mapping[str, Any], kind: str) -> None:
    if "do_center_crop" not in settings:
        raise ValueError("is not there, and crop_size is; write true or false")
    found.add("center_crop", floored_centre(_sides(settings["crop_size"])))


def _normalize(found: Findings, settings: Mapping[str, Any], kind: str) -> None:
    rescales = settings.get("do_rescale", True)
    factor = settings.get("rescale_factor", 1.0 / 255.0)
    if rescales and abs(255.0 * factor - 1.0) > 1e-3:
        raise ValueError(f"rescale_factor={factor} is not mapped; 1/255 is")
    if _is_on(settings, "do_normalize"):
        if not rescales:
            raise ValueError("do_rescale=False is not mapped: mean and std are of 0..1 here")
        mean, std = channels(settings["image_mean"]), channels(settings["image_std"])
        if kind.startswith("EfficientNet") and settings.get("include_top", True):
            std = tuple(one * one for one in std)  # there numbers are divided by it once more
        found.add("normalize", ops.Normalize(mean=mean, std=std))
    elif rescales:
        found.add("rescale", UNIT)


def _pad(found: Findings, settings: Mapping[str, Any], kind: str) -> None:
    """To a size at the right and bottom, by zeros of what is normalised."""
    if isinstance(to := settings.get("pad_size"), Mapping):
        found.add("pad", ops.Pad(size=_sides(to), position="top_left", border="constant", fill=(0.0, 0.0, 0.0)))
    elif to is None and (isinstance(settings["size"], int) or "shortest_edge" in settings["size"]):
        found.note("do_pad: images are padded to the largest of a batch there; here each image keeps its own size.")
    else:
        raise ValueError("without a pad_size of height and width it is not mapped")
