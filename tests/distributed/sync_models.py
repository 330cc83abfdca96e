"""Small networks, batches and optimizers for the tests of sync strategies."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

from augpipe.trainer.strategies import Strategy, strategy

OPTIMIZERS: dict[str, Callable[[Iterable[nn.Parameter]], Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=1e-3),
    "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, lr=1e-3, eps=1e-4),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=1e-3, eps=1e-5),
}
BUCKET_BYTES = 8000  # several buckets, with parameters cut between them


def network() -> nn.Module:
    """Odd sizes; convolution, normalisation, linear layers. No bias before the BatchNorm: its gradient is pure
    rounding."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, bias=False),
        nn.BatchNorm2d(8),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(288, 37),
        nn.Tanh(),
        nn.Linear(37, 10),
    )


def batches(rank: int, num: int, *, start: int = 0) -> list[tuple[Tensor, Tensor]]:
    """A rank's own batches."""
    made = []
    for step in range(start, start + num):
        generator = torch.Generator().manual_seed(1000 * rank + step)
        made.append((torch.randn(6, 3, 8, 8, generator=generator), torch.randint(0, 10, (6,), generator=generator)))
    return made


def build(name: str, model: nn.Module, optimizer: str = "sgd", **options: Any) -> Strategy:
    """A strategy with small buckets and a short timeout."""
    settings: dict[str, Any] = {"bucket_bytes": BUCKET_BYTES, "timeout_s": 20} | options
    return strategy(name, model, OPTIMIZERS[optimizer], **settings)  # type: ignore[arg-type]


def train_step(sync: Strategy, batch: tuple[Tensor, Tensor]) -> Any:
    """Forward, backward, step."""
    F.cross_entropy(sync.module(batch[0]), batch[1]).backward()
    return sync.step()


def weights(model: nn.Module) -> Tensor:
    """All parameters in one row; reads each tensor itself, so nothing but `flush` makes them whole."""
    return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])


def assert_same_everywhere(values: Tensor) -> None:
    """Bit-equal on all ranks."""
    everyones = [torch.empty_like(values) for _ in range(dist.get_world_size())]
    dist.all_gather(everyones, values)
    for rank, theirs in enumerate(everyones):
        assert torch.equal(values, theirs), f"differs from rank {rank}'s by {(values - theirs).abs().max()}"
