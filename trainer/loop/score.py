"""How well a network did on some images: sums, to be added up over steps and processes."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Score:
    """Over the images that one process has trained on."""

    loss_sum: float
    num_correct: int
    """Images that were classified correctly; of mixed ones, by the label that weighs more."""
    num_samples: int
