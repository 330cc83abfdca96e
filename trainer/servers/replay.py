"""A run repeated from its order log in one process, to the last bit of the weights."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any
from weakref import finalize

from augpipe.trainer.checkpoint.manifest import verify
from augpipe.trainer.servers.dispatcher import DRIVER
from augpipe.trainer.servers.leases import Progress, first_state
from augpipe.trainer.servers.messages import Command, Drop, Hand, Lease, LeaseName, Part, Restore, Save, Update
from augpipe.trainer.servers.order_log import Event, Kind, fences, read_about, read_order
from augpipe.trainer.servers.server import Server
from augpipe.trainer.servers.specs import DispatcherSpec
from augpipe.trainer.servers.state_file import dispatcher_path, read_state
from augpipe.trainer.servers.worker import Computed, Worker

logger = logging.getLogger("augpipe.trainer")


@dataclass(frozen=True, kw_only=True)
class RepeatedPush:
    """A push that counted, made once more."""

    number: int
    """The worker's."""
    worker: Worker
    """With the weights that it had. `worker.settle(counted=False)` puts back what computing has changed, and
    `worker.compute(push.lease, None, push.lr)` then repeats it, under a debugger say."""
    lease: Lease
    version: int
    """Updates that the worker's weights had seen when it was given them."""
    lr: float
    """What the learning rate was multiplied by for its own steps."""
    computed: Computed


@dataclass(frozen=True, kw_only=True)
class RepeatedStep:
    """One update that is about to be applied."""

    version: int
    """Updates before it."""
    lr: float
    """What the learning rate is multiplied by."""
    pushes: tuple[RepeatedPush, ...]
    """In the order in which they are added."""


@dataclass
class _Granted:
    number: int
    lease: Lease
    version: int
    lr: float
    computed: Computed | None = None


class Replay:
    """Has servers and workers of this process do what those of a run did, in the order that its log holds.

    Only pushes that counted are computed. A server that was lost is restored from what it held at the last fence,
    which the replay writes to a folder of its own where the log needs it. The weights equal the run's to the last bit
    on the same kind of processor, with the same torch and as many threads (`[servers] threads`).

    Args:
        log_folder: of the order log.
        servers: as they are begun, in order; with `start`, they are restored from it.
        spec: the run's dispatcher's; only `plan`, `schedule`, `epochs` and `about` count.
        make_worker: makes the worker of a number; called once for each.
        start: the checkpoint to begin from; None: the beginning of the run, with the weights that the servers hold.

    Raises:
        OSError: a file cannot be read.
        ValueError: the log is of another config, or the checkpoint is damaged.
    """

    def __init__(
        self,
        log_folder: Path,
        servers: Sequence[Server],
        spec: DispatcherSpec,
        make_worker: Callable[[int], Worker],
        *,
        start: Path | None = None,
    ) -> None:
        _check_about(log_folder, spec.about)
        self._folder = log_folder
        self._servers = tuple(servers)
        self._plan = spec.plan
        self._make_worker = make_worker
        self._workers: dict[int, Worker] = {}
        self._have_weights: set[int] = set()
        """Workers that have been handed weights since they began, or started again."""
        self._granted: dict[LeaseName, _Granted] = {}
        """Leases that are out and will count."""
        if start is not None:
            verify(start)
        state = first_state(spec.plan) if start is None else read_state(dispatcher_path(start))
        self._progress = Progress(spec.plan, spec.schedule, spec.epochs)
        self._progress.load_state_dict(state)
        self.version: int = state["version"]
        """Updates so far."""
        self._number = 0
        self._at_fence = mkdtemp(prefix="augpipe-replay-")
        """Where the servers' slices of the last fence are, if one of them is to be restored."""
        finalize(self, rmtree, self._at_fence, ignore_errors=True)
        self._fence_version = self.version
        if start is not None:
            self._command(Restore(folder=str(start)))
        self._steps = self._repeat()

    def steps(self) -> Iterator[RepeatedStep]:
        """Each update before it is applied, which it is once the next one is asked for.

        All calls give the same iterator, so one may stop at an update, look around, and go on.

        Raises:
            OSError: the log cannot be read.
            ValueError: something is missing from it, or the run cannot be repeated here.
        """
        return self._steps

    def run(self, until: int | None = None) -> int:
        """Repeat to the log's end, or until so many updates are done; returns the updates that are.

        Raises:
            OSError, ValueError: as `steps`.
        """
        for step in self._steps:
            if until is not None and step.version >= until:
                break
        return self.version

    def weights(self) -> tuple[Part, ...]:
        """As they are now, for `Worker.load`."""
        return self._command(Hand(worker=DRIVER, whole=True))

    def save(self, folder: Path) -> None:
        """Write the servers' state, as a checkpoint holds it."""
        for server in self._servers:
            server.write(folder)

    def differences(self, checkpoint: Path) -> list[str]:
        """Whose files in a checkpoint of the run are not what these servers would write, to the byte."""
        with TemporaryDirectory() as folder:
            self.save(Path(folder))
            found = sorted(path.name for path in Path(folder).iterdir())
            return [name for name in found if (Path(folder) / name).read_bytes() != (checkpoint / name).read_bytes()]

    def _repeat(self) -> Iterator[RepeatedStep]:
        for events in read_order(self._folder, self.version):
            # a fence ends each file, at which no lease is out: what counts is all in it
            counted = {event.lease for event in events if event.kind is Kind.APPLIED}
            is_restored = any(event.kind is Kind.RESTORED for event in events)
            for group in _by_step(events):
                event = group[0]
                self._progress.plateau = event.plateau
                match event.kind:
                    case Kind.FENCE:
                        self._pass_fence(is_restored)
                    case Kind.BEGAN | Kind.FETCHED:
                        self._grant(event, event.lease in counted)
                    case Kind.APPLIED:
                        step = self._compute_step(group)
                        yield step
                        self._apply(step)
                    case Kind.LEFT_OUT:
                        self._leave_out(event)
                    case Kind.LEFT:
                        self._have_weights.discard(event.worker)
                        self._command(Drop(workers=(event.worker,)))
                    case Kind.RESTORED:
                        self._restore(event)

    def _pass_fence(self, is_needed: bool) -> None:
        self._have_weights.clear()
        if is_needed:
            self._command(Save(folder=self._at_fence))
        else:
            self._command(Drop(workers=tuple(self._workers)))
        self._fence_version = self.version

    def _grant(self, event: Event, counts: bool) -> None:
        number = event.worker
        if number not in self._workers:
            self._workers[number] = self._make_worker(number)
        worker = self._workers[number]
        for granted in self._granted.values():
            if granted.number == number:  # its second one in a step: the first one was computed before
                self._compute(granted)
                worker.settle(counted=True)
        is_afresh = number not in self._have_weights
        if is_afresh:
            worker.begin_afresh()
        if event.kind is Kind.FETCHED:
            worker.load(self._command(Hand(worker=number, whole=is_afresh)))
            self._have_weights.add(number)
        self._progress.begin_epoch(event.lease.epoch)
        if counts:
            lease = self._plan.lease(*event.lease)
            self._granted[event.lease] = _Granted(number, lease, event.pulled, self._progress.lr)

    def _compute(self, granted: _Granted) -> Computed:
        if granted.computed is None:
            granted.computed = self._workers[granted.number].compute(granted.lease, None, granted.lr)
        return granted.computed

    def _compute_step(self, events: Sequence[Event]) -> RepeatedStep:
        if events[0].applied != self.version + 1:
            raise ValueError(
                f"the order log goes from update {self.version} to {events[0].applied}: a part of it is missing. Begin "
                f"at a later fence; there is one after each of {', '.join(map(str, fences(self._folder)))}."
            )
        pushes = []
        for event in events:
            granted = self._granted.pop(event.lease, None)
            if granted is None:
                raise ValueError(
                    f"update {event.applied} of the order log is of {event.lease}, which worker {event.worker} was "
                    "never given: a part of the log is missing."
                )
            computed = self._compute(granted)
            if not computed.is_finite:
                raise ValueError(
                    f"{event.lease} of worker {event.worker} has a loss or gradient that is not finite, and had a "
                    "finite one in the run: the data, the torch or the processor is another one."
                )
            pushes.append(
                RepeatedPush(
                    number=event.worker,
                    worker=self._workers[event.worker],
                    lease=granted.lease,
                    version=granted.version,
                    lr=granted.lr,
                    computed=computed,
                )
            )
        return RepeatedStep(version=self.version, lr=self._progress.lr, pushes=tuple(pushes))

    def _apply(self, step: RepeatedStep) -> None:
        for push in step.pushes:
            push.worker.settle(counted=True)
            for server, part in zip(self._servers, push.computed.parts, strict=True):
                server.stage(push.number, push.lease.name, part)
        self._command(
            Update(
                pushes=tuple(push.lease.name for push in step.pushes),
                num_samples=tuple(push.computed.num_samples for push in step.pushes),
                workers=tuple(push.number for push in step.pushes),
                lr=step.lr,
            )
        )
        self._progress.num_trained += sum(push.computed.num_samples for push in step.pushes)
        self.version += 1

    def _leave_out(self, event: Event) -> None:
        self._progress.begin_epoch(event.lease.epoch)
        self._progress.num_trained += self._plan.lease(*event.lease).num_samples

    def _restore(self, event: Event) -> None:
        if event.pulled != self._fence_version:
            raise ValueError(
                f"server {event.worker} went on from update {event.pulled}, and the last fence of the order log is "
                f"after {self._fence_version}: a part of the log is missing."
            )
        self._have_weights.clear()
        self._number += 1
        for index, server in enumerate(self._servers):
            is_it = index == event.worker
            command = Restore(folder=self._at_fence) if is_it else Drop(workers=tuple(self._workers))
            server.carry_out(self._number, command)

    def _command(self, command: Command) -> tuple[Any, ...]:
        self._number += 1
        return tuple(server.carry_out(self._number, command) for server in self._servers)


def start_before(log_folder: Path, checkpoints: Iterable[Path], step: int) -> Path:
    """The checkpoint of the newest fence at or before an update, from which a replay can begin.

    Args:
        log_folder: of the order log.
        checkpoints: the run's, named `step-` and their number.
        step: updates.

    Raises:
        ValueError: there is none.
    """
    found = {int(path.name.removeprefix("step-")): path for path in checkpoints}
    both = sorted(found.keys() & set(fences(log_folder)))
    before = [version for version in both if version <= step]
    if not before:
        there = ", ".join(map(str, both)) or "none"
        raise ValueError(
            f"step={step} is before every fence of {log_folder} of which there is a checkpoint ({there}): name a later "
            "one, or keep more checkpoints (checkpoint.keep)."
        )
    return found[before[-1]]


def _by_step(events: Sequence[Event]) -> Iterator[list[Event]]:
    """Pushes that are applied together, and all other events alone."""

    def step_of(numbered: tuple[int, Event]) -> tuple[bool, int]:
        number, event = numbered
        return (True, event.applied) if event.kind is Kind.APPLIED else (False, number)

    for _, group in groupby(enumerate(events), step_of):
        yield [event for _, event in group]


def _counting_lines(config: str) -> list[str]:
    """Those of a config in TOML but its `out`, which a repeated run writes nothing to."""
    settings, bracket, tables = config.partition("\n[")
    return [line for line in settings.splitlines() if not line.startswith("out = ")] + (bracket + tables).splitlines()


def _check_about(folder: Path, about: dict[str, Any] | None) -> None:
    if about is None:
        return
    found = read_about(folder)
    then, now = (_counting_lines(str(one.get("config", ""))) for one in (found, about))
    differing = [line for line in then if line not in now] or [line for line in now if line not in then]
    if differing:
        raise ValueError(
            f"the order log {folder} is of another config: the run had {differing[0]!r} or this one has it. Replay it "
            "with the config of its run."
        )
    for name in sorted(found.keys() & about.keys() - {"config"}):
        if found[name] != about[name]:
            logger.warning(
                "the run had %s %s, and this is %s: the last bits may differ", name, found[name], about[name]
            )
