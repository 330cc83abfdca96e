"""Checkpoints: atomic, in the background, checked before they are used."""

from augpipe.trainer.checkpoint.load import Checkpoint, agree_on_newest
from augpipe.trainer.checkpoint.manifest import DamagedError
from augpipe.trainer.checkpoint.parts import Box, BoxAt
from augpipe.trainer.checkpoint.save import Saver

__all__ = ["Box", "BoxAt", "Checkpoint", "DamagedError", "Saver", "agree_on_newest"]
