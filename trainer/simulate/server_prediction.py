"""What a run's config with parameter servers would take on a cluster's card, by workers.

The dispatcher, the loop of a worker and every message are those of a real run, under a virtual clock.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

from augpipe.reports.tables import Table
from augpipe.trainer.config.tables import RunConfig, ScheduleConfig, ServersConfig
from augpipe.trainer.servers.leases import LeasePlan
from augpipe.trainer.servers.messages import Applied, Hand, Update
from augpipe.trainer.servers.placement import Placement
from augpipe.trainer.servers.specs import DispatcherSpec
from augpipe.trainer.simulate.cluster_card import Card, load_card
from augpipe.trainer.simulate.layers import VALUE_BYTES, network_of
from augpipe.trainer.simulate.nics import Node
from augpipe.trainer.simulate.server_run import VirtualRun, play
from augpipe.trainer.simulate.sized_parts import SizedServer, SizedWorker, Sizes, sizes_of

SERVER_CARD = "throttled-1000"
"""A server computes on one core of a CPU, whatever devices train: at the rates of this card, which were measured on one
core of an AMD EPYC (Zen 3)."""
JITTER = 0.05
"""Standard deviation of the logarithm of what a lease takes; without any, workers would push at the same time."""
LEASES, WARM_UP = 30, 6
"""Leases of each worker, and how many at each end are not counted."""
MOST_WORKERS = 64


@dataclass(frozen=True, kw_only=True)
class ServerSubject:
    """A run's network, and how its workers and servers go about it."""

    sizes: Sizes
    wanted: ServersConfig
    card: Card
    batch_s: float
    """Seconds of a batch's forward and backward passes on one device."""
    batch_size: int

    @property
    def group(self) -> int:
        """Devices of a worker."""
        return self.wanted.group if self.wanted.mode == "mixed" else 1

    @property
    def lease_images(self) -> int:
        """Images of a lease."""
        return self.batch_size * self.group * self.wanted.push_every

    @property
    def alone_s(self) -> float:
        """Seconds of a lease's images on one device that trains alone, by as many devices as a worker has."""
        update_s = VALUE_BYTES * self.sizes.num_weights / self.card.optimizer_bytes_per_s
        return self.wanted.push_every * (self.batch_s + update_s)

    @property
    def lease_s(self) -> float:
        """Seconds that a worker takes for a lease: its batches, its group's averaging, encoding, taking weights on."""
        card, wanted = self.card, self.wanted
        num_bytes = VALUE_BYTES * self.sizes.num_weights
        seconds = wanted.push_every * self.batch_s
        if wanted.fetch_every > 1:
            seconds += wanted.push_every * num_bytes / card.optimizer_bytes_per_s  # steps of its own
        if self.group > 1:
            num = self.group - 1
            seconds += 2 * num * (num_bytes / self.group / card.within_bytes_per_s + card.within_latency_s)
        seconds += VALUE_BYTES * self.sizes.wide / card.wire(wanted.codec).encode
        return seconds + num_bytes * wanted.push_every / wanted.fetch_every / card.copy_bytes_per_s

    @cached_property
    def _core(self) -> Card:
        return load_card(SERVER_CARD)

    def command_s(self, method: str, args: tuple[Any, ...]) -> float:
        """Seconds that a server takes for a call."""
        if method != "carry_out":
            return 0.0
        core, share = self._core, VALUE_BYTES / self.wanted.servers
        num_bytes, wide_bytes = share * self.sizes.num_weights, share * self.sizes.wide
        match args[1]:
            case Hand() as hand:
                encodes = self.wanted.pull != "whole" and not hand.whole
                return num_bytes / (core.wire(self.wanted.pull).encode if encodes else core.copy_bytes_per_s)
            case Update() as update:
                taken_s = wide_bytes / core.wire(self.wanted.codec).add
                return len(update.pushes) * taken_s + num_bytes / core.optimizer_bytes_per_s
            case _:
                return 0.0


@dataclass(frozen=True, kw_only=True)
class ServerPrediction:
    """A run with so many workers, in its steady state."""

    workers: int
    """Those that count."""
    images_per_s: float
    efficiency: float
    """Images a second of a device that counts, over those of one that trains alone."""
    waiting_s: float
    """What a worker waits in a lease for it, for weights and for its push."""
    staleness: float
    """Mean updates between the weights of a push and those that it changes."""
    bytes_sent: int
    """Gradients that a worker sends in a lease."""
    bytes_got: int
    """Weights that it gets in a lease."""


def server_subject(config: RunConfig, card: Card) -> ServerSubject:
    """What a config with servers trains.

    Raises:
        ValueError: it does not say how many classes there are, or the card has no room or no rates for what it asks.
    """
    wanted = config.servers
    if wanted.mode == "mixed" and wanted.group > card.devices_per_node:
        raise ValueError(
            f"servers.group={wanted.group}: a group is simulated on one node, and the card {card.title!r} has "
            f"{card.devices_per_node} devices on each. Lower servers.group, or choose another card."
        )
    model, _, layers = network_of(config, card.flop_per_s)
    card.wire(wanted.codec)
    core = load_card(SERVER_CARD)
    for codec in {wanted.codec, "fp32" if wanted.pull == "whole" else wanted.pull}:
        core.wire(codec)
    return ServerSubject(
        sizes=sizes_of(model),
        wanted=wanted,
        card=card,
        batch_s=sum(layer.forward_s + layer.backward_s for layer in layers),
        batch_size=config.data.batch_size,
    )


def predict_servers(
    subject: ServerSubject, workers: Sequence[int], progress: Callable[[int, int], None] = lambda done, total: None
) -> list[ServerPrediction]:
    """A prediction for each number of workers that count; `progress` hears how many are made, of how many.

    Raises:
        ValueError: a number of workers is out of range.
    """
    for number in workers:
        if not 1 <= number <= MOST_WORKERS:
            raise ValueError(f"ranks={number}: of workers with servers 1 to {MOST_WORKERS} are simulated. Give others.")
    found: list[ServerPrediction] = []
    for number in workers:
        progress(len(found), len(workers))
        found.append(_predict_one(subject, number))
    progress(len(found), len(workers))
    return found


def _predict_one(subject: ServerSubject, workers: int) -> ServerPrediction:
    played = play(make_run(subject, workers))
    counted = played.applied
    first, last = WARM_UP * workers, len(counted) - WARM_UP * workers
    now, version, times = 0.0, 0, []
    for one in counted:  # those of one synchronous step have one time
        if one.version != version:
            now, version = now + one.step_s, one.version
        times.append(now)
    inner: Sequence[Applied] = counted[first:last]
    images_per_s = sum(one.outcome.num_samples for one in inner) / (times[last - 1] - times[first - 1])
    return ServerPrediction(
        workers=workers,
        images_per_s=images_per_s,
        efficiency=images_per_s * subject.alone_s / (workers * subject.lease_images),
        waiting_s=fmean(one.outcome.wait_s + one.outcome.push_s for one in inner),
        staleness=fmean(one.staleness for one in inner),
        bytes_sent=round(fmean(one.outcome.sent_bytes for one in inner)),
        bytes_got=round(fmean(one.outcome.got_bytes for one in inner)),
    )


def make_run(subject: ServerSubject, workers: int) -> VirtualRun:
    """The virtual cluster: a device for each process of a worker, servers and workers where `Placement` puts them."""
    wanted, card, sizes = subject.wanted, subject.card, subject.sizes
    is_sync, total = wanted.mode == "sync", workers + wanted.backup
    num_nodes = card.num_nodes(total * subject.group) + (wanted.servers if wanted.placement == "dedicated" else 0)
    like = card.nodes(1)[0]
    nodes = {
        name: replace(like, name=name, compute_jitter=JITTER) for name in (f"node {i:04}" for i in range(num_nodes))
    }
    placement = Placement(wanted, list(nodes), "driver")
    plan = LeasePlan(
        num_samples=subject.lease_images * LEASES * workers,
        batch_size=subject.batch_size,
        num_shares=workers if is_sync else 1,
        group_size=subject.group,
        num_batches=wanted.push_every,
        drop_last=True,
    )
    whole, pushed = sizes.parts(wanted.servers), sizes.parts(wanted.servers, wanted.codec)
    change = whole if wanted.pull == "whole" else sizes.parts(wanted.servers, wanted.pull, is_change=True)
    assert wanted.mode != "off"
    return VirtualRun(
        dispatcher=DispatcherSpec(
            plan=plan,
            mode=wanted.mode,
            schedule=ScheduleConfig(),
            num_counted=workers,
            num_backup=wanted.backup,
            staleness=wanted.staleness,
            fetches_every=wanted.fetch_every // wanted.push_every,
            lease_timeout_s=float("inf"),
        ),
        make_server=lambda index: SizedServer(whole[index], change[index]),
        make_worker=lambda number: SizedWorker(pushed),
        folder=Path("nowhere"),
        server_nodes=tuple(nodes[placement.of_server(index)] for index in range(wanted.servers)),
        worker_nodes=tuple(nodes[placement.of_worker(number)] for number in range(total)),
        driver_node=Node(name="driver", latency_s=card.nic_latency_s),
        lease_s=lambda number, lease: subject.lease_s,
        command_s=subject.command_s,
    )


def server_table(found: Sequence[ServerPrediction]) -> Table:
    """A row for each number of workers."""
    rows = [
        (
            f"{one.workers}",
            f"{one.images_per_s:.0f}",
            f"{one.efficiency:.3f}",
            f"{1e3 * one.waiting_s:.1f}",
            f"{one.staleness:.2f}",
            f"{one.bytes_sent / 1e6:.1f}",
            f"{one.bytes_got / 1e6:.1f}",
        )
        for one in found
    ]
    return Table(
        columns=("workers", "images/s", "efficiency", "waiting, ms", "staleness", "MB pushed", "MB fetched"), rows=rows
    )
