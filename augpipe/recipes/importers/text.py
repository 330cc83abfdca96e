"""Recipes of other libraries as they stand in a script: read where the library is not installed, and never executed."""

import ast
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from math import inf, log
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from augpipe.recipes.importers import albumentations, kornia, timm, torchvision
from augpipe.recipes.importers.calls import Call, Script, with_calls
from augpipe.recipes.importers.findings import Findings
from augpipe.recipes.importers.kornia_values import OF_FUNCTIONS
from augpipe.recipes.importers.makers import either_way, twice
from augpipe.recipes.importers.script_recipe import find_recipe
from augpipe.recipes.importers.torchvision_geometry import OF_MASKS
from augpipe.validation.suggest import nearest

OLD_NAMES = {"resample": "interpolation", "fillcolor": "fill"}
"""Arguments of torchvision that were called otherwise once."""
OLD_TRANSFORMS = {
    "Scale": "Resize",
    "RandomSizedCrop": "RandomResizedCrop",
    "SanitizeBoundingBox": "SanitizeBoundingBoxes",
    "ToImageTensor": "ToImage",
    "ToImagePIL": "ToPILImage",
    "ConvertDtype": "ConvertImageDtype",
}
"""Transforms of torchvision that were called otherwise once."""
ERASING_OF_TIMM = ("timm.data.RandomErasing", "timm.data.random_erasing.RandomErasing")
"""Where timm has the one transform that stands among torchvision's."""
FIRST_OF_PARAMS = ("format", "label_fields")
"""The first arguments of albumentations' `BboxParams` and `KeypointParams`."""
PAIRS = {"blur_limit": 3, "clip_limit": 1, "sigma_limit": 0, "var_limit": 0} | dict.fromkeys(
    ("num_masks_x", "num_masks_y", "mask_x_length", "mask_y_length"), 0
)
"""Limits of albumentations that begin at this number where only the largest is given."""


def found_in(text: str, name: str | None = None, version: str | None = None) -> Findings:
    """The ops of the recipe in a text, and what cannot be mapped.

    Args:
        text: calls, as `A.Compose([...])`, or a script that assigns them.
        name: what the script assigns them to, or the function that returns them, where it holds several.
        version: "1" or "2", of albumentations; None takes the one that has all arguments.

    Raises:
        ValueError: it is not Python, holds no recipe, or one that is known only when it runs.
    """
    script = Script(text)
    try:
        call = find_recipe(script, name)
    except RecursionError:
        raise ValueError("the text nests expressions too deeply. Write their values.") from None
    held = {one.library for one in call.args if isinstance(one, Call)}
    if call.library == "kornia" or (call.path == "torch.nn.Sequential" and "kornia" in held):
        found = kornia.found_in(_augmentation(call))
    elif call.library == "torchvision" or call.path == "torch.nn.Sequential":
        found = torchvision.found_in(_object(call))
    elif call.library == "albumentations":
        found = _albumentations(call, version)
    elif call.library == "timm" and call.name == "create_transform":
        found = timm.found_in({"is_training": False, **timm.by_position(call.args), **call.kwargs})
    else:
        raise ValueError(
            f"line {call.line}: {call.path} is not of torchvision, albumentations or kornia, nor timm's "
            "create_transform. Give the line that imports it, too."
        )
    for assumed in script.assumed:
        found.note(f"read with {assumed}")
    return found


@cache
def parameters(library: str) -> dict[str, dict[str, Any]]:
    """The transforms of "torchvision", "albumentations-1" or "albumentations-2" that are known, and their parameters.

    A parameter has its default, or `...` where it must be given.
    """
    texts = tomllib.loads(Path(__file__).with_name("signatures.toml").read_text(encoding="utf-8"))[library]
    return {name: _parameters(text) for name, text in texts.items()}


def _parameters(text: str) -> dict[str, Any]:
    function = ast.parse(f"def f({text}): pass").body[0]
    assert isinstance(function, ast.FunctionDef)
    names = [argument.arg for argument in function.args.args]
    defaults = [Script(ast.unparse(default)).read() for default in function.args.defaults]
    return dict(zip(names, [...] * (len(names) - len(defaults)) + defaults, strict=True))


def _bound(library: str, call: Call, ignored: list[str] | None = None) -> dict[str, Any]:
    """All arguments of a call by name, those that are not given at their defaults.

    Those of another version alone are left out where they may be `ignored`, and added to it.

    Raises:
        ValueError: it is given too many, one that is not known, or too few.
    """
    where = f"line {call.line}: {call.name}"
    package, _, version = library.partition("-")
    if call.library not in ("", package):
        raise ValueError(f"line {call.line}: {call.path} stands among transforms of {package}. Leave it out.")
    known = parameters(library).get(call.name)
    if known is None:
        if version and any(call.name in parameters(f"{package}-{other}") for other in albumentations.VERSIONS):
            raise ValueError(f"{where} is not in version {version} of {package}.")
        return {**dict(zip(FIRST_OF_PARAMS, call.args, strict=False)), **call.kwargs}  # others are refused by name
    if len(call.args) > len(known):
        raise ValueError(f"{where} takes {len(known)} arguments and is given {len(call.args)}.")
    given = {**dict(zip(known, call.args, strict=False)), **call.kwargs}
    for name in [name for name in given if name not in known]:
        if ignored is not None and name in parameters(f"{package}-1").get(call.name, {}):
            ignored.append(f"{name} of {call.name}")
            del given[name]
        else:
            near = nearest(name, known)
            raise ValueError(
                f"{where} of {library} has no argument {name}. "
                + (f"Did you mean {near}?" if near else "Leave it out.")
            )
    bound = {**known, **given}
    missing = [name for name, value in bound.items() if value is ...]
    if missing:
        raise ValueError(f"{where} needs {', '.join(missing)}.")
    if version == "2" and isinstance(bound.get("size"), int):
        raise ValueError(f"{where}: size={bound['size']} must be (height, width).")
    return bound


def _object(call: Call) -> Any:
    """What torchvision's importer reads: an object with the class name and the attributes of the transform."""
    if call.path in ("torch.nn.Sequential", "torch.nn.Identity"):
        call = Call(path=call.name, line=call.line, args=(call.args,) if call.args else ())
    if call.path in ERASING_OF_TIMM:
        given = _bound("timm", call)
        longest = given["max_aspect"] or 1.0 / given["min_aspect"]
        given |= {"log_aspect_ratio": (log(given["min_aspect"]), log(longest)), "mode": given["mode"].lower()}
        given |= {"max_count": given["max_count"] or given["min_count"]}
        return type(call.name, (), given)()
    path = call.path.removesuffix(call.name) + OLD_TRANSFORMS.get(call.name, call.name)
    call = replace(call, path=path, kwargs={OLD_NAMES.get(name, name): value for name, value in call.kwargs.items()})
    given = {name: with_calls(value, _object) for name, value in _bound("torchvision", call).items()}
    normal = NORMAL.get(call.name, {})
    given = {name: normal[name](value) if name in normal else value for name, value in given.items()}
    home = {"__module__": OF_MASKS} if call.path.startswith(OF_MASKS) else {}
    return type(call.name, (), given | home)()


def _angles(value: Any) -> Any:
    """None, a range, two ranges, or how far one reaches either way."""
    return value if value is None or isinstance(value, list | tuple) else (-value, value)


def _about_one(value: Any) -> Any:
    """The range of a factor, of which a number says how far it reaches; None where it changes nothing."""
    limits = tuple(value) if isinstance(value, list | tuple) else (max(0.0, 1.0 - value), 1.0 + value)
    return None if limits == (1.0, 1.0) else limits


def _hue(value: Any) -> Any:
    return None if value in (0, (0, 0), [0, 0]) else either_way(value)


class _Policy(str):
    """The name of a policy, as the enumeration that torchvision has of them."""

    value = property(str.__str__)


NORMAL: dict[str, dict[str, Any]] = {
    "AutoAugment": {"policy": _Policy},
    "CenterCrop": {"size": twice},
    "ColorJitter": {**dict.fromkeys(("brightness", "contrast", "saturation"), _about_one), "hue": _hue},
    "ElasticTransform": {"alpha": twice, "sigma": twice},
    "GaussianBlur": {"kernel_size": twice, "sigma": twice},
    "JPEG": {"quality": twice},
    "RandomAffine": {"degrees": _angles, "shear": _angles},
    "RandomCrop": {"size": twice},
    "RandomResizedCrop": {"size": twice},
    "RandomRotation": {"degrees": _angles},
}
"""A transform of torchvision -> what its constructor makes of arguments."""


def _augmentation(call: Call) -> Any:
    """What kornia's importer reads: an object with the class name, settings and samplers of the augmentation."""
    made = type(call.name, (), {"__module__": call.path.rpartition(".")[0]})()
    if call.name in kornia.HOLDERS:
        inner = [_augmentation(one) for one in call.args if isinstance(one, Call)]
        made.children = lambda: inner
        made.random_apply = call.kwargs.get("random_apply", False)
        made.data_keys = call.kwargs.get("data_keys")
        made._same_on_batch = call.kwargs.get("same_on_batch", False)
        return made
    if call.path.startswith(OF_FUNCTIONS) and call.name in parameters("kornia-functions"):
        made.__dict__.update(_bound("kornia-functions", call))
        return made
    if not call.path.startswith("kornia.augmentation."):
        return made  # refused by its name
    given = {"p": 1.0} | _bound("kornia", call)  # one that is not known has a p, too
    if call.name == "CenterCrop":
        given["size"] = twice(given["size"])
    if call.name in SIDES:
        given |= {"size": given["max_size"], "side": SIDES[call.name]}
    made.__dict__.update(given)
    made.flags = given | ({"bits_factor": given["bits"]} if call.name == "RandomPosterize" else {})
    samplers = {f"{name}_sampler": None for name in ("scale_2", "scale_4", "translate_x", "translate_y")}
    for name, (argument, *limits) in RANGES.get(call.name, {}).items():
        if (value := given[argument]) is not None:
            samplers[f"{name}_sampler"] = _sampler(value, *limits)
    if call.name == "RandomThinPlateSpline":
        made.dist = _sampler(given["scale"], 0.0, -given["scale"])
    if call.name in ("RandomAffine", "RandomShear"):
        samplers |= _of_affine(given)
    made._param_generator = SimpleNamespace(**{**made.flags, **samplers})
    return made


def _sampler(value: Any, centre: float, least: float, most: float = inf) -> Any:
    is_range = isinstance(value, list | tuple)
    low, high = value if is_range else (max(centre - value, least), min(centre + value, most))
    return SimpleNamespace(low=low, high=high)


def _of_affine(given: Mapping[str, Any]) -> dict[str, Any]:
    """Samplers of what an affine map moves and shears, of which kornia takes one, two or four numbers."""
    translate, scale, shear = (given.get(name) for name in ("translate", "scale", "shear"))
    made: dict[str, Any] = {}
    if translate is not None:
        both = translate if isinstance(translate, list | tuple) else (0.0, translate)
        made |= {f"translate_{axis}_sampler": _sampler(most, 0.0, -most) for axis, most in zip("xy", both, strict=True)}
    if scale is not None:
        made["scale_2_sampler"] = _sampler(scale[:2], 0.0, 0.0)
        made["scale_4_sampler"] = _sampler(scale[2:], 0.0, 0.0) if len(scale) == 4 else None
    if shear is not None:
        ranges = [*shear, *(() if len(shear) == 4 else (0.0, 0.0))] if isinstance(shear, list | tuple) else None
        ranges = ranges or [-shear, shear, 0.0, 0.0]
        made |= {"shear_x_sampler": _sampler(ranges[:2], 0.0, 0.0), "shear_y_sampler": _sampler(ranges[2:], 0.0, 0.0)}
    return made


SIDES = {"SmallestMaxSize": "short", "LongestMaxSize": "long"}
"""Augmentations of kornia that are a Resize by this side."""
JITTER: dict[str, tuple[str, *tuple[float, ...]]] = {
    **{name: (name, 1.0, 0.0) for name in ("brightness", "contrast", "saturation")},
    "hue": ("hue", 0.0, -0.5, 0.5),
}
RANGES: dict[str, dict[str, tuple[str, *tuple[float, ...]]]] = {
    "ColorJitter": JITTER,
    "ColorJiggle": JITTER,
    "RandomAffine": {"degree": ("degrees", 0.0, -360.0)},
    "RandomBrightness": {"brightness_factor": ("brightness", 1.0, 0.0)},
    "RandomContrast": {"contrast_factor": ("contrast", 1.0, 0.0)},
    "RandomGamma": {"gamma_factor": ("gamma", 0.0, 0.0), "gain_factor": ("gain", 0.0, 0.0)},
    "RandomRGBShift": {f"{channel}_shift": (f"{channel}_shift_limit", 0.0, -1.0) for channel in "rgb"},
    "RandomGaussianBlur": {"sigma": ("sigma", 0.0, 0.0)},
    "RandomJPEG": {"jpeg_quality": ("jpeg_quality", 50.0, 1.0)},
    "RandomSaturation": {"saturation_factor": ("saturation", 1.0, 0.0)},
    "RandomHue": {"hue_factor": ("hue", 0.0, -0.5)},
    "RandomRotation": {"degrees": ("degrees", 0.0, -360.0)},
    "RandomRotation90": {"times": ("times", 0.0, -3.0, 3.0)},
    "RandomTranslate": {f"translate_{axis}": (f"translate_{axis}", 0.0, -1.0) for axis in "xy"},
    "RandomSharpness": {"sharpness": ("sharpness", 0.0, 0.0)},
    "RandomSolarize": {"thresholds": ("thresholds", 0.5, 0.0, 1.0), "additions": ("additions", 0.0, -0.5, 0.5)},
}
"""An augmentation of kornia -> what it samples: of which argument, and about which centre and not below what where
that is one number, nor above what: a hue of more than half a turn was half a turn in its first versions."""


def _albumentations(call: Call, version: str | None) -> Findings:
    """What is found by the version that takes all arguments."""
    if version not in (None, *albumentations.VERSIONS):
        raise ValueError(f"version={version!r} of albumentations must be '1' or '2', its first number.")
    errors: dict[str, ValueError] = {}
    taken: dict[str, Mapping[str, Any]] = {}
    ignored: list[str] = []
    for one in (version,) if version else reversed(albumentations.VERSIONS):
        try:
            taken[one] = _as_dict(call, one)
        except ValueError as error:
            errors[one] = error
    if not taken and "2" in errors:
        try:
            taken["2"] = _as_dict(call, "2", ignored)
        except ValueError:
            raise errors["2"] from None
    if not taken:
        raise next(iter(errors.values()))
    read = next(iter(taken))
    found = albumentations.found_in(taken[read], read)
    if ignored:
        found.note(f"read as albumentations 2, which ignores {', '.join(ignored)}.")
    elif version is None:
        also = "" if len(taken) == 1 else ", though it also fits version 1"
        found.note(f"read as albumentations {read}{also}.")
    return found


def _as_dict(call: Call, version: str, ignored: list[str] | None = None) -> dict[str, Any]:
    """What `A.to_dict` makes of a transform."""
    made = {"__class_fullname__": call.name}
    for name, value in _bound(f"albumentations-{version}", call, ignored).items():
        if name in PAIRS and isinstance(value, int | float):
            value = (0 if call.name == "GaussianBlur" else PAIRS[name], value)  # its kernel may follow from sigma
        made[name] = with_calls(value, lambda held: _as_dict(held, version, ignored))
    return made
