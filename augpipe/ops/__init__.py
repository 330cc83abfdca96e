"""The ops that a recipe is made of."""

from augpipe.ops.blur import Blur
from augpipe.ops.crops import CenterCrop, MultiResolutionCrop, RandomResizedCrop
from augpipe.ops.geometry import Flip, QuarterTurn, Rotate, Shear, Stretch, Translate, Zoom
from augpipe.ops.lens import BrownConrady, LensDistortion
from augpipe.ops.op import Op
from augpipe.ops.perspective import Perspective
from augpipe.ops.tone import ColorCast, Normalize, Vignette

__all__ = [
    "Blur",
    "BrownConrady",
    "CenterCrop",
    "ColorCast",
    "Flip",
    "LensDistortion",
    "MultiResolutionCrop",
    "Normalize",
    "Op",
    "Perspective",
    "QuarterTurn",
    "RandomResizedCrop",
    "Rotate",
    "Shear",
    "Stretch",
    "Translate",
    "Vignette",
    "Zoom",
]
