"""Runs over a real Ray cluster of this machine: whole ones, repeated ones, and ones in which actors are killed."""

import importlib.util
import os
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from augpipe.trainer.config import RunConfig
from augpipe.trainer.launch import end_after
from augpipe.trainer.report.metrics import read_rows
from augpipe.trainer.servers import run as running
from augpipe.trainer.servers.dispatcher import RunFailed
from augpipe.trainer.servers.from_config import make_specs
from augpipe.trainer.servers.leases import LeasePlan
from augpipe.trainer.servers.order_log import Kind
from tests.distributed.prepare_runs import wait_until
from tests.distributed.train_runs import assert_no_pickles, checkpoints, write_photos
from tests.trainer.servers.ray_runs import (
    BATCH_SIZE,
    NUM_IMAGES,
    NUM_STEPS,
    Killer,
    actors,
    events_of,
    servers_config,
    times_trained,
)

pytestmark = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_photos(tmp_path_factory.mktemp("data"), NUM_IMAGES)


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """A cluster of one node, which all runs of this module share."""
    import ray

    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("RAY_worker_niceness", "0")  # else 15, and other tests would take all the time
        ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        yield
        ray.shutdown()


def plan_of(num_shares: int = 1) -> LeasePlan:
    return LeasePlan(
        num_samples=NUM_IMAGES,
        batch_size=BATCH_SIZE,
        num_shares=num_shares,
        group_size=1,
        num_batches=1,
        drop_last=False,
    )


def each_once(num_epochs: int) -> Counter[tuple[int, int]]:
    return Counter((epoch, position) for epoch in range(num_epochs) for position in range(NUM_IMAGES))


@pytest.mark.deep  # virtual clusters are asynchronous in every run
def test_an_asynchronous_run_over_two_servers(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    config = servers_config(
        out,
        photos,
        {"mode": "async", "servers": 2, "pull": "linear", "delay_compensation": "constant"},
        data={"eval_source": str(photos)},
    )
    result = running.run(config)
    assert (result.step, result.epochs_done, result.signal) == (2 * NUM_STEPS, 2.0, None)
    assert result.evaluation is not None and result.evaluation.num_samples == NUM_IMAGES
    assert checkpoints(out) == [f"step-{step:09}" for step in (0, NUM_STEPS, 2 * NUM_STEPS)]
    assert times_trained(events_of(out), plan_of()) == each_once(2)
    pushes = read_rows(out / "pushes.csv")
    assert [int(row["step"]) for row in pushes] == list(range(1, 2 * NUM_STEPS + 1))
    applied = [event for event in events_of(out) if event.kind is Kind.APPLIED]
    assert [int(row["worker"]) for row in pushes] == [event.worker for event in applied]
    assert [int(row["staleness"]) for row in pushes] == [event.applied - 1 - event.pulled for event in applied]
    assert [int(row["step"]) for row in read_rows(out / "metrics.csv") if row["eval_loss"]] == [30, 60]
    assert list(out.rglob("server-*.npz"))
    assert_no_pickles(out)
    assert running.replay(config, out / "order") == (
        2 * NUM_STEPS,
        f"the weights equal the run's to the bit after update {NUM_STEPS}, {2 * NUM_STEPS}",
    )


def synchronous(out: Path, photos: Path) -> RunConfig:
    return servers_config(out, photos, {"mode": "sync"}, epochs=1, checkpoint={"every_steps": 5})


def test_a_synchronous_run_trains_each_image_once(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    config = synchronous(out, photos)
    assert running.run(config).step == NUM_STEPS // 2
    events = events_of(out)
    assert times_trained(events, plan_of(2)) == each_once(1)
    assert all(event.pulled == event.applied - 1 for event in events if event.kind is Kind.APPLIED)
    assert running.replay(config, out / "order")[1].endswith("to the bit after update 5, 10, 15")


@pytest.mark.deep  # two more runs; runs over virtual clusters go on in every run
def test_a_synchronous_run_goes_on_as_it_went_on_before(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    config = synchronous(out, photos)
    steps = [0, 5, 10, NUM_STEPS // 2]
    names = [f"step-{step:09}" for step in steps]
    assert running.run(config).step == steps[-1]
    shutil.move(out / "checkpoints", tmp_path / "before")
    for name in names[:2]:
        shutil.copytree(tmp_path / "before" / name, out / "checkpoints" / name)

    assert running.run(config).step == steps[-1]
    assert checkpoints(out) == names and times_trained(events_of(out), plan_of(2)) == each_once(1)
    before, after = (
        [(folder / name / "server-0.npz").read_bytes() for name in names]
        for folder in (tmp_path / "before", out / "checkpoints")
    )
    assert before == after and len(set(before)) == len(names)
    assert running.replay(config, out / "order")[1].endswith("to the bit after update 5, 10, 15")


@pytest.mark.deep  # virtual clusters are killed fifty times in every run
def test_kills_of_workers_and_servers_lose_no_sample_and_repeat_to_the_bit(
    photos: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Seven kills, then SIGTERM, whenever that is."""
    out = tmp_path / "run"
    config = servers_config(out, photos, {"mode": "async", "servers": 2, "restarts": 20}, epochs=10_000)
    victims = ["WorkerActor", "Server"] * 3 + ["WorkerActor"]
    with Killer(out, victims, 10, lambda: os.kill(os.getpid(), signal.SIGTERM)) as killer:
        result = running.run(config)
    assert result.signal == signal.SIGTERM and killer.killed == victims
    assert caplog.text.count("was lost: its slice goes on from the checkpoint after update") == 3

    events = events_of(out)
    num_epochs, num_more = divmod(result.step, NUM_STEPS)
    trained = times_trained(events, plan_of())
    more = {place: times for place, times in trained.items() if place[0] == num_epochs}
    assert len(more) == num_more * BATCH_SIZE and set(more.values()) <= {1}
    assert trained == each_once(num_epochs) + Counter(more)
    counts = Counter(event.kind for event in events)
    assert counts[Kind.APPLIED] == result.step and counts[Kind.RESTORED] == 3 and counts[Kind.LEFT] >= 2
    done, found = running.replay(config, out / "order")
    assert done == result.step and found.startswith("the weights equal the run's to the bit after update")
    assert found.endswith(str(result.step))


@pytest.mark.deep  # three actors of Ray; the dispatcher says so in test_dispatcher
def test_a_worker_with_another_network_is_refused_in_a_line(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def of_another(*arguments: Any) -> Any:
        specs = make_specs(*arguments)
        return replace(specs, dispatcher=replace(specs.dispatcher, digest="another"))

    monkeypatch.setattr(running, "make_specs", of_another)
    with pytest.raises(ValueError, match="worker 0 has another network, codec or source than the run") as raised:
        running.run(servers_config(tmp_path / "run", photos, {"mode": "async", "workers": 1}))
    assert end_after(raised.value) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("augpipe: worker 0 has another network") and line.endswith("and see the same files.")


@pytest.mark.deep  # the dispatcher says so in test_dispatcher; that what an actor raises is one line: above
def test_a_loss_that_is_not_finite_ends_the_run_in_a_line(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = servers_config(tmp_path / "run", photos, {"mode": "async", "workers": 1}, optim={"lr": 1e30})
    with pytest.raises(RunFailed) as raised:
        running.run(config)
    assert end_after(raised.value) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "a gradient of worker 0 was not finite after update" in line
    assert f"The last checkpoint is {tmp_path / 'run' / 'checkpoints' / 'step-000000000'}" in line


@pytest.mark.deep  # three actors of Ray that train; virtual clusters lose theirs in every run
def test_a_dispatcher_that_is_killed_ends_the_run_and_names_the_checkpoint(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    config = servers_config(out, photos, {"mode": "async", "workers": 1}, epochs=10_000)
    with Killer(out, ["Dispatcher"], 10, lambda: None), pytest.raises(RunFailed) as raised:
        running.run(config)
    assert end_after(raised.value) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("augpipe: the dispatcher is gone") and checkpoints(out)[-1] in line
    wait_until(
        lambda: not actors("Server") + actors("WorkerActor"), poll_s=0.05
    )  # Ray kills them after it was asked to
