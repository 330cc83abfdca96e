"""One update equals the one by hand: accumulation, batches of several lengths, an empty one, label smoothing, NaN."""

import math
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from augpipe import MixedLabels
from augpipe.trainer.config import make_config
from augpipe.trainer.exchange.exchange_errors import SyncError
from augpipe.trainer.loop.precision import make_scaler
from augpipe.trainer.loop.step import Step, StepResult, UpdateBatches
from augpipe.trainer.loop.training import Training
from augpipe.trainer.loop.world import World
from augpipe.trainer.optim.optimizer import make_optimizer
from augpipe.trainer.strategies import strategy


class Batch(SimpleNamespace):
    def __len__(self) -> int:
        return len(self.sample_ids)


def pictures(*lengths: int) -> list[Any]:
    made, first = [], 0
    for length in lengths:
        images = torch.randn(length, 3, 4, 4)
        ids = np.arange(first, first + length)
        made.append(Batch(images=images, labels=torch.from_numpy(ids % 3), sample_ids=ids))
        first += length
    return made


def network() -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(nn.Flatten(), nn.Linear(48, 3))


def update(
    world: World, model: nn.Module, batches: list[Any], num_samples: int | None = None, **options: Any
) -> StepResult:
    settings = {"name": "sgd", "lr": 0.1, "momentum": 0.0, "weight_decay": 0.0, "label_smoothing": 0.2}
    config = make_config({"data": {"source": "x"}, "optim": settings, **options})
    synced = strategy("ddp", model, partial(make_optimizer, config.optim))
    step = Step(config, world, synced.module, synced, make_scaler(config))
    num_samples = sum(map(len, batches)) if num_samples is None else num_samples
    return step.run(iter(batches), UpdateBatches(num_batches=len(batches), num_samples=num_samples))


@pytest.mark.parametrize("lengths", [(6,), (4, 4, 2), (3, 0), (2, 5, 0)])
def test_an_update_is_by_the_mean_over_all_images(world: World, lengths: tuple[int, ...]) -> None:
    batches, model, reference = pictures(*lengths), network(), network()
    images, labels = torch.cat([b.images for b in batches]), torch.cat([b.labels for b in batches])
    loss = F.cross_entropy(reference(images), labels, label_smoothing=0.2)
    loss.backward()
    result = update(world, model, batches)
    for ours, theirs in zip(model.parameters(), reference.parameters(), strict=True):
        assert theirs.grad is not None
        torch.testing.assert_close(ours, theirs - 0.1 * theirs.grad)
    assert result.loss_sum == pytest.approx(loss.item() * sum(lengths), rel=1e-5)
    assert result.num_correct == int((network()(images).argmax(1) == labels).sum())
    assert result.sample_ids == list(range(sum(lengths))) and result.is_finite and not result.is_skipped


def test_mixed_labels_are_the_soft_targets_that_they_stand_for(world: World) -> None:
    batches, model, reference = pictures(5, 3), network(), network()
    for batch in batches:
        weights = torch.rand(len(batch))
        batch.labels = MixedLabels(batch.labels, (batch.labels + 1) % 3, weights)
    images = torch.cat([batch.images for batch in batches])
    soft = torch.cat([batch.labels.soft(3) for batch in batches])
    loss = F.cross_entropy(reference(images), soft, label_smoothing=0.2)
    loss.backward()
    result = update(world, model, batches)
    for ours, theirs in zip(model.parameters(), reference.parameters(), strict=True):
        assert theirs.grad is not None
        torch.testing.assert_close(ours, theirs - 0.1 * theirs.grad)
    assert result.loss_sum == pytest.approx(loss.item() * 8, rel=1e-5)
    assert result.num_correct == int((network()(images).argmax(1) == soft.argmax(1)).sum())


def test_two_ranks_shares_are_together_the_whole(world: World) -> None:
    """The mean over ranks of what each would do by itself is what one rank does with all of their images."""
    whole, halves = network(), [network(), network()]
    first, second = pictures(5, 2)
    update(world, whole, [first, second])
    for model, batch in zip(halves, (first, second), strict=True):
        update(replace(world, size=2), model, [batch], num_samples=7)
    for expected, *ours in zip(whole.parameters(), *(model.parameters() for model in halves), strict=True):
        torch.testing.assert_close(torch.stack(ours).mean(0), expected)


def test_an_image_that_is_nan_leaves_the_weights(world: World) -> None:
    (batch,) = pictures(4)
    batch.images[2, 0, 0, 0] = torch.nan
    model = network()
    result = update(world, model, [batch])
    assert not result.is_finite and result.is_skipped
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), network().parameters(), strict=True))


def test_a_loss_that_is_nan_is_no_overflow(world: World) -> None:
    """fp16's scaler answers an overflow by a lower scale, and no scale makes this loss finite."""
    (batch,) = pictures(4)
    batch.images[2, 0, 0, 0] = torch.nan
    result = update(world, network(), [batch], optim={"amp": "fp16"})
    assert not result.is_finite and result.is_skipped


@pytest.mark.parametrize("amp", ["off", "fp16"])
def test_a_gradient_that_overflows_under_a_finite_loss(world: World, amp: str) -> None:
    (batch,) = pictures(4)
    model = network()
    next(model.parameters()).register_hook(lambda gradient: gradient * torch.inf)
    result = update(world, model, [batch], optim={"amp": amp})
    assert math.isfinite(result.loss_sum) and result.is_skipped
    assert result.is_finite == (amp == "fp16")  # a lower scale may help there, and elsewhere nothing does


def test_whoever_does_not_look_gets_nan(world: World) -> None:
    (batch,) = pictures(4)
    batch.images[2, 0, 0, 0] = torch.nan
    model = network()
    assert update(world, model, [batch], faults={"on_nan": "ignore"}).is_finite
    assert bool(torch.isnan(next(model.parameters())).any())


@pytest.mark.parametrize("amp", ["off", "fp16"])
@pytest.mark.parametrize("cause", ["image", "gradient"])
def test_a_step_that_is_left_out_leaves_running_statistics_alone(world: World, amp: str, cause: str) -> None:
    """Of an update of two batches, whichever has the NaN, and where it is another rank's."""

    def normalized() -> Any:
        torch.manual_seed(5)
        return nn.Sequential(nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(48, 3))

    options = {"optim": {"amp": amp}, "faults": {"on_nan": "skip"}}
    model, plain = normalized(), normalized()
    update(world, model, pictures(4, 3), **options)
    assert not torch.equal(model[0].running_mean, plain[0].running_mean) and model[0].num_batches_tracked == 2
    before = {name: value.clone() for name, value in model.state_dict().items()}
    batches = pictures(4, 3)
    if cause == "image":
        batches[0].images[2, 0, 0, 0] = torch.nan
    else:
        model[2].weight.register_hook(lambda gradient: gradient * torch.inf)
    assert update(world, model, batches, **options).is_skipped
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_a_batch_of_nothing_leaves_running_statistics_alone() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 2))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    config: Any = SimpleNamespace(
        optim=SimpleNamespace(amp="off", label_smoothing=0.0),
        model=SimpleNamespace(channels_last=False),
        faults=SimpleNamespace(on_nan="ignore"),
    )
    world: Any = SimpleNamespace(device=torch.device("cpu"), size=2)
    synced = strategy("ddp", model, lambda parameters: torch.optim.SGD(parameters, lr=1.0))
    empty: Any = Batch(
        images=torch.zeros(0, 3, 8, 8), labels=torch.zeros(0, dtype=torch.int64), sample_ids=torch.zeros(0)
    )
    Step(config, world, model, synced, None).run(iter([empty]), UpdateBatches(num_batches=1, num_samples=1))
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_a_checkpoint_waits_for_a_device_to_find_what_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only streams wait for exchanges there: what did not end in time is known when the device has come so far."""
    told: list[str] = []

    def flush() -> None:
        told.append("flush")
        if "synchronize" in told:
            raise SyncError("a gather")

    monkeypatch.setattr(torch.cuda, "synchronize", lambda _device: told.append("synchronize"))
    training: Any = SimpleNamespace(
        _check=lambda _failed: None,
        _control=SimpleNamespace(drain=lambda: None),
        _state=SimpleNamespace(strategy=SimpleNamespace(flush=flush)),
        _world=SimpleNamespace(device=torch.device("cuda")),
    )
    with pytest.raises(SyncError, match="a gather"):
        Training._save(training)
    assert told == ["flush", "synchronize", "flush"]
