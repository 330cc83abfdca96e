"""The driver between fences, with a dispatcher that is played; a worker's batches from a loader."""

import asyncio
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from augpipe.trainer.checkpoint.manifest import read_manifest
from augpipe.trainer.config import RunConfig
from augpipe.trainer.loop.data import open_sources
from augpipe.trainer.loop.failures.signals import StopRequest
from augpipe.trainer.loop.run_network import build_network
from augpipe.trainer.loop.training import SaveError
from augpipe.trainer.loop.world import World, open_world
from augpipe.trainer.optim.schedule import Plateau
from augpipe.trainer.servers.drive import Driver, write_first
from augpipe.trainer.servers.driver_record import ServersRecorder
from augpipe.trainer.servers.from_config import LoaderBatches, Specs, digest_of, lease_plan, make_specs
from augpipe.trainer.servers.messages import Fence
from augpipe.trainer.servers.state_file import dispatcher_path, read_state
from tests.distributed.train_runs import checkpoints, write_photos
from tests.trainer.servers.ray_runs import servers_config

NUM_IMAGES = 11


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_photos(tmp_path_factory.mktemp("data"), NUM_IMAGES)


@pytest.fixture
def world() -> Iterator[World]:
    with open_world("cpu", 60) as made:
        yield made


def specs_of(config: RunConfig, world: World) -> Specs:
    source, _ = open_sources(config.data, config.seed)
    return make_specs(config, source, build_network(config, len(source.classes), world, tells=False).model)


class PlayedDispatcher:
    """Gives fences in turn, and notes what it is asked."""

    def __init__(self, fences: list[Fence], save_error: OSError | None = None) -> None:
        self._fences = fences
        self._save_error = save_error
        self.asked: list[tuple[Any, ...]] = []

    async def call(self, method: str, /, *args: Any) -> Any:
        """As `Peer` has it."""
        if method == "drain":
            return [], []
        self.asked.append((method, *args))
        if method == "fence":
            if not self._fences[1:]:  # the last one comes once there was time to hear of a signal
                await asyncio.sleep(0.6)
            return self._fences.pop(0)
        if method == "save" and self._save_error is not None:
            raise self._save_error
        return None


def fence(specs: Specs, version: int, **options: Any) -> Fence:
    state = {"version": version, "num_trained": 2 * version, "plateau": 1.0, "leases": {"epoch": 0}}
    made: dict[str, Any] = {"epoch": 0, "epochs_done": 0.5, "ends_epoch": False, "is_last": False}
    return Fence(version=version, state=state, weights=(), **made | options)


def drive(config: RunConfig, world: World, specs: Specs, dispatcher: PlayedDispatcher, request: StopRequest) -> Any:
    plateau = Plateau(config.schedule)
    begins_from = write_first(config, specs, plateau)
    evaluator: Any = None  # there is nothing to evaluate on
    with ServersRecorder(config, specs.dispatcher.plan, 0) as recorder:
        driver = Driver(config, world, dispatcher, evaluator, None, recorder, request, begins_from, plateau)
        return asyncio.run(driver.run())


def test_from_the_first_fence_to_the_last(photos: Path, tmp_path: Path, world: World) -> None:
    out = tmp_path / "run"
    config = servers_config(out, photos, {"mode": "async", "servers": 2}, checkpoint={"keep": 2})
    specs = specs_of(config, world)
    order = out / "order"
    order.mkdir(parents=True)
    for version in (0, 3, 6):
        (order / f"order-{version:09}.log").touch()
    fences = [fence(specs, 0), fence(specs, 3), fence(specs, 6, ends_epoch=True, is_last=True, epochs_done=2.0)]
    played = PlayedDispatcher(fences)
    result = drive(config, world, specs, played, StopRequest())
    assert (result.step, result.epochs_done, result.evaluation, result.signal) == (6, 2.0, None, None)
    folder = out / "checkpoints"
    assert played.asked == [
        ("restore", str(folder / "step-000000000")),
        ("fence",),
        ("go_on", str(folder / "step-000000000"), 1.0),  # nothing is written twice
        ("fence",),
        ("save", str(folder / "step-000000003.tmp")),
        ("go_on", str(folder / "step-000000003"), 1.0),
        ("fence",),
        ("save", str(folder / "step-000000006.tmp")),
        ("go_on", str(folder / "step-000000006"), 1.0),
    ]
    assert checkpoints(out) == ["step-000000003", "step-000000006"]
    assert sorted(path.name for path in order.iterdir()) == ["order-000000003.log", "order-000000006.log"]
    state = read_state(dispatcher_path(folder / "step-000000006"))
    assert (state["version"], state["num_trained"]) == (6, 12) and "plateau_state" in state
    about = read_manifest(folder / "step-000000006")
    assert about["servers"]["servers"] == 2 and about["step"] == 6


def test_whoever_asks_for_an_end_is_heard_once(photos: Path, tmp_path: Path, world: World) -> None:
    config = servers_config(tmp_path / "run", photos, {"mode": "async"})
    specs = specs_of(config, world)
    request = StopRequest()
    request.signal = signal.SIGINT
    played = PlayedDispatcher([fence(specs, 0), fence(specs, 2, is_last=True)])
    assert drive(config, world, specs, played, request).signal == signal.SIGINT
    assert played.asked.count(("stop",)) == 1


def test_a_checkpoint_that_is_not_written_ends_the_run(photos: Path, tmp_path: Path, world: World) -> None:
    out = tmp_path / "run"
    config = servers_config(out, photos, {"mode": "async"})
    specs = specs_of(config, world)
    played = PlayedDispatcher([fence(specs, 0), fence(specs, 2)], OSError(28, "No space left on device"))
    said = "the checkpoint after update 2 was not written: No space left on device. The last one is "
    with pytest.raises(SaveError, match=f"{said}{out / 'checkpoints' / 'step-000000000'}. Free some room"):
        drive(config, world, specs, played, StopRequest())
    assert ("go_on", str(out / "checkpoints" / "step-000000002"), 1.0) not in played.asked


def test_what_all_workers_must_agree_on(photos: Path, tmp_path: Path, world: World) -> None:
    def digest(servers: dict[str, Any], num: int | None = None, **tables: Any) -> str:
        config = servers_config(tmp_path, photos, {"mode": "async", **servers}, **tables)
        found = specs_of(config, world)
        assert found.dispatcher.digest == digest_of(config, found.weights, open_sources(config.data, config.seed)[0])
        return found.dispatcher.digest

    ours = digest({})
    assert ours == digest({"workers": 7, "servers": 2})
    others = [
        digest({"codec": "linear"}),
        digest({"pull": "linear"}),
        digest({}, seed=1),
        digest({}, model={"options": {"width": 4}}),
        digest({}, data={"eval_fraction": 0.5}),
    ]
    assert len({ours, *others}) == 6


@pytest.mark.parametrize("push_every", [1, 2])
def test_batches_are_those_of_the_lease_whatever_was_made_ahead(
    push_every: int, photos: Path, tmp_path: Path, world: World
) -> None:
    wanted = {"mode": "async", "push_every": push_every, "fetch_every": push_every}
    config = servers_config(tmp_path, photos, wanted)
    source, _ = open_sources(config.data, config.seed)
    plan = lease_plan(config, source)
    leases = [plan.lease(epoch, number, 0) for epoch in range(2) for number in range(plan.num_leases)]
    assert sum(lease.num_samples for lease in leases) == 2 * NUM_IMAGES
    alone = [[batch[0].clone() for batch in LoaderBatches(config, source, world).take(one, None)] for one in leases]
    assert [len(images) for batch in alone[: plan.num_leases] for images in batch] == [2, 2, 2, 2, 2, 1]

    batches = LoaderBatches(config, source, world)
    # one after the other, one of which another worker took, one again, and after a pass that was told to end
    asked = [(0, 1), (1, 2), (0, 2), (2, None), (1, None), (3, 4), (4, 5), (5, None), (5, 0), (0, None)]
    for number, upcoming in asked:
        if number >= len(leases) or (upcoming or 0) >= len(leases):
            continue
        ahead = None if upcoming is None else leases[upcoming]
        taken = batches.take(replace(leases[number]), ahead)
        assert len(taken) == len(alone[number])
        for (images, _), expected in zip(taken, alone[number], strict=True):
            assert torch.equal(images, expected)


def test_the_last_batch_of_an_epoch_may_be_left_out(photos: Path, tmp_path: Path, world: World) -> None:
    config = servers_config(tmp_path, photos, {"mode": "sync"}, data={"drop_last": True})
    plan = lease_plan(config, open_sources(config.data, config.seed)[0])
    assert (plan.num_usable, plan.num_leases, plan.num_shares) == (8, 4, 2)
