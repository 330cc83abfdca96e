"""The trainer's parts without processes: schedules, groups of batches, optimizers, splits, heartbeats, tables."""

import math
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._C._distributed_c10d import HashStore

from augpipe import order
from augpipe.datasets.shards.source import ShardSource
from augpipe.trainer.checkpoint.tree import flatten, restore
from augpipe.trainer.config.optim import OptimConfig, ScheduleConfig
from augpipe.trainer.loop.group import next_group
from augpipe.trainer.loop.heartbeat import Heartbeat, is_exchange_failure
from augpipe.trainer.loop.network import set_dropout
from augpipe.trainer.loop.precision import Guard
from augpipe.trainer.loop.split import hold_out
from augpipe.trainer.optim import MakeOptimizer
from augpipe.trainer.optim_schedule import Plateau, lr_factor
from augpipe.trainer.report.metrics import Table, read_rows
from tests.unit.loader_sources import MemorySource, jpegs
from tests.unit.shard_sets import build


def schedule(**options: object) -> ScheduleConfig:
    return ScheduleConfig.model_validate(options)


def test_cosine_equals_torchs() -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    theirs = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10, eta_min=0.1)
    for epoch in range(11):
        ours = lr_factor(schedule(name="cosine", min_factor=0.1), epoch, 10)
        assert ours == pytest.approx(optimizer.param_groups[0]["lr"])
        optimizer.step()
        theirs.step()


def test_warm_up_and_steps() -> None:
    config = schedule(name="step", milestones=(2, 4), gamma=0.1, warmup_epochs=1)
    found = [lr_factor(config, epoch, 6) for epoch in (0, 0.25, 1, 1.99, 2, 3.5, 4, 5)]
    assert found == pytest.approx([0, 0.25, 1, 1, 0.1, 0.1, 0.01, 0.01])


def test_plateau_equals_torchs() -> None:
    rng = np.random.default_rng(0)
    losses = [*np.linspace(2, 1, 5), *rng.uniform(0.99, 1.1, 20), 0.5, *rng.uniform(0.49, 0.6, 12)]
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    theirs = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.1, patience=2, threshold=0.001, eps=0)
    ours = Plateau(schedule(name="plateau", patience=2, gamma=0.1))
    fell = 0
    for loss in losses:
        theirs.step(loss)
        fell += ours.update(float(loss))
        assert ours.factor == pytest.approx(optimizer.param_groups[0]["lr"])
        again = Plateau(schedule(name="plateau", patience=2, gamma=0.1))
        again.load_state_dict(ours.state_dict())
        ours = again
    assert fell >= 3


@given(st.integers(1, 200), st.integers(1, 9), st.integers(1, 4), st.integers(1, 5), st.booleans())
def test_groups_take_every_batch_of_the_loader_once(
    num: int, batch_size: int, size: int, accumulate: int, drop_last: bool
) -> None:
    per_batch, consumed, batches = batch_size * size, 0, 0
    while group := next_group(
        consumed=consumed, num_samples=num, per_batch=per_batch, accumulate=accumulate, drop_last=drop_last
    ):
        assert 1 <= group.num_batches <= accumulate
        consumed += group.num_samples
        batches += group.num_batches
    assert batches == order.num_batches(num, batch_size, size, drop_last)
    assert consumed == (batches * per_batch if drop_last else num)


@pytest.mark.parametrize("name", ["sgd", "rmsprop", "adagrad", "adamw"])
def test_weight_decay_may_spare_1d_tensors(name: str) -> None:
    layer = torch.nn.Linear(3, 2)
    config = OptimConfig.model_validate({"name": name, "lr": 0.1, "weight_decay": 0.5, "decay_1d": False})
    optimizer = MakeOptimizer(config)(layer.parameters())
    for parameter in layer.parameters():
        parameter.grad = torch.zeros_like(parameter)
    weight, bias = layer.weight.detach().clone(), layer.bias.detach().clone()
    optimizer.step()
    assert torch.equal(layer.bias, bias) and not torch.equal(layer.weight, weight)


def test_the_guard_skips_and_forgets() -> None:
    parameter = torch.nn.Parameter(torch.ones(3))
    optimizer, guard = torch.optim.SGD([parameter], lr=1.0), Guard("cpu")
    for gradient, expected in ((math.nan, 1.0), (0.25, 0.75), (math.inf, 0.75), (0.25, 0.5)):
        guard.scale((parameter * gradient).sum()).backward()
        guard.unscale_(optimizer)
        guard.step(optimizer)
        guard.update()
        parameter.grad = None
        assert parameter.tolist() == [expected] * 3


def test_dropout_is_set_where_there_is_some() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.Dropout(0.1), torch.nn.Dropout2d(0.2))
    set_dropout(model, 0.5)
    assert [layer.p for layer in model[1:]] == [0.5, 0.5]
    with pytest.raises(ValueError, match=r"model\.dropout=0\.5, and the network has no dropout layer"):
        set_dropout(torch.nn.Linear(1, 1), 0.5)


def test_what_is_held_out_is_a_partition_and_stays() -> None:
    source = MemorySource(jpegs(40))
    rest, held = hold_out(source, 0.25, 3)
    assert len(held) == 10 and sorted([*rest.ids, *held.ids]) == list(range(40))
    assert hold_out(source, 0.25, 3)[1].ids.tolist() == held.ids.tolist() != hold_out(source, 0.25, 4)[1].ids.tolist()
    assert held.read(2) == source.read(int(held.ids[2])) and held.label(2) == source.label(int(held.ids[2]))
    with pytest.raises(ValueError, match="both training and evaluation need some"):
        hold_out(source, 0.001, 3)


def test_a_part_knows_the_sizes_that_the_whole_knows(tmp_path: Path) -> None:
    whole = ShardSource(build(tmp_path / "out"))
    _, held = hold_out(whole, 0.5, 3)
    assert held.knows_sizes
    assert [held.size(i) for i in range(len(held))] == [whole.size(i) for i in held.ids.tolist()]
    assert not hold_out(MemorySource(jpegs(4)), 0.5, 3)[1].knows_sizes


def test_a_tree_comes_back() -> None:
    state = {"a": {0: torch.arange(3), (1, "x"): [1.5, None, True]}, "$b": (torch.tensor(2.0), math.inf), "c": "text"}
    text, tensors = flatten(state)
    back = restore(text, tensors)
    assert back["a"][0].tolist() == [0, 1, 2] and back["a"][1, "x"] == [1.5, None, True]
    assert back["$b"] == (torch.tensor(2.0), math.inf) and back["c"] == "text"
    state["a"][0][0] = 9  # type: ignore[index]
    assert back["a"][0].tolist() == [0, 1, 2]
    with pytest.raises(TypeError, match="/a is a set"):
        flatten({"a": {1}})


def test_a_table_forgets_what_came_after_the_step(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    table = Table(path, ("step", "loss"), 0)
    for step in range(1, 6):
        table.write({"step": step, "loss": step / 7})
    table.close()
    path.write_text(path.read_text() + "6,0.1")  # cut short
    again = Table(path, ("step", "loss"), 3)
    again.write({"step": 4, "loss": 1.0})
    again.close()
    assert [row["step"] for row in read_rows(path)] == ["1", "2", "3", "4"]
    assert read_rows(path)[-1]["loss"] == "1"


def test_a_table_that_is_killed_while_it_forgets_keeps_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.csv"
    table = Table(path, ("step", "loss"), 0)
    for step in range(1, 4):
        table.write({"step": step, "loss": 0.5})
    table.close()

    def killed(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("csv.DictWriter.writerows", killed)
    with pytest.raises(KeyboardInterrupt):
        Table(path, ("step", "loss"), 2)
    assert [row["step"] for row in read_rows(path)] == ["1", "2", "3"]


def in_ring(size: int, timeout_s: float) -> list[Heartbeat]:
    store = HashStore()
    return [Heartbeat(store, rank, size, timeout_s) for rank in range(size)]


def test_another_table_is_refused_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text("epoch,loss\n1,0.5\n")
    with pytest.raises(ValueError, match=r"metrics.csv is not a table of a run: it has no column named step"):
        Table(path, ("step", "loss"), 0)
    assert path.read_text() == "epoch,loss\n1,0.5\n"


@pytest.mark.parametrize("says_why", [True, False])
def test_one_ranks_end_reaches_all(says_why: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os._exit", lambda code: None)
    ring = in_ring(3, 0.4)
    for rank, heartbeat in enumerate(ring):
        if rank != 1:
            heartbeat.start()
    if says_why:
        ring[1].report("KeyError: 'lost'")
    words = [ring[0].await_obituary(), ring[2].await_obituary()]
    expected = "KeyError: 'lost'" if says_why else "no sign of life"
    assert all(word is not None and word.startswith("rank 1 has died: ") and expected in word for word in words)
    for rank in (0, 2):
        ring[rank].stop()


def test_a_regular_end_is_no_death() -> None:
    ring = in_ring(2, 0.4)
    for heartbeat in ring:
        heartbeat.start()
    ring[1].stop()
    assert ring[0].await_obituary() is None
    ring[0].stop()
    assert threading.active_count() < 50


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: RuntimeError("[gloo/transport/tcp/pair.cc:537] Connection closed by peer"), True),
        (lambda: torch.distributed.DistBackendError("NCCL communicator was aborted"), True),
        (lambda: RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (lambda: ValueError("gloo"), False),
    ],
)
def test_which_errors_may_be_anothers_fault(make: Callable[[], Exception], expected: bool) -> None:
    assert is_exchange_failure(make()) is expected
