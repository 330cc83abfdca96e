"""What workers, servers and the dispatcher tell each other, and by what: Ray, or a virtual cluster's links."""

from collections.abc import Awaitable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from augpipe.trainer.loop.score import Score

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]
Counts = npt.NDArray[np.int64]


class PeerLost(ConnectionError):
    """The peer that was called has gone, or was restarted and knows nothing of what was before."""


class Peer(Protocol):
    """Somebody in the cluster; may be handed on to others in it."""

    def call(self, method: str, /, *args: Any) -> Awaitable[Any]:
        """Have a method carried out there, and hand back at once what its result can be awaited by.

        Calls of one caller are begun there in the order in which they were made. The answer may be handed on within a
        message: what it holds then travels from there to whoever awaits it, and to nobody else.

        Raises:
            PeerLost: when awaited: there is no result, and none will come.
        """
        ...


class LeaseName(NamedTuple):
    """One handing out of a lease; a push bears it."""

    epoch: int
    number: int
    """Among the epoch's leases."""
    attempt: int
    """How often it was handed out before."""


@dataclass(frozen=True, kw_only=True)
class Lease:
    """Places of an epoch that one worker, or one group of workers, is to train on, once."""

    name: LeaseName
    first: int
    """The position in the epoch's order at which its first global batch begins."""
    share: int
    """Which share of its global batches it is."""
    num_shares: int
    """Shares of a global batch: the workers that count in a synchronous step, else 1."""
    num_batches: int
    """Global batches, one after the other."""
    num_samples: int
    """In all of it."""
    member: int = 0
    """Which process's part of it is meant, where a group shares it."""

    def as_json(self) -> dict[str, Any]:
        """As `from_json` takes it."""
        return asdict(self)

    @staticmethod
    def from_json(noted: Mapping[str, Any]) -> "Lease":
        """What `as_json` gave, also where a tuple has become a list."""
        return Lease(**{**noted, "name": LeaseName(*noted["name"])})


@dataclass(frozen=True, kw_only=True)
class Part:
    """One server's part of what travels: of gradients, of weights, or of what changed in weights."""

    wide: Bytes
    """Numbers of tensors of two and more dimensions, encoded."""
    narrow: Floats
    """Numbers of the other tensors, as they are."""
    buffers: Floats | None = None
    """The network's floating-point buffers, or what changed in them; with the first server alone."""
    counts: Counts | None = None
    """Its integer buffers, as above."""
    is_change: bool = False
    """Whether weights are to be added to those that the worker was given before."""


@dataclass(frozen=True, kw_only=True)
class Grant:
    """A lease for a worker, and all that the worker needs to begin."""

    lease: Lease
    upcoming: Lease | None
    """The lease that will most likely come next, to be read ahead."""
    version: int
    """Updates that the weights have seen from which it begins."""
    lr: float
    """What the learning rate is multiplied by, for a worker's own steps between two fetches."""
    weights: tuple[Awaitable[Part], ...] | None
    """One part from each server; None: the worker goes on with those that it has."""
    afresh: bool
    """Whether the worker forgets what encoding has left out so far."""
    number: int
    """The dispatcher's last command when it was made."""


@dataclass(frozen=True, kw_only=True)
class Outcome(Score):
    """How a lease went, on its worker."""

    is_finite: bool
    """Whether loss and gradients were; if not, nothing was pushed."""
    wait_s: float
    """Seconds that it waited for the lease and the weights."""
    data_s: float
    """Seconds that it waited for batches."""
    compute_s: float
    """Seconds of forward and backward passes."""
    push_s: float
    """Seconds of encoding and sending."""
    sent_bytes: int
    got_bytes: int


@dataclass(frozen=True, kw_only=True)
class Applied:
    """A lease that was counted: what the run's record says of it."""

    version: int
    """Updates after it; those of one synchronous step have the same."""
    staleness: int
    """Updates between the weights that it began from and those that it changed."""
    worker: int
    epoch: int
    lr: float
    outcome: Outcome
    step_s: float
    """Seconds since the update before."""
    num_left_out: int = 0
    """Leases that were left out until then, since the dispatcher began, as something in them was not finite."""


@dataclass(frozen=True, kw_only=True)
class Hand:
    """Give a worker the weights, as all commands before have left them."""

    worker: int
    whole: bool
    """As they are, whatever it was given before."""


@dataclass(frozen=True, kw_only=True)
class Update:
    """Apply the mean of staged pushes, weighted by their samples, as one step of the optimizer."""

    pushes: tuple[LeaseName, ...]
    """In the order in which they are added."""
    num_samples: tuple[int, ...]
    workers: tuple[int, ...]
    """Who made each."""
    lr: float
    """What the learning rate is multiplied by."""


@dataclass(frozen=True, kw_only=True)
class Drop:
    """Forget staged pushes, where they are staged, and with `workers` all that is kept of those."""

    pushes: tuple[LeaseName, ...] = ()
    workers: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Save:
    """Write the slice and the optimizer's state to a folder, and forget all that is kept of workers."""

    folder: str


@dataclass(frozen=True, kw_only=True)
class Restore:
    """Take on what was written to a folder; the first command of a server that was restarted."""

    folder: str


Command = Hand | Update | Drop | Save | Restore


@dataclass(frozen=True, kw_only=True)
class Fence:
    """A point at which all leases so far are done and none is out, so that what is true of the run fits in a file."""

    version: int
    epoch: int
    """The one that is under way, or that ends here."""
    epochs_done: float
    ends_epoch: bool
    is_last: bool
    """Whether nothing is left to do."""
    weights: tuple[Awaitable[Part], ...]
    """For whoever evaluates."""
    state: dict[str, Any]
    """The dispatcher's, for a checkpoint."""
