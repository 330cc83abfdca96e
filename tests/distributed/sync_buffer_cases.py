"""Buffers of any dtype begin as rank 0's."""

import torch
from torch import nn

from augpipe.trainer.strategies import strategy

DTYPES = (
    torch.bool,
    torch.uint8,
    torch.int16,
    torch.int64,
    torch.uint16,
    torch.float8_e4m3fn,
    torch.bfloat16,
    torch.float64,
    torch.complex64,
)


def buffers_of_any_dtype(rank: int, world_size: int) -> None:
    for name in ("ddp", "butterfly", "lazy"):
        model = nn.Linear(3, 2)
        for i, dtype in enumerate(DTYPES):
            model.register_buffer(f"full{i}", torch.full((2, 3), 1 - rank).to(dtype))
            model.register_buffer(f"scalar{i}", torch.tensor(1 - rank).to(dtype))
            model.register_buffer(f"empty{i}", torch.zeros(0).to(dtype))
        sync = strategy(name, model, lambda p: torch.optim.SGD(p, lr=0.1), timeout_s=30)  # type: ignore[arg-type]
        for key, buffer in model.named_buffers():
            assert bool((buffer.to(torch.complex64) == 1).all()), (name, key, buffer)
        sync.module(torch.ones(1, 3)).sum().backward()
        sync.step()
        sync.close()


def memory_in_any_order(rank: int, world_size: int) -> None:
    for name in ("ddp", "butterfly", "lazy"):
        torch.manual_seed(rank)
        model = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
        model.register_buffer("turned", torch.randn(4, 5).T)
        torch.manual_seed(0)
        first = nn.Conv2d(3, 4, 3)
        turned = torch.randn(4, 5).T
        sync = strategy(name, model, lambda p: torch.optim.SGD(p, lr=0.1), timeout_s=30)  # type: ignore[arg-type]
        assert model.weight.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(model.weight, first.weight) and torch.equal(model.get_buffer("turned"), turned), name
        sync.close()


CASES = {2: ["buffers_of_any_dtype", "memory_in_any_order"]}
