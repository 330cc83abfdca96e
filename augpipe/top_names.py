"""What is looked for at the top of the package, and where it is."""

from augpipe.validation.suggest import plain

_ANSWERS = {
    "dataloader": "augpipe.Loader(source, recipe, batch_size=64)",
    **dict.fromkeys(("dataset", "imagefolder"), 'the path itself: augpipe.Loader("photos/", recipe, batch_size=64)'),
    **dict.fromkeys(("compose", "sequential", "transforms"), "augpipe.Recipe(ops=[augpipe.ops.Flip(), ...])"),
    **dict.fromkeys(("augmentmodule", "module"), "augpipe.nn.AugmentModule(recipe)"),
    "opensource": "augpipe.datasets.open.open_source(path)",
    "fromtorchvision": "augpipe.Recipe.from_torchvision(transform)",
    "fromalbumentations": "augpipe.Recipe.from_albumentations(transform)",
    "fromtimm": "augpipe.recipes.from_timm(input_size=224, ...)",
}
"""Names as `suggest.plain` gives them -> what to write."""


def answers() -> dict[str, str]:
    """What to write for a name that is not at the top: those of ops and recipes, and those of other libraries."""
    from augpipe import ops, recipes
    from augpipe.ops.other_names import ANSWERS

    own = {plain(name): f"augpipe.ops.{name}()" for name in dir(ops)}
    own |= {plain(name): f"augpipe.recipes.{name}(...)" for name in recipes.__all__}
    return ANSWERS | own | _ANSWERS
