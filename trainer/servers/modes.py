"""When a worker may begin a lease, and which pushes count: synchronous with backups, or one by one."""

from dataclasses import dataclass, field
from typing import Protocol

from augpipe.trainer.servers.leases import LeaseBook
from augpipe.trainer.servers.messages import LeaseName
from augpipe.trainer.servers.specs import DispatcherSpec


class Mode(Protocol):
    """The rules of a mode; it hears of all that happens, and waits for nothing."""

    ahead: int
    """How far behind a worker's lease its next one lies, most likely."""

    @property
    def awaited(self) -> tuple[int, ...]:
        """Workers without which nobody begins, until they have joined or left."""
        ...

    def joined(self, worker: int) -> None:
        """A worker begins, or begins again."""

    def left(self, worker: int) -> None:
        """A worker is no more, or never came; its leases were taken back."""

    def may_begin(self, worker: int, book: LeaseBook) -> bool:
        """Whether it may have a lease now, of which there are free ones."""
        ...

    def choose(self, worker: int, book: LeaseBook) -> int | None:
        """The number of the free lease that it is to have, where it may begin; None: whichever the book has for it."""
        ...

    def began(self, worker: int, name: LeaseName) -> None:
        """It has one."""

    def taken_back(self, name: LeaseName) -> None:
        """A lease is nobody's any more, or was refused."""

    def committed(self, worker: int, name: LeaseName) -> None:
        """A push is whole on all servers."""

    def due(self, book: LeaseBook) -> tuple[LeaseName, ...]:
        """The pushes to be applied now, together and in this order; none, where others are waited for."""
        ...

    def applied(self) -> tuple[LeaseName, ...]:
        """They are; returns leases that are out and can no longer count."""
        ...


@dataclass(kw_only=True)
class Synchronous:
    """The first `num_counted` pushes of a step count, in the order of their leases (Chen et al., 2016, 1604.00981).

    Without backups who is fast and who is slow changes nothing: a step is of the first leases that are not done, and
    each worker has its own share of it, from the first one on, for which all are waited for. So it is one worker's
    codec that encodes a share from step to step.
    """

    num_counted: int
    num_backup: int
    ahead: int = 0
    _awaited: set[int] = field(default_factory=set)
    """Workers that have neither come nor left; without backups, nobody begins before they have."""
    _live: set[int] = field(default_factory=set)
    _in_step: dict[LeaseName, int] = field(default_factory=dict)
    """Leases of the step that is under way, and who has them."""
    _committed: list[LeaseName] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ahead = self.num_counted
        self._awaited = set() if self.num_backup else set(range(self.num_counted))

    @property
    def awaited(self) -> tuple[int, ...]:
        return tuple(sorted(self._awaited))

    def joined(self, worker: int) -> None:
        self._live.add(worker)
        self._awaited.discard(worker)

    def left(self, worker: int) -> None:
        self._live.discard(worker)
        self._awaited.discard(worker)

    def may_begin(self, worker: int, book: LeaseBook) -> bool:
        if self._awaited or len(self._in_step) >= min(self.num_counted + self.num_backup, book.num_left):
            return False
        busy = set(self._in_step.values())
        if worker in busy and not self._live <= busy:  # a second one only where nobody else would take it
            return False
        return self.num_backup > 0 or self.choose(worker, book) is not None

    def choose(self, worker: int, book: LeaseBook) -> int | None:
        if self.num_backup:
            return None
        shares = {number: number % self.num_counted for number in book.free[: self.num_counted - len(self._in_step)]}
        if worker in shares.values():
            return next(number for number, share in shares.items() if share == worker)
        would_begin = self._live - set(self._in_step.values())
        return next((number for number, share in shares.items() if share not in would_begin), None)

    def began(self, worker: int, name: LeaseName) -> None:
        self._in_step[name] = worker

    def taken_back(self, name: LeaseName) -> None:
        self._in_step.pop(name, None)
        if name in self._committed:
            self._committed.remove(name)

    def committed(self, worker: int, name: LeaseName) -> None:
        self._committed.append(name)

    def due(self, book: LeaseBook) -> tuple[LeaseName, ...]:
        is_whole = len(self._committed) >= min(self.num_counted, book.num_left)
        return tuple(sorted(self._committed)) if is_whole else ()

    def applied(self) -> tuple[LeaseName, ...]:
        late = tuple(name for name in self._in_step if name not in self._committed)
        self._in_step.clear()
        self._committed.clear()
        return late


@dataclass(kw_only=True)
class Asynchronous:
    """Each push is applied at once; with a bound, whoever is that far ahead of the slowest waits (Ho et al., 2013).

    With W workers and a bound s, no push is applied to weights that have seen more than (W - 1) * (2 s + 1) updates
    since its own: while a worker is at one push, each other one makes 2 s + 1 at most.
    """

    staleness: int | None
    ahead: int = 1
    awaited: tuple[int, ...] = ()
    _clocks: dict[int, int] = field(default_factory=dict)
    """Pushes of each live worker, counted from those of the slowest when it joined."""
    _pushed: list[LeaseName] = field(default_factory=list)

    def joined(self, worker: int) -> None:
        self._clocks[worker] = min(self._clocks.values(), default=0)

    def left(self, worker: int) -> None:
        self._clocks.pop(worker, None)

    def may_begin(self, worker: int, book: LeaseBook) -> bool:
        return self.staleness is None or self._clocks[worker] - min(self._clocks.values()) <= self.staleness

    def choose(self, worker: int, book: LeaseBook) -> int | None:
        return None

    def began(self, worker: int, name: LeaseName) -> None:
        pass

    def taken_back(self, name: LeaseName) -> None:
        pass

    def committed(self, worker: int, name: LeaseName) -> None:
        self._clocks[worker] += 1
        self._pushed.append(name)

    def due(self, book: LeaseBook) -> tuple[LeaseName, ...]:
        return tuple(self._pushed)

    def applied(self) -> tuple[LeaseName, ...]:
        self._pushed.clear()
        return ()


def make_mode(spec: DispatcherSpec) -> Mode:
    """The run's."""
    if spec.mode == "sync":
        return Synchronous(num_counted=spec.num_counted, num_backup=spec.num_backup)
    return Asynchronous(staleness=spec.staleness)
