"""One to four real workers and a real server over Ray on this machine, beside what the virtual cluster predicts.

    python -m benchmarks.trainer.servers_real [--codec dynamic-tree] [--compute-s 1.0 0.2]

The servers, the dispatcher, every message and the memory that Ray copies it through are those of a real run, with
weights of ResNet-50's size and RMSProp, asynchronously. A worker's computing is waiting, and its gradient is encoded
before the first lease: so two cores do for four workers, and whether the server is what holds them back is real. Each
takes whole weights before a lease, and copies them out of Ray's memory.

The prediction is printed before the first run: the same dispatcher and loop under the virtual clock, with the CPU time
that a server takes here for its commands, and with messages that travel at the pace of one copy by one core. Speed-up
is that over one worker that computes without servers.
"""

import asyncio
import os
import time
from dataclasses import asdict, dataclass
from random import Random
from typing import Any

import numpy as np
import ray
import torch

from augpipe.trainer.codecs import codec
from augpipe.trainer.config import make_config
from augpipe.trainer.config.tables import OptimConfig, ScheduleConfig
from augpipe.trainer.servers.from_config import Specs
from augpipe.trainer.servers.leases import LeasePlan
from augpipe.trainer.servers.messages import Applied, Fence, Grant, Part, Peer
from augpipe.trainer.servers.ray_cluster import RayCluster, WorkerActor
from augpipe.trainer.servers.slices import FlatWeights, Slice
from augpipe.trainer.servers.specs import DispatcherSpec, ServerSpec
from augpipe.trainer.servers.work import work
from augpipe.trainer.servers.worker import Computed
from augpipe.trainer.simulate.nics import log_normal
from benchmarks.harness import Bench
from benchmarks.trainer.sized_cluster import Costs, Setting, Sizes, Wide, measure, rates

JITTER = 0.05
"""How much computing varies, as in servers.py of the papers."""
WORKERS = 1, 2, 4
LEASES, WARM_UP = 16, 3
"""Leases of each worker, and how many at each end are left out of throughputs."""
OPTIM = OptimConfig(name="rmsprop", lr=0.001)


@dataclass(frozen=True, kw_only=True)
class WaitingSpec:
    """What a worker goes by that waits instead of computing."""

    slices: tuple[Slice, ...]
    num: int
    push_codec: str
    compute_s: float


class WaitingWorker:
    """Takes on weights, and pushes the same gradient each time."""

    def __init__(self, spec: WaitingSpec, number: int) -> None:
        self._slices = spec.slices
        self._values = np.zeros(spec.num, np.float32)
        gradient = np.random.default_rng(number).standard_normal(spec.num, np.float32) * np.float32(1e-3)
        encoder = codec(spec.push_codec)
        self.parts = tuple(
            Part(
                wide=encoder.encode(gradient[slice(*one.wide)]),
                narrow=np.zeros(one.num_narrow, np.float32),
                buffers=np.zeros(0, np.float32) if index == 0 else None,
                counts=np.zeros(0, np.int64) if index == 0 else None,
            )
            for index, one in enumerate(spec.slices)
        )

    def load(self, parts: tuple[Part, ...]) -> None:
        """As a real one: copied out of Ray's memory."""
        for one, part in zip(self._slices, parts, strict=True):
            self._values[slice(*one.wide)] = part.wide.view(np.float32)

    def begin_afresh(self) -> None:
        """Nothing is kept."""

    def settle(self, *, counted: bool) -> None:
        """Nothing is kept."""


class WaitingActor(WorkerActor):
    """A worker in a process of its own."""

    def run(self, number: int, dispatcher: Peer, servers: tuple[Peer, ...], meet: object) -> int:
        """Work until nothing is left; returns the pushes that counted."""
        spec: Any = self._spec
        random = Random(f"compute {number}")
        worker: Any = WaitingWorker(spec, number)

        async def wait(worker: Any, grant: Grant) -> Computed:
            begun = time.perf_counter()
            await asyncio.sleep(spec.compute_s * log_normal(random, JITTER))
            return Computed(
                parts=worker.parts,
                loss_sum=0.0,
                num_correct=0,
                num_samples=grant.lease.num_samples,
                data_s=0.0,
                compute_s=time.perf_counter() - begun,
            )

        return asyncio.run(work(number, "", worker, dispatcher, servers, wait))


class WaitingCluster(RayCluster):
    """A run's actors, with workers that wait."""

    def _begin_servers(self) -> None:
        super()._begin_servers()
        self._worker_class = self._ray.remote(num_cpus=0)(WaitingActor)


async def drive(dispatcher: Peer) -> list[Applied]:
    """From the first fence, before all leases, to the last one, after them; what was applied."""
    applied: list[Applied] = []
    is_last = False
    while not is_last:
        fence: Fence = await dispatcher.call("fence")
        applied += (await dispatcher.call("drain"))[0]
        is_last = fence.is_last
        await dispatcher.call("go_on", "", 1.0)
    return applied


def measured(flat: FlatWeights, push_codec: str, compute_s: float, workers: int, servers: int) -> dict[str, float]:
    """A run over Ray."""
    slices = flat.cut(servers)
    plan = LeasePlan(
        num_samples=LEASES * workers, batch_size=1, num_shares=1, group_size=1, num_batches=1, drop_last=True
    )
    waiting: Any = WaitingSpec(slices=slices, num=flat.values.numel(), push_codec=push_codec, compute_s=compute_s)
    specs = Specs(
        servers=tuple(
            ServerSpec(
                index=index,
                slice=one,
                num_buffers=(0, 0) if index == 0 else None,
                optim=OPTIM,
                push_codec=push_codec,
                pull_codec=None,
            )
            for index, one in enumerate(slices)
        ),
        worker=waiting,
        dispatcher=DispatcherSpec(plan=plan, mode="async", schedule=ScheduleConfig(), num_counted=workers),
        weights=flat,
    )
    config = make_config(
        {"data": {"source": "none"}, "servers": {"mode": "async", "workers": workers, "servers": servers}}
    )
    with WaitingCluster(config, specs) as cluster:
        applied = asyncio.run(cluster.supervise(drive(cluster.dispatcher)))
    return rates(applied, workers, 1, WARM_UP)


def predicted(
    costs: Costs, num: int, push_codec: str, compute_s: float, workers: int, servers: int
) -> dict[str, float]:
    """The same under the virtual clock."""
    setting = Setting(
        sizes=Sizes(num, 0), costs=costs, compute_s=compute_s, bytes_per_s=1.0, latency_s=0.0, jitter=JITTER,
        batch_size=1, workers=workers, servers=servers, dedicated=False, leases=LEASES, push_codec=push_codec,
        is_one_machine=True,
    )  # fmt: skip
    return rates(setting.run(), workers, 1, WARM_UP)


def main() -> None:
    bench = Bench(__doc__, codec="fp32", compute_s=(1.0, 0.2), num=25_600_000, workers=WORKERS)
    chosen = bench.options
    torch.set_num_threads(1)
    flat = FlatWeights(Wide(bench.pick(chosen.num, 300_000)))
    num = flat.values.numel()
    costs = measure(flat, OPTIM, push_codec=chosen.codec)
    print(f"a server with {num:,} weights, pushes in {chosen.codec}, one core: {costs}", flush=True)
    cases = [
        (compute_s, servers, workers)
        for compute_s in bench.pick(chosen.compute_s, [0.05])
        for servers, numbers in ((1, bench.pick(chosen.workers, [2])), (2, chosen.workers[-1:]))
        for workers in numbers
    ]
    os.environ.setdefault("RAY_worker_niceness", "0")  # Ray's own is 15: beside anything else they would hardly run
    ray.init(address="local", include_dashboard=False, log_to_driver=False, logging_level="ERROR")  # for all runs
    table: list[dict[str, Any]] = [
        {"compute_s": compute_s, "servers": servers, "workers": workers} for compute_s, servers, workers in cases
    ]
    for kind in ("predicted", "measured"):
        print(f"\n{kind}: pushes a second (speed-up, efficiency) {{mean staleness}}", flush=True)
        for row, case in zip(table, cases, strict=True):
            compute_s, servers, workers = case
            if kind == "predicted":
                found = predicted(costs, num, chosen.codec, compute_s, workers, servers)
            else:
                found = measured(flat, chosen.codec, compute_s, workers, servers)
            speed_up = found.pop("images_per_s") * compute_s
            row[kind] = {"speed_up": speed_up, "efficiency": speed_up / workers} | found
            print(f"{compute_s:g} s, {servers} server(s), {workers} worker(s): {row[kind]}", flush=True)
    ray.shutdown()
    bench.keep(f"servers_real_{chosen.codec.replace('-', '_')}", {"num": num, "costs": asdict(costs), "table": table})


if __name__ == "__main__":
    main()
