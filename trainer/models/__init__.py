"""Networks by name, with random weights: those of the papers, residual ones, a small one, and other libraries'."""

from augpipe.trainer.models.registry import build, names

__all__ = ["build", "names"]
