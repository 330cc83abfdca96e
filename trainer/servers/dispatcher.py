"""The dispatcher: hands out leases, and decides the one order in which servers do what they do."""

import asyncio
from collections.abc import Sequence

from augpipe.trainer.servers.commands import Changes, CommandOrder
from augpipe.trainer.servers.grants import Grants, WorkerWeights
from augpipe.trainer.servers.leases import LeaseBook, Progress, first_state
from augpipe.trainer.servers.messages import (
    Applied,
    Command,
    Drop,
    Fence,
    Grant,
    Hand,
    LeaseName,
    Outcome,
    Peer,
    Restore,
    Save,
    Update,
)
from augpipe.trainer.servers.modes import make_mode
from augpipe.trainer.servers.order_log import NO_LEASE, Event, Kind, OrderLog
from augpipe.trainer.servers.specs import DispatcherSpec

DRIVER = -1
"""Who stands for the process that evaluates, among those that are handed weights."""


class RunFailed(RuntimeError):
    """The run cannot go on; says why."""


class Dispatcher:
    """Whoever waits here waits in a coroutine: all methods run in one event loop, and what stands between two awaits is
    never interrupted. Commands go to all servers, numbered, in one order; nobody waits for them here."""

    def __init__(self, spec: DispatcherSpec, servers: Sequence[Peer]) -> None:
        self._spec = spec
        self._mode = make_mode(spec)
        self._book = LeaseBook(spec.plan)
        state = spec.state or first_state(spec.plan)
        self._book.load_state_dict(state["leases"])
        self.version: int = state["version"]
        self._progress = Progress(spec.plan, spec.schedule, spec.epochs)
        self._progress.load_state_dict(state)
        self._log = OrderLog(spec.log_folder)
        self._workers: dict[int, WorkerWeights] = {}
        self._commands = CommandOrder(servers, self.lost, self._fail)
        self._recovering: set[int] = set()
        self._snapshot: str | None = None
        """The last checkpoint that is whole."""
        self._snapshot_version = 0
        self._is_written = False
        """Whether the next one is written, and not whole yet."""
        self._is_fenced = False
        self._saved_version: int | None = None
        """Updates before the last fence; the first one comes at once, so that there is something to go on from."""
        self._is_stopping = self._is_over = False
        self._is_waiting = False
        """Whether it was begun to wait for the workers that have not come."""
        self._failure: str | None = None
        self._changes = Changes()
        self._grants = Grants(spec.lease_timeout_s, self._leave_late, self._changes)
        self._applied: list[Applied] = []
        self._notes: list[str] = []
        self._updated_at = 0.0
        self._num_left_out = 0
        """Leases that changed nothing, as something in them was not finite."""

    # what workers call

    async def join(self, worker: int, digest: str) -> None:
        """A worker begins, or begins again.

        Raises:
            ValueError: it has another network, codec or source than the run.
        """
        if digest != self._spec.digest:
            raise ValueError(
                f"worker {worker} has another network, codec or source than the run ({digest}, not "
                f"{self._spec.digest}): all must be started by the same config, and see the same files."
            )
        await self.left(worker, "it starts again")
        self._enter(worker)

    async def next(self, worker: int) -> Grant | None:
        """The worker's next lease, as soon as it may have one; None where nothing is left to do.

        Raises:
            RunFailed: the run has failed.
        """
        self._grants.heard(worker)
        about = self._workers.get(worker)
        if about is None and not self._is_over:  # it was taken for dead, and is not
            self._notes.append(f"worker {worker} is back")
            about = self._enter(worker)
        while not self._is_over:
            self._check()
            # one that has left may still wait here, and must take nothing from who has restarted in its place
            if self._workers.get(worker) is about and self._may_begin(worker):
                return self._grant(worker)
            await self._changes.next()
        self._check()
        return None

    async def commit(self, worker: int, name: LeaseName, outcome: Outcome) -> bool:
        """A worker has pushed its lease to all servers; returns whether that counts.

        What counts here may have to wait for the rest of its step. Should a server be lost meanwhile, it does not
        count after all, and the worker begins afresh like all others.

        Raises:
            RunFailed: the run has failed.
        """
        self._check()
        self._grants.heard(worker)
        if self._grants.holder(name) != worker or self._recovering:
            self._commands.post(Drop(pushes=(name,)))
            return False
        self._grants.pushed(name, outcome)
        if not outcome.is_finite:
            self._leave_out(name)
            return False
        self._mode.committed(worker, name)
        self._update_if_due()
        self._changes.tell()  # where workers are missing, one of those that wait may take a second lease of the step
        return True

    # what the driver calls

    async def fence(self) -> Fence:
        """The next point at which no lease is out: an epoch's end, where a checkpoint is due, or the end.

        Raises:
            RunFailed: the run has failed.
        """
        while not self._is_fenced:
            self._check()
            if self._book.out or not self._is_fence_due() or self._recovering:
                await self._changes.next()
            else:
                self._is_fenced = True  # no lease is handed out from here on
        await self._have_all_do(Drop())  # one may be lost, and nobody know it
        for weights in self._workers.values():
            weights.forget()
        return self._make_fence()

    async def save(self, folder: str) -> None:
        """Amid a fence: have all servers write their slices, and forget what they keep of workers."""
        await self._have_all_do(Save(folder=folder))
        self._is_written = True

    async def _have_all_do(self, command: Command) -> None:
        """Again where a server was lost, once it has its slice back."""
        while not await self._commands.done(command):
            self._check()
            while self._recovering:
                await self._changes.next()
                self._check()

    async def restore(self, folder: str) -> None:
        """Before all else: have all servers take on what they had written to a folder."""
        self._snapshot, self._snapshot_version = folder, self.version
        await self._have_all_do(Restore(folder=folder))

    async def go_on(self, folder: str, plateau: float) -> None:
        """After a fence, once its checkpoint is whole, which lies in `folder` now.

        Args:
            folder: from which a server that is lost has its slice back.
            plateau: what the plateau schedule multiplies the learning rate by from here on.
        """
        self._snapshot, self._snapshot_version = folder, self.version
        self._is_written = False
        self._progress.plateau = plateau
        self._saved_version = self.version
        self._updated_at = asyncio.get_running_loop().time()
        self._is_fenced = False
        if self._is_done():
            self._is_over = True
        elif self._book.num_left == 0:
            self._book.next_epoch()
            self._progress.begin_epoch(self._book.epoch)
        self._log.begin(self.version, self._spec.about)
        self._log.write(self._event(Kind.FENCE, DRIVER, pulled=self.version))
        if self._is_over:
            self.close()
        self._changes.tell()

    async def left(self, worker: int, reason: str) -> None:
        """A worker has gone: what it had is handed out again."""
        self._grants.heard(worker)
        self._leave(worker, reason)

    async def hanging(self) -> int:
        """The next worker that has had a lease for twice as long as it may, and says nothing."""
        return await self._grants.hanging()

    def _leave(self, worker: int, reason: str) -> None:
        if self._workers.pop(worker, None) is None:
            self._mode.left(worker)  # it may be waited for
            self._changes.tell()
            return
        self._notes.append(f"worker {worker} is gone: {reason}")
        self._take_back(tuple(name for holder, name in self._book.out.values() if holder == worker))
        self._book.forget(worker)
        self._mode.left(worker)
        self._commands.post(Drop(workers=(worker,)))
        self._log.write(self._event(Kind.LEFT, worker))
        self._changes.tell()

    async def lost(self, server: int, number: int) -> None:
        """A server did not answer; its slice goes on from the last checkpoint.

        Args:
            server: which.
            number: the dispatcher's last command when it did; one that had its slice back since is not lost.
        """
        if self._commands.was_restored_since(server, number) or server in self._recovering or self._is_over:
            return
        if self._spec.on_server_loss == "stop" or self._snapshot is None:
            return self._fail(f"server {server} is lost, and faults.on_server_loss is stop")
        self._recovering.add(server)
        self._take_back(tuple(name for _, name in self._book.out.values()))
        while self._is_written:
            await self._changes.next()
        if not await self._commands.answers_within(server, self._spec.lease_timeout_s):
            return self._fail(f"server {server} is lost, and was not restarted in {self._spec.lease_timeout_s:g} s")
        self._notes.append(
            f"server {server} was lost: its slice goes on from the checkpoint after update {self._snapshot_version}, "
            f"so {self.version - self._snapshot_version} updates of it are lost"
        )
        self._commands.restore(server, Restore(folder=self._snapshot), Drop(workers=tuple(self._workers)))
        self._log.write(self._event(Kind.RESTORED, server, pulled=self._snapshot_version))
        for weights in self._workers.values():
            weights.forget()
        self._recovering.discard(server)
        self._changes.tell()

    async def stop(self) -> None:
        """Hand out no lease any more: the next fence is the last."""
        self._is_stopping = True
        self._changes.tell()

    async def drain(self) -> tuple[list[Applied], list[str]]:
        """What was counted since the last call, and what a user should hear of."""
        drained = self._applied, self._notes
        self._applied, self._notes = [], []
        return drained

    def close(self) -> None:
        """Close the order log; nothing may follow."""
        self._log.close()

    # how it goes on

    def _enter(self, worker: int) -> WorkerWeights:
        about = self._workers[worker] = WorkerWeights()
        self._mode.joined(worker)
        if self._mode.awaited and not self._is_waiting:
            self._is_waiting = True
            asyncio.get_running_loop().call_later(self._spec.lease_timeout_s, self._begin_without)
        self._changes.tell()
        return about

    def _begin_without(self) -> None:
        """Wait no longer for workers that have not come since the first one did."""
        for worker in self._mode.awaited:
            self._notes.append(
                f"worker {worker} has not come within {self._spec.lease_timeout_s:g} s: the others begin without it"
            )
            self._mode.left(worker)
        self._changes.tell()

    def _may_begin(self, worker: int) -> bool:
        if self._is_fenced or self._is_fence_due() or self._recovering or not self._book.free:
            return False
        limit = self._spec.max_steps
        if self._spec.mode != "sync" and limit is not None and self.version + len(self._book.out) >= limit:
            return False  # each of those out is an update
        return self._mode.may_begin(worker, self._book)

    def _is_fence_due(self) -> bool:
        if self._saved_version is None or self._book.num_left == 0 or self._is_stopping or self._is_done():
            return True
        every = self._spec.save_every
        return every > 0 and self.version // every > self._saved_version // every

    def _is_done(self) -> bool:
        limit = self._spec.max_steps
        is_last_epoch = self._book.num_left == 0 and self._book.epoch + 1 >= self._spec.epochs
        return self._is_stopping or is_last_epoch or (limit is not None and self.version >= limit)

    def _grant(self, worker: int) -> Grant:
        about = self._workers[worker]
        chosen = self._mode.choose(worker, self._book)
        lease, upcoming = self._book.take(worker, ahead=self._mode.ahead, number=chosen)
        self._mode.began(worker, lease.name)
        weights = None
        if about.num_leases is None or about.num_leases >= self._spec.fetches_every:
            weights = self._commands.send(Hand(worker=worker, whole=about.num_leases is None))
            about.version, about.num_leases = self.version, 0
        about.num_leases = (about.num_leases or 0) + 1
        self._grants.add(lease.name, worker, about.version)
        self._log.write(
            self._event(Kind.BEGAN if weights is None else Kind.FETCHED, worker, lease.name, pulled=about.version)
        )
        afresh, about.is_afresh = about.is_afresh, False
        return Grant(
            lease=lease,
            upcoming=upcoming,
            version=about.version,
            lr=self._progress.lr,
            weights=weights,
            afresh=afresh,
            number=self._commands.number,
        )

    def _update_if_due(self) -> None:
        """Have the pushes that are to be applied now applied, together, as one update."""
        names = self._mode.due(self._book)
        if not names:
            return
        pushed = [self._grants.pop(name) for name in names]
        outcomes = [one.outcome for one in pushed if one.outcome is not None]
        lr = self._progress.lr
        now = asyncio.get_running_loop().time()
        self._commands.post(
            Update(
                pushes=names,
                num_samples=tuple(outcome.num_samples for outcome in outcomes),
                workers=tuple(one.worker for one in pushed),
                lr=lr,
            )
        )
        self.version += 1
        events = []
        for name, one, outcome in zip(names, pushed, outcomes, strict=True):
            self._book.finish(name)
            self._progress.num_trained += outcome.num_samples
            events.append(self._event(Kind.APPLIED, one.worker, name, pulled=one.version))
            applied = Applied(
                version=self.version,
                staleness=self.version - 1 - one.version,
                worker=one.worker,
                epoch=name.epoch,
                lr=lr,
                outcome=outcome,
                step_s=now - self._updated_at,
                num_left_out=self._num_left_out,
            )
            self._applied.append(applied)
        self._log.write(*events)
        self._updated_at = now
        self._take_back(self._mode.applied())
        self._changes.tell()

    def _leave_out(self, name: LeaseName) -> None:
        """A lease whose loss or gradient was not finite is done, and changes nothing."""
        worker = self._grants.pop(name).worker
        self._num_left_out += 1
        if self._spec.on_nan == "stop":
            return self._fail(
                f"the loss or a gradient of worker {worker} was not finite after update {self.version}. It changed "
                'nothing. Lower optim.lr, set optim.clip_norm, or set faults.on_nan="skip" to leave such out'
            )
        self._notes.append(f"worker {worker}: a loss or gradient that is not finite was left out")
        self._progress.num_trained += self._book.plan.lease(name.epoch, name.number, name.attempt).num_samples
        self._mode.taken_back(name)
        self._book.finish(name)
        self._log.write(self._event(Kind.LEFT_OUT, worker, name))
        self._update_if_due()  # a step may have waited for it alone
        self._changes.tell()

    def _take_back(self, names: tuple[LeaseName, ...]) -> None:
        """Leases that can no longer count are free again, and pushes of them forgotten."""
        for name in names:
            self._book.take_back(name)
            self._mode.taken_back(name)
            self._grants.pop(name)
        if names:
            self._commands.post(Drop(pushes=names))
            self._changes.tell()

    def _leave_late(self, worker: int) -> None:
        self._leave(worker, f"it has had a lease for {self._spec.lease_timeout_s:g} s")

    def _make_fence(self) -> Fence:
        weights = self._commands.send(Hand(worker=DRIVER, whole=True))
        return Fence(
            version=self.version,
            epoch=self._book.epoch,
            epochs_done=self._book.epoch + 1 if self._book.num_left == 0 else self._progress.epochs_done,
            ends_epoch=self._book.num_left == 0,
            is_last=self._is_done(),
            weights=weights,
            state={"version": self.version, "leases": self._book.state_dict()} | self._progress.state_dict(),
        )

    def _event(self, kind: Kind, worker: int, lease: LeaseName = NO_LEASE, *, pulled: int = 0) -> Event:
        return Event(kind, worker, lease, pulled, self.version, self._progress.plateau)

    def _check(self) -> None:
        if self._failure is not None:
            where = "There is no checkpoint." if self._snapshot is None else f"The last checkpoint is {self._snapshot}."
            raise RunFailed(f"{self._failure}. {where}")

    def _fail(self, reason: str) -> None:
        self._failure = self._failure or reason
        self._changes.tell()
