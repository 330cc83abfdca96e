"""Recipes ready to use."""

from augpipe.ops import (
    CenterCrop,
    ColorCast,
    Flip,
    LensDistortion,
    MultiResolutionCrop,
    Normalize,
    Rotate,
    Vignette,
)
from augpipe.recipe import Recipe


def deep_image(size: int = 224, scales: tuple[int, ...] = (256, 512)) -> Recipe:
    """The augmentations of Table 1 of the Deep Image papers in its order and with its counts, then normalisation.

    Args:
        size: output height and width, in pixels.
        scales: short sides that the photograph is resized to before it is cropped, in pixels; one is drawn.
    """
    ops = (
        ColorCast(),
        Vignette(),
        LensDistortion(),
        Rotate(),
        Flip(),
        MultiResolutionCrop(size=size, scales=tuple(scales)),
        Normalize(),
    )
    return Recipe(name="deep_image", ops=ops)


def evaluation(size: int = 224, scale: int = 256) -> Recipe:
    """The centre `size` x `size` pixels of the photograph with its short side at `scale`, normalised."""
    return Recipe(name="evaluation", ops=(CenterCrop(size=size, scale=scale), Normalize()))


def none() -> Recipe:
    """No change at all: every photograph at its own size, in levels 0..255."""
    return Recipe(name="none")


BY_NAME = {"deep_image": deep_image, "evaluation": evaluation, "none": none}
"""What the command line accepts beside a TOML file."""
