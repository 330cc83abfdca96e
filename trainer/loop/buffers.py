"""Batch normalisation's running statistics, which each rank gathers by itself, averaged while one evaluates."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn


@contextmanager
def averaged_buffers(model: nn.Module, group: dist.ProcessGroup) -> Iterator[None]:
    """Within it every rank has the mean of all ranks' floating-point buffers; after it, its own again.

    So an evaluation changes nothing for the training that goes on.
    """
    buffers = [buffer for buffer in model.buffers() if buffer.is_floating_point()]
    if not buffers or dist.get_world_size(group) == 1:
        yield
        return
    before = [buffer.clone() for buffer in buffers]
    flat = torch.cat([buffer.detach().double().flatten().cpu() for buffer in buffers])
    dist.all_reduce(flat, group=group)
    flat /= dist.get_world_size(group)
    for buffer, mean in zip(buffers, torch.split(flat, [buffer.numel() for buffer in buffers]), strict=True):
        buffer.copy_(mean.view(buffer.shape))
    try:
        yield
    finally:
        for buffer, kept in zip(buffers, before, strict=True):
            buffer.copy_(kept)
