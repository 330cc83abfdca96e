"""What servers, workers and the dispatcher go by; each may be sent to another machine."""

from dataclasses import dataclass
from typing import Any, Literal

from augpipe.trainer.config.tables import OptimConfig, ScheduleConfig
from augpipe.trainer.servers.leases import LeasePlan
from augpipe.trainer.servers.slices import Slice


@dataclass(frozen=True, kw_only=True)
class Compensation:
    """How gradients of old weights are corrected (DC-ASGD, Zheng et al., 2017, arXiv 1609.08326)."""

    kind: Literal["constant", "adaptive"]
    strength: float
    """The paper's lambda, or lambda_0 of the adaptive one."""
    decay: float = 0.95
    """m of the adaptive one: how slowly the mean of squares moves."""


@dataclass(frozen=True, kw_only=True)
class ServerSpec:
    """All that a server begins from; may be sent to another machine."""

    index: int
    slice: Slice
    num_buffers: tuple[int, int] | None
    """Numbers of the network's floating-point and integer buffers, with the first server alone."""
    optim: OptimConfig
    push_codec: str
    pull_codec: str | None
    """For what changed since a worker was given weights; None: weights travel as they are."""
    compensation: Compensation | None = None
    num_threads: int = 1
    hands_views: bool = False
    """Hand out the weights themselves: for a transport that copies them before the next command is carried out."""


@dataclass(frozen=True, kw_only=True)
class WorkerSpec:
    """What a worker goes by."""

    slices: tuple[Slice, ...]
    optim: OptimConfig
    push_codec: str
    pull_codec: str | None
    error_feedback: bool
    local_lr: float | None
    """The learning rate of a worker's own steps between two fetches; None where it takes none."""
    seed: int
    group_size: int = 1
    """Processes that share a lease."""


@dataclass(frozen=True, kw_only=True)
class DispatcherSpec:
    """What a dispatcher goes by; may be sent to another machine."""

    plan: LeasePlan
    mode: Literal["sync", "async", "mixed"]
    schedule: ScheduleConfig
    num_counted: int = 1
    """Pushes of a synchronous step."""
    num_backup: int = 0
    """Workers beyond those, whose pushes count where they come first."""
    staleness: int | None = None
    """Pushes that a worker may be ahead of the slowest; None: any number."""
    fetches_every: int = 1
    """Leases of a worker between two fetches of the weights."""
    digest: str = ""
    """What all workers must agree on: the network, its codec, the source."""
    epochs: int = 1
    max_steps: int | None = None
    save_every: int = 0
    """Updates between checkpoints within an epoch; 0: none."""
    lease_timeout_s: float = 300.0
    """A worker that has a lease for so long is taken for dead."""
    on_nan: Literal["stop", "skip", "ignore"] = "stop"
    on_server_loss: Literal["restore", "stop"] = "restore"
    log_folder: str | None = None
    """Where the order log goes; None: the order is not written down."""
    about: dict[str, Any] | None = None
    """What the log says of the run."""
    state: dict[str, Any] | None = None
    """The dispatcher's, from the checkpoint to go on from; None: the run begins."""
