"""The old path of `augpipe.recipes.recipe`, until augpipe 0.2."""

from augpipe.validation.deprecation import moved_module

__getattr__ = moved_module("augpipe.recipe", "augpipe.recipes.recipe", "0.2")
