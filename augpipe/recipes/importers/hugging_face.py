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

DETECTION = ("ConditionalDetr", "DeformableDetr", "Detr", "GroundingDino", "Yolos")
SEGMENTATION = ("Mask2Former", "MaskFormer", "OneFormer")
PADDED_IN_BATCHES = (*DETECTION, *SEGMENTATION, "RTDetr")
"""Types that pad images to the largest of a batch."""
PADDED = (*DETECTION, *SEGMENTATION, "Sam")
"""Types that pad where their settings do not say."""
BILINEAR = (
    *(*PADDED, "RTDetr", "DINOv3ViT", "DepthPro", "Eomt", "Gemma3", "ImageGPT", "LayoutLMv3", "MobileNetV1"),
    *("MobileNetV2", "Owlv2", "Sam2", "Segformer", "SuperPoint", "VideoMAE", "ViT"),
)
BICUBIC = (
    *("Beit", "Bit", "Blip", "CLIP", "ChineseCLIP", "Cohere2Vision", "DPT", "DeiT", "Flava", "GotOcr2", "Levit"),
    *("Llava", "LlavaNext", "Ovis2", "OwlViT", "Perceiver", "PoolFormer", "PromptDepthAnything", "SegGpt", "Siglip"),
)
KNOWN = (*BILINEAR, *BICUBIC, "ConvNext", "EfficientNet", "MobileViT", "Pvt", "Tvp")
"""Types that do what their settings say. The last ones' interpolation differs between versions of transformers."""
SQUARE_BY_TYPE = {
    **dict.fromkeys(("ViT", "DeiT", "Beit", "DPT", "Segformer", "Blip", "Flava", "ImageGPT", "LayoutLMv3"), True),
    **dict.fromkeys(("OwlViT", "Perceiver", "Pvt"), True),
    **dict.fromkeys(("CLIP", "ConvNext", "Levit", "PoolFormer", "Bit", "MobileNetV1", "MobileNetV2"), False),
    **dict.fromkeys(("ChineseCLIP", "Llava", "MobileViT", "VideoMAE", *DETECTION, "Mask2Former", "MaskFormer"), False),
}
"""What one number of `size` means in old settings, by their type: a square, or the short side."""
LONGEST = (*DETECTION, "Mask2Former", "MaskFormer")
"""Types whose old settings give the longest side by `max_size`, which is 1333 where it is not there."""
CROPPED = (
    *("Bit", "CLIP", "ChineseCLIP", "DeiT", "Flava", "Levit", "Llava", "LlavaNext", "MobileNetV1"),
    *("MobileNetV2", "MobileViT", "Perceiver", "PoolFormer", "Tvp", "VideoMAE"),
)
"""Types that cut the centre out where their settings do not say."""
CROPS = (*CROPPED, "Beit", "EfficientNet", "OwlViT")
"""Types that cut the centre out where their settings say so in all versions of transformers."""
RAW = ("GLPN", "MobileViT", "RTDetr", "SuperPoint")
"""Types that do not normalise where their settings do not say."""
CROP_PCT = {"ConvNext": 224 / 256, "PoolFormer": 0.9}
"""A type -> its `crop_pct` where its settings do not say."""
FLIPPED = ("MobileViT", "Tvp")
"""Types that swap red and blue where their settings do not say."""
OTHERWISE = {
    **dict.fromkeys(
        ("Donut", "Nougat", "DeepseekVL", "DeepseekVLHybrid", "Janus"), "keeps the proportions in resizing"
    ),
    **dict.fromkeys(("Llama4", "Mllama", "PerceptionLM"), "cuts images into tiles"),
    **dict.fromkeys(("LayoutLMv2", "LayoutXLM"), "swaps red and blue"),
    "Idefics2": "shrinks the long side to longest_edge before the short one",
    "ZoeDepth": "resizes by align_corners=True",
}
"""Types that do what no setting of theirs says: that."""
UNMAPPED = (
    *("do_flip_channel_order", "do_thumbnail", "do_align_long_axis", "do_crop_margin", "do_color_quantize"),
    *("do_image_splitting", "do_pan_and_scan", "crop_to_patches", "image_grid_pinpoints"),
    *("keep_aspect_ratio", "size_divisor", "size_divisibility", "patch_size", "merge_size", "max_num_patches"),
    *("min_pixels", "max_pixels", "offset", "rescale_offset", "do_affine_transform", "do_grayscale", "do_split_image"),
    *("image_size", "max_image_size", "max_image_tiles", "max_num_tiles", "split_image"),
)
"""Settings of steps, and of sides, that are not mapped."""
MAPPED = (
    *("crop_pct", "crop_size", "do_center_crop", "do_normalize", "do_pad", "do_reduce_labels", "do_rescale"),
    *("do_resize", "ensure_multiple_of", "feature_extractor_type", "image_mean", "image_processor_type", "image_std"),
    *("include_top", "max_size", "pad_size", "reduce_labels", "resample", "rescale_factor", "size"),
)
OF_OTHER_THINGS = (
    *("_valid_processor_keys", "apply_ocr", "auto_map", "clusters", "data_format", "default_to_square", "device"),
    *("disable_grouping", "do_convert_annotations", "do_convert_rgb", "format", "id2label", "ignore_index"),
    *("image_seq_length", "input_data_format", "label2id", "mask_pad_size", "mask_size", "max_patches", "min_patches"),
    *("num_channels", "num_labels", "num_text", "ocr_lang", "processor_class", "prompt_scale_to_meter", "repo_path"),
    *("return_segmentation_masks", "return_tensors", "tesseract_config", "use_covering_area_grid", "use_fast"),
)
"""Settings that change no pixel, or none unless another one is set."""
OF_CODEBOOKS = ("codebook_", "input_size_patches", "mask_group_", "pan_and_scan_", "return_", "total_mask_")
"""How others begin."""
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
    if isinstance(settings, Mapping) and isinstance(settings.get("image_processor"), Mapping):
        settings = settings["image_processor"]  # of a whole processor
    if not isinstance(settings, Mapping) or not {"image_processor_type", "image_mean", "do_resize"} & set(settings):
        raise ValueError("these are not settings of an image processor: they have no image_processor_type.")
    settings = {name: value for name, value in settings.items() if value is not None or name.startswith("do_")}
    kind = _kind(settings)
    found = Findings(source="transformers", measured_as=("transformers",), name_of=str)
    _refuse(found, settings, kind)
    steps = {"do_resize": _resize, "do_center_crop": _crop, "do_normalize": _normalize, "do_pad": _pad}
    for name, add in steps.items():
        try:
            if name == "do_normalize" or _is_on(settings, name, kind):
                add(found, settings, kind)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            found.refuse(name, f"has no {error}" if isinstance(error, KeyError) else str(error).splitlines()[0])
    if settings.get("do_reduce_labels") or settings.get("reduce_labels"):
        found.note("label maps: label 0 becomes 255 there, and all others one less; do so to those that you pass.")
    return found


def _kind(settings: Mapping[str, Any]) -> str:
    """The type of a processor, without what ends the name of every class."""
    kind = str(settings.get("image_processor_type", settings.get("feature_extractor_type", "")))
    for end in ("Fast", "Pil", "ImageProcessor", "FeatureExtractor"):
        kind = kind.removesuffix(end)
    return kind


def _refuse(found: Findings, settings: Mapping[str, Any], kind: str) -> None:
    """Refuse steps that are not mapped, and tell what is not known here."""
    for name in UNMAPPED:
        value = settings.get(name)
        if value is None and name == "do_flip_channel_order":
            value = kind in FLIPPED
        if value:
            found.refuse(name, f"{value!r} is not mapped; remove it, and do that step yourself")
    if kind in OTHERWISE:
        found.refuse("image_processor_type", f"{kind} {OTHERWISE[kind]}, which is not mapped")
    elif kind not in KNOWN:
        told = f"{kind!r} is not known here" if kind else "is not there"
        found.note(f"image_processor_type: {told}; check that images are changed by the steps of its settings only.")
    if kind == "Perceiver" and settings.get("do_center_crop", True):
        found.refuse("do_center_crop", "crops before it resizes there, which is not mapped")
    for name, value in settings.items():
        if value and name not in (*MAPPED, *UNMAPPED, *OF_OTHER_THINGS) and not name.startswith(OF_CODEBOOKS):
            found.note(f"{name}: {value!r} is not known here, and left out.")


def _is_on(settings: Mapping[str, Any], name: str, kind: str) -> bool:
    """Whether a step is done: settings that are left out are true where there is something that they go by.

    Raises:
        ValueError: that is left out, too, and the type does the step by its own defaults, or may.
    """
    if name in settings:
        return bool(settings[name])
    if name == "do_pad":
        return kind in PADDED
    goes_by = {"do_resize": "size", "do_center_crop": "crop_size", "do_normalize": "image_mean"}[name]
    if goes_by in settings:
        return not (name == "do_normalize" and kind in RAW)
    if {"do_resize": True, "do_center_crop": kind in CROPPED, "do_normalize": kind not in RAW}[name]:
        raise ValueError(f"neither it nor {goes_by} is there, and types differ in that; write false, or give {goes_by}")
    return False


def _sides(value: Any) -> Any:
    """(height, width) of what is given as a number, as a list or by name."""
    if isinstance(value, Mapping):
        return value["height"], value["width"]
    return tuple(value) if isinstance(value, list | tuple) else (value, value)


def _look(settings: Mapping[str, Any], kind: str) -> Look:
    """How a type looks between pixels where it resizes.

    Raises:
        ValueError: its settings do not say so, and its default differs between versions.
    """
    default = 2 if kind in BILINEAR else 3 if kind in BICUBIC else None
    if (nth := settings.get("resample", default)) is None:
        raise ValueError("has no 'resample', in whose default types differ; write 2 for bilinear, or 3 for bicubic")
    return Look(interpolation=PILLOW_FILTERS.get(nth, "another"), antialias=kind != "DepthPro")


def _resize(found: Findings, settings: Mapping[str, Any], kind: str) -> None:
    size = settings["size"]
    if isinstance(size, list | tuple):
        size = dict(zip(("height", "width"), size, strict=True))
    elif not isinstance(size, Mapping):
        if kind not in SQUARE_BY_TYPE:
            raise ValueError(f"size={size} may be a square or the short side; write height and width, or shortest_edge")
        size = {"height": size, "width": size} if SQUARE_BY_TYPE[kind] else {"shortest_edge": size}
        if kind in LONGEST:
            size["longest_edge"] = settings.get("max_size", 1333)
    multiple = settings.get("ensure_multiple_of") or 1
    if "height" in size and any(side % multiple for side in _sides(size)):
        raise ValueError(f"ensure_multiple_of: {multiple} is not mapped; give sides that are multiples of it")
    px: Any = size.get("shortest_edge")
    longest = size.get("longest_edge")
    pct = settings.get("crop_pct", CROP_PCT.get(kind))
    is_whole = kind == "PoolFormer"  # others cut the part out
    cut: list[Op] = []
    made: Op
    if "height" in size:
        made = ops.Resize(size=_sides(size))
    elif px is None and longest is None:
        told = " and ".join(map(str, size))
        raise ValueError(f"size has {told}, and only shortest_edge, longest_edge, and height and width are mapped")
    elif px is None:
        made = ops.ResizeLongest(size=longest)
    elif kind == "Levit":
        made = ops.ResizeShortest(size=int(256 / 224 * px))
    elif pct and px >= SQUASHES_FROM_PX and not is_whole:
        made = ops.Resize(size=(px, px))
    elif pct:
        made = ops.ResizeShortest(size=int(px / pct))
        cut = [] if is_whole else [floored_centre((px, px))]
    else:
        made = ops.ResizeShortest(size=px, max_size=longest)
    look = _look(settings, kind)
    differs = []
    if kind == "Yolos":
        differs.append("sides become multiples of 16 there")
    if isinstance(made, ops.ResizeShortest) and made.max_size is not None:
        differs.append("where longest_edge limits an image, its short side may be one pixel longer there")
    if look.interpolation == "nearest":
        differs.append("where two pixels are equally near, Pillow may take the other one")
    found.add("resize", made, *cut, note=f"{'; '.join(differs)}." if differs else "", look=look)


def _crop(found: Findings, settings: Mapping[str, Any], kind: str) -> None:
    crop_size = settings["crop_size"]
    if "do_center_crop" not in settings:
        raise ValueError("is not there, and crop_size is; write true or false")
    told = "" if kind in CROPS or kind not in KNOWN else "some versions of this type leave it out."
    found.add("center_crop", floored_centre(_sides(crop_size)), note=told)


def _normalize(found: Findings, settings: Mapping[str, Any], kind: str) -> None:
    rescales = settings.get("do_rescale", True)
    factor = settings.get("rescale_factor", 1.0 / 255.0)
    if rescales and abs(255.0 * factor - 1.0) > 1e-3:
        raise ValueError(f"rescale_factor={factor} is not mapped; 1/255 is")
    if _is_on(settings, "do_normalize", kind):
        if not rescales:
            raise ValueError("do_rescale=False is not mapped: mean and std are of 0..1 here")
        mean, std = channels(settings["image_mean"]), channels(settings["image_std"])
        if kind == "EfficientNet" and settings.get("include_top", True):
            std = tuple(one * one for one in std)  # there numbers are divided by it once more
        found.add("normalize", ops.Normalize(mean=mean, std=std))
    elif rescales:
        found.add("rescale", UNIT)


def _pad(found: Findings, settings: Mapping[str, Any], kind: str) -> None:
    """To a size at the right and bottom, by zeros of what is normalised."""
    if isinstance(to := settings.get("pad_size"), Mapping):
        found.add("pad", ops.Pad(size=_sides(to), position="top_left", border="constant", fill=(0.0, 0.0, 0.0)))
    elif to is None and kind in PADDED_IN_BATCHES:
        found.note("do_pad: images are padded to the largest of a batch there; here each image keeps its own size.")
    else:
        raise ValueError("without a pad_size of height and width it is not mapped")
