"""Stored photographs into augmented training batches: fast, and always the same ones for the same seed."""

from augpipe import ops, recipes
from augpipe.augment import Augment
from augpipe.batch import Batch
from augpipe.errors import DeviceError, SampleError
from augpipe.loader import Loader
from augpipe.planning.plan import Plan, plan
from augpipe.recipe import Recipe, View
from augpipe.source import Source

__version__ = "0.1.0.dev0"

__all__ = [
    "Augment",
    "Batch",
    "DeviceError",
    "Loader",
    "Plan",
    "Recipe",
    "SampleError",
    "Source",
    "View",
    "ops",
    "plan",
    "recipes",
]
