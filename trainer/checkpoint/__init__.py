"""Checkpoints: atomic, in the background, checked before they are used."""

from augpipe.trainer.checkpoint.load import Checkpoint, agree_on_newest
from augpipe.trainer.checkpoint.save import Saver
from augpipe.trainer.tensors.box import Box, BoxAt
from augpipe.trainer.tensors.tensor_file import DamagedError

__all__ = ["Box", "BoxAt", "Checkpoint", "DamagedError", "Saver", "agree_on_newest"]
