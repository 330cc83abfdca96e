"""Cases: an evaluation by all ranks together, each with images and running statistics of its own."""

from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from augpipe.trainer.config import make_config
from augpipe.trainer.loop.evaluate import evaluate
from tests.distributed.sync_models import assert_same_everywhere

NUM_CLASSES = 9
LENGTHS = ((4, 4), (3, 0), (0, 2))
"""How long each rank's batches are; with another number of ranks the last ones are missing."""


class Batches(list[Any]):
    """A loader that notes which epochs it was set to."""

    def __init__(self, batches: list[Any]) -> None:
        super().__init__(batches)
        self.epochs: list[int] = []

    def set_epoch(self, epoch: int) -> None:
        self.epochs.append(epoch)


class Batch(SimpleNamespace):
    def __len__(self) -> int:
        return len(self.labels)


def pictures(rank: int) -> list[Any]:
    generator = torch.Generator().manual_seed(2 + rank)  # some are right, some are among five
    return [
        Batch(
            images=torch.randn(length, 5, generator=generator),
            labels=torch.randint(0, NUM_CLASSES, (length,), generator=generator),
        )
        for length in LENGTHS[rank]
    ]


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.BatchNorm1d(5), nn.Linear(5, NUM_CLASSES), nn.Dropout(0.5))


def together(rank: int, world_size: int) -> None:
    """By the mean of all running statistics; each image counts once; nothing is left of it in the model."""
    model, loader = network(), Batches(pictures(rank))
    norm: Any = model[0]  # type: ignore[index]
    norm.running_mean.fill_(float(rank**2))
    norm.running_var.fill_(1.0 + rank)
    norm.num_batches_tracked.fill_(7 + rank)
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    config = make_config({"data": {"source": "x"}, "optim": {"label_smoothing": 0.5}})
    world: Any = SimpleNamespace(device=torch.device("cpu"), control=dist.group.WORLD)
    expected = by_hand(world_size)
    for training in (True, False):
        model.train(training)
        found = evaluate(config, world, model, loader)  # type: ignore[arg-type]
        assert model.training is norm.training is training
        assert found.num_samples == sum(map(sum, LENGTHS[:world_size]))
        numbers = torch.tensor([found.loss, found.top1, found.top5], dtype=torch.float64)
        assert_same_everywhere(numbers)
        torch.testing.assert_close(numbers, expected, rtol=1e-6, atol=1e-6)
        for name, buffer in model.named_buffers():
            assert torch.equal(buffer, before[name]), name
    assert loader.epochs == [0, 0]  # what replaces a bad image is the same each time


def by_hand(world_size: int) -> Tensor:
    """(loss, top-1, top-5) over all ranks' images."""
    model = network().eval()
    norm: Any = model[0]  # type: ignore[index]
    norm.running_mean.fill_(sum(rank**2 for rank in range(world_size)) / world_size)
    norm.running_var.fill_(1.0 + (world_size - 1) / 2)
    batches = [batch for rank in range(world_size) for batch in pictures(rank)]
    labels = torch.cat([batch.labels for batch in batches])
    with torch.no_grad():
        logits = model(torch.cat([batch.images for batch in batches]))
    places = (logits > logits.gather(1, labels[:, None])).sum(1).double()
    shares = [(places < 1).double().mean(), (places < 5).double().mean()]
    assert 0 < shares[0] < shares[1] < 1
    return torch.stack([F.cross_entropy(logits, labels).double(), *shares])


CASES = {2: ["together"], 3: ["together"]}
