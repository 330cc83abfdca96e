"""Stored images into augmented training batches: fast, and always the same ones for the same seed."""

import os

if os.name == "nt":
    raise ImportError(
        "augpipe runs on Linux and macOS, and this is Windows, which lacks the file locks and maps that it uses. WSL 2 "
        "is a Linux within Windows: wsl --install, and there pip install augpipe."
    )

__path__ = [os.path.realpath(folder) for folder in __path__]  # an editable install names a link: one name for a file
__path__.append(os.path.join(__path__[0], "deprecated"))  # where modules are found by their old names

TYPE_CHECKING = False  # what type checkers take for typing's own, whose import would be most of this file's time

if TYPE_CHECKING:
    from augpipe import ops as ops
    from augpipe import policies as policies
    from augpipe import recipes as recipes
    from augpipe import sampling as sampling
    from augpipe import sources as sources
    from augpipe.augment import Augment as Augment
    from augpipe.batch import Batch as Batch
    from augpipe.errors import DeviceError as DeviceError
    from augpipe.errors import SampleError as SampleError
    from augpipe.loader import Loader as Loader
    from augpipe.mixed_labels import MixedLabels as MixedLabels
    from augpipe.planning.plan import Plan as Plan
    from augpipe.planning.plan import plan as plan
    from augpipe.planning.targets.options import TargetOptions as TargetOptions
    from augpipe.preview.show import show as show
    from augpipe.recipes.recipe import Recipe as Recipe
    from augpipe.recipes.schedule import Schedule as Schedule
    from augpipe.recipes.view import View as View
    from augpipe.sampling.epoch_order import Place as Place
    from augpipe.sources.protocol import Source as Source

__version__ = "0.1.0.dev0"

_PLACES = {
    "Augment": "augpipe.augment",
    "Batch": "augpipe.batch",
    "DeviceError": "augpipe.errors",
    "Loader": "augpipe.loader",
    "MixedLabels": "augpipe.mixed_labels",
    "Place": "augpipe.sampling.epoch_order",
    "Plan": "augpipe.planning.plan",
    "Recipe": "augpipe.recipes.recipe",
    "SampleError": "augpipe.errors",
    "Schedule": "augpipe.recipes.schedule",
    "Source": "augpipe.sources.protocol",
    "TargetOptions": "augpipe.planning.targets.options",
    "View": "augpipe.recipes.view",
    "plan": "augpipe.planning.plan",
    "show": "augpipe.preview.show",
}
"""Where each name lives. It is looked for there when it is first asked for: importing numba takes most of a second, in
which a command could neither answer nor be interrupted without a traceback."""

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
"""Names that are looked for at the top, as `suggest.plain` gives them -> what to write."""

__all__ = [
    "Augment",
    "Batch",
    "DeviceError",
    "Loader",
    "MixedLabels",
    "Place",
    "Plan",
    "Recipe",
    "SampleError",
    "Schedule",
    "Source",
    "TargetOptions",
    "View",
    "ops",
    "plan",
    "policies",
    "recipes",
    "sampling",
    "show",
    "sources",
]


if not TYPE_CHECKING:  # the names above are all that there are to a type checker

    def __getattr__(name):
        from importlib import import_module

        from augpipe.validation.collecting import without_collecting

        try:
            with without_collecting():
                if name in _PLACES:
                    return globals().setdefault(name, getattr(import_module(_PLACES[name]), name))
                return import_module(f"{__name__}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{__name__}.{name}":
                raise  # it is there, and lacks something itself
        from augpipe.validation.suggest import missing

        raise missing(__name__, name, __all__, {} if name.startswith("_") else _answers())

    def _answers():
        """What to write for a name that is not at the top: those of ops and recipes, and those of other libraries."""
        from augpipe import ops, recipes
        from augpipe.ops.other_names import ANSWERS
        from augpipe.validation.suggest import plain

        own = {plain(name): f"augpipe.ops.{name}()" for name in dir(ops)}
        own |= {plain(name): f"augpipe.recipes.{name}(...)" for name in recipes.__all__}
        return ANSWERS | own | _ANSWERS


def __dir__() -> list[str]:
    return ["__version__", *__all__]
