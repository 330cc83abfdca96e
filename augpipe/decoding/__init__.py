"""From the bytes of an image file to RGBX pixels: look at the header first, then decode."""

from augpipe.decoding.decode import decode
from augpipe.decoding.header import MAX_PIXELS, Header
from augpipe.decoding.probe import probe

__all__ = ["MAX_PIXELS", "Header", "decode", "probe"]
