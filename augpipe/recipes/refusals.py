"""What a caller refuses: what is not a recipe, and recipes that ask for more than there is."""

from augpipe.ops import Op
from augpipe.recipes.recipe import Recipe


def check_recipe(recipe: object) -> None:
    """Raise ValueError unless it is a recipe, with what to write instead."""
    if not isinstance(recipe, Recipe):
        raise ValueError(f"recipe is {_what(recipe)}")


def _what(given: object) -> str:
    """What was given instead of a recipe, and what to write."""
    library = type(given).__module__.partition(".")[0]
    name = getattr(given, "__name__", type(given).__name__)
    if library == "torchvision" or type(given).__module__ == "torch.nn.modules.container":
        return f"a {name} of torchvision. Write Recipe.from_torchvision(transform), or recipes.deep_image()."
    if library in ("albumentations", "albumentationsx"):
        return f"a {name} of albumentations. Write Recipe.from_albumentations(transform)."
    if library == "kornia":
        return f"a {name} of kornia. Write Recipe.from_kornia(module)."
    if isinstance(given, Op):
        return f"an op. Write Recipe(ops=[ops.{type(given).__name__}(...)])."
    if isinstance(given, list | tuple):
        return f"a {name}. Write Recipe(ops=[...]) around the list."
    if callable(given):
        return f"{name} itself. Write {name}() for its recipe, as recipes.deep_image()."
    return f"a {name}. Give a Recipe, as recipes.deep_image(); Recipe.load(path) reads one."


def refuse_mixing(recipe: Recipe, what: str) -> None:
    """Raise ValueError where a recipe mixes images and `what` sees no others to mix them with."""
    if recipe.mixes_samples:
        parts = [name for name, has in (("mosaic", recipe.mosaic is not None), ("mixing", recipe.mixing)) if has]
        raise ValueError(
            f"the recipe {recipe.name or 'unnamed'!r} mixes samples, and {what} cannot tell which: partners go by "
            f"position in an epoch. Use a Loader, or leave {' and '.join(parts)} out: Recipe(ops=recipe.ops, "
            "views=recipe.views)."
        )


def refuse_pasting(recipe: Recipe) -> None:
    """Raise ValueError where a recipe pastes objects and no outlines are known."""
    if recipe.pastes_objects:
        raise ValueError(
            f"{recipe.called} has copy_paste, and a plan without a source knows no outlines of objects. Use a Loader, "
            "or leave partners out."
        )


def refuse_functions(recipe: Recipe, where: str) -> None:
    """Raise ValueError where a recipe calls functions and images are rendered on a device."""
    if recipe.has_functions:
        raise ValueError(
            f"{recipe.called} calls a function of yours ({recipe.functions_text}), which takes an array on the CPU, "
            f'and {where} has none. Choose device="cpu", or leave ops.Custom out.'
        )


def refuse_keeping(recipe: Recipe, where: str = "here") -> None:
    """Raise ValueError where a crop of a recipe has `keep_objects` and no boxes are known."""
    if recipe.keeping:
        raise ValueError(
            f"{recipe.called} keeps objects ({recipe.keeping[0][0]}), and no boxes are known {where}. Use a Loader "
            "with a source that has boxes, or Augment with bboxes=...; or leave keep_objects out."
        )
