"""A run repeated from its order log has the run's weights, optimizer state and buffers, bit for bit."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from augpipe.trainer.checkpoint import DamagedError
from augpipe.trainer.servers.order_log import Kind, read_events, read_order
from augpipe.trainer.servers.replay import Replay, start_before
from tests.trainer.servers.local_run import LocalRun, Setting, assert_equal_states, settings


def replay_of(run: LocalRun, start: int | None = None) -> Replay:
    setting = run.setting
    return Replay(
        run.folder / "order",
        setting.servers(),
        setting.dispatcher_spec(run.folder),
        lambda number: setting.worker(),
        start=None if start is None else run.checkpoint(start),
    )


def kinds(run: LocalRun) -> Counter[Kind]:
    return Counter(event.kind for events in read_order(run.folder / "order", 0) for event in events)


def assert_repeats(run: LocalRun, start: int | None = None) -> None:
    replay = replay_of(run, start)
    assert replay.run() == run.versions[-1]
    replay.save(run.folder / "repeated")
    assert_equal_states(run.folder / "repeated", run.checkpoint(run.versions[-1]), run.setting.num_servers)


WITHOUT_KILLS = ("sync with backups", "async", "own steps, encoded both ways")
"""Settings of which every run repeats one that nothing was killed in, too."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name if name in WITHOUT_KILLS else pytest.param(name, marks=pytest.mark.deep) for name in settings()]
)
def test_a_replay_equals_its_run(name: str, tmp_path: Path) -> None:
    run = LocalRun(settings()[name], tmp_path, 0).run()
    assert_repeats(run)
    assert_repeats(run, run.versions[1])


@pytest.mark.thinned(2)
@pytest.mark.slow
@pytest.mark.parametrize("name", settings())
def test_a_replay_equals_its_run_with_kills(name: str, tmp_path: Path) -> None:
    setting = replace(settings()[name], num_kills=3, num_losses=2, save_every=10)
    run = LocalRun(setting, tmp_path, 2).run()
    assert run.num_kills and run.num_losses and kinds(run)[Kind.LEFT] and kinds(run)[Kind.RESTORED]
    assert_repeats(run)
    assert_repeats(run, run.versions[len(run.versions) // 2])


def test_settings_do_what_they_are_there_for(tmp_path: Path) -> None:
    """Leases that do not count, and leases begun without a fetch, are in the orders that are repeated."""
    late = LocalRun(settings()["sync with backups"], tmp_path / "late", 0).run()
    assert kinds(late)[Kind.FETCHED] > kinds(late)[Kind.APPLIED]
    own = LocalRun(settings()["own steps, not finite"], tmp_path / "own", 0).run()
    assert kinds(own)[Kind.BEGAN] > kinds(own)[Kind.FETCHED] and kinds(own)[Kind.LEFT_OUT] == 3


def test_a_step_goes_on_where_a_worker_is_missing(tmp_path: Path) -> None:
    setting = Setting(mode="sync", num_workers=3, num_kills=1, keeps_dead=True)
    run = LocalRun(setting, tmp_path, 4).run()
    assert run.num_kills == 1
    assert_repeats(run)


@pytest.mark.slow
def test_one_may_stop_before_an_update_look_around_and_go_on(tmp_path: Path) -> None:
    run = LocalRun(settings()["own steps, encoded both ways"], tmp_path, 0).run()
    replay = replay_of(run)
    assert replay.run(until=17) == 17
    step = next(replay.steps())
    assert step.version == 18 and replay.version == 18
    (push,) = step.pushes
    push.worker.settle(counted=False)
    again = push.worker.compute(push.lease, None, push.lr)
    assert again.loss_sum == push.computed.loss_sum
    for one, other in zip(again.parts, push.computed.parts, strict=True):
        assert one.wide.tobytes() == other.wide.tobytes() and one.narrow.tobytes() == other.narrow.tobytes()
    assert replay.run() == run.versions[-1]
    replay.save(tmp_path / "repeated")
    assert_equal_states(tmp_path / "repeated", run.checkpoint(run.versions[-1]), 2)


@pytest.mark.slow
def test_weights_can_be_loaded(tmp_path: Path) -> None:
    run = LocalRun(Setting(num_workers=2), tmp_path, 0).run()
    replay = replay_of(run)
    worker = run.setting.worker()
    worker.load(replay.weights())
    before = [one.clone() for one in worker.model.parameters()]
    assert all(torch.equal(one, other) for one, other in zip(before, run.setting.network().parameters(), strict=True))
    replay.run()
    worker.load(replay.weights())
    assert not torch.equal(before[0], next(worker.model.parameters()))


@pytest.fixture
def logged(tmp_path: Path) -> LocalRun:
    return LocalRun(Setting(num_workers=2, save_every=10), tmp_path, 0).run()


@pytest.mark.parametrize("name", ["dispatcher.npz", "server-0.npz"])
def test_a_damaged_checkpoint_is_refused_before_anything_is_repeated(name: str, logged: LocalRun) -> None:
    path = logged.checkpoint(20) / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamagedError, match=rf"{name} differs from what was written"):
        replay_of(logged, 20)


def logs(run: LocalRun) -> list[Path]:
    return sorted((run.folder / "order").glob("order-*.log"))


def test_an_event_that_a_crash_cut_short_is_left_out(logged: LocalRun) -> None:
    *_, last, empty = logs(logged)
    empty.unlink()
    last.write_bytes(last.read_bytes()[:-3])
    assert replay_of(logged).run() == logged.versions[-1] - 1


def test_a_step_that_a_crash_cut_short_is_left_out(tmp_path: Path) -> None:
    run = LocalRun(Setting(mode="sync", num_workers=3), tmp_path, 0).run()
    *_, last, empty = logs(run)
    empty.unlink()
    assert list(read_events(last))[-2].kind is Kind.APPLIED
    last.write_bytes(last.read_bytes()[:-3])
    assert replay_of(run).run() == run.versions[-1] - 1


def test_a_missing_file_is_named(logged: LocalRun) -> None:
    logs(logged)[1].unlink()
    with pytest.raises(ValueError, match="a part of the log is missing between them. Begin at fence 20"):
        replay_of(logged).run()
    assert replay_of(logged, 20).run() == logged.versions[-1]


def test_a_missing_event_is_noticed(logged: LocalRun) -> None:
    first = logs(logged)[0]
    content = first.read_bytes()
    numbers = [i for i, event in enumerate(read_events(first)) if event.kind is Kind.APPLIED]
    size = len(content) // len(list(read_events(first)))
    first.write_bytes(content[: numbers[2] * size] + content[(numbers[2] + 1) * size :])
    with pytest.raises(ValueError, match="goes from update 2 to 4: a part of it is missing"):
        replay_of(logged).run()


def test_a_middle_file_cut_short_is_refused(logged: LocalRun) -> None:
    second = logs(logged)[1]
    second.write_bytes(second.read_bytes()[:-3])
    with pytest.raises(ValueError, match="a part of the log is missing"):
        replay_of(logged).run()


def test_a_fence_that_is_not_there_is_refused(logged: LocalRun) -> None:
    logs(logged)[0].unlink()
    with pytest.raises(ValueError, match=f"has no fence after update 0; it has {logged.versions[1]}, "):
        replay_of(logged).run()


def test_another_config_is_refused(logged: LocalRun) -> None:
    about = logged.folder / "order" / "about.json"
    about.write_text(json.dumps({"config": "mode = 'async'\nlr = 0.5"}))
    with pytest.raises(ValueError, match="is of another config: the run had 'lr = 0.5'"):
        replay_of(logged)


def test_the_folder_of_a_run_may_be_another_one(logged: LocalRun) -> None:
    """A run that was copied, or that is repeated with an `out` of its own; a table's `out` counts."""
    spec = logged.setting.dispatcher_spec(logged.folder)
    about = logged.folder / "order" / "about.json"
    then = "seed = 1\nout = 'runs/first'\n[model]\nout = 4"
    about.write_text(json.dumps({"config": then}))

    def check(config: str) -> None:
        Replay(
            logged.folder / "order",
            logged.setting.servers(),
            replace(spec, about={"config": config}),
            lambda number: logged.setting.worker(),
        )

    check(then.replace("first", "second"))
    with pytest.raises(ValueError, match="is of another config: the run had 'out = 4'"):
        check(then.replace("out = 4", "out = 5"))


def test_it_starts_at_the_newest_fence_that_has_a_checkpoint(logged: LocalRun) -> None:
    folder = logged.folder / "order"
    first, last = logged.versions[1], logged.versions[3]
    kept = [logged.checkpoint(version) for version in (first, last)]
    assert start_before(folder, kept, last - 1) == kept[0]
    assert start_before(folder, kept, last) == kept[1]
    logs(logged)[3].unlink()
    assert start_before(folder, kept, last) == kept[0]
    with pytest.raises(ValueError, match=rf"step={first - 1} is before every fence of .* \({first}\)"):
        start_before(folder, kept, first - 1)
