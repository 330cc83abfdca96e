"""The training loop."""

from augpipe.trainer.loop.failures.heartbeat import PeerError
from augpipe.trainer.loop.run import run
from augpipe.trainer.loop.training import NotFiniteError, Result, SaveError

__all__ = ["NotFiniteError", "PeerError", "Result", "SaveError", "run"]
