"""Transforms of albumentations that leave pixels where they are, as ops: colours, filters, noise, holes."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from augpipe import ops
from augpipe.ops import Op
from augpipe.ops.op import MAX_SIDE_PX
from augpipe.recipes.importers.albumentations_values import limits_of, name_of
from augpipe.recipes.importers.findings import Findings, Maker
from augpipe.recipes.importers.makers import jitter, levels, reaching, refused, same, shifted, twice
from augpipe.validation.models import changed

OPENCV_SIGMAS = {3: 0.8493, 5: 1.08, 7: 1.42}
"""The sigmas that are nearest to the kernels that OpenCV has of these sizes for a sigma of 0."""
TONES = "write RandomBrightnessContrast, which changes all of it"
BLURS = "write GaussianBlur or MotionBlur"
LARGER_CELLS = "where cells are not all of one size, version 2 draws which are the larger ones."
CLAHE_NOTE = "OpenCV rounds L*, a* and b* to 256 levels; here the new ones are not rounded."


def _jitter(found: Findings, one: Mapping[str, Any]) -> None:
    fields: dict[str, Any] = {name: limits_of(one, name, 1.0) for name in ("brightness", "contrast", "saturation")}
    hue = limits_of(one, "hue")
    if max(map(abs, hue)) > 0.5:
        if found.measured_as == ("albumentations-2",):
            raise ValueError(f"hue={hue} leaves -0.5..0.5, which version 2 refuses; read version 1 by version='1'")
        if isinstance(one["hue"], list | tuple):
            raise ValueError(f"hue={hue} leaves -0.5..0.5, which version 1 refuses of a range; choose one within it")
    found.add("ColorJitter", jitter(fields | {"hue": hue}, one["p"]))


def _hue_saturation_value(found: Findings, one: Mapping[str, Any]) -> None:
    hue = tuple(limit / 180.0 for limit in limits_of(one, "hue_shift_limit"))
    fields = {
        "saturation": limits_of(one, "sat_shift_limit"),
        "value": limits_of(one, "val_shift_limit"),
        "p": one["p"],
    }
    keeps_gray = found.measured_as == ("albumentations-2",)
    made = ops.HueSaturationValue.model_validate({"hue": hue, **fields, "keeps_gray": keeps_gray})
    note = "OpenCV's HSV is whole numbers, 180 hues; here it is not rounded."
    found.add("HueSaturationValue", made, note=note)


def _multiply(found: Findings, one: Mapping[str, Any]) -> None:
    """A factor of all pixels, or one of each, which is speckle about the mean factor."""
    low, high = map(float, twice(one["multiplier"]))
    if not one["elementwise"]:
        if one["per_channel"]:
            raise ValueError("per_channel=True without elementwise draws a factor a channel, and is not mapped")
        found.add("MultiplicativeNoise", _times(low, high, one["p"]))
        return
    mean, std = 0.5 * (low + high), (high - low) / 12.0**0.5
    fields = {"std": (0.0, 0.0), "speckle": (std / mean if mean else 0.0,) * 2, "per_channel": one["per_channel"]}
    speckle = ops.Noise.model_validate({**fields, "p": one["p"] if mean == 1.0 else 1.0})
    both = (speckle, _times(mean, mean, 1.0)) if mean > 1.0 else (_times(mean, mean, 1.0), speckle)  # the larger last
    made = speckle if mean == 1.0 else ops.AllOf(ops=both, p=one["p"])
    found.add(
        "MultiplicativeNoise", made, note="factors are normal, with the mean and deviation of the even ones there."
    )


def _times(low: float, high: float, p: float) -> Op:
    return ops.BrightnessContrast(brightness=(0.0, 0.0), contrast=(low - 1.0, high - 1.0), p=p)


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


def _to_gray(found: Findings, one: Mapping[str, Any]) -> None:
    if one.get("method", "weighted_average") != "weighted_average" or one.get("num_output_channels", 3) != 3:
        raise ValueError("only the weighted average in three channels is mapped; Recipe(channels=1) keeps one")
    found.add("ToGray", ops.Grayscale(p=one["p"]))


def _tone_curve(found: Findings, one: Mapping[str, Any]) -> None:
    if one.get("per_channel"):
        raise ValueError(
            "per_channel=True bends each channel by a curve of its own, which is not mapped; set it to False"
        )
    found.add("RandomToneCurve", ops.ToneCurve(scale=one["scale"], p=one["p"]))


def _noise(found: Findings, one: Mapping[str, Any]) -> None:
    if any(twice(one.get("mean", one.get("mean_range", 0.0)))):
        raise ValueError("noise whose mean is not 0 is not mapped; set it to 0")
    if "std_range" in one:  # parts of the full level, in newer versions
        std, even_in = [255.0 * part for part in twice(one["std_range"])], "std"
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


def _shadow(found: Findings, one: Mapping[str, Any]) -> None:
    fields = {"region": tuple(one["shadow_roi"]), "num_corners": one["shadow_dimension"]}
    if "num_shadows_limit" in one:
        fields |= {"num": tuple(one["num_shadows_limit"]), "loss": tuple(one["shadow_intensity_range"]), "p": one["p"]}
    else:
        fewest, most = one["num_shadows_lower"], one["num_shadows_upper"]
        happens = 1.0 if fewest else most / (most + 1)
        fields |= {"num": (max(fewest, 1), most), "of": "lightness", "p": happens * one["p"]}
    found.add("RandomShadow", ops.Shadow.model_validate(fields))


def _additive_noise(found: Findings, one: Mapping[str, Any]) -> None:
    """imgaug's, whose standard deviations are in levels."""
    if any(twice(one["loc"])):
        raise ValueError(f"loc={one['loc']}, a mean that is not 0, is not mapped; set it to 0")
    fields = {"std": reaching(0.0, one["scale"]), "per_channel": one["per_channel"], "p": one["p"]}
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
    fields = {"num": (num, num), "height": (height, height), "width": (width, width), "from_centers": True}
    _holes(found, one, fields)


def _holes(found: Findings, one: Mapping[str, Any], fields: dict[str, Any]) -> None:
    is_fraction = all(isinstance(length, float) for name in ("height", "width") for length in fields[name])
    unit = "fraction" if is_fraction else "px"
    made = ops.CoarseDropout.model_validate({**fields, "unit": unit, "fill": _fill(one), "p": one["p"]})
    found.add(name_of(one), made, note=_of_masks(one))


def _stripes(found: Findings, one: Mapping[str, Any]) -> None:
    """Rectangles from edge to edge, of as many as are drawn: none is one without a chance."""
    made: list[Op] = []
    for axis, length, across in (("x", "width", "height"), ("y", "height", "width")):
        (fewest, most), limits = one[f"num_masks_{axis}"], one[f"mask_{axis}_length"]
        if most and limits[1]:
            fields = {"num": (max(fewest, 1), most), length: limits, across: (MAX_SIDE_PX,) * 2, "fill": _fill(one)}
            p = most / (most + 1) if fewest == 0 else 1.0
            made.append(ops.CoarseDropout.model_validate({**fields, "p": p}))
    stripes = ops.AllOf(ops=tuple(made) or (ops.Identity(),), p=one["p"])
    found.add("XYMasking", stripes, note=_of_masks(one))


def _fill(one: Mapping[str, Any]) -> tuple[float, float, float]:
    return levels(one.get("fill", one.get("fill_value", 0)))


def _of_masks(one: Mapping[str, Any]) -> str:
    """A note of holes that masks have there, too."""
    fills = (one.get(name) for name in ("mask_fill_value", "fill_mask", "mask_drop_value"))
    fill = next((fill for fill in fills if fill is not None), None)
    if isinstance(fill, int | float) and fill >= 0 and fill % 1 == 0:
        options = f"targets=TargetOptions(mask_holes=True, mask_fill={int(fill)})"
        return f"masks are filled by {options}, else not: so are all holes of the recipe, and what lies outside."
    return "" if fill is None else "masks are not filled."


def _grid_dropout(found: Findings, one: Mapping[str, Any]) -> None:
    is_new = "holes_number_xy" in one
    fields = _new_grid(one) if is_new else _old_grid(one)
    fields |= {"ratio": one["ratio"], "fill": _fill(one), "p": one["p"]}
    note = f"{LARGER_CELLS if is_new else ''} {_of_masks(one)}".strip()
    found.add("GridDropout", ops.GridDropout.model_validate(fields), note=note)


def _new_grid(one: Mapping[str, Any]) -> dict[str, Any]:
    """Cells that fill the image; two numbers of them are rows and columns, whatever their name."""
    across, down = one["shift_xy"]
    fields: dict[str, Any] = {"place": "own" if one["random_offset"] else (down, across)}
    if one["holes_number_xy"]:
        return fields | {"grid": tuple(one["holes_number_xy"])}
    if one["unit_size_range"] is None:
        return fields
    smallest, end = one["unit_size_range"]
    if smallest == end:
        raise ValueError(f"unit_size_range={(smallest, end)} leaves out its end in version 2, and draws from nothing")
    return fields | {"unit_px": (smallest, end - 1)}


def _old_grid(one: Mapping[str, Any]) -> dict[str, Any]:
    """Cells from the upper left on; of a largest size, one more is drawn, too."""
    shift = (max(one["shift_y"] or 0, 0), max(one["shift_x"] or 0, 0))
    fields: dict[str, Any] = {"place": "shared" if one["random_offset"] else shift, "fit": "cut"}
    if one["unit_size_min"] and one["unit_size_max"]:
        return fields | {"unit_px": (one["unit_size_min"], one["unit_size_max"] + 1)}
    across = one["holes_number_x"] or 10
    if one["holes_number_y"] is None:
        return fields | {"fit": "square", "grid": (across, across)}
    return fields | {"grid": (one["holes_number_y"], across)}


def _rgb_shift(found: Findings, one: Mapping[str, Any]) -> None:
    ranges = [limits_of(one, f"{channel}_shift_limit") for channel in "rgb"]
    is_part = any(isinstance(limit, float) and 0.0 < abs(limit) < 1.0 for limit in twice(one["r_shift_limit"]))
    # parts of the full level, in newer versions
    found.add("RGBShift", shifted(ranges, 255.0 if is_part else 1.0, one["p"]))


def _odd(size: int) -> int:
    return size if size % 2 else size + 1


def _sides(one: Mapping[str, Any]) -> tuple[int, int]:
    """Smallest and largest side of a kernel, odd ones."""
    value = one["blur_limit"]
    low, high = map(int, value if isinstance(value, list | tuple) else (3, value))
    if "always_apply" in one:  # version 1, which draws every second size from the first one on
        if low % 2 == 0:
            raise ValueError(f"blur_limit={value} draws even sizes, which are not mapped; begin at {low + 1}")
        high = max(low, high - (high - low) % 2)
    return _odd(max(3, low)), _odd(max(3, high))


def _gaussian_blur(found: Findings, one: Mapping[str, Any]) -> None:
    """Each size of kernel that is drawn, or none, which leaves it to sigma; or a sigma that follows from the size."""
    low, high = limits_of(one, "sigma_limit")
    smallest, largest = (int(size) for size in twice(one["blur_limit"]))
    if smallest == 0 and low == 0.0 and found.measured_as == ("albumentations-1",):  # there neither says how much
        smallest, largest = 3, max(3, largest)
    sizes = Counter(_odd(size) if size else 0 for size in range(smallest, largest + 1))
    made = []
    for size in sizes:
        own = OPENCV_SIGMAS.get(size, 0.3 * ((size - 1) * 0.5 - 1.0) + 0.8)
        sigma = (low, high) if high > 0.0 else (own, own)
        made.append(ops.GaussianBlur.model_validate({"sigma_px": sigma, "kernel_px": size or None, "p": 1.0}))
    found.add("GaussianBlur", _either(made, one["p"], tuple(map(float, sizes.values()))))


def _either(made: Sequence[Op], p: float, weights: tuple[float, ...] | None = None) -> Op:
    """One of several, or the only one, with a chance."""
    return changed(made[0], p=p) if len(made) == 1 else ops.OneOf(ops=tuple(made), weights=weights, p=p)


def _advanced_blur(found: Findings, one: Mapping[str, Any]) -> None:
    """A round Gaussian of the sigmas along x, in a kernel of each size that is drawn."""
    smallest, largest = _sides(one)
    sigma = reaching(0.0, one["sigma_x_limit"] if "sigma_x_limit" in one else one["sigmaX_limit"])
    sizes = range(smallest, largest + 1, 2)
    made = [ops.GaussianBlur.model_validate({"sigma_px": sigma, "kernel_px": size, "p": 1.0}) for size in sizes]
    note = "a round Gaussian, where the kernel there is wider one way, with a tail and noise that are drawn."
    found.add("AdvancedBlur", _either(made, one["p"]), note=note)


def _motion_blur(found: Findings, one: Mapping[str, Any]) -> None:
    fields: dict[str, Any] = {"sizes": _sides(one), "shifts": one.get("allow_shifted", True), "p": one["p"]}
    if "angle_range" in one:  # newer versions; there angles count clockwise
        low, high = one["angle_range"]
        fields |= {"degrees": (-high, -low), "direction": one["direction_range"]}
    else:
        fields["line"] = "ends"
    found.add("MotionBlur", ops.MotionBlur.model_validate(fields))


def _channel_dropout(found: Findings, one: Mapping[str, Any]) -> None:
    few, most = one["channel_drop_range"]
    if few != 1 or most > 2:
        raise ValueError(f"channel_drop_range={few, most} is not mapped; (1, 1) and (1, 2) are")
    fill = one["fill"] if "fill" in one else one["fill_value"]
    found.add("ChannelDropout", ops.ChannelDropout(max_channels=most, fill=float(fill), p=one["p"]))


def _compression(found: Findings, one: Mapping[str, Any]) -> None:
    kind = one.get("compression_type", "jpeg")
    if str(kind).rpartition(".")[2].lower() not in ("jpeg", "0"):
        remedy = "; read version 1, where a quality comes first, by version='1'" if isinstance(kind, int) else ""
        raise ValueError(f"compression_type={kind!r} is not mapped, 'jpeg' is{remedy}")
    limits = one["quality_range"] if "quality_range" in one else (one["quality_lower"], one["quality_upper"])
    quality = tuple(max(1, end) for end in limits)
    found.add(name_of(one), ops.JpegCompression.model_validate({"quality": quality, "blue_first": True, "p": one["p"]}))


def _downscale(found: Findings, one: Mapping[str, Any]) -> None:
    scale = one["scale_range"] if "scale_range" in one else (one["scale_min"], one["scale_max"])
    given = one.get("interpolation_pair", one.get("interpolation"))  # a mode, or one each way
    modes = set(given.values()) if isinstance(given, Mapping) else {given or 0}
    if modes != {0}:
        raise ValueError(f"interpolation={given} is not mapped; 0, that of nearest pixels both ways, is")
    found.add("Downscale", ops.Downscale.model_validate({"scale": tuple(scale), "p": one["p"]}))


def _blend(kind: type[ops.Sharpen | ops.Emboss], name: str) -> Maker:
    def add(found: Findings, one: Mapping[str, Any]) -> None:
        alpha, other = (reaching(0.0, one.get(field, kind.model_fields[field].default)) for field in ("alpha", name))
        found.add(name_of(one), kind.model_validate({"alpha": alpha, name: other, "p": one["p"]}))

    return add


def _threshold(one: Mapping[str, Any]) -> tuple[int, ...]:
    if "threshold_range" in one:  # parts of the full level, in newer versions
        return tuple(round(255.0 * part) for part in twice(one["threshold_range"]))
    return tuple(round(level) for level in twice(one["threshold"]))


PIXELS: dict[str, Maker] = {
    "ColorJitter": _jitter,
    "RandomBrightnessContrast": same(
        ops.BrightnessContrast,
        brightness=lambda one: limits_of(one, "brightness_limit"),
        contrast=lambda one: limits_of(one, "contrast_limit"),
    ),
    "RandomBrightness": same(ops.BrightnessContrast, brightness=lambda one: limits_of(one, "limit"), contrast=(0, 0)),
    "RandomContrast": same(ops.BrightnessContrast, brightness=(0, 0), contrast=lambda one: limits_of(one, "limit")),
    "MultiplicativeNoise": _multiply,
    "FancyPCA": _fancy_pca,
    "HueSaturationValue": _hue_saturation_value,
    "CoarseDropout": _coarse_dropout,
    "Cutout": _cutout,
    "XYMasking": _stripes,
    "GridDropout": _grid_dropout,
    "PixelDropout": same(
        ops.PixelDropout,
        share=lambda one: twice(one["dropout_prob"]),
        per_channel=lambda one: one["per_channel"],
        fill=lambda one: "random" if one["drop_value"] is None else levels(one["drop_value"]),
        note=_of_masks,
    ),
    "RGBShift": _rgb_shift,
    "GaussNoise": _noise,
    "IAAAdditiveGaussianNoise": _additive_noise,
    "RandomGamma": same(
        ops.Gamma,
        gamma=lambda one: tuple(limit / 100.0 for limit in limits_of(one, "gamma_limit")),
        even_in="power",
    ),
    "RandomToneCurve": _tone_curve,
    "ToGray": _to_gray,
    "ToSepia": same(ops.Sepia),
    "InvertImg": same(ops.Invert),
    "Equalize": same(
        ops.Equalize,
        note="by Pillow's formula, each channel on its own: 2 levels from theirs in the mean of photographs, and up to "
        "30 where many pixels are white.",
    ),
    "Posterize": same(ops.Posterize, bits=lambda one: twice(one["num_bits"])),
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
    "CLAHE": same(
        ops.CLAHE,
        clip_limit=lambda one: tuple(limit) if isinstance(limit := one["clip_limit"], list | tuple) else (1.0, limit),
        tiles=lambda one: tuple(one["tile_grid_size"])[::-1],  # columns and rows there
        note=CLAHE_NOTE,
    ),
    "Downscale": _downscale,
    "RandomGridShuffle": same(ops.GridShuffle, grid=lambda one: one["grid"], note=LARGER_CELLS),
    "ImageCompression": _compression,
    "JpegCompression": _compression,
    **dict.fromkeys(("Sharpen", "IAASharpen"), _blend(ops.Sharpen, "lightness")),
    **dict.fromkeys(("Emboss", "IAAEmboss"), _blend(ops.Emboss, "strength")),
    "ISONoise": same(
        ops.ISONoise,
        hue=lambda one: one["color_shift"],
        intensity=lambda one: one["intensity"],
        note="grain is as strong as in an image whose lightness varies by 0.2; there by how much the image's own does. "
        "In version 2 few pixels have it, and brighten by about a third as much in the mean.",
    ),
    "RandomFog": _fog,
    "RandomShadow": _shadow,
    "ChannelDropout": _channel_dropout,
    "RandomSunFlare": refused(f"draws a flare; {TONES}"),
    "RandomRain": refused("draws lines of rain, and no op here does; MotionBlur streaks all of an image"),
    "RandomSnow": refused(f"whitens dark parts; {TONES}"),
    "PlasmaBrightnessContrast": refused(f"changes parts of an image otherwise than others; {TONES}"),
    "Defocus": refused(f"blurs by a disc; {BLURS}"),
    "ZoomBlur": refused(f"blurs towards the centre; {BLURS}"),
    "GlassBlur": refused(f"exchanges pixels; {BLURS}"),
    "MaskDropout": refused("looks at objects of a mask; write CoarseDropout, which fills rectangles wherever they lie"),
}
"""The name of a transform -> what makes ops of it."""
