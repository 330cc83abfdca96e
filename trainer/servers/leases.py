"""Which places of an epoch are handed out, to whom, and which are done: each is trained on once."""

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from augpipe import Place
from augpipe.trainer.config.tables import ScheduleConfig
from augpipe.trainer.optim.schedule import lr_factor
from augpipe.trainer.servers.messages import Lease, LeaseName


@dataclass(frozen=True, kw_only=True)
class LeasePlan:
    """How an epoch is cut into leases."""

    num_samples: int
    """In an epoch."""
    batch_size: int
    """Images in a batch of one process."""
    num_shares: int
    """Leases that lie side by side in the same global batches: those that make one synchronous step, else 1."""
    group_size: int
    """Processes that share a lease."""
    num_batches: int
    """Global batches in a lease."""
    drop_last: bool
    """Whether a last global batch that is cut short is left out."""

    @property
    def per_batch(self) -> int:
        """Samples in a whole global batch."""
        return self.batch_size * self.num_shares * self.group_size

    @property
    def num_usable(self) -> int:
        """Samples of an epoch that are trained on."""
        return self.num_samples // self.per_batch * self.per_batch if self.drop_last else self.num_samples

    @property
    def num_leases(self) -> int:
        """In an epoch; none is without a sample."""
        whole, rest = divmod(self.num_usable, self.per_batch * self.num_batches)
        return whole * self.num_shares + min(-(-rest // self.group_size), self.num_shares)

    def lease(self, epoch: int, number: int, attempt: int) -> Lease:
        """The epoch's `number`-th."""
        step, share = divmod(number, self.num_shares)
        first = step * self.per_batch * self.num_batches
        num_batches = min(self.num_batches, -(-(self.num_usable - first) // self.per_batch))
        lease = Lease(
            name=LeaseName(epoch, number, attempt),
            first=first,
            share=share,
            num_shares=self.num_shares,
            num_batches=num_batches,
            num_samples=0,
        )
        members = (replace(lease, member=member) for member in range(self.group_size))
        counted = sum(self._num_at(place) for one in members for place in self.places(one))
        return replace(lease, num_samples=counted)

    def places(self, lease: Lease) -> list[Place]:
        """Those of a lease's member, a batch each."""
        return [
            Place(
                epoch=lease.name.epoch,
                first=lease.first + number * self.per_batch,
                rank=lease.share * self.group_size + lease.member,
                world_size=self.num_shares * self.group_size,
            )
            for number in range(lease.num_batches)
        ]

    def _num_at(self, place: Place) -> int:
        return len(
            range(place.first + place.rank, min(place.first + self.per_batch, self.num_usable), place.world_size)
        )


class Progress:
    """How far a run is, and the learning rate that follows from it: a replay counts as the run did.

    Args:
        plan: how its epochs are cut.
        schedule: of the learning rate.
        epochs: at which the run ends.
    """

    def __init__(self, plan: LeasePlan, schedule: ScheduleConfig, epochs: int) -> None:
        self._plan = plan
        self._schedule = schedule
        self._epochs = epochs
        self.epoch = 0
        self.num_trained = 0
        """Samples of the epoch that are done, or were left out."""
        self.plateau = 1.0
        """What the plateau schedule multiplies the learning rate by."""

    @property
    def epochs_done(self) -> float:
        """By samples."""
        return self.epoch + self.num_trained / self._plan.num_samples

    @property
    def lr(self) -> float:
        """What the learning rate is multiplied by for the next update."""
        return lr_factor(self._schedule, self.epochs_done, self._epochs, self.plateau)

    def begin_epoch(self, epoch: int) -> None:
        """Go on with an epoch, unless it is the one that is under way."""
        if epoch != self.epoch:
            self.epoch, self.num_trained = epoch, 0

    def state_dict(self) -> dict[str, Any]:
        """For a dispatcher's checkpoint, in addition to its leases, which know the epoch."""
        return {"num_trained": self.num_trained, "plateau": self.plateau}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what a dispatcher's checkpoint holds."""
        self.epoch, self.num_trained = state["leases"]["epoch"], state["num_trained"]
        self.plateau = state["plateau"]


class LeaseBook:
    """The leases of the epoch that is under way."""

    def __init__(self, plan: LeasePlan, epoch: int = 0) -> None:
        self.plan = plan
        self._begin(epoch)

    def _begin(self, epoch: int) -> None:
        self.epoch = epoch
        self._total = self.plan.num_leases
        self._free = list(range(self._total))  # in order
        self._attempts: dict[int, int] = {}
        self._reserved: dict[int, int] = {}
        """By worker, the lease that it will most likely get next."""
        self.out: dict[int, tuple[int, LeaseName]] = {}
        """By number, who has it and as what."""
        self._num_done = 0

    @property
    def num_left(self) -> int:
        """Leases that are not done, free or out."""
        return self._total - self._num_done

    @property
    def free(self) -> Sequence[int]:
        """Leases that nobody has, by number, in order."""
        return self._free

    def take(self, worker: int, *, ahead: int, number: int | None = None) -> tuple[Lease, Lease | None]:
        """Hand out a lease; and what the worker may get next.

        Args:
            worker: who takes it.
            ahead: how far behind it the reserved one lies, at least.
            number: which it is to be; None: the worker's reserved one, or the first that is not another's.
        """
        reserved = self._reserved.pop(worker, None)
        number = reserved if number is None else number
        if number is None:
            number = self._first_free(0)
        if number is None:  # all that are left are reserved: it takes another's
            number = self._free[0]
            self._reserved = {other: kept for other, kept in self._reserved.items() if kept != number}
        del self._free[bisect_left(self._free, number)]
        lease = self.plan.lease(self.epoch, number, self._attempts.get(number, 0))
        self.out[number] = worker, lease.name
        after = self._first_free(number + ahead)
        if after is None:
            return lease, None
        self._reserved[worker] = after
        return lease, self.plan.lease(self.epoch, after, self._attempts.get(after, 0))

    def _first_free(self, start: int) -> int | None:
        """From `start` on, the first that nobody has reserved."""
        reserved = set(self._reserved.values())
        for number in islice(self._free, bisect_left(self._free, start), None):
            if number not in reserved:
                return number
        return None

    def is_out(self, name: LeaseName) -> bool:
        """Whether it is handed out as this."""
        return name.epoch == self.epoch and name.number in self.out and self.out[name.number][1] == name

    def finish(self, name: LeaseName) -> None:
        """It is trained on."""
        assert self.is_out(name)
        del self.out[name.number]
        self._num_done += 1

    def take_back(self, name: LeaseName) -> None:
        """It is free again, under a new name; who has it is refused from now on."""
        assert self.is_out(name)
        del self.out[name.number]
        self._attempts[name.number] = name.attempt + 1
        insort(self._free, name.number)

    def forget(self, worker: int) -> None:
        """What was reserved for it is anybody's."""
        self._reserved.pop(worker, None)

    def next_epoch(self) -> None:
        """All are done: go on with the next epoch's."""
        assert self.num_left == 0
        self._begin(self.epoch + 1)

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint, when none is out: what is free, and how often each was handed out before."""
        assert not self.out
        return {"epoch": self.epoch, "free": list(self._free), "attempts": dict(self._attempts), "total": self._total}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint.

        Raises:
            ValueError: it is amid an epoch that was cut otherwise.
        """
        self._begin(state["epoch"])
        if len(state["free"]) == state["total"]:
            return
        if state["total"] != self._total:
            raise ValueError(
                f"the checkpoint is amid an epoch that was cut into {state['total']} leases, and this config cuts it "
                f"into {self._total}: resume with the same data.source, data.batch_size, servers.workers and "
                "servers.push_every."
            )
        self._free = list(state["free"])
        self._attempts = dict(state["attempts"])
        self._num_done = self._total - len(self._free)


def first_state(plan: LeasePlan) -> dict[str, Any]:
    """The dispatcher's before the first epoch."""
    return {"version": 0, "num_trained": 0, "plateau": 1.0, "leases": LeaseBook(plan).state_dict()}
