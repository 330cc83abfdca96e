"""From a run's config to what servers, workers and the dispatcher go by."""

import hashlib
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor

from augpipe import Batch, Loader, MixedLabels, Place
from augpipe.native.workers import num_usable_cores
from augpipe.sources.identity import identity_of
from augpipe.sources.protocol import Source
from augpipe.trainer.config.load import to_toml
from augpipe.trainer.config.tables import RunConfig
from augpipe.trainer.loop.data import open_sources, training_loader
from augpipe.trainer.loop.run_network import build_network
from augpipe.trainer.loop.world import World, open_world
from augpipe.trainer.servers.group import Processes
from augpipe.trainer.servers.leases import LeasePlan
from augpipe.trainer.servers.messages import Lease
from augpipe.trainer.servers.slices import FlatWeights
from augpipe.trainer.servers.specs import Compensation, DispatcherSpec, ServerSpec, WorkerSpec
from augpipe.trainer.servers.worker import Worker

_STRENGTHS = {"constant": 0.04, "adaptive": 2.0}


@dataclass(frozen=True, kw_only=True)
class GroupPlace:
    """Where a process of a group meets the others."""

    host: str
    port: int
    rank: int
    size: int


@dataclass(frozen=True, kw_only=True)
class Specs:
    """What all of a run go by."""

    servers: tuple[ServerSpec, ...]
    worker: WorkerSpec
    dispatcher: DispatcherSpec
    weights: FlatWeights
    """The network's, of this process."""


def make_specs(config: RunConfig, source: Source, model: torch.nn.Module) -> Specs:
    """Cut a network's weights into slices, and an epoch into leases; its parameters become parts of one vector.

    Raises:
        ValueError: the network does not suit.
    """
    wanted = config.servers
    flat = FlatWeights(model)
    slices = flat.cut(wanted.servers)
    floating, counting = (one.numel() for one in flat.buffers())
    pull = None if wanted.pull == "whole" else wanted.pull
    how: Literal["constant", "adaptive"] | None = (
        None if wanted.delay_compensation == "off" else wanted.delay_compensation
    )
    strength = wanted.compensation if wanted.compensation is not None or how is None else _STRENGTHS[how]
    servers = tuple(
        ServerSpec(
            index=index,
            slice=one,
            num_buffers=(floating, counting) if index == 0 else None,
            optim=config.optim,
            push_codec=wanted.codec,
            pull_codec=pull,
            compensation=None if how is None or strength is None else Compensation(kind=how, strength=strength),
            num_threads=wanted.threads,
        )
        for index, one in enumerate(slices)
    )
    worker = WorkerSpec(
        slices=slices,
        optim=config.optim,
        push_codec=wanted.codec,
        pull_codec=pull,
        error_feedback=wanted.error_feedback,
        local_lr=(wanted.local_lr or config.optim.lr) if wanted.fetch_every > 1 else None,
        seed=config.seed,
        group_size=wanted.group if wanted.mode == "mixed" else 1,
    )
    dispatcher = DispatcherSpec(
        plan=lease_plan(config, source),
        mode=wanted.mode if wanted.mode != "off" else "async",
        schedule=config.schedule,
        num_counted=wanted.workers,
        num_backup=wanted.backup,
        staleness=wanted.staleness,
        fetches_every=wanted.fetch_every // wanted.push_every,
        digest=digest_of(config, flat, source),
        epochs=config.epochs,
        max_steps=config.max_steps,
        save_every=config.checkpoint.every_steps,
        lease_timeout_s=config.faults.timeout_s,
        on_nan=config.faults.on_nan,
        on_server_loss=config.faults.on_server_loss,
        log_folder=str(Path(config.out).absolute() / "order"),
        about={"config": to_toml(config), "torch": torch.__version__, "cpu": torch.backends.cpu.get_cpu_capability()},
    )
    return Specs(servers=servers, worker=worker, dispatcher=dispatcher, weights=flat)


def lease_plan(config: RunConfig, source: Source) -> LeasePlan:
    """How the run's epochs are cut into leases."""
    data, wanted = config.data, config.servers
    num_samples = len(source)
    if data.sampler in ("weighted", "class-balanced") and data.sampler_num is not None:
        num_samples = data.sampler_num
    elif data.sampler == "repeated":
        num_samples *= data.sampler_times or 1
    return LeasePlan(
        num_samples=num_samples,
        batch_size=data.batch_size,
        num_shares=wanted.workers if wanted.mode == "sync" else 1,
        group_size=wanted.group if wanted.mode == "mixed" else 1,
        num_batches=wanted.push_every,
        drop_last=data.drop_last,
    )


def digest_of(config: RunConfig, flat: FlatWeights, source: Source) -> str:
    """What must be the same for all workers, in few letters."""
    text = repr((flat.sizes, config.servers.codec, config.servers.pull, identity_of(source), config.seed))
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:12]


def join_group(meet: GroupPlace, timeout_s: float) -> Processes:
    """Meet the other processes of a group; it is then the process group that `torch.distributed` has by default."""
    dist.init_process_group(
        "gloo",
        init_method=f"tcp://{meet.host}:{meet.port}",
        rank=meet.rank,
        world_size=meet.size,
        timeout=timedelta(seconds=timeout_s),
    )
    assert dist.group.WORLD is not None
    return Processes(dist.group.WORLD)


def make_worker(
    config: RunConfig, spec: WorkerSpec, held: ExitStack, group: Processes | None = None
) -> tuple[str, Worker]:
    """(its digest, a worker) of this process, with its own network and loader.

    Args:
        config: of the run.
        spec: the worker's.
        held: keeps what it needs open.
        group: those that it shares leases with; None: it computes all shares of a lease.
    """
    torch.set_num_threads(config.servers.threads)
    world = held.enter_context(open_world("cpu", config.faults.timeout_s))
    source, _ = open_sources(config.data, config.seed)
    network = build_network(config, len(source.classes), world, tells=False)
    flat = FlatWeights(network.model)
    worker = Worker(spec, network.model, LoaderBatches(config, source, world), group)
    return digest_of(config, flat, source), worker


class LoaderBatches:
    """A worker's batches from a loader, which makes those of the upcoming lease ahead."""

    def __init__(self, config: RunConfig, source: Source, world: World) -> None:
        self._plan = lease_plan(config, source)
        ahead = min(config.data.prefetch, self._plan.num_batches)
        data = config.data.model_copy(update={"prefetch": ahead, "num_threads": _num_threads(config)})
        self._loader: Loader = training_loader(config.model_copy(update={"data": data}), source, world)
        self._expected: deque[Place] = deque()
        """What the running pass gives next."""
        self._asked: deque[Place] = deque()
        """What of it the pass has not begun."""
        self._is_ending = False
        """Whether the pass has taken note that nothing follows."""
        self._running: Iterator[Batch] = iter(())

    def take(self, lease: Lease, upcoming: Lease | None) -> Sequence[tuple[Tensor, Tensor | MixedLabels]]:
        """As `Batches` has it."""
        places = self._plan.places(lease)
        if list(islice(self._expected, len(places))) != places:
            self._expected, self._asked = deque(places), deque(places)
            self._is_ending = False
            self._running = self._loader.batches(self._feed())
        if upcoming is not None and not self._is_ending:
            ahead = self._plan.places(upcoming)
            self._expected.extend(ahead)
            self._asked.extend(ahead)
        taken = [next(self._running) for _ in places]
        for _ in places:
            self._expected.popleft()
        return [(batch.images, batch.labels) for batch in taken]

    def _feed(self) -> Iterator[Place]:
        while self._asked:
            yield self._asked.popleft()
        self._is_ending = True


def _num_threads(config: RunConfig) -> int | None:
    """As the config says; else, where all workers are on this machine, an even share of its cores."""
    wanted = config.servers
    if config.data.num_threads is not None or wanted.address is not None:
        return config.data.num_threads
    num_processes = (wanted.workers + wanted.backup) * (wanted.group if wanted.mode == "mixed" else 1)
    return max(1, num_usable_cores() // num_processes)
