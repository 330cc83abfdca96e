"""Clusters of servers under the virtual clock, whose workers compute nothing and push parts of the right sizes.

A server's seconds are measured on a real one here; what a worker's computing takes is given.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from augpipe.trainer.codecs import codec
from augpipe.trainer.config.tables import OptimConfig, ScheduleConfig
from augpipe.trainer.servers.leases import LeasePlan
from augpipe.trainer.servers.messages import Applied, Hand, LeaseName, Part, Update
from augpipe.trainer.servers.server import Server
from augpipe.trainer.servers.slices import FlatWeights
from augpipe.trainer.servers.specs import Compensation, DispatcherSpec, ServerSpec
from augpipe.trainer.simulate.nics import Node
from augpipe.trainer.simulate.server_run import VirtualRun, play
from augpipe.trainer.simulate.sized_parts import SizedServer, SizedWorker, Sizes

MEMORY_BYTES_PER_S = 8e9
"""From one process of a node to another: one copy by one core, roughly."""
LEASES, WARM_UP = 60, 10
"""Leases of each worker, and how many at each end are left out of throughputs."""
NUM_TENSORS = 54


class Wide(nn.Module):
    """Weights, and nothing to do with them."""

    def __init__(self, num: int) -> None:
        super().__init__()
        rows = num // NUM_TENSORS // 512
        self.layers = nn.ParameterList(nn.Parameter(torch.randn(rows, 512) * 0.01) for _ in range(NUM_TENSORS))


def part_of(wide: Any, num_narrow: int = 0) -> Part:
    """A push whose buffers are empty."""
    narrow = np.zeros(num_narrow, np.float32)
    return Part(wide=wide, narrow=narrow, buffers=np.zeros(0, np.float32), counts=np.zeros(0, np.int64))


def updates(names: Sequence[LeaseName]) -> Update:
    """The command to apply pushes of a sample each."""
    num = len(names)
    return Update(pushes=tuple(names), num_samples=(1,) * num, workers=(0,) * num, lr=1.0)


@dataclass(frozen=True)
class Costs:
    """Seconds of one server on one core."""

    hand_s: float
    """Copy the weights for a worker."""
    decode_s: float
    """Take a push in, beyond the first one of an update."""
    update_s: float
    """Decode one push, and take the optimizer's step."""

    def times(self, share: float) -> "Costs":
        return Costs(self.hand_s * share, self.decode_s * share, self.update_s * share)

    def of(self, method: str, args: tuple[Any, ...]) -> float:
        if method != "carry_out":
            return 0.0
        match args[1]:
            case Hand():
                return self.hand_s
            case Update() as update:
                return self.update_s + self.decode_s * (len(update.pushes) - 1)
            case _:
                return 0.0


def measure(
    flat: FlatWeights,
    optim: OptimConfig,
    compensation: Compensation | None = None,
    rounds: int = 15,
    push_codec: str = "fp32",
) -> Costs:
    """What a real server takes here for each command, on one core: the least CPU time of several."""
    (one,) = flat.cut(1)
    codecs = {"push_codec": push_codec, "pull_codec": None}
    spec = ServerSpec(index=0, slice=one, num_buffers=(0, 0), optim=optim, compensation=compensation, **codecs)
    server = Server(spec).begin(flat)
    part = part_of(codec(push_codec).encode(np.zeros(one.num_wide, np.float32)), one.num_narrow)
    number = 0

    def carry_out(command: Any) -> float:
        nonlocal number
        number += 1
        begun = time.thread_time()
        server.carry_out(number, command)
        return time.thread_time() - begun

    found: dict[str, list[float]] = {"hand": [], "one": [], "two": []}
    for index in range(rounds):
        found["hand"].append(carry_out(Hand(worker=0, whole=True)))
        for kind, num in (("one", 1), ("two", 2)):
            if num > 1 and compensation is not None:
                continue
            names = [LeaseName(0, index, k) for k in range(num)]
            for name in names:
                server.stage(0, name, part)
            found[kind].append(carry_out(updates(names)))
    update_s = min(found["one"])
    decode_s = max(min(found["two"], default=update_s) - update_s, 0.0)
    return Costs(min(found["hand"]), decode_s, update_s)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A cluster and what it trains."""

    sizes: Sizes
    costs: Costs
    """What one server takes that holds all weights."""
    compute_s: float
    bytes_per_s: float
    latency_s: float
    jitter: float
    batch_size: int
    workers: int
    servers: int
    dedicated: bool
    """Servers have nodes of their own; else they are on the workers' nodes, in turn."""
    mode: Any = "async"
    backup: int = 0
    factors: tuple[float, ...] = ()
    """What computing takes on each worker's node, in times `compute_s`; 1 where none is given."""
    num_samples: int = 0
    """0: `leases` batches for each worker."""
    leases: int = LEASES
    push_codec: str = "fp32"
    is_one_machine: bool = False
    """All are on one node: what travels is copied in its memory, and `bytes_per_s` is that of no link."""

    def run(self) -> list[Applied]:
        """Pushes that counted, in order."""
        counted, total, is_sync = self.workers, self.workers + self.backup, self.mode == "sync"
        num_samples = self.num_samples or self.batch_size * self.leases * counted
        plan = LeasePlan(
            num_samples=num_samples, batch_size=self.batch_size, num_shares=counted if is_sync else 1, group_size=1,
            num_batches=1, drop_last=True,
        )  # fmt: skip
        like = Node(
            name="", up_bytes_per_s=self.bytes_per_s, down_bytes_per_s=self.bytes_per_s, latency_s=self.latency_s,
            within_bytes_per_s=MEMORY_BYTES_PER_S,
        )  # fmt: skip
        workers = tuple(replace(like, name=f"worker {number}", compute_jitter=self.jitter) for number in range(total))
        own = tuple(replace(like, name=f"server {index}") for index in range(self.servers))
        shared, driver = tuple(workers[k % total] for k in range(self.servers)), Node(name="", latency_s=self.latency_s)
        if self.is_one_machine:
            workers, shared, driver = workers[:1] * total, workers[:1] * self.servers, workers[0]
        weights, pushed = self.sizes.parts(self.servers), self.sizes.parts(self.servers, self.push_codec)
        factors = dict(enumerate(self.factors))
        spec = DispatcherSpec(
            plan=plan, mode=self.mode, schedule=ScheduleConfig(), num_counted=counted, num_backup=self.backup
        )
        return play(
            VirtualRun(
                dispatcher=spec,
                make_server=lambda index: SizedServer(weights[index]),
                make_worker=lambda number: SizedWorker(pushed),
                folder=Path("nowhere"),
                server_nodes=own if self.dedicated else shared,
                worker_nodes=workers,
                driver_node=driver,
                lease_s=lambda number, lease: self.compute_s * factors.get(number, 1.0),
                command_s=self.costs.times(1 / self.servers).of,
            )
        ).applied


def times_of(applied: Sequence[Applied]) -> list[float]:
    """When each push was applied, in seconds since the first lease was handed out."""
    now, version, times = 0.0, 0, []
    for one in applied:
        if one.version != version:
            now, version = now + one.step_s, one.version
        times.append(now)
    return times


def rates(applied: Sequence[Applied], workers: int, batch_size: int, warm_up: int = WARM_UP) -> dict[str, float]:
    """Images a second between the first and last leases, mean staleness, and seconds from lease to push of a worker."""
    times = times_of(applied)
    first, last = warm_up * workers, len(applied) - warm_up * workers
    inner = applied[first:last]
    return {
        "images_per_s": (last - first) * batch_size / (times[last - 1] - times[first - 1]),
        "mean_staleness": float(np.mean([one.staleness for one in inner])),
        "wait_s": float(np.mean([one.outcome.wait_s for one in inner])),
        "push_s": float(np.mean([one.outcome.push_s for one in inner])),
    }
