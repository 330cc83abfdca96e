"""A page in the browser that shows what a recipe does while its numbers are moved; served to this machine alone."""

from augpipe.preview.live.answers import Answers
from augpipe.preview.live.server import LiveServer, serve

__all__ = ["Answers", "LiveServer", "serve"]
