"""The ops that a recipe is made of."""

from typing import TYPE_CHECKING

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
from augpipe.ops.kinds import AllOf, Identity, OneOf, SomeOf  # complete, as they hold ops of any kind
from augpipe.ops.lens import BrownConrady, LensDistortion
from augpipe.ops.levels import AutoContrast, Equalize, Gamma, Invert, Posterize, Sharpness, Solarize, SolarizeAdd
from augpipe.ops.mixing import CutMix, MixUp
from augpipe.ops.op import Op
from augpipe.ops.output_frame import Erase, Noise
from augpipe.ops.perspective import Perspective
from augpipe.ops.tone import ColorCast, Normalize, Vignette

__all__ = [
    "AllOf",
    "AutoContrast",
    "Blur",
    "Brightness",
    "BrownConrady",
    "CenterCrop",
    "ChannelDropout",
    "ChannelShuffle",
    "ColorCast",
    "ColorJitter",
    "Contrast",
    "CutMix",
    "Equalize",
    "Erase",
    "Flip",
    "Gamma",
    "Grayscale",
    "Hue",
    "Identity",
    "Invert",
    "LensDistortion",
    "Lighting",
    "MixUp",
    "MultiResolutionCrop",
    "Noise",
    "Normalize",
    "OneOf",
    "Op",
    "Perspective",
    "Posterize",
    "QuarterTurn",
    "RandomResizedCrop",
    "Rotate",
    "Saturation",
    "Sharpness",
    "Shear",
    "Solarize",
    "SolarizeAdd",
    "SomeOf",
    "Stretch",
    "Translate",
    "Vignette",
    "Zoom",
]


if not TYPE_CHECKING:  # a type checker says itself which names there are not

    def __getattr__(name):
        from augpipe.ops.other_names import ANSWERS
        from augpipe.validation.suggest import missing

        raise missing(__name__, name, __all__, ANSWERS)


def __dir__() -> list[str]:
    return __all__
