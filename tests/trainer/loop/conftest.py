"""Worlds of one rank."""

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

from augpipe.trainer.loop.world import World, open_world


@pytest.fixture
def world() -> Iterator[World]:
    """One whose store is in memory."""
    store = HashStore()
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    group = dist.group.WORLD
    assert group is not None
    yield World(rank=0, size=1, local_size=1, device=torch.device("cpu"), control=group, saving=group, store=store)
    dist.destroy_process_group()


@pytest.fixture
def alone() -> Iterator[World]:
    """One that is opened as a run opens it."""
    with open_world("cpu", 60.0) as world:
        yield world
