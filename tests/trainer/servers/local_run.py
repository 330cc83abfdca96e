"""A run of servers, workers and dispatcher in one event loop; calls take random numbers of its turns, by a seed."""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from augpipe.sampling import epoch_order
from augpipe.trainer.checkpoint.manifest import write_manifest
from augpipe.trainer.checkpoint.tree import flatten
from augpipe.trainer.config.tables import OptimConfig, ScheduleConfig
from augpipe.trainer.servers.dispatcher import Dispatcher
from augpipe.trainer.servers.leases import LeasePlan
from augpipe.trainer.servers.messages import Applied, Lease, PeerLost
from augpipe.trainer.servers.server import Server
from augpipe.trainer.servers.slices import FlatWeights
from augpipe.trainer.servers.specs import Compensation, DispatcherSpec, ServerSpec, WorkerSpec
from augpipe.trainer.servers.state_file import dispatcher_path, read_state, server_path, write_state
from augpipe.trainer.servers.work import work
from augpipe.trainer.servers.worker import Worker

NUM_SAMPLES = 203


def images_and_labels() -> tuple[Tensor, Tensor]:
    """(203, 20) float32 and (203,) int64, the same each time."""
    made = torch.Generator().manual_seed(5)
    return torch.randn(NUM_SAMPLES, 20, generator=made), torch.randint(0, 5, (NUM_SAMPLES,), generator=made)


def rich_network() -> nn.Module:
    """With buffers, and with something that draws."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(20, 40), nn.BatchNorm1d(40), nn.ReLU(), nn.Dropout(0.3), nn.Linear(40, 5))


def plain_network() -> nn.Module:
    """Whose gradient is a sum over samples, whoever computes it."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(20, 40), nn.Tanh(), nn.Linear(40, 5))


class MemoryBatches:
    """Batches of a data set in memory.

    Args:
        plan: how epochs are cut.
        bad: (epoch, position in it) of images that are not numbers.
    """

    def __init__(self, plan: LeasePlan, bad: tuple[tuple[int, int], ...] = ()) -> None:
        self._plan = plan
        self._bad = bad
        self._images, self._labels = images_and_labels()

    def take(self, lease: Lease, upcoming: Lease | None) -> Sequence[tuple[Tensor, Tensor]]:
        """As `Batches` has it."""
        taken = []
        for place in self._plan.places(lease):
            positions = epoch_order.rank_positions(
                place.first, NUM_SAMPLES, self._plan.batch_size, place.rank, place.world_size
            )
            ids = torch.from_numpy(epoch_order.sample_ids(positions, NUM_SAMPLES, 0, place.epoch, True))
            images = self._images[ids].clone()
            for epoch, position in self._bad:
                if epoch == place.epoch:
                    images[torch.from_numpy(positions == position)] = float("nan")
            taken.append((images, self._labels[ids]))
        return taken


@dataclass(kw_only=True)
class Setting:
    """A run, in few words."""

    mode: str = "async"
    num_workers: int = 3
    num_backup: int = 0
    num_servers: int = 2
    optim: OptimConfig = field(default_factory=lambda: OptimConfig(name="sgd", lr=0.05, weight_decay=1e-3))
    schedule: ScheduleConfig = field(default_factory=lambda: ScheduleConfig(name="cosine", warmup_epochs=0.3))
    push_codec: str = "fp32"
    pull_codec: str | None = None
    error_feedback: bool = False
    compensation: Compensation | None = None
    group_size: int = 1
    push_every: int = 1
    fetches_every: int = 1
    local_lr: float | None = None
    staleness: int | None = None
    epochs: int = 2
    save_every: int = 0
    drop_last: bool = False
    bad: tuple[tuple[int, int], ...] = ()
    network: Callable[[], nn.Module] = rich_network
    num_kills: int = 0
    num_losses: int = 0
    keeps_dead: bool = False
    """Whether a worker that was killed stays away."""

    def plan(self) -> LeasePlan:
        """How its epochs are cut."""
        return LeasePlan(
            num_samples=NUM_SAMPLES,
            batch_size=8,
            num_shares=self.num_counted if self.mode == "sync" else 1,
            group_size=self.group_size,
            num_batches=self.push_every,
            drop_last=self.drop_last,
        )

    @property
    def num_counted(self) -> int:
        """Pushes of a synchronous step."""
        return self.num_workers - self.num_backup

    def worker(self) -> Worker:
        """One of its workers."""
        network = self.network()
        spec = WorkerSpec(
            slices=FlatWeights(self.network()).cut(self.num_servers),
            optim=self.optim,
            push_codec=self.push_codec,
            pull_codec=self.pull_codec,
            error_feedback=self.error_feedback,
            local_lr=self.local_lr,
            seed=3,
            group_size=self.group_size,
        )
        return Worker(spec, network, MemoryBatches(self.plan(), self.bad))

    def server_specs(self) -> list[ServerSpec]:
        """Those of its servers."""
        flat = FlatWeights(self.network())
        floating, counting = flat.buffers()
        return [
            ServerSpec(
                index=index,
                slice=one,
                num_buffers=(floating.numel(), counting.numel()) if index == 0 else None,
                optim=self.optim,
                push_codec=self.push_codec,
                pull_codec=self.pull_codec,
                compensation=self.compensation,
            )
            for index, one in enumerate(flat.cut(self.num_servers))
        ]

    def servers(self) -> list[Server]:
        """Its servers with their first weights."""
        flat = FlatWeights(self.network())
        return [Server(spec).begin(flat) for spec in self.server_specs()]

    def dispatcher_spec(self, folder: Path) -> DispatcherSpec:
        """The dispatcher's, which logs to a folder's `order`."""
        return DispatcherSpec(
            plan=self.plan(),
            mode="sync" if self.mode == "sync" else "async",
            schedule=self.schedule,
            num_counted=self.num_counted,
            num_backup=self.num_backup,
            staleness=self.staleness,
            fetches_every=self.fetches_every,
            epochs=self.epochs,
            save_every=self.save_every,
            on_nan="skip",
            log_folder=str(folder / "order"),
            about={"config": f"mode = {self.mode!r}\nlr = {self.optim.lr}"},
        )


@dataclass
class Host:
    """Where a server or the dispatcher is; it may be begun anew."""

    there: Any
    incarnation: int = 0


class TurnsPeer:
    """Calls of one caller, begun in the order in which they were made."""

    def __init__(self, host: Host, turns: Callable[[], int]) -> None:
        self._host = host
        self._turns = turns
        self._before: asyncio.Future[None] | None = None
        self.is_cut = False
        """Whether the caller is dead: what it has sent does not arrive any more."""

    def call(self, method: str, /, *args: Any) -> Any:
        """As `Peer` has it."""
        before, begun = self._before, asyncio.get_running_loop().create_future()
        self._before = begun
        return asyncio.shield(asyncio.ensure_future(self._call(before, begun, method, args)))

    async def _call(self, before: Any, begun: "asyncio.Future[None]", method: str, args: tuple[Any, ...]) -> Any:
        await wait_turns(self._turns())
        if before is not None:
            await before
        if self.is_cut:
            return None
        incarnation = self._host.incarnation
        found = getattr(self._host.there, method)
        try:
            result = found(*args)
        finally:
            begun.set_result(None)
        if asyncio.iscoroutine(result):
            result = await result
        await wait_turns(self._turns())
        if self._host.incarnation != incarnation:
            raise PeerLost("restarted meanwhile")
        return result


async def wait_turns(num: int) -> None:
    """Let others go first so many times."""
    for _ in range(num):
        await asyncio.sleep(0)


class LocalRun:
    """A whole run.

    Args:
        setting: what is run.
        folder: for checkpoints and the order log.
        seed: of how long calls take, and of when somebody is killed.
    """

    def __init__(self, setting: Setting, folder: Path, seed: int) -> None:
        self.setting = setting
        self.folder = folder
        self._random = random.Random(seed)
        self._paces = [self._random.choice((2, 5, 20)) for _ in range(setting.num_workers)]
        self.versions: list[int] = []
        """Updates before each fence."""
        self.applied: list[Applied] = []
        self.num_kills = self.num_losses = 0
        self._calls_of: dict[int, list[TurnsPeer]] = {}

    def checkpoint(self, version: int) -> Path:
        """The folder of a fence's."""
        return self.folder / f"step-{version:09}"

    def run(self) -> "LocalRun":
        """To the end; returns itself."""
        asyncio.run(asyncio.wait_for(self._run(), 120))
        return self

    async def _run(self) -> None:
        setting = self.setting
        self.hosts = [Host(one) for one in setting.servers()]
        self.dispatcher = Dispatcher(setting.dispatcher_spec(self.folder), self._peers(3))
        self._workers = {number: self._begin(number) for number in range(setting.num_workers)}
        trouble = asyncio.ensure_future(self._trouble())
        is_last = False
        while not is_last:
            fence = await self.dispatcher.fence()
            self.versions.append(fence.version)
            folder = self.checkpoint(fence.version)
            await self.dispatcher.save(str(folder))
            write_state(dispatcher_path(folder), fence.state)
            write_manifest(folder, {"step": fence.version, "servers": {}})
            await self.dispatcher.go_on(str(folder), 1.0)
            is_last = fence.is_last
        trouble.cancel()
        self.applied, _ = await self.dispatcher.drain()
        await asyncio.gather(*(task for task in self._workers.values() if not task.cancelled()))

    def _peers(self, pace: int) -> list[TurnsPeer]:
        return [TurnsPeer(host, lambda: self._random.randrange(pace)) for host in self.hosts]

    def _begin(self, number: int) -> "asyncio.Future[int]":
        pace = self._paces[number]
        dispatcher = TurnsPeer(Host(self.dispatcher), lambda: self._random.randrange(pace))
        servers = self._peers(pace)
        self._calls_of[number] = [dispatcher, *servers]
        return asyncio.ensure_future(work(number, "", self.setting.worker(), dispatcher, servers))

    async def _trouble(self) -> None:
        """Kill workers and lose servers, at random moments."""
        planned = ["kill"] * self.setting.num_kills + ["lose"] * self.setting.num_losses
        self._random.shuffle(planned)
        for what in planned:
            await wait_turns(self._random.randrange(60, 160))
            if what == "lose":
                index = self._random.randrange(self.setting.num_servers)
                host = self.hosts[index]
                host.there, host.incarnation = Server(self.setting.server_specs()[index]), host.incarnation + 1
                self.num_losses += 1
                continue
            number = self._random.choice([one for one, task in self._workers.items() if not task.done()])
            self._workers[number].cancel()
            for peer in self._calls_of[number]:
                peer.is_cut = True
            await wait_turns(self._random.randrange(10))
            await self.dispatcher.left(number, "killed")
            self.num_kills += 1
            if not self.setting.keeps_dead:
                await wait_turns(self._random.randrange(30))
                self._workers[number] = self._begin(number)


def states(folder: Path, num_servers: int) -> list[tuple[str, dict[str, Tensor]]]:
    """What the servers wrote to a checkpoint, less what is not the weights' own."""
    found = []
    for index in range(num_servers):
        text, tensors = flatten(read_state(server_path(folder, index)))
        found.append((text, tensors))
    return found


def assert_equal_states(found: Path, expected: Path, num_servers: int) -> None:
    """Weights, buffers and the optimizer's state are the same, bit for bit."""
    for (text, tensors), (text_expected, tensors_expected) in zip(
        states(found, num_servers), states(expected, num_servers), strict=True
    ):
        assert text == text_expected
        assert tensors.keys() == tensors_expected.keys()
        for name, tensor in tensors.items():
            assert torch.equal(tensor, tensors_expected[name]), name


def settings() -> dict[str, Setting]:
    """One of each kind."""
    adaptive = Compensation(kind="adaptive", strength=2.0)
    rmsprop = OptimConfig(name="rmsprop", lr=0.003, momentum=0.9)
    own = Setting(num_workers=3, fetches_every=3, local_lr=0.05)
    return {
        "sync": Setting(mode="sync", num_workers=3),
        "sync with backups": Setting(mode="sync", num_workers=5, num_backup=2),
        "sync, backups, encoded both ways": Setting(
            mode="sync",
            num_workers=4,
            num_backup=2,
            push_codec="dynamic-tree",
            error_feedback=True,
            pull_codec="linear",
        ),
        "async": Setting(),
        "async, AdamW": Setting(optim=OptimConfig(name="adamw", lr=0.01, weight_decay=0.1)),
        "async, Adagrad": Setting(optim=OptimConfig(name="adagrad", lr=0.05)),
        "async, RMSProp, momentum": Setting(optim=rmsprop),
        "async, momentum": Setting(optim=OptimConfig(name="sgd", lr=0.02, momentum=0.9)),
        "mixed": Setting(mode="mixed", group_size=2, push_codec="dynamic-tree", error_feedback=True, epochs=4),
        "own steps": own,
        "own steps, encoded both ways": replace(
            own, push_codec="dynamic-tree", error_feedback=True, pull_codec="dynamic-tree"
        ),
        "own steps, not finite": replace(own, bad=((0, 40), (0, 90), (1, 7))),
        "own steps of two batches, momentum": replace(
            own, push_every=2, fetches_every=2, optim=OptimConfig(name="sgd", lr=0.02, momentum=0.9)
        ),
        "staleness bound": Setting(num_workers=4, staleness=1),
        "error feedback": Setting(push_codec="dynamic-tree", error_feedback=True),
        "error feedback, not finite": Setting(push_codec="one-bit", error_feedback=True, bad=((0, 40), (1, 7))),
        "encoded differences": Setting(pull_codec="dynamic-tree"),
        "compensation": Setting(compensation=Compensation(kind="constant", strength=0.5)),
        "adaptive compensation, encoded": Setting(compensation=adaptive, pull_codec="dynamic-tree", optim=rmsprop),
        "adaptive compensation, own steps": replace(own, compensation=adaptive),
        "sync, not finite": Setting(mode="sync", num_workers=3, num_backup=1, bad=((0, 40), (1, 7))),
    }
