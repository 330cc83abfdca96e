"""Codecs: gradients and updates as fewer bytes, with stated error bounds."""

from augpipe.trainer.codecs.base_codec import Codec
from augpipe.trainer.codecs.error_feedback import ErrorFeedback
from augpipe.trainer.codecs.registry import codec, names

__all__ = ["Codec", "ErrorFeedback", "codec", "names"]
