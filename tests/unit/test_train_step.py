"""One update equals the one by hand: accumulation, batches of several lengths, an empty one, label smoothing, NaN."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch._C._distributed_c10d import HashStore

from augpipe.trainer.config import make_config
from augpipe.trainer.loop.group import Group
from augpipe.trainer.loop.precision import make_scaler
from augpipe.trainer.loop.step import Step, StepResult
from augpipe.trainer.loop.world import World
from augpipe.trainer.optim import MakeOptimizer
from augpipe.trainer.sync import strategy


@pytest.fixture
def world() -> Iterator[World]:
    store = HashStore()
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    group = dist.group.WORLD
    assert group is not None
    yield World(rank=0, size=1, local_size=1, device=torch.device("cpu"), control=group, saving=group, store=store)
    dist.destroy_process_group()


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


def update(world: World, model: nn.Module, batches: list[Any], **options: Any) -> StepResult:
    settings = {"lr": 0.1, "momentum": 0.0, "weight_decay": 0.0, "label_smoothing": 0.2}
    config = make_config({"data": {"source": "x"}, "optim": settings, **options})
    synced = strategy("ddp", model, MakeOptimizer(config.optim))
    step = Step(config, world, synced.module, synced, make_scaler(config, world.device))
    return step.run(iter(batches), Group(num_batches=len(batches), num_samples=sum(map(len, batches))))


@pytest.mark.parametrize("lengths", [(6,), (4, 4, 2), (3, 0), (2, 5, 0)])
def test_an_update_is_by_the_mean_over_all_pictures(world: World, lengths: tuple[int, ...]) -> None:
    batches, model, reference = pictures(*lengths), network(), network()
    images, labels = torch.cat([b.images for b in batches]), torch.cat([b.labels for b in batches])
    loss = F.cross_entropy(reference(images), labels, label_smoothing=0.2)
    loss.backward()  # type: ignore[no-untyped-call]
    result = update(world, model, batches)
    for ours, theirs in zip(model.parameters(), reference.parameters(), strict=True):
        assert theirs.grad is not None
        torch.testing.assert_close(ours, theirs - 0.1 * theirs.grad)
    assert result.loss_sum == pytest.approx(loss.item() * sum(lengths), rel=1e-5)
    assert result.num_correct == int((network()(images).argmax(1) == labels).sum())
    assert result.sample_ids == list(range(sum(lengths))) and result.is_finite and not result.is_skipped


def test_a_picture_that_is_nan_leaves_the_weights(world: World) -> None:
    (batch,) = pictures(4)
    batch.images[2, 0, 0, 0] = torch.nan
    model = network()
    result = update(world, model, [batch])
    assert not result.is_finite and result.is_skipped
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), network().parameters(), strict=True))


def test_whoever_does_not_look_gets_nan(world: World) -> None:
    (batch,) = pictures(4)
    batch.images[2, 0, 0, 0] = torch.nan
    model = network()
    assert update(world, model, [batch], faults={"on_nan": "ignore"}).is_finite
    assert bool(torch.isnan(next(model.parameters())).any())
