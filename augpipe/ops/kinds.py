"""Every kind of op, and how one is read from what a recipe's TOML says."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, get_args

from pydantic import BaseModel, BeforeValidator, Field, WrapValidator

from augpipe.ops.blur import Blur
from augpipe.ops.colour import (
    Brightness,
    ChannelDropout,
    ChannelShuffle,
    ColorJitter,
    Contrast,
    Grayscale,
    Hue,
    Lighting,
    Saturation,
)
from augpipe.ops.crops import CenterCrop, MultiResolutionCrop, RandomResizedCrop
from augpipe.ops.geometry import Flip, QuarterTurn, Rotate, Shear, Stretch, Translate, Zoom
from augpipe.ops.groups import AllOf, Identity, OneOf, SomeOf
from augpipe.ops.lens import BrownConrady, LensDistortion
from augpipe.ops.levels import AutoContrast, Equalize, Gamma, Invert, Posterize, Sharpness, Solarize, SolarizeAdd
from augpipe.ops.op import Op
from augpipe.ops.other_names import ANSWERS
from augpipe.ops.output_frame import Erase, Noise
from augpipe.ops.perspective import Perspective
from augpipe.ops.tone import ColorCast, Normalize, Vignette
from augpipe.validation.models import ListOf, broken
from augpipe.validation.suggest import elsewhere, nearest

__all__ = ["AllOf", "AnyKind", "AnyOp", "Identity", "OneOf", "Ops", "SomeOf", "is_list"]

AnyKind = (
    AllOf
    | AutoContrast
    | Blur
    | Brightness
    | BrownConrady
    | CenterCrop
    | ChannelDropout
    | ChannelShuffle
    | ColorCast
    | ColorJitter
    | Contrast
    | Equalize
    | Erase
    | Flip
    | Gamma
    | Grayscale
    | Hue
    | Identity
    | Invert
    | LensDistortion
    | Lighting
    | MultiResolutionCrop
    | Noise
    | Normalize
    | OneOf
    | Perspective
    | Posterize
    | QuarterTurn
    | RandomResizedCrop
    | Rotate
    | Saturation
    | Sharpness
    | Shear
    | Solarize
    | SolarizeAdd
    | SomeOf
    | Stretch
    | Translate
    | Vignette
    | Zoom
)
_KINDS = {kind.model_fields["op"].default: kind for kind in get_args(AnyKind)}
"""The name in TOML -> the op."""

MIXES = ("mix_up", "cut_mix")
"""What is no op of an image, and belongs into `Recipe.mixing`."""


def _is_op(value: Any, validate: Callable[[Any], Any]) -> Any:
    """Say of what is no op at all what it is instead; whatever looks like one is validated as such."""
    if isinstance(value, get_args(AnyKind)):
        return validate(value)
    if isinstance(value, type) and issubclass(value, Op):
        raise ValueError(f"{value.__name__} is the class. Write {value.__name__}() for an op of it.")
    name = value.get("op") if isinstance(value, Mapping) else value
    if (getattr(value, "op", None) or name) in MIXES:
        raise ValueError(
            "what mixes finished images goes into the recipe's mixing, not its ops. Write mixing=[ops.MixUp()], in "
            'TOML [[mixing]] and op = "mix_up".'
        )
    if isinstance(value, Mapping) and name is None:
        raise ValueError('every op names its kind, as in op = "color_cast".')
    if not isinstance(name, str):
        raise ValueError(
            f"a value of type {type(value).__name__} is not an op. augpipe.ops has {len(_KINDS)}, as ops.Flip()."
        )
    if name not in _KINDS:
        instead, near = elsewhere(name, ANSWERS), nearest(name, _KINDS)
        hint = f"Did you mean {near!r}?" if near else f"There are {', '.join(_KINDS)}."
        hint = f"In Python write {instead}; augpipe recipe NAME shows a recipe's TOML." if instead else hint
        raise ValueError(f"{name!r} is not an op. {hint}")
    if name is value:
        raise ValueError(
            f'{name!r} is only the name of an op. Write {_KINDS[name].__name__}(), in TOML {{op = "{name}"}}.'
        )
    return validate(value)


def is_list(value: Any) -> Any:
    """Say of one op or view, which pydantic would take for the list of its own fields, that it belongs into a list."""
    if isinstance(value, BaseModel):
        raise broken(f"must be a list: {{name}}=[{type(value).__name__}(...)]")
    return value


AnyOp = Annotated[AnyKind, Field(discriminator="op"), WrapValidator(_is_op)]
if TYPE_CHECKING:
    Ops = ListOf[Op]  # whoever writes a function that returns ops need not list their kinds
else:
    Ops = Annotated[ListOf[AnyOp], BeforeValidator(is_list)]

for _group in (AllOf, OneOf, SomeOf):
    _group.model_rebuild(_types_namespace={"Ops": Ops})
