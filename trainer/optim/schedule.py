"""The learning rate over time, as a factor: a pure function of the epochs done, and the plateau's little memory."""

import math
from bisect import bisect_right
from typing import Any

from augpipe.trainer.config.tables import ScheduleConfig


def lr_factor(config: ScheduleConfig, epochs_done: float, num_epochs: float, plateau: float = 1.0) -> float:
    """What the learning rate is multiplied by for a step.

    Args:
        config: the schedule.
        epochs_done: before the step, fractions included. As it counts samples, it is the same for any world size.
        num_epochs: at which the run ends.
        plateau: the factor that `Plateau` has come to.
    """
    return _warm_up(config, epochs_done) * _decay(config, epochs_done, num_epochs, plateau)


def _warm_up(config: ScheduleConfig, epochs_done: float) -> float:
    if epochs_done >= config.warmup_epochs:
        return 1.0
    return epochs_done / config.warmup_epochs


def _decay(config: ScheduleConfig, epochs_done: float, num_epochs: float, plateau: float) -> float:
    match config.name:
        case "constant":
            return 1.0
        case "step":
            return config.gamma ** bisect_right(config.milestones, epochs_done)
        case "cosine":
            span = max(num_epochs - config.warmup_epochs, 1e-12)
            done = min(max(epochs_done - config.warmup_epochs, 0.0) / span, 1.0)
            return config.min_factor + (1 - config.min_factor) * (1 + math.cos(math.pi * done)) / 2
        case "plateau":
            return max(plateau, config.min_factor)


class Plateau:
    """Divides the rate where the evaluation's loss no longer falls."""

    def __init__(self, config: ScheduleConfig) -> None:
        self._config = config
        self.factor = 1.0
        """What the rate is multiplied by now."""
        self._best = math.inf
        self._num_bad = 0

    def update(self, loss: float) -> bool:
        """Take in one evaluation's loss; returns whether the rate falls for it."""
        if self._config.name != "plateau":
            return False
        if loss < self._best * (1 - self._config.threshold) or not math.isfinite(self._best):
            self._best, self._num_bad = loss, 0
            return False
        self._num_bad += 1
        if self._num_bad <= self._config.patience or self.factor <= self._config.min_factor:
            return False
        self.factor *= self._config.gamma
        self._num_bad = 0
        return True

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"factor": self.factor, "best": self._best, "num_bad": self._num_bad}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.factor, self._best, self._num_bad = state["factor"], state["best"], state["num_bad"]
