"""Training by parameter servers in a virtual cluster: real servers, dispatcher, workers and gradients, no real time.

A lease takes one virtual second with a jitter of 10 %, and messages take none. MNIST: Mullapudi's network, 64-64-10
with tanh and dropout; he does not say how much. CIFAR-10: a small-cnn of width 16.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

from augpipe.sampling import epoch_order
from augpipe.trainer import model as build
from augpipe.trainer.config.tables import OptimConfig, ScheduleConfig
from augpipe.trainer.servers.leases import LeasePlan
from augpipe.trainer.servers.messages import Applied, Command, Lease, Update
from augpipe.trainer.servers.server import Server
from augpipe.trainer.servers.slices import FlatWeights
from augpipe.trainer.servers.specs import Compensation, DispatcherSpec, ServerSpec, WorkerSpec
from augpipe.trainer.servers.worker import Worker
from augpipe.trainer.simulate.nics import Node
from augpipe.trainer.simulate.server_run import VirtualRun, play

JITTER = 0.1
Data = dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Who trains what, and how."""

    data: str
    """"mnist" or "cifar10"."""
    optim: OptimConfig
    mode: Any = "async"
    workers: int
    backup: int = 0
    group_size: int = 1
    """Workers that average among themselves and push as one; of those, workers / group_size take leases."""
    factors: tuple[float, ...] = ()
    """What each worker's leases take, in seconds; 1 where none is given."""
    batch_size: int = 32
    num_images: int
    """How many of the training set are used: the first ones in a fixed mixed order; the test set is always whole."""
    epochs: int = 1
    schedule: str = "cosine"
    compensation: Compensation | None = None
    observed: int = 0
    """The test loss is looked at after as many updates; 0: never."""
    seed: int


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What became of a training."""

    model: nn.Module
    applied: list[Applied]
    losses: list[tuple[float, int, float]]
    """(virtual seconds, updates, test loss)."""


def network(data: str) -> nn.Module:
    """The network that is trained on a data set."""
    if data == "cifar10":
        return build("small-cnn", num_classes=10, width=16)
    pairs = pairwise((784, 64, 64))
    hidden = [layer for sizes in pairs for layer in (nn.Linear(*sizes), nn.Tanh(), nn.Dropout(0.2))]
    return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(64, 10))


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


class ObservedServer(Server):
    """A server of all weights that looks at the test loss, in no virtual time."""

    def __init__(self, spec: ServerSpec, evaluator: Worker, data: Data, every: int) -> None:
        super().__init__(spec)
        self._evaluator, self._data, self._every = evaluator, data, every
        self.losses: list[tuple[float, int, float]] = []

    def carry_out(self, number: int, command: Command) -> Any:
        """As a server does."""
        result = super().carry_out(number, command)
        if self._every and isinstance(command, Update) and self.version % self._every == 0:
            self._evaluator.load([self._hand(-1, True)])
            now = asyncio.get_running_loop().time()
            self.losses.append((now, self.version, mean_loss(self._evaluator.model, self._data)))
        return result


@torch.no_grad()
def mean_loss(model: nn.Module, data: Data) -> float:
    """That of the test images."""
    model.eval()
    return float(nn.functional.cross_entropy(model(data["test_images"]), data["test_labels"]))


@torch.no_grad()
def test_error(model: nn.Module, data: Data) -> float:
    """Share of the test images that are taken for something else."""
    model.eval()
    found = torch.cat([model(images).argmax(dim=1) for images in data["test_images"].split(1000)])
    return float((found != data["test_labels"]).double().mean())


def train(of: Cluster, data: Data) -> Trained:
    """Play a training to its end.

    Raises:
        RuntimeError: a loss was not finite, as the dispatcher says.
    """
    some = torch.randperm(len(data["train_labels"]), generator=torch.Generator().manual_seed(0))[: of.num_images]
    is_sync = of.mode == "sync"
    plan = LeasePlan(
        num_samples=len(some), batch_size=of.batch_size, num_shares=of.workers if is_sync else 1,
        group_size=of.group_size, num_batches=1, drop_last=False,
    )  # fmt: skip
    torch.manual_seed(of.seed)
    first = FlatWeights(network(of.data))
    slices = first.cut(1)
    floating, counting = first.buffers()
    common = {"optim": of.optim, "push_codec": "fp32", "pull_codec": None}
    spec = WorkerSpec(
        slices=slices, error_feedback=False, local_lr=None, seed=of.seed, group_size=of.group_size, **common
    )
    batches = TensorBatches(plan, data["train_images"][some], data["train_labels"][some], of.seed)
    num_buffers = len(floating), len(counting)
    server_spec = ServerSpec(index=0, slice=slices[0], num_buffers=num_buffers, compensation=of.compensation, **common)
    evaluator = Worker(spec, network(of.data), batches)
    server = ObservedServer(server_spec, evaluator, data, of.observed)
    server.begin(first)
    num, middle = of.workers // of.group_size, Node(name="server")
    factors = dict(enumerate(of.factors))
    with TemporaryDirectory() as states:
        played = play(
            VirtualRun(
                dispatcher=DispatcherSpec(
                    plan=plan, mode=of.mode, schedule=ScheduleConfig(name=of.schedule), num_counted=num,
                    num_backup=of.backup, epochs=of.epochs,
                ),
                make_server=lambda index: server,
                make_worker=lambda number: Worker(spec, network(of.data), batches),
                folder=Path(states),
                server_nodes=(middle,),
                worker_nodes=tuple(Node(name=f"worker {k}", compute_jitter=JITTER) for k in range(num + of.backup)),
                driver_node=middle,
                lease_s=lambda number, lease: factors.get(number, 1.0),
                seed=of.seed,
            )
        )  # fmt: skip
    evaluator.load(played.weights)
    return Trained(model=evaluator.model, applied=played.applied, losses=server.losses)
