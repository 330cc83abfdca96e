"""One training of benchmarks/staleness.py: what is trained, and its playing in a virtual cluster."""

import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from augpipe.sampling import epoch_order
from augpipe.trainer import model as build
from augpipe.trainer.config.tables import OptimConfig, ScheduleConfig
from augpipe.trainer.servers.dispatcher import Dispatcher
from augpipe.trainer.servers.leases import LeasePlan
from augpipe.trainer.servers.messages import Applied, Fence, Grant, Lease, Part
from augpipe.trainer.servers.server import Server
from augpipe.trainer.servers.slices import FlatWeights
from augpipe.trainer.servers.specs import Compensation, DispatcherSpec, ServerSpec, WorkerSpec
from augpipe.trainer.servers.work import work
from augpipe.trainer.servers.worker import Computed, Worker
from augpipe.trainer.simulate.clock import run_virtual
from augpipe.trainer.simulate.cluster import Cluster
from augpipe.trainer.simulate.nics import Node
from augpipe.trainer.simulate.peers import VirtualPeer

JITTER = 0.1
GROUPS = {4: 2, 8: 4, 12: 4, 16: 4}
"""For mixed, by workers, how many of them make a group."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """What is trained, and for how long."""

    batch_size: int
    """A worker's."""
    num_images: int
    """How many of the training set are used: the first ones in a fixed mixed order; the test set is always whole."""
    epochs: int
    optimizers: dict[str, OptimConfig]
    """With the learning rate at which the search of one worker begins."""
    data: str = ""
    """The key in `DATA`; empty for the task's own name."""
    workers: tuple[int, ...] = (1, 8, 4, 16, 2, 12)
    """Those of the question come first; staleness 0, 7, 3, 15, 1 and 11."""


TASKS = {
    "mnist": Task(
        batch_size=32,
        num_images=8_000,
        epochs=1,
        optimizers={
            "sgd": OptimConfig(name="sgd", lr=0.25, momentum=0.0, weight_decay=1e-4),
            "adagrad": OptimConfig(name="adagrad", lr=0.03, weight_decay=1e-4),
        },
    ),
    "mnist_longer": Task(
        data="mnist",
        batch_size=32,
        num_images=30_000,
        epochs=1,
        optimizers={
            "sgd": OptimConfig(name="sgd", lr=0.5, momentum=0.0, weight_decay=1e-4),
            "adagrad": OptimConfig(name="adagrad", lr=0.06, weight_decay=1e-4),
        },
        workers=(1, 8),
    ),
    "cifar10": Task(
        batch_size=32,
        num_images=8_000,
        epochs=3,
        optimizers={"rmsprop": OptimConfig(name="rmsprop", lr=0.001, momentum=0.9, weight_decay=1e-4)},
    ),
}


@dataclass(frozen=True, kw_only=True)
class Run:
    """One training."""

    task: str
    optimizer: str
    mode: str
    workers: int
    lr: float
    strength: float = 0.0
    """The delay compensation's lambda."""
    seed: int

    @property
    def group_size(self) -> int:
        """Workers that average among themselves and push as one."""
        return GROUPS[self.workers] if self.mode == "mixed" else 1

    @property
    def file(self) -> str:
        """Where its result is kept."""
        numbers = f"{self.workers}-{self.lr:.6g}-{self.strength:.6g}-{self.seed}"
        return f"{self.task}-{self.optimizer}-{self.mode}-{numbers}.json"


def network(task: str) -> nn.Module:
    """Mullapudi's for MNIST; he does not say how much dropout."""
    if task.startswith("cifar10"):
        return build("small-cnn", num_classes=10, width=16)
    sizes = (784, 64, 64)
    hidden = [
        layer
        for inputs, outputs in pairwise(sizes)
        for layer in (nn.Linear(inputs, outputs), nn.Tanh(), nn.Dropout(0.2))
    ]
    return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(sizes[-1], 10))


class TensorBatches:
    """A lease's batches out of tensors in memory, by the order that the loader uses."""

    def __init__(self, plan: LeasePlan, images: Tensor, labels: Tensor, seed: int) -> None:
        self._plan, self._images, self._labels, self._seed = plan, images, labels, seed

    def take(self, lease: Lease, upcoming: Lease | None) -> Sequence[tuple[Tensor, Tensor]]:
        """(images, labels) of each of its batches."""
        num, taken = self._plan.num_samples, []
        for place in self._plan.places(lease):
            positions = epoch_order.rank_positions(
                place.first, num, self._plan.batch_size, place.rank, place.world_size
            )
            ids = torch.from_numpy(epoch_order.sample_ids(positions, num, self._seed, place.epoch, True))
            taken.append((self._images[ids], self._labels[ids]))
        return taken


class Training:
    """A run's parts, and its playing under a virtual clock."""

    def __init__(self, run: Run, data: dict[str, Tensor]) -> None:
        task, is_sync = TASKS[run.task], run.mode == "sync"
        optim = task.optimizers[run.optimizer].model_copy(update={"lr": run.lr})
        some = torch.randperm(len(data["train_labels"]), generator=torch.Generator().manual_seed(0))[: task.num_images]
        self._run = run
        self._plan = LeasePlan(
            num_samples=len(some),
            batch_size=task.batch_size,
            num_shares=run.workers if is_sync else 1,
            group_size=run.group_size,
            num_batches=1,
            drop_last=False,
        )
        torch.manual_seed(run.seed)
        self.model = network(run.task)
        first = FlatWeights(self.model)
        (one,) = first.cut(1)
        floating, counting = first.buffers()
        compensation = Compensation(kind=run.mode, strength=run.strength) if run.strength else None
        self._server = Server(
            ServerSpec(
                index=0,
                slice=one,
                num_buffers=(len(floating), len(counting)),
                optim=optim,
                push_codec="fp32",
                pull_codec=None,
                compensation=compensation,
            )
        ).begin(first)
        spec = WorkerSpec(
            slices=(one,),
            optim=optim,
            push_codec="fp32",
            pull_codec=None,
            error_feedback=False,
            local_lr=None,
            seed=run.seed,
            group_size=run.group_size,
        )
        batches = TensorBatches(self._plan, data["train_images"][some], data["train_labels"][some], run.seed)
        num_groups = run.workers // run.group_size
        self._workers = [Worker(spec, network(run.task), batches) for _ in range(num_groups)]
        self.evaluator = Worker(spec, self.model, batches)
        self.applied: list[Applied] = []

    async def play(self) -> None:
        """From the first fence to the last; then the evaluator has the weights."""
        run = self._run
        nodes = [Node(name=f"worker {number}", compute_jitter=JITTER) for number in range(len(self._workers))]
        middle = Node(name="server")
        cluster = Cluster((middle, *nodes), seed=run.seed)
        server = VirtualPeer(cluster, middle, self._server, "server")
        dispatching = Dispatcher(
            DispatcherSpec(
                plan=self._plan,
                mode=run.mode if run.mode in ("sync", "mixed") else "async",
                schedule=ScheduleConfig(),  # a cosine down to zero, by samples
                num_counted=len(self._workers),
                epochs=TASKS[run.task].epochs,
            ),
            [server],
        )
        dispatcher = VirtualPeer(cluster, middle, dispatching, "dispatcher")

        async def compute(worker: Worker, grant: Grant) -> Computed:
            await cluster.compute(1.0)
            return worker.compute(grant.lease, grant.upcoming, grant.lr)

        async def drive() -> None:
            is_last = False
            while not is_last:
                fence: Fence = await dispatcher.call("fence")
                parts: list[Part] = [await part for part in fence.weights]
                self.applied += (await dispatcher.call("drain"))[0]
                is_last = fence.is_last
                await dispatcher.call("go_on", "", 1.0)
            self.evaluator.load(parts)

        tasks = [cluster.start(middle, drive(), "driver")]
        for number, (node, worker) in enumerate(zip(nodes, self._workers, strict=True)):
            loop = work(number, "", worker, dispatcher, [server], compute)
            tasks.append(cluster.start(node, loop, f"worker {number}"))
        for task in tasks:
            await task


@torch.no_grad()
def test_error(model: nn.Module, data: dict[str, Tensor]) -> float:
    """Share of the test images that are taken for something else."""
    model.eval()
    found = torch.cat([model(images).argmax(dim=1) for images in data["test_images"].split(1000)])
    return float((found != data["test_labels"]).double().mean())


def train(run: Run, data: dict[str, Tensor]) -> dict[str, Any]:
    """One run: its test error, and the staleness that it had. One that diverges has the error of guessing."""
    start = time.process_time()
    training = Training(run, data)
    try:
        run_virtual(training.play())
    except RuntimeError as error:  # the dispatcher's: a loss was not finite
        if "not finite" not in str(error):
            raise
        return asdict(run) | {"error": 0.9, "staleness": math.nan, "seconds": round(time.process_time() - start, 2)}
    ages = [one.staleness for one in training.applied]
    return asdict(run) | {
        "error": test_error(training.model, data),
        "staleness": statistics.mean(ages),
        "staleness_max": max(ages),
        "updates": training.applied[-1].version,
        "seconds": round(time.process_time() - start, 2),
    }
