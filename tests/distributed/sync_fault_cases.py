"""Cases: ranks that differ, and ranks that die; each ends with a message, never with a hang."""

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from augpipe.trainer import butterfly_hook
from augpipe.trainer.sync import SyncError
from tests.distributed.sync_models import batches, build, network, train_step


def handshake_names_what_differs(rank: int, world_size: int) -> None:
    odd = rank == 1

    def wider() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 6 if odd else 5), nn.Linear(5, 5))

    def longer() -> nn.Module:
        return nn.Sequential(*(nn.Linear(4, 4) for _ in range(3 if odd else 2)))

    def half() -> nn.Module:
        return nn.Linear(4, 4).to(torch.bfloat16 if odd else torch.float32)

    differing: list[tuple[str, Callable[[], Any]]] = [
        (r"strategy is '\w+' on rank 0 and '\w+' on rank 1", lambda: build("lazy" if odd else "butterfly", network())),
        ("strategy is 'butterfly' on rank 0 and 'ddp'", lambda: build("ddp" if odd else "butterfly", network())),
        (
            "codec is 'linear' on rank 0 and 'mantissa' on rank 1",
            lambda: build("lazy", network(), codec="mantissa" if odd else "linear"),
        ),
        ("bucket_bytes is 4000 on rank 0", lambda: build("lazy", network(), bucket_bytes=9000 if odd else 4000)),
        ("optimizer is 'SGD' on rank 0 and 'AdamW'", lambda: build("lazy", network(), "adamw" if odd else "sgd")),
        (r"parameter 0.weight \(5, 4\) float32 .* on rank 0 is 0.weight \(6, 4\)", lambda: build("lazy", wider())),
        (r"differ: param groups", lambda: build("butterfly", longer())),
        (r"parameter weight \(4, 4\) float32 .* is weight \(4, 4\) bfloat16", lambda: build("butterfly", half())),
    ]
    for message, make in differing:
        with pytest.raises(SyncError, match=message):
            make()


def hooks_shake_hands(rank: int, world_size: int) -> None:
    model = DistributedDataParallel(network())
    model.register_comm_hook(*butterfly_hook(codec="linear" if rank else "bf16", timeout_s=10))
    with pytest.raises(SyncError, match="codec is 'bf16' on rank 0 and 'linear' on rank 1"):
        F.cross_entropy(model(batches(rank, 1)[0][0]), batches(rank, 1)[0][1]).backward()


def absent_at_handshake(rank: int, world_size: int) -> None:
    """Rank 1 never builds its strategy: the others say what they waited for, within the timeout."""
    start = time.monotonic()
    if rank != 1:
        with pytest.raises(SyncError, match="handshake: waited for"):
            build("lazy", network(), timeout_s=3)
        assert time.monotonic() - start < 20
    else:
        time.sleep(6)


def late_rank(rank: int, world_size: int) -> None:
    """A rank that hangs: the others' step ends in time, naming the bucket."""
    for name in ("butterfly", "lazy"):
        sync = build(name, network(), timeout_s=3, bucket_bytes=2**20)
        start = time.monotonic()
        if rank == 1:
            time.sleep(5)
            sync._engine.close()  # type: ignore[attr-defined]
        else:
            with pytest.raises(SyncError, match=f"{name}: waited for the .*bucket 1 of 1 .*, at most 3 s a bucket"):
                train_step(sync, batches(rank, 1)[0])
            assert time.monotonic() - start < 20
            with pytest.raises(SyncError):
                sync.flush()
        store_barrier(f"late {name}", world_size)


def store_barrier(name: str, world_size: int) -> None:
    """Ranks meet without a collective: those of the group are out of step."""
    store = dist.distributed_c10d._get_default_store()
    store.add(name, 1)
    while store.add(name, 0) < world_size:
        time.sleep(0.05)


def killed_in_the_middle(rank: int, world_size: int) -> None:
    """kill -9 of a rank between two buckets of an exchange; the last case: this rank does not come back."""
    sync = build("lazy", network(), timeout_s=5)
    train_step(sync, batches(rank, 1)[0])
    if rank == world_size - 1:
        units = sync._units  # type: ignore[attr-defined]
        inner = units[1].pack_reduce

        def die() -> None:
            inner()
            os.kill(os.getpid(), signal.SIGKILL)

        units[1].pack_reduce = die
        train_step(sync, batches(rank, 2)[1])
    start = time.monotonic()

    def go_on() -> None:
        for batch in batches(rank, 3):
            train_step(sync, batch)

    with pytest.raises(SyncError, match=r"lazy: waited for the .* and got: .*\. A rank has died, hangs, or does"):
        go_on()
    assert time.monotonic() - start < 20


CASES = [
    "handshake_names_what_differs",
    "hooks_shake_hands",
    "absent_at_handshake",
    "late_rank",
    "killed_in_the_middle",
]
