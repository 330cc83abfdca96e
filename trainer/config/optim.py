"""How weights are updated: the optimizer, its schedule, averaging of weights."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from augpipe.trainer.config.base import Section

Beta = Annotated[float, Field(ge=0.0, lt=1.0)]
OptimizerName = Literal["sgd", "rmsprop", "adagrad", "adamw"]


class OptimConfig(Section):
    """The `[optim]` table."""

    name: OptimizerName = "sgd"
    """The optimizer, as torch.optim has it."""
    lr: float = Field(default=0.05, gt=0.0)
    """Learning rate for the whole global batch; the schedule multiplies it."""
    momentum: float = Field(default=0.9, ge=0.0, lt=1.0)
    """Of sgd and rmsprop."""
    nesterov: bool = False
    """Of sgd: Nesterov's momentum."""
    alpha: float = Field(default=0.99, ge=0.0, lt=1.0)
    """Of rmsprop: how slowly its mean of squares moves."""
    betas: tuple[Beta, Beta] = (0.9, 0.999)
    """Of adamw."""
    eps: float | None = Field(default=None, gt=0.0)
    """Of rmsprop, adagrad and adamw; left out: torch's own."""
    weight_decay: float = Field(default=0.0005, ge=0.0)
    """L2 penalty; adamw's is decoupled. The default is Deep Image's and AlexNet's."""
    decay_1d: bool = True
    """Whether weight decay also pulls at 1-D tensors: biases, and scales and shifts of normalisation."""
    label_smoothing: float = Field(default=0.0, ge=0.0, lt=1.0)
    """Share of the target that is spread over all classes."""
    accumulate: int = Field(default=1, ge=1)
    """Batches whose gradients are added up before an update; the global batch grows by it."""
    clip_norm: float | None = Field(default=None, gt=0.0)
    """Longest the gradient of all weights together may be (L2); left out: any length."""
    amp: Literal["off", "bf16", "fp16"] = "off"
    """Automatic mixed precision; fp16 scales the loss, and a step in which any rank overflows is left out by all."""

    @model_validator(mode="after")
    def _suits(self) -> Self:
        if self.nesterov and (self.name != "sgd" or self.momentum == 0):
            raise ValueError('nesterov=true needs name="sgd" and momentum above 0. Leave it out, or change those.')
        return self


class ScheduleConfig(Section):
    """The `[schedule]` table: the learning rate over time, which is counted in epochs, whatever the world size."""

    name: Literal["constant", "step", "cosine", "plateau"] = "cosine"
    """cosine: down to min_factor at the end; step: by gamma at every milestone; plateau: by gamma where the
    evaluation no longer improves, as the Deep Image papers do by ten."""
    warmup_epochs: float = Field(default=0.0, ge=0.0)
    """The rate grows in a straight line from 0 for so long; fractions are fine."""
    milestones: tuple[float, ...] = ()
    """Of step: after which epochs."""
    gamma: float = Field(default=0.1, gt=0.0, lt=1.0)
    """Of step and plateau: the factor."""
    min_factor: float = Field(default=0.0, ge=0.0, le=1.0)
    """Of cosine and plateau: the least the rate is multiplied by."""
    patience: int = Field(default=2, ge=0)
    """Of plateau: evaluations without a better loss that are waited for."""
    threshold: float = Field(default=0.001, ge=0.0)
    """Of plateau: a loss counts as better if it is lower by this share."""

    @model_validator(mode="after")
    def _suits(self) -> Self:
        if self.name == "step" and not self.milestones:
            raise ValueError('name="step" needs milestones, as [30, 60, 80]: the epochs after which the rate falls.')
        if list(self.milestones) != sorted(self.milestones):
            raise ValueError(f"milestones={list(self.milestones)} must rise.")
        return self


class EmaConfig(Section):
    """The `[ema]` table: a second set of weights, the exponential moving average, which is what gets evaluated."""

    decay: float | None = Field(default=None, gt=0.0, lt=1.0)
    """Of the average, per step; left out: no average is kept."""
    every: int = Field(default=8, ge=1)
    """Steps between two updates, which use decay ** every. Each one waits for whatever weights are under way."""
