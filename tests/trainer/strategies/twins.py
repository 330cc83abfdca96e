"""Process groups of several ranks in one process: every other rank sends what this one sends."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from importlib import import_module
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from augpipe.trainer.exchange.ranks import own_group


@cache
def _alone() -> dist.ProcessGroup:
    """A group of this rank only, whose works are those of a backend that has timeouts."""
    return dist.ProcessGroupGloo(dist.HashStore(), 0, 1, timedelta(seconds=60))


def _done() -> dist.Work:
    return _alone().allreduce([torch.zeros(1)])


class Twins(dist.ProcessGroup):
    """Rank 0 of a group; its collectives end at once."""

    group_name = ""

    def __init__(self, _store: Any, rank: int, size: int, _timeout: Any) -> None:
        super().__init__(rank, size)

    def allgather(self, outs: list[list[Tensor]], ins: list[Tensor], _options: Any = None) -> dist.Work:
        torch._foreach_copy_(outs[0], ins * len(outs[0]))
        return _done()

    def allreduce(self, tensors: list[Tensor], _options: Any = None) -> dist.Work:
        torch._foreach_mul_(tensors, self.size())
        return _done()

    def alltoall_base(self, out: Tensor, tensor: Tensor, _outs: Any, _ins: Any, _options: Any = None) -> dist.Work:
        out.copy_(tensor)
        return _done()

    all_to_all_single = alltoall_base

    def broadcast(self, tensors: list[Tensor], _options: Any = None) -> dist.Work:
        return _done()

    def getBackendName(self) -> str:
        return "twins"

    def _set_group_name(self, name: str) -> None:
        self.group_name = name

    def _set_group_desc(self, _desc: str) -> None: ...

    def shutdown(self) -> None: ...


@contextmanager
def twins(num: int) -> Iterator[None]:
    """torch.distributed with `num` ranks, of which this process is the first."""
    if not hasattr(dist.Backend, "TWINS"):
        dist.Backend.register_backend("twins", Twins, devices=["cpu"])
    dist.init_process_group("twins", store=dist.HashStore(), rank=0, world_size=num)

    def group_of_twins(like: Any, *, backend: str | None = None, **options: Any) -> dist.ProcessGroup:
        return own_group(like, **options)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(import_module("augpipe.trainer.parallel.split"), "own_group", group_of_twins)
        try:
            yield
        finally:
            dist.destroy_process_group()
