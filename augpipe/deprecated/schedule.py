"""The old path of `augpipe.recipes.schedule`, until augpipe 0.2."""

from augpipe.validation.deprecation import moved_module

__getattr__ = moved_module("augpipe.schedule", "augpipe.recipes.schedule", "0.2")
