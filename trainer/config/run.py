"""The whole config of a run."""

from typing import Self

from pydantic import Field, model_validator

from augpipe.trainer.config.base import Section
from augpipe.trainer.config.data import DataConfig
from augpipe.trainer.config.model import ModelConfig
from augpipe.trainer.config.optim import EmaConfig, OptimConfig, ScheduleConfig
from augpipe.trainer.config.safety import CheckpointConfig, FaultsConfig, ReportConfig
from augpipe.trainer.config.sync import SyncConfig


class RunConfig(Section):
    """The top of the TOML file."""

    out: str = "runs/first"
    """Folder of the run: config.toml, metrics.csv, checkpoints/, report.html. All ranks must see the same one."""
    epochs: int = Field(default=10, ge=1)
    """How many passes over the training photographs."""
    max_steps: int | None = Field(default=None, ge=1)
    """End after so many steps even within an epoch; left out: epochs decide."""
    seed: int = Field(default=0, ge=0, lt=2**63)
    """Of weights, dropout, order and augmentation."""
    device: str = Field(default="auto", pattern=r"^(auto|cpu|cuda(:[0-9]+)?)$")
    """auto: this rank's CUDA device where there is one, else the CPU; cpu; cuda; or cuda:N for one rank alone."""
    deterministic: bool = False
    """Ask torch for deterministic kernels on CUDA, at a price; on the CPU runs repeat to the last bit anyway."""
    data: DataConfig
    """Photographs."""
    model: ModelConfig = ModelConfig()
    """The network."""
    optim: OptimConfig = OptimConfig()
    """The optimizer."""
    schedule: ScheduleConfig = ScheduleConfig()
    """The learning rate over time."""
    ema: EmaConfig = EmaConfig()
    """The moving average of the weights."""
    sync: SyncConfig = SyncConfig()
    """How ranks agree."""
    checkpoint: CheckpointConfig = CheckpointConfig()
    """Checkpoints."""
    faults: FaultsConfig = FaultsConfig()
    """What to do when something breaks."""
    report: ReportConfig = ReportConfig()
    """What is written down."""

    @model_validator(mode="after")
    def _suits(self) -> Self:
        if self.schedule.name == "plateau" and self.data.eval_source is None and self.data.eval_fraction == 0:
            raise ValueError(
                'schedule.name="plateau" looks at the evaluation\'s loss, and nothing is evaluated. '
                "Give data.eval_source or data.eval_fraction."
            )
        return self
