"""Recipes: what is done to each image, made in Python, read from TOML, or ready to use."""

from typing import TYPE_CHECKING

from augpipe.recipes.ready_made import (
    BY_NAME,
    auto_augment,
    deep_image,
    evaluation,
    evaluation_of,
    from_timm,
    none,
    progressive,
    ramp,
    rand_augment,
    resized,
    three_augment,
    timm,
    trivial_augment_wide,
    usual_scale,
)
from augpipe.validation.suggest import missing

__all__ = [
    "BY_NAME",
    "auto_augment",
    "deep_image",
    "evaluation",
    "evaluation_of",
    "from_timm",
    "none",
    "progressive",
    "ramp",
    "rand_augment",
    "resized",
    "three_augment",
    "timm",
    "trivial_augment_wide",
    "usual_scale",
]

_ANSWERS = {
    **dict.fromkeys(("train", "training", "default", "imagenet"), "recipes.deep_image(224)"),
    **dict.fromkeys(("eval", "val", "valid", "validation", "test"), "recipes.evaluation(224)"),
    **dict.fromkeys(("compose", "recipe"), "Recipe(ops=[...])"),
    **dict.fromkeys(("createtransform", "fromtimmargs"), "recipes.from_timm(input_size=224, ...)"),
    "fromtorchvision": "Recipe.from_torchvision(transform)",
    "fromalbumentations": "Recipe.from_albumentations(A.to_dict(transform))",
    "load": 'Recipe.load("my.toml")',
}
"""What is looked for here under other names, as `suggest.plain` gives them -> what to write."""


if not TYPE_CHECKING:  # a type checker says itself which names there are not

    def __getattr__(name):
        raise missing(__name__, name, __all__, _ANSWERS)


def __dir__() -> list[str]:
    return __all__
