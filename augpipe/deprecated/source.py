"""The old path of `augpipe.sources.protocol`, until augpipe 0.2."""

from augpipe.validation.deprecation import moved_module

__getattr__ = moved_module("augpipe.source", "augpipe.sources.protocol", "0.2")
