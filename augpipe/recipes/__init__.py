"""Recipes: what is done to each image, made in Python, read from TOML, or ready to use."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from augpipe.ops.crops import usual_scale as usual_scale
    from augpipe.recipes.ready_made import BY_NAME as BY_NAME
    from augpipe.recipes.ready_made import auto_augment as auto_augment
    from augpipe.recipes.ready_made import deep_image as deep_image
    from augpipe.recipes.ready_made import evaluation as evaluation
    from augpipe.recipes.ready_made import evaluation_of as evaluation_of
    from augpipe.recipes.ready_made import from_timm as from_timm
    from augpipe.recipes.ready_made import none as none
    from augpipe.recipes.ready_made import progressive as progressive
    from augpipe.recipes.ready_made import ramp as ramp
    from augpipe.recipes.ready_made import rand_augment as rand_augment
    from augpipe.recipes.ready_made import resized as resized
    from augpipe.recipes.ready_made import three_augment as three_augment
    from augpipe.recipes.ready_made import timm as timm
    from augpipe.recipes.ready_made import trivial_augment_wide as trivial_augment_wide

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
    "fromalbumentations": "Recipe.from_albumentations(transform)",
    "load": 'Recipe.load("my.toml")',
}
"""What is looked for here under other names, as `suggest.plain` gives them -> what to write."""


if not TYPE_CHECKING:  # a type checker says itself which names there are not

    def __getattr__(name):
        """Each name is imported when it is first asked for: a command that only names a recipe needs no numpy."""
        from importlib import import_module

        from augpipe.validation.suggest import missing

        if name in __all__:
            return globals().setdefault(name, getattr(import_module("augpipe.recipes.ready_made"), name))
        raise missing(__name__, name, __all__, _ANSWERS)


def __dir__() -> list[str]:
    return __all__
