"""Whole runs in a virtual cluster: what they give whatever their timing, what they send, and what kills do."""

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from augpipe.sampling import epoch_order
from augpipe.trainer.codecs import codec
from augpipe.trainer.config.tables import OptimConfig, ScheduleConfig
from augpipe.trainer.servers.dispatcher import RunFailed
from augpipe.trainer.servers.leases import LeasePlan
from augpipe.trainer.servers.messages import Lease, LeaseName, Part, Update
from augpipe.trainer.servers.order_log import Kind, read_events
from augpipe.trainer.servers.server import Server
from augpipe.trainer.servers.slices import FlatWeights
from augpipe.trainer.servers.specs import DispatcherSpec, ServerSpec, WorkerSpec
from augpipe.trainer.servers.state_file import read_state, server_path
from augpipe.trainer.servers.worker import Worker
from augpipe.trainer.simulate.nics import Node
from augpipe.trainer.simulate.peers import MESSAGE_BYTES
from augpipe.trainer.simulate.server_run import Kill, Played, VirtualRun, play

NUM_SAMPLES, BATCH_SIZE = 213, 8
NUM_LEASES = 27
"""In an epoch that is not shared: the last one has 5 samples."""
_random = torch.Generator().manual_seed(3)
IMAGES = torch.randn(NUM_SAMPLES, 20, generator=_random)
LABELS = torch.randint(0, 5, (NUM_SAMPLES,), generator=_random)


def network() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(20, 40), nn.ReLU(), nn.BatchNorm1d(40), nn.Linear(40, 5))


def plain_network() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(20, 40), nn.ReLU(), nn.Linear(40, 5))


def node(name: str, **about: float) -> Node:
    rate = about.pop("bytes_per_s", 1e6)
    return Node(name=name, up_bytes_per_s=rate, down_bytes_per_s=rate, latency_s=1e-4, **about)


@dataclass
class Seen:
    """What the workers read and the servers applied, in all their lives."""

    read: dict[LeaseName, list[int]] = field(default_factory=dict)
    """Sample ids by lease."""
    updates: dict[int, list[Update]] = field(default_factory=dict)
    """By server."""
    second_epoch: dict[int, Tensor] = field(default_factory=dict)
    """By server, its slice before its first update of the second epoch."""


@dataclass
class Batches:
    plan: LeasePlan
    seen: Seen

    def take(self, lease: Lease, upcoming: Lease | None) -> Sequence[tuple[Tensor, Tensor]]:
        taken = []
        for place in self.plan.places(lease):
            positions = epoch_order.rank_positions(
                place.first, NUM_SAMPLES, self.plan.batch_size, place.rank, place.world_size
            )
            ids = epoch_order.sample_ids(positions, NUM_SAMPLES, 0, place.epoch, True)
            self.seen.read.setdefault(lease.name, []).extend(ids.tolist())
            taken.append((IMAGES[ids], LABELS[ids]))
        return taken


class Watched(Server):
    """Notes the updates that it carries out."""

    seen: Seen

    def carry_out(self, number: int, command: Any) -> Any:
        if isinstance(command, Update) and command.pushes[0].epoch == 1:
            self.seen.second_epoch.setdefault(self._spec.index, self._wide.clone())
        done = super().carry_out(number, command)
        if isinstance(command, Update):
            self.seen.updates.setdefault(self._spec.index, []).append(command)
        return done


def make_run(
    folder: Path,
    mode: Any = "async",
    *,
    workers: int = 3,
    servers: int = 2,
    push: str = "fp32",
    pull: str | None = None,
    jitter: float = 0.0,
    lease_s: Callable[[int, Lease], float] = lambda number, lease: 1.0,
    seed: int = 0,
    kills: Sequence[Kill] = (),
    backup: int = 0,
    **about: Any,
) -> tuple[VirtualRun, Seen]:
    optim = OptimConfig(name="sgd", lr=0.05, weight_decay=1e-3)
    shares = workers if mode == "sync" else 1
    plan = LeasePlan(
        num_samples=NUM_SAMPLES, batch_size=BATCH_SIZE, num_shares=shares, group_size=1, num_batches=1, drop_last=False
    )
    seen = Seen()
    first = FlatWeights(network())
    slices = first.cut(servers)
    num_buffers = tuple(one.numel() for one in first.buffers())
    worker = WorkerSpec(
        slices=slices,
        optim=optim,
        push_codec=push,
        pull_codec=pull,
        error_feedback=push != "fp32",
        local_lr=None,
        seed=0,
    )

    def make_server(index: int) -> Server:
        spec = ServerSpec(
            index=index,
            slice=slices[index],
            num_buffers=(num_buffers[0], num_buffers[1]) if index == 0 else None,
            optim=optim,
            push_codec=push,
            pull_codec=pull,
        )
        server = Watched(spec)
        server.seen = seen
        server.begin(first)
        return server

    spec = DispatcherSpec(
        plan=plan,
        mode=mode,
        schedule=ScheduleConfig(),
        num_counted=workers,
        num_backup=backup,
        log_folder=str(folder / "order"),
        **about,
    )
    run = VirtualRun(
        dispatcher=spec,
        make_server=make_server,
        make_worker=lambda number: Worker(worker, network(), Batches(plan, seen)),
        folder=folder,
        server_nodes=tuple(node(f"server {index}") for index in range(servers)),
        worker_nodes=tuple(node(f"worker {number}", compute_jitter=jitter) for number in range(workers + backup)),
        driver_node=node("driver"),
        lease_s=lease_s,
        command_s=lambda method, args: 0.01,
        kills=tuple(kills),
        seed=seed,
    )
    return run, seen


def bits(played: Played) -> bytes:
    def one(part: Part) -> bytes:
        extra = b"" if part.buffers is None or part.counts is None else part.buffers.tobytes() + part.counts.tobytes()
        return part.wide.tobytes() + part.narrow.tobytes() + extra

    return b"".join(one(part) for part in played.weights)


def applied_leases(folder: Path) -> list[LeaseName]:
    """From the order log of a run, in order."""
    events = (event for path in sorted((folder / "order").glob("*.log")) for event in read_events(path))
    return [event.lease for event in events if event.kind is Kind.APPLIED]


def check_each_sample_once(folder: Path, seen: Seen, played: Played, epochs: int) -> None:
    leases = applied_leases(folder)
    for epoch in range(epochs):
        ids = [one for name in leases if name.epoch == epoch for one in seen.read[name]]
        assert sorted(ids) == list(range(NUM_SAMPLES))
    assert sum(one.outcome.num_samples for one in played.applied) == epochs * NUM_SAMPLES


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_the_same_run_twice(tmp_path: Path, mode: str) -> None:
    kills = [
        Kill(what="worker", number=1, at_s=4.5, anew_after_s=2.0),
        Kill(what="server", number=0, at_s=8.2, anew_after_s=1.0),
    ]
    found = []
    for name in ("first", "second"):
        run, _ = make_run(
            tmp_path / name, mode, jitter=0.3, epochs=2, push="dynamic-tree", pull="dynamic-tree", kills=kills
        )
        found.append(play(run))
    assert bits(found[0]) == bits(found[1])
    assert (found[0].applied, found[0].seconds) == (found[1].applied, found[1].seconds)
    assert (found[0].bytes_between, found[0].notes) == (found[1].bytes_between, found[1].notes)
    assert applied_leases(tmp_path / "first") == applied_leases(tmp_path / "second")
    assert sum("was lost" in note for note in found[0].notes) == 1
    other = play(replace(make_run(tmp_path / "other", mode, jitter=0.3, epochs=2)[0], seed=1))
    assert other.seconds != found[0].seconds


@pytest.mark.slow
def test_a_synchronous_run_gives_the_same_weights_whatever_its_timing(tmp_path: Path) -> None:
    def slow(number: int, lease: Lease) -> float:
        return 3.0 if number == 0 else 0.5

    timings: list[dict[str, Any]] = [{}, {"jitter": 0.8}, {"jitter": 0.8, "seed": 9}, {"lease_s": slow}]
    found = []
    for index, timing in enumerate(timings):
        run, seen = make_run(tmp_path / str(index), "sync", epochs=2, **timing)
        found.append(play(run))
        check_each_sample_once(tmp_path / str(index), seen, found[-1], 2)
    assert len({one.seconds for one in found}) == len(timings)
    assert len({bits(one) for one in found}) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("push", "workers"),
    [
        ("fp32", 13),
        ("dynamic-tree", 3),
        *(
            pytest.param(*case, marks=pytest.mark.deep)
            for case in (("fp32", 2), ("fp32", 3), ("dynamic-tree", 2), ("dynamic-tree", 13))
        ),
    ],
)
def test_a_synchronous_run_gives_the_same_weights_whoever_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, push: str, workers: int
) -> None:
    """Also in the last step of an epoch, which of 13 workers needs 5, and where a codec's error is fed back."""
    far: list[dict[int, float]] = [{}, {workers - 1: 20.0}, {0: 50.0, 1: 20.0}]
    if workers == 13:  # where each of the last step has one image
        monkeypatch.setattr(sys.modules[__name__], "network", plain_network)
    found, leases = [], []
    for index, latencies in enumerate(far):
        run, seen = make_run(
            tmp_path / str(index), "sync", workers=workers, epochs=2, push=push, jitter=0.8, seed=index
        )
        nodes = [replace(one, latency_s=latencies.get(i, 1e-4)) for i, one in enumerate(run.worker_nodes)]
        found.append(play(replace(run, worker_nodes=tuple(nodes))))
        check_each_sample_once(tmp_path / str(index), seen, found[-1], 2)
        leases.append(applied_leases(tmp_path / str(index)))
    assert leases[0] == leases[1] == leases[2] == sorted(leases[0])
    assert len({bits(one) for one in found}) == 1


@pytest.mark.parametrize("anew_after_s", [None, 2.0])
def test_a_worker_that_dies_changes_no_step_of_a_synchronous_run(tmp_path: Path, anew_after_s: float | None) -> None:
    """Where no codec keeps anything, the others do what it should have done in the same step."""
    kill = Kill(what="worker", number=1, at_s=3.5, anew_after_s=anew_after_s)
    plays = [play(make_run(tmp_path / str(len(kills)), "sync", kills=kills)[0]) for kills in ([], [kill])]
    assert len({bits(one) for one in plays}) == 1
    assert [(one.version, one.epoch) for one in plays[0].applied] == [
        (one.version, one.epoch) for one in plays[1].applied
    ]


def test_a_synchronous_run_does_not_wait_for_ever_for_who_never_comes(tmp_path: Path) -> None:
    run, seen = make_run(tmp_path, "sync", workers=2, lease_timeout_s=20.0)
    nodes = (run.worker_nodes[0], replace(run.worker_nodes[1], latency_s=1e4))
    played = play(replace(run, worker_nodes=nodes))
    check_each_sample_once(tmp_path, seen, played, 1)
    assert {one.worker for one in played.applied} == {0}
    assert played.notes == ["worker 1 has not come within 20 s: the others begin without it"]


@pytest.mark.deep  # a thousand steps
@pytest.mark.slow
def test_equal_workers_are_as_stale_as_there_are_others(tmp_path: Path) -> None:
    for workers in (1, 2, 5):
        run, _ = make_run(tmp_path / str(workers), workers=workers, jitter=0.2, epochs=8)
        staleness = [one.staleness for one in play(run).applied]
        inner = [
            one
            for epoch in range(8)  # no lease is older than its epoch's fence
            for one in staleness[epoch * NUM_LEASES + 2 * workers : (epoch + 1) * NUM_LEASES]
        ]
        assert np.mean(inner) == pytest.approx(workers - 1, rel=0.06)


@pytest.mark.slow
def test_bounded_staleness_holds_and_unbounded_breaks_it(tmp_path: Path) -> None:
    def uneven(number: int, lease: Lease) -> float:
        return 8.0 if number == 0 else 0.5

    workers, most = 4, {}
    for bound in (None, 2, 0):
        run, _ = make_run(tmp_path / str(bound), workers=workers, jitter=0.5, lease_s=uneven, epochs=3, staleness=bound)
        most[bound] = max(one.staleness for one in play(run).applied)
    assert most[0] <= workers - 1
    assert workers - 1 < most[2] <= (workers - 1) * 5
    assert most[None] > (workers - 1) * 5


@pytest.mark.slow
@pytest.mark.parametrize(("push", "pull"), [("fp32", None), ("dynamic-tree", None), ("dynamic-tree", "dynamic-tree")])
def test_bytes_are_those_of_the_formula(tmp_path: Path, push: str, pull: str | None) -> None:
    workers, servers, epochs = 3, 3, 2
    run, _ = make_run(tmp_path, workers=workers, servers=servers, push=push, pull=pull, epochs=epochs)
    played = play(run)
    flat = FlatWeights(network())
    slices, extra = flat.cut(servers), sum(one.nbytes for one in flat.buffers())
    leases, narrow = epochs * NUM_LEASES, sum(4 * one.num_narrow for one in slices)
    encoded = {name: sum(codec(name).num_bytes(one.num_wide) for one in slices) for name in {push, pull} - {None}}
    assert played.bytes_of["stage"] == leases * (servers * MESSAGE_BYTES + encoded[push] + narrow + extra)
    whole = flat.values.nbytes + extra
    num_whole = leases if pull is None else workers * epochs  # the first fetch after a fence
    changes = 0 if pull is None else (leases - num_whole) * (encoded[pull] + narrow + extra)
    answers = leases + 1 + leases + 2 * (epochs + 1)  # fetches, the driver's, updates, what fences drop and write
    expected = (num_whole + 1) * whole + changes + answers * servers * MESSAGE_BYTES
    assert played.bytes_of["carry_out answer"] == expected
    assert sum(played.bytes_between.values()) == sum(played.bytes_of.values())


@pytest.mark.slow
def test_backup_workers_leave_a_slow_one_out(tmp_path: Path) -> None:
    def throttled(number: int, lease: Lease) -> float:
        return 3.0 if number == 0 else 1.0

    took, counted = {}, {}
    for workers, backup in ((5, 0), (4, 1)):
        folder = tmp_path / f"{workers} and {backup}"
        run, seen = make_run(folder, "sync", workers=workers, backup=backup, epochs=2, lease_s=throttled)
        played = play(run)
        check_each_sample_once(folder, seen, played, 2)
        took[backup], counted[backup] = played.seconds, Counter(one.worker for one in played.applied)
    steps = 2 * 6  # 213 samples in steps of 40, and 2 * 7 in steps of 32
    assert took[0] == pytest.approx(3.0 * steps, rel=0.1)
    assert took[1] == pytest.approx(1.0 * 2 * 7, rel=0.3)
    assert counted[0][0] == steps
    assert counted[1][0] <= 2


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["async", pytest.param("sync", marks=pytest.mark.deep)])
def test_fifty_random_kills_lose_no_sample_and_apply_none_twice(tmp_path: Path, mode: str) -> None:
    random, epochs = Random(5), 12
    kills = [
        Kill(
            what="server" if random.random() < 0.4 else "worker",
            number=random.randrange(3),
            at_s=random.uniform(1.0, 200.0),
            anew_after_s=random.uniform(0.0, 5.0),
        )
        for _ in range(50)
    ]
    run, seen = make_run(
        tmp_path, mode, workers=3, servers=3, epochs=epochs, jitter=0.3, kills=kills, save_every=10,
        lease_s=lambda number, lease: 2.0, push="dynamic-tree", pull="dynamic-tree",
    )  # fmt: skip
    played = play(run)
    assert played.seconds > 200.0
    assert sum("was killed" in note for note in played.notes) > 15
    assert sum("was lost" in note for note in played.notes) > 8
    check_each_sample_once(tmp_path, seen, played, epochs)
    for updates in seen.updates.values():
        names = [name for update in updates for name in update.pushes]
        assert len(names) == len(set(names))
    versions = [one.version for one in played.applied]
    assert versions == sorted(versions)
    assert sorted(set(versions)) == list(range(1, versions[-1] + 1))
    values = torch.cat([torch.from_numpy(part.wide.view(np.float32)) for part in played.weights])
    assert values.isfinite().all()


def test_a_server_that_never_comes_back_ends_the_run_with_its_checkpoint(tmp_path: Path) -> None:
    kill = Kill(what="server", number=1, at_s=3.5, anew_after_s=None)
    run, _ = make_run(tmp_path, kills=[kill], lease_timeout_s=20.0)
    with pytest.raises(
        RunFailed, match=r"server 1 is lost, and was not restarted in 20 s\. The last checkpoint is .*step-0"
    ):
        play(run)


def test_a_worker_that_never_comes_back_is_done_without(tmp_path: Path) -> None:
    run, seen = make_run(tmp_path, kills=[Kill(what="worker", number=2, at_s=3.5, anew_after_s=None)])
    played = play(run)
    check_each_sample_once(tmp_path, seen, played, 1)
    assert set(played.num_counted) == {0, 1}
    assert max(index for index, one in enumerate(played.applied) if one.worker == 2) < 12


@pytest.fixture(scope="module")
def undisturbed_s(tmp_path_factory: pytest.TempPathFactory) -> float:
    """Seconds of the run below without kills."""
    return play(make_run(tmp_path_factory.mktemp("undisturbed"), save_every=0)[0]).seconds


@pytest.mark.parametrize(
    "before_end_s",
    [pytest.param(0.03 * nth, marks=pytest.mark.deep if nth % 2 else ()) for nth in range(10)],
)
def test_a_server_lost_about_a_fence(tmp_path: Path, undisturbed_s: float, before_end_s: float) -> None:
    """While it applies the last pushes, hands out the weights, writes them, and after that."""
    kill = Kill(what="server", number=0, at_s=undisturbed_s - before_end_s, anew_after_s=0.05)
    run, seen = make_run(tmp_path, kills=[kill])
    check_each_sample_once(tmp_path, seen, play(run), 1)


@pytest.mark.slow
def test_a_server_lost_after_it_has_written(tmp_path: Path, undisturbed_s: float) -> None:
    """And before the checkpoint is whole: it has what it has just written back, and nothing is lost."""
    num_lost = 0
    for index, after_s in enumerate((4.2, 4.5, 4.8)):
        folder = tmp_path / str(index)
        kill = Kill(what="server", number=0, at_s=undisturbed_s + after_s, anew_after_s=0.05)
        run, seen = make_run(folder, epochs=2, kills=[kill])
        far = Node(name="driver", within_latency_s=0.5)
        played = play(replace(run, driver_node=far, detection_s=0.1, evaluate=lambda fence, parts: None))
        check_each_sample_once(folder, seen, played, 2)
        num_lost += any("after update 27, so 0 updates" in note for note in played.notes)
        for server, wide in seen.second_epoch.items():
            assert torch.equal(wide, read_state(server_path(folder / f"step-{NUM_LEASES}", server))["wide"])
    assert num_lost > 0


def test_a_worker_that_was_slow_and_not_dead_comes_back(tmp_path: Path) -> None:
    def hangs_once(number: int, lease: Lease) -> float:
        return 5.0 if lease.name == LeaseName(0, 3, 0) else 0.5

    run, seen = make_run(tmp_path, workers=1, lease_s=hangs_once, lease_timeout_s=2.0)
    played = play(run)
    check_each_sample_once(tmp_path, seen, played, 1)
    assert played.notes == ["worker 0 is gone: it has had a lease for 2 s", "worker 0 is back"]


def test_no_lease_goes_to_a_worker_that_died_while_it_waited_for_one(tmp_path: Path) -> None:
    kill = Kill(what="worker", number=1, at_s=2.5, anew_after_s=0.0)
    run, seen = make_run(
        tmp_path, workers=2, staleness=0, kills=[kill], lease_s=lambda number, lease: 1.0 if number else 4.0
    )
    played = play(replace(run, detection_s=0.1))
    check_each_sample_once(tmp_path, seen, played, 1)
    assert played.notes == ["worker 1 is gone: it was killed"]
