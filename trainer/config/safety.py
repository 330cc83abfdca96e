"""What a run does about its own end: checkpoints, faults, reports."""

from typing import Literal

from pydantic import Field

from augpipe.trainer.config.base import Section


class CheckpointConfig(Section):
    """The `[checkpoint]` table."""

    every_epochs: int = Field(default=1, ge=0)
    """Epochs between checkpoints; 0: none at epochs' ends."""
    every_steps: int = Field(default=0, ge=0)
    """Steps between checkpoints; 0: none within epochs."""
    keep: int = Field(default=3, ge=1)
    """How many of the newest are kept."""
    resume: Literal["auto", "never"] = "auto"
    """auto: go on from the newest checkpoint in the run's folder that is whole; never: refuse a folder that has any."""
    asynchronous: bool = True
    """Write in the background; the loop waits for the copy in memory alone."""
    on_failure: Literal["continue", "stop"] = "continue"
    """A checkpoint that cannot be written, e.g. to a full disk: train on and try the next, or end the run."""


class FaultsConfig(Section):
    """The `[faults]` table."""

    on_nan: Literal["stop", "skip", "ignore"] = "stop"
    """A loss or gradient that is not finite: end the run before weights are touched, leave the step out on all ranks
    and count it, or do not look (which saves one pass over the gradients)."""
    timeout_s: float = Field(default=300.0, gt=0.0)
    """Longest an exchange may take before the rank that waits gives up."""
    heartbeat_timeout_s: float = Field(default=20.0, gt=0.0)
    """A rank not heard of for so long is dead, and the others end. 0.25 of it passes between two signs of life."""


class ReportConfig(Section):
    """The `[report]` table."""

    log_every: int = Field(default=10, ge=1)
    """Steps between two rows of metrics.csv."""
    progress: bool = True
    """A progress bar, where there is a terminal."""
    tensorboard: bool = True
    """Write TensorBoard files too, where it is installed."""
    sample_ids: bool = False
    """Write which samples each rank took in each step to samples-rank<R>.csv."""
