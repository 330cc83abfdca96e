"""Backup workers, and more workers, by what they are for: virtual seconds until the test loss is below a given value.

    AUGPIPE_DATA=FOLDER python benchmarks/backup_loss.py [--no-save]    # a few minutes; mnist.npz lies in FOLDER
    AUGPIPE_DATA=FOLDER python benchmarks/backup_loss.py loss_by_workers

One of five workers takes three times as long; or one, two, four and eight equal workers push as soon as they are ready,
as the nodes of the BSC's Figure 3 do. The server, dispatcher and workers are the real ones with real gradients
on MNIST (64-64-10, tanh, dropout, SGD without momentum, batches of 32 a worker), under a virtual clock: a lease takes
one second with a jitter of 10 %, and messages take no time. Each kind has its own learning rate, constant, the one of
factors of two that reaches the lower loss first with a seed of its own; then four seeds. The loss is that of all 10,000
test images, looked at after every 160 training images or more.
"""

import argparse
import asyncio
import os
import statistics
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from common import half_width, save
from dettmers import DATA
from staleness_runs import JITTER, TensorBatches, network
from torch import Tensor, nn

from augpipe.trainer.config.tables import OptimConfig, ScheduleConfig
from augpipe.trainer.servers.leases import LeasePlan
from augpipe.trainer.servers.messages import Command, Update
from augpipe.trainer.servers.server import Server
from augpipe.trainer.servers.slices import FlatWeights
from augpipe.trainer.servers.specs import DispatcherSpec, ServerSpec, WorkerSpec
from augpipe.trainer.servers.worker import Worker
from augpipe.trainer.simulate.nics import Node
from augpipe.trainer.simulate.server_run import VirtualRun, play

BATCH_SIZE = 32
NUM_SAMPLES = 25_600
"""At which a run ends: a whole number of steps of four and of five workers."""
LOSSES = 0.5, 0.35
RATES = 0.0625, 0.125, 0.25, 0.5, 1.0, 2.0
SEARCH_SEED, SEEDS = 100, (0, 1, 2, 3)
SLOW = (1.0, 1.0, 1.0, 1.0, 3.0)


@dataclass(frozen=True, kw_only=True)
class Kind:
    """Who takes part."""

    mode: Any
    workers: int
    backup: int = 0
    factors: tuple[float, ...] = SLOW
    """What each worker's leases take, in seconds."""


KINDS = {
    "backup_loss": {
        "5, sync": Kind(mode="sync", workers=5),
        "4 + 1 backup, sync": Kind(mode="sync", workers=4, backup=1),
        "4 equal ones, sync": Kind(mode="sync", workers=4, factors=(1.0,) * 4),
        "5, async": Kind(mode="async", workers=5),
    },
    "loss_by_workers": {f"{num}, async": Kind(mode="async", workers=num, factors=(1.0,) * num) for num in (1, 2, 4, 8)},
}


class ObservedServer(Server):
    """A server of all weights that looks at the test loss, in no virtual time."""

    def __init__(self, spec: ServerSpec, evaluator: Worker, data: dict[str, Tensor], every: int) -> None:
        super().__init__(spec)
        self._evaluator, self._data, self._every = evaluator, data, every
        self.losses: list[tuple[float, int, float]] = []
        """(virtual seconds, updates, test loss)."""

    def carry_out(self, number: int, command: Command) -> Any:
        """As a server does."""
        result = super().carry_out(number, command)
        if isinstance(command, Update) and self.version % self._every == 0:
            self._evaluator.load([self._hand(-1, True)])
            now = asyncio.get_running_loop().time()
            self.losses.append((now, self.version, mean_loss(self._evaluator.model, self._data)))
        return result


@torch.no_grad()
def mean_loss(model: nn.Module, data: dict[str, Tensor]) -> float:
    """That of the test images."""
    model.eval()
    return float(nn.functional.cross_entropy(model(data["test_images"]), data["test_labels"]))


def run(kind: Kind, lr: float, seed: int, data: dict[str, Tensor], folder: Path) -> list[tuple[float, int, float]]:
    """(virtual seconds, updates, test loss), from the first update on."""
    is_sync = kind.mode == "sync"
    plan = LeasePlan(
        num_samples=NUM_SAMPLES,
        batch_size=BATCH_SIZE,
        num_shares=kind.workers if is_sync else 1,
        group_size=1,
        num_batches=1,
        drop_last=True,
    )
    optim = OptimConfig(name="sgd", lr=lr, momentum=0.0, weight_decay=1e-4)
    torch.manual_seed(seed)
    first = FlatWeights(network("mnist"))
    slices = first.cut(1)
    spec = WorkerSpec(
        slices=slices, optim=optim, push_codec="fp32", pull_codec=None, error_feedback=False, local_lr=None, seed=seed
    )
    server_spec = ServerSpec(
        index=0, slice=slices[0], num_buffers=(0, 0), optim=optim, push_codec="fp32", pull_codec=None
    )
    mixed = torch.randperm(len(data["train_labels"]), generator=torch.Generator().manual_seed(0))[:NUM_SAMPLES]
    batches = TensorBatches(plan, data["train_images"][mixed], data["train_labels"][mixed], seed)
    server = ObservedServer(server_spec, Worker(spec, network("mnist"), batches), data, 1 if is_sync else 5)
    server.begin(first)
    nodes = [Node(name=f"worker {number}", compute_jitter=JITTER) for number in range(kind.workers + kind.backup)]
    middle = Node(name="server")
    play(
        VirtualRun(
            dispatcher=DispatcherSpec(
                plan=plan,
                mode=kind.mode,
                schedule=ScheduleConfig(name="constant"),
                num_counted=kind.workers,
                num_backup=kind.backup,
            ),
            make_server=lambda index: server,
            make_worker=lambda number: Worker(spec, network("mnist"), batches),
            folder=folder,
            server_nodes=(middle,),
            worker_nodes=tuple(nodes),
            driver_node=middle,
            lease_s=lambda number, lease: kind.factors[number],
            seed=seed,
        )
    )
    return server.losses


def reached(losses: list[tuple[float, int, float]], goal: float) -> tuple[float, int] | None:
    """(virtual seconds, updates) at which the loss is below the goal for the first time."""
    return next(((seconds, updates) for seconds, updates, loss in losses if loss < goal), None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", choices=KINDS, default="backup_loss")
    parser.add_argument("--no-save", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = DATA["mnist"](Path(os.environ["AUGPIPE_DATA"]))
    table: dict[str, Any] = {}
    with TemporaryDirectory() as folder:
        for title, kind in KINDS[options.name].items():
            found = {}
            for lr in RATES:
                at = reached(run(kind, lr, SEARCH_SEED, data, Path(folder)), LOSSES[-1])
                found[lr] = None if at is None else at[0]
            print(f"{title}: seconds to {LOSSES[-1]} by learning rate: {found}", flush=True)
            best = min((lr for lr in RATES if found[lr] is not None), key=lambda lr: found[lr])
            runs = [run(kind, best, seed, data, Path(folder)) for seed in SEEDS]
            row: dict[str, Any] = {"lr": best, "search": found}
            for goal in LOSSES:
                times = [reached(losses, goal) for losses in runs]
                assert None not in times, "a run is too short"
                seconds = [one[0] for one in times]
                row[f"to {goal}"] = {
                    "seconds": seconds,
                    "updates": [one[1] for one in times],
                    "mean_s": statistics.mean(seconds),
                    "confidence_95_s": half_width(seconds),
                }
                print(
                    f"  to {goal}: {statistics.mean(seconds):.1f} +- {half_width(seconds):.1f} s, "
                    f"{statistics.mean(one[1] for one in times):.0f} updates; learning rate {best:g}",
                    flush=True,
                )
            table[title] = row
    if not options.no_save:
        command = f"AUGPIPE_DATA=FOLDER python benchmarks/backup_loss.py {options.name}"
        save(options.name, {"command": command, "table": table})


if __name__ == "__main__":
    main()
