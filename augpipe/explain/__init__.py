"""Which part of loading is slow, what would be gained, and how."""

from augpipe.explain.explanation import Explanation, Stage

__all__ = ["Explanation", "Stage"]
