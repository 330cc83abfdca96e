"""The trainer's parts without processes: schedules, groups of batches, optimizers, splits, heartbeats, tables."""

import copy
import json
import math
import re
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._C._distributed_c10d import HashStore
from torch.amp.grad_scaler import GradScaler

from augpipe.datasets.shards.shard_source import ShardSource
from augpipe.sampling import epoch_order
from augpipe.trainer.checkpoint import DamagedError, agree_on_newest
from augpipe.trainer.checkpoint.tree import flatten, restore
from augpipe.trainer.config.tables import EmaConfig, OptimConfig, ScheduleConfig
from augpipe.trainer.loop.data import hold_out
from augpipe.trainer.loop.failures.heartbeat import Heartbeat, is_exchange_failure
from augpipe.trainer.loop.precision import FiniteCheckScaler
from augpipe.trainer.loop.run_network import check_input, make_average, set_dropout
from augpipe.trainer.loop.state import Counters, RunState
from augpipe.trainer.loop.step import next_update
from augpipe.trainer.loop.world import choose_device
from augpipe.trainer.optim.optimizer import make_optimizer
from augpipe.trainer.optim.schedule import Plateau, lr_factor
from augpipe.trainer.report.metrics import StepsFile, read_rows
from augpipe.trainer.strategies import strategy
from tests.augpipe.loader.loader_sources import MemorySource, jpegs
from tests.datasets.shards.shard_sets import build


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


def test_cosine_begins_after_the_warm_up_and_ends_with_the_run() -> None:
    config = schedule(name="cosine", warmup_epochs=2, min_factor=0.2)
    found = [lr_factor(config, epoch, 10) for epoch in (0, 0.5, 2, 6, 10, 11)]
    assert found == pytest.approx([0, 0.25, 1.0, 0.6, 0.2, 0.2])
    all_warm_up = schedule(name="cosine", warmup_epochs=4)
    assert [lr_factor(all_warm_up, epoch, 4) for epoch in (1, 3)] == [0.25, 0.75]


@pytest.mark.parametrize(
    ("device", "num_devices", "local_rank", "world_size", "expected"),
    [
        ("auto", 0, 0, 2, "cpu"),
        ("cpu", 2, 1, 2, "cpu"),
        ("auto", 2, 1, 2, "cuda:1"),
        ("cuda", 1, 0, 1, "cuda:0"),
        ("cuda:1", 2, 0, 1, "cuda:1"),
        ("cuda", 0, 0, 1, 'device="cuda", and torch finds no CUDA device here. Choose "cpu" or "auto".'),
        ("cuda:1", 2, 0, 2, 'device="cuda:1" names one device, and 2 processes need one each. Choose "cuda".'),
        ("cuda:2", 2, 0, 1, 'device="cuda:2", and there are 2: cuda:0 to cuda:1.'),
        ("auto", 2, 2, 3, "local rank 2 finds no CUDA device of its own: there are 2. Start as many"),
    ],
)
def test_the_device_of_a_process(
    device: str, num_devices: int, local_rank: int, world_size: int, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: num_devices > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: num_devices)
    if expected.startswith(("cpu", "cuda:")):
        assert choose_device(device, local_rank, world_size) == torch.device(expected)
    else:
        with pytest.raises(ValueError, match=re.escape(expected)):
            choose_device(device, local_rank, world_size)


@pytest.mark.parametrize(
    ("told", "expected"), [((None, None), None), (("step-000000003", None), "step-000000003"), ((None, "broken"), None)]
)
def test_all_ranks_go_on_from_what_rank_0_found(
    told: tuple[str | None, str | None], expected: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here rank 1, whose own folder is empty."""

    def broadcast(found: list[str | None], group: object) -> Any:
        assert found == [None, None]
        return told

    monkeypatch.setattr(torch.distributed, "get_rank", lambda group: 1)
    monkeypatch.setattr("augpipe.trainer.checkpoint.load.broadcast_json", broadcast)
    group: Any = None
    if told[1] is not None:
        with pytest.raises(DamagedError, match=told[1]):
            agree_on_newest(tmp_path, group)
    else:
        assert agree_on_newest(tmp_path, group) == (None if expected is None else tmp_path / expected)


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


def test_plateau_falls_no_further_than_its_least_factor() -> None:
    config = schedule(name="plateau", patience=0, gamma=0.1, min_factor=0.05)
    plateau = Plateau(config)
    fell = [plateau.update(1.0) for _ in range(5)]
    assert fell == [False, True, True, False, False]  # to 0.1, and to 0.01, of which 0.05 is used
    assert lr_factor(config, 3, 10, plateau.factor) == 0.05


def test_a_first_loss_that_is_not_finite_is_nothing_to_compare_with() -> None:
    plateau = Plateau(schedule(name="plateau", patience=0, gamma=0.1))
    assert [plateau.update(loss) for loss in (math.nan, math.inf, 9.0, math.nan)] == [False, False, False, True]


def test_other_schedules_do_not_look_at_the_loss() -> None:
    plateau = Plateau(schedule(name="cosine", patience=0))
    assert not any(plateau.update(1.0) for _ in range(4)) and plateau.factor == 1.0


def test_the_average_takes_in_what_all_its_steps_would() -> None:
    """With every=2: the weight of an update is that of two steps, and buffers are those of the last update."""
    model = torch.nn.BatchNorm1d(1)
    ema = make_average(EmaConfig(decay=0.5, every=2), model)
    assert ema is not None
    for value in (1.0, 3.0, 7.0):
        torch.nn.init.constant_(model.weight, value)
        model.get_buffer("running_mean").fill_(value)
        ema.update_parameters(model)
    assert ema.module.get_parameter("weight").item() == 0.25 * (0.25 * 1.0 + 0.75 * 3.0) + 0.75 * 7.0
    assert make_average(EmaConfig(), model) is None


class Saved(SimpleNamespace):
    """A checkpoint that was never on a disk."""

    def common(self, box_at: Any = None) -> Any:
        return self.everyones

    def of_all_ranks(self) -> Any:
        return self.owns

    def of_rank(self, rank: int) -> Any:
        return self.owns[rank]


def run_state(lr: float) -> RunState:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    source = SimpleNamespace(classes=("a", "b"))
    loader: Any = SimpleNamespace(
        seed=0, source=source, state_dict=lambda: {"seed": 0}, load_state_dict=lambda state: None
    )
    return RunState(
        model=model,
        strategy=strategy("ddp", model, lambda parameters: torch.optim.SGD(parameters, lr=lr, momentum=0.9)),
        loader=loader,
        plateau=Plateau(schedule(name="plateau")),
        scaler=GradScaler("cpu"),
        ema=make_average(EmaConfig(decay=0.5), model),
        counters=Counters(),
    )


def saved_by(state: RunState, num_ranks: int) -> Any:
    """What ranks save whose running means are 1, 2, 6, ... and whose averages' are ten times that."""
    torch.nn.functional.mse_loss(state.strategy.module(torch.randn(4, 2)), torch.ones(4, 2)).backward()
    state.strategy.step()
    assert state.ema is not None
    state.ema.update_parameters(state.model)
    state.counters.step, state.counters.num_skipped, state.counters.seconds = 7, 2, 1.5
    state.plateau.factor = 0.25
    assert state.scaler is not None
    state.scaler.load_state_dict({**state.scaler.state_dict(), "scale": 512.0})
    owns = []
    for rank, mean in enumerate((1.0, 2.0, 6.0)[:num_ranks]):
        torch.manual_seed(100 + rank)
        own = copy.deepcopy(state.own(torch.device("cpu")))
        own["buffers"]["1.running_mean"].fill_(mean)
        own["buffers"]["1.num_batches_tracked"].fill_(5 + rank)  # an epoch's end may have had no batch for a rank
        own["ema_buffers"]["1.running_mean"].fill_(10 * mean)
        owns.append(own)
    common = copy.deepcopy(state.common())
    return Saved(path="a checkpoint", world_size=num_ranks, sync=None, everyones=common, owns=owns)


@pytest.mark.parametrize(("num_ranks", "mean"), [(3, 3.0), (2, 2.0)])
def test_a_state_goes_on_with_as_many_ranks_or_others(num_ranks: int, mean: float) -> None:
    """This is rank 1 of 2: of its own running statistics and random numbers, or of the means of three ranks."""
    before, after = run_state(lr=0.1), run_state(lr=0.02)
    saved = saved_by(before, num_ranks)
    torch.nn.init.zeros_(next(after.model.parameters()))
    world: Any = SimpleNamespace(rank=1, size=2, device=torch.device("cpu"))
    torch.manual_seed(5)
    unsaved = torch.get_rng_state()
    after.load(saved, world, {})
    assert after.ema is not None and after.scaler is not None
    for model, times in ((after.model, 1), (after.ema.module, 10)):
        assert model.get_buffer("1.running_mean").tolist() == [times * mean] * 2
    assert after.model.get_buffer("1.num_batches_tracked").item() == (6 if num_ranks == 2 else 5)
    assert torch.equal(torch.get_rng_state(), saved.owns[1]["rng"] if num_ranks == 2 else unsaved)
    assert vars(after.counters) == vars(before.counters)
    assert after.plateau.factor == 0.25 and after.scaler.get_scale() == 512.0
    assert before.ema is not None
    for ours, theirs in ((after.model, before.model), (after.ema.module, before.ema.module)):
        assert all(map(torch.equal, ours.parameters(), theirs.parameters()))
    assert [group["lr"] for group in after.strategy.optimizer.param_groups] == [0.02]  # the config's
    momenta = [state.strategy.full_optimizer_state()["state"]["0.weight"] for state in (after, before)]
    assert torch.equal(*(momentum["momentum_buffer"] for momentum in momenta))


@given(st.integers(1, 200), st.integers(1, 9), st.integers(1, 4), st.integers(1, 5), st.booleans())
def test_groups_take_every_batch_of_the_loader_once(
    num: int, batch_size: int, size: int, accumulate: int, drop_last: bool
) -> None:
    per_batch, consumed, batches = batch_size * size, 0, 0
    assert not next_update(
        consumed=num, num_samples=num, per_batch=per_batch, accumulate=accumulate, drop_last=drop_last
    )
    while group := next_update(
        consumed=consumed, num_samples=num, per_batch=per_batch, accumulate=accumulate, drop_last=drop_last
    ):
        assert 1 <= group.num_batches <= accumulate
        consumed += group.num_samples
        batches += group.num_batches
    assert batches == epoch_order.num_batches(num, batch_size, size, drop_last)
    assert consumed == (batches * per_batch if drop_last else num)


@pytest.mark.parametrize("name", ["sgd", "rmsprop", "adagrad", "adamw"])
def test_weight_decay_may_spare_1d_tensors(name: str) -> None:
    layer = torch.nn.Linear(3, 2)
    config = OptimConfig.model_validate({"name": name, "lr": 0.1, "weight_decay": 0.5, "decay_1d": False})
    optimizer = make_optimizer(config, layer.parameters())
    for parameter in layer.parameters():
        parameter.grad = torch.zeros_like(parameter)
    weight, bias = layer.weight.detach().clone(), layer.bias.detach().clone()
    optimizer.step()
    assert torch.equal(layer.bias, bias) and not torch.equal(layer.weight, weight)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"name": "sgd", "momentum": 0.7, "nesterov": True}, {"momentum": 0.7, "nesterov": True}),
        ({"name": "rmsprop", "momentum": 0.7, "alpha": 0.6, "eps": 0.5}, {"momentum": 0.7, "alpha": 0.6, "eps": 0.5}),
        ({"name": "adagrad", "eps": 0.5}, {"eps": 0.5}),
        ({"name": "adamw", "betas": (0.3, 0.4), "eps": 0.5}, {"betas": (0.3, 0.4), "eps": 0.5}),
        ({"name": "adamw"}, {"betas": (0.9, 0.999), "eps": 1e-8}),  # torch's own eps, where none is given
    ],
)
def test_an_optimizer_has_the_configs_options(options: dict[str, Any], expected: dict[str, Any]) -> None:
    config = OptimConfig.model_validate({"lr": 0.2, "weight_decay": 0.25, **options})
    (group,) = make_optimizer(config, torch.nn.Linear(3, 2).parameters()).param_groups
    expected = {"lr": 0.2, "weight_decay": 0.25, **expected}
    assert {key: group[key] for key in expected} == expected


def test_a_single_number_does_not_decay_either() -> None:
    parameters = [torch.nn.Parameter(torch.ones(shape)) for shape in ((2, 2), (2,), ())]
    groups = make_optimizer(OptimConfig(weight_decay=0.5, decay_1d=False), parameters).param_groups
    assert [(group["weight_decay"], len(group["params"])) for group in groups] == [(0.5, 1), (0.0, 2)]


def test_the_finite_check_skips_and_forgets() -> None:
    parameter = torch.nn.Parameter(torch.ones(3))
    optimizer, scaler = torch.optim.SGD([parameter], lr=1.0), FiniteCheckScaler()
    for gradient, expected in ((math.nan, 1.0), (0.25, 0.75), (math.inf, 0.75), (0.25, 0.5)):
        scaler.scale((parameter * gradient).sum()).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        parameter.grad = None
        assert parameter.tolist() == [expected] * 3 and scaler.get_scale() == 1.0


def test_dropout_is_set_where_there_is_some() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.Dropout(0.1), torch.nn.Dropout2d(0.2))
    set_dropout(model, 0.5)
    assert [layer.p for layer in model[1:]] == [0.5, 0.5]
    with pytest.raises(ValueError, match=r"model\.dropout=0\.5, and the network has no dropout layer"):
        set_dropout(torch.nn.Linear(1, 1), 0.5)


def test_a_network_that_was_tried_is_as_before() -> None:
    """No statistic has learnt the black image, and layers that a fine-tuning keeps in evaluation mode stay there."""
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 2, 3), torch.nn.BatchNorm2d(2))
    before = copy.deepcopy(model.state_dict())
    for training in (True, False):
        model.train(training)
        check_input(model, "a network", 8, 8, torch.device("cpu"))
        assert model.training is model[1].training is training
    with pytest.raises(
        ValueError, match=r"model\.name=a network does not take pictures of 3 x 2 x 8: .*Change data\.s"
    ):
        check_input(model, "a network", 2, 8, torch.device("cpu"))
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name


class _Refused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: torch.Tensor) -> torch.Tensor:
        return values.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("a_pool_backward_cuda does not have a deterministic implementation")


class _RefusedLayer(torch.nn.Module):
    def forward(self, values: torch.Tensor) -> torch.Tensor:
        refused: torch.Tensor = _Refused.apply(values)
        return refused


def test_a_backward_that_is_not_deterministic_is_refused_before_anything_is_begun() -> None:
    """Where it is asked for alone; and what is tried leaves no gradient behind."""
    fine = torch.nn.Sequential(torch.nn.Conv2d(3, 2, 3), torch.nn.BatchNorm2d(2), torch.nn.Flatten())
    refused = torch.nn.Sequential(torch.nn.Conv2d(3, 2, 3), _RefusedLayer())
    check_input(refused, "a network", 8, 8, torch.device("cpu"))
    torch.use_deterministic_algorithms(True)
    try:
        check_input(fine, "a network", 8, 8, torch.device("cpu"))
        check_input(fine.requires_grad_(False), "a network", 8, 8, torch.device("cpu"))
        with pytest.raises(
            ValueError,
            match=r"deterministic=true, and model\.name=a network cannot be trained so on cpu: a_pool_.* does not "
            r"have .*\. Leave deterministic out, or choose another network\.",
        ):
            check_input(refused, "a network", 8, 8, torch.device("cpu"))
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(parameter.grad is None for model in (fine, refused) for parameter in model.parameters())


def test_what_is_held_out_is_a_partition_and_stays() -> None:
    source = MemorySource(jpegs(40))
    rest, held = hold_out(source, 0.25, 3)
    assert len(held) == 10 and sorted([*rest.ids, *held.ids]) == list(range(40))
    assert all(list(part.ids) == sorted(part.ids) for part in (rest, held))
    assert hold_out(source, 0.25, 3)[1].ids.tolist() == held.ids.tolist() != hold_out(source, 0.25, 4)[1].ids.tolist()
    assert held.read(2) == source.read(int(held.ids[2])) and held.label(2) == source.label(int(held.ids[2]))
    with pytest.raises(ValueError, match="both training and evaluation need some"):
        hold_out(source, 0.001, 3)


def test_classes_of_which_all_photographs_are_held_out_are_named(caplog: pytest.LogCaptureFixture) -> None:
    source = MemorySource(jpegs(12), labels=[0] * 5 + [1, 2, 3, 4] + [-1] * 3)
    source.classes = ("many", "ant", "bee", "cat", "dog")
    rest, held = hold_out(source, 0.5, 3)
    trained = {source.label(int(i)) for i in rest.ids}
    untrained = [name for label, name in enumerate(source.classes) if label not in trained]
    assert len(untrained) == 3 and "many" not in untrained and len(held) == 6  # of this seed
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("augpipe.trainer", "WARNING")
    assert record.getMessage() == (
        f"data.eval_fraction=0.5 holds out all photographs of 3 classes ({', '.join(untrained)}), which are never "
        "trained. Add photographs of them, lower the fraction, or give data.eval_source"
    )


def test_nothing_is_said_where_every_class_is_trained(caplog: pytest.LogCaptureFixture) -> None:
    source = MemorySource(jpegs(12), labels=[0, 1] * 5 + [-1] * 2)
    source.classes = ("ant", "bee", "a class without photographs")
    hold_out(source, 0.25, 3)
    assert not caplog.records


def test_a_part_knows_the_sizes_that_the_whole_knows(tmp_path: Path) -> None:
    whole = ShardSource(build(tmp_path / "out"))
    _, held = hold_out(whole, 0.5, 3)
    assert held.knows_sizes
    assert [held.size(i) for i in range(len(held))] == [whole.size(i) for i in held.ids.tolist()]
    assert not hold_out(MemorySource(jpegs(4)), 0.5, 3)[1].knows_sizes


def there_and_back(state: Any) -> Any:
    text, tensors = flatten(state)
    return restore(json.loads(text), tensors.__getitem__)


def test_numbers_that_json_lacks_come_back() -> None:
    text, _ = flatten([math.inf, -math.inf, math.nan, 1e308])
    kept = [{"$float": "inf"}, {"$float": "-inf"}, {"$float": "nan"}, 1e308]
    assert json.loads(text, parse_constant=pytest.fail) == kept
    assert str(there_and_back([math.inf, -math.inf, math.nan])) == "[inf, -inf, nan]"


def test_a_tree_comes_back() -> None:
    state = {"a": {0: torch.arange(3), (1, "x"): [1.5, None, True]}, "$b": (torch.tensor(2.0), math.inf), "c": "text"}
    text, tensors = flatten(state)
    back = restore(json.loads(text), tensors.__getitem__)
    assert back["a"][0].tolist() == [0, 1, 2] and back["a"][1, "x"] == [1.5, None, True]
    assert back["$b"] == (torch.tensor(2.0), math.inf) and back["c"] == "text"
    # words of the text's own
    ours = {"a": {"$tensor": "text"}, "b": {"$tuple": [1]}, "c": {"$pairs": 3}, "d": {"$float": "1"}}
    assert there_and_back(ours) == ours
    numbers = there_and_back([np.int64(3), np.float32(0.5), np.bool_(True)])
    assert numbers == [3, 0.5, True] and [type(number) for number in numbers] == [int, float, bool]
    state["a"][0][0] = 9  # type: ignore[index]
    assert back["a"][0].tolist() == [0, 1, 2]
    with pytest.raises(TypeError, match="^a is a set, which"):
        flatten({"a": {1}})
    with pytest.raises(TypeError, match=r"^sparse is a tensor of torch.*, which a checkpoint cannot hold"):
        flatten({"sparse": torch.eye(3).to_sparse()})
    assert there_and_back([torch.ones(2) * 1j])[0].tolist() == [1j, 1j]
    with pytest.raises(TypeError, match="^a/b names two tensors"):
        flatten({"a": {"b": torch.ones(1)}, "a/b": torch.zeros(1)})


def test_a_table_forgets_what_came_after_the_step(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    table = StepsFile(path, ("step", "loss"), 0)
    for step in range(1, 6):
        table.write({"step": step, "loss": step / 7})
    table.close()
    path.write_text(path.read_text() + "6,0.1")  # cut short
    again = StepsFile(path, ("step", "loss"), 3)
    again.write({"step": 4, "loss": 1.0})
    again.close()
    assert [row["step"] for row in read_rows(path)] == ["1", "2", "3", "4"]
    assert read_rows(path)[-1]["loss"] == "1"


def test_a_table_that_is_killed_while_it_forgets_keeps_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.csv"
    table = StepsFile(path, ("step", "loss"), 0)
    for step in range(1, 4):
        table.write({"step": step, "loss": 0.5})
    table.close()

    def killed(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("csv.DictWriter.writerows", killed)
    with pytest.raises(KeyboardInterrupt):
        StepsFile(path, ("step", "loss"), 2)
    assert [row["step"] for row in read_rows(path)] == ["1", "2", "3"]


def in_ring(size: int, timeout_s: float) -> list[Heartbeat]:
    store = HashStore()
    return [Heartbeat(store, rank, size, timeout_s) for rank in range(size)]


def test_another_table_is_refused_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text("epoch,loss\n1,0.5\n")
    with pytest.raises(ValueError, match=r"metrics.csv is not a table of a run: it has no column named step"):
        StepsFile(path, ("step", "loss"), 0)
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


@pytest.mark.slow
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
