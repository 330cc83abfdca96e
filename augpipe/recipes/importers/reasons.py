"""Why transforms cannot be mapped, in the words that they are written in: their own names and arguments."""

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from augpipe.ops.op import KINDS
from augpipe.ops.other_names import ANSWERS
from augpipe.recipes.importers.rows import Row
from augpipe.validation.models import FieldError
from augpipe.validation.suggest import elsewhere, plain

ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "Translate.horizontal": ("translate", "translate_px", "translate_percent", "shift_limit"),
    "Translate.vertical": ("translate", "translate_px", "translate_percent", "shift_limit"),
    "addition": ("additions",),
    "alpha": ("alpha", "kernel_size", "scale"),
    "bits": ("bits", "num_bits"),
    "brightness": ("brightness", "brightness_limit", "limit", "brightness_factor"),
    "contrast": ("contrast", "contrast_limit", "limit", "contrast_factor"),
    "degrees": ("angle_range",),
    "distort_limit": ("distort_limit",),
    "distortion": ("distortion_scale",),
    "factor": ("scale", "scale_limit", "scale_range", "side_range", "sharpness_factor", "sharpness"),
    "fill": ("fill", "value", "fill_value", "pad_value"),
    "gamma": ("gamma", "gamma_limit"),
    "height": ("max_height", "hole_height_range", "max_h_size"),
    "height_px": ("min_max_height",),
    "horizontal": ("scale", "scale_limit"),
    "horizontal_deg": ("shear",),
    "hue": ("hue", "hue_shift_limit"),
    "k": ("distort_limit",),
    "kernel_px": ("kernel_size", "blur_limit"),
    "max_deg": ("degrees", "rotate_limit", "limit", "rotate"),
    "num": ("n", "num_holes_range", "max_holes", "num_holes"),
    "px": ("padding",),
    "quality": ("quality", "quality_range", "quality_lower", "jpeg_quality"),
    "saturation": ("saturation", "sat_shift_limit"),
    "scale": ("scale", "scale_range", "scale_min"),
    "sigma_px": ("sigma", "sigma_limit"),
    "size": ("size", "height", "max_size", "min_height"),
    "sizes": ("blur_limit", "kernel_size"),
    "std": ("std", "sigma", "var_limit", "std_range"),
    "step": ("num_steps",),
    "threshold": ("threshold", "thresholds", "threshold_range"),
    "tiles": ("tile_grid_size",),
    "value": ("val_shift_limit",),
    "vertical": ("scale", "scale_limit"),
    "vertical_deg": ("shear",),
    "width": ("max_width", "hole_width_range", "max_w_size"),
}
"""A field of an op, or of one kind of op -> the arguments that it is made of, whichever a transform has."""


def reason(error: Exception, one: Any, read: Callable[[Any, str], Any]) -> str:
    """What is wrong with a transform, in a line.

    Args:
        error: that it raised.
        one: the transform.
        read: reads an argument of it.
    """
    if isinstance(error, KeyError):
        return f"has no {error}"
    if isinstance(error, AttributeError) and error.obj is one:
        return f"has no attribute {error.name!r}"
    if isinstance(error, AttributeError | TypeError):
        return f"has an argument of another kind than it takes ({str(error).splitlines()[0]})"
    if not isinstance(error, FieldError):
        return str(error).splitlines()[0]
    told: dict[str, str] = {}
    for line in error.lines:
        argument = _argument(line, error.what, one, read)
        told.setdefault(argument or line, f"{argument}: {line}" if argument else line)
    return " ".join(told.values())


def _argument(line: str, kind: str, one: Any, read: Callable[[Any, str], Any]) -> str:
    """The argument that the field of a line is made of; empty where it is called so itself, or none is known."""
    field = line.partition("=")[0]
    for name in ARGUMENTS.get(f"{kind}.{field}", ARGUMENTS.get(field, ())):
        try:
            value = read(one, name)
        except (AttributeError, KeyError, ValueError):
            continue
        if value is not None:
            return "" if name == field else f"{name}={value}"
    return ""


def in_their_words(text: str, rows: "Iterable[Row]") -> str:
    """What a recipe refuses, with the names of transforms in the place of those of ops that they became."""
    names: dict[str, list[str]] = {}
    for row in rows:
        for op in row.ops:
            for kind in {op.op} if row.holds else {op.op, *(inner.op for inner in op.flat)}:
                names.setdefault(kind, []).append(row.name)
    told = {kind: " or ".join(dict.fromkeys(of)) for kind, of in names.items()}
    return re.sub(r"\b[a-z][a-z0-9_]*\b(?![=(])", lambda found: told.get(found[0], found[0]), text)


def unknown(name: str, makers: Iterable[str]) -> str:
    """That a transform is not known, and what is nearest: an op, or transforms that are called nearly so."""
    called = plain(name), plain(name).removeprefix("random")
    same = next((f"ops.{kind.__name__}()" for kind in KINDS.values() if plain(kind.__name__) in called), None)
    if instead := same or elsewhere(name, ANSWERS):
        return f"is not known here; write {instead}"
    *others, last = difflib.get_close_matches(name, list(makers), n=3) or [""]
    near = f"{', '.join(others)} and {last} are" if others else f"{last} is" if last else ""
    return f"is not known here; {near}" if near else "is not known here"
