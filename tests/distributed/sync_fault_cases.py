"""Cases: ranks that differ, and ranks that die; each ends with a message, never with a hang."""

import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from augpipe.trainer import butterfly_hook, codec
from augpipe.trainer.exchange import MODES, Bucket, Exchange, butterfly
from augpipe.trainer.exchange.ranks import own_group
from augpipe.trainer.strategies import SyncError
from augpipe.trainer.strategies import build_strategy as build_module
from tests.distributed.sync_models import batches, build, network, train_step


def handshake_names_what_differs(rank: int, world_size: int) -> None:
    odd = rank == 1

    def wider() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 6 if odd else 5), nn.Linear(5, 5))

    def longer() -> nn.Module:
        return nn.Sequential(*(nn.Linear(4, 4) for _ in range(3 if odd else 2)))

    def half() -> nn.Module:
        return nn.Linear(4, 4).to(torch.bfloat16 if odd else torch.float32)

    def reordered() -> nn.Module:
        return nn.Conv2d(3, 4, 3, bias=False).to(memory_format=torch.contiguous_format if odd else torch.channels_last)

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
        ("error_feedback is False on rank 0", lambda: build("lazy", network(), error_feedback=odd)),
        ("exempt_1d is False on rank 0", lambda: build("ddp", network(), exempt_1d=odd)),
        ("clip_norm is 0.5 on rank 0 and 0.25", lambda: build("butterfly", network(), clip_norm=0.25 if odd else 0.5)),
        (
            "codec block is 256 on rank 0 and 64 on rank 1",
            lambda: build("lazy", network(), codec=codec("linear", block=64 if odd else 256)),
        ),
        (
            r"parameter weight .* strides \(27, 1, 9, 3\) on rank 0 is .* strides \(27, 9, 3, 1\)",
            lambda: build("lazy", reordered()),
        ),
        (r"parameter weight \(4, 4\) float32 .* is weight \(4, 4\) bfloat16", lambda: build("butterfly", half())),
    ]
    for message, make in differing:
        with pytest.raises(SyncError, match=message):
            make()


def in_another_order(rank: int, world_size: int) -> None:
    """A rank that would issue its collectives in another order is refused before the first of them."""

    def permuted(buckets: Sequence[Bucket], world_size: int) -> Exchange:
        exchange = butterfly(buckets, world_size)
        first, second, *others = exchange.collectives
        return replace(exchange, collectives=(second, first, *others) if rank == 1 else exchange.collectives)

    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(MODES, "butterfly", permuted)
        with pytest.raises(SyncError, match="collective 0 is 'reduce bucket 0' on rank 0 and 'reduce bucket 1' on ran"):
            build("butterfly", network())


def messages_tell_their_order(rank: int, world_size: int) -> None:
    """The lists agree, but a rank does not keep to its own: slices of one size are not taken for each other."""
    for name, phase in (("butterfly", "reduce"), ("lazy", "reduce"), ("lazy", "gather")):
        model = nn.ModuleList(nn.Linear(16, 16, bias=False) for _ in range(3))
        sync = build(name, model, bucket_bytes=16 * 16 * 4, timeout_s=5)
        threads, buckets = sync._threads, sync._buckets  # type: ignore[attr-defined]
        begin = threads.begin
        if rank == 1:

            def swapped(of: str, bucket: Any, phase: str = phase, begin: Any = begin, buckets: Any = buckets) -> None:
                begin(of, buckets[(1, 0, 2)[bucket.number]] if of == phase else bucket)

            threads.begin = swapped

        def step(model: nn.ModuleList = model, sync: Any = sync) -> None:
            sum(layer.weight.sum() for layer in model).backward()  # type: ignore[union-attr]
            sync.step()
            sync.flush()

        theirs, due = ("1", "0") if (rank == 0) == (phase == "reduce") else ("0", "1")
        with pytest.raises(
            SyncError,
            match=f"rank {1 - rank} sent its {phase} 1 of bucket {theirs} where the {phase} 1 of bucket {due} was due",
        ):
            step()
        store_barrier(f"order {name} {phase}", world_size)


def hooks_shake_hands(rank: int, world_size: int) -> None:
    differing: list[tuple[str, dict[str, Any]]] = [
        ("codec is 'bf16' on rank 0 and 'linear' on rank 1", {"codec": "linear" if rank else "bf16"}),
        ("codec block is 256 on rank 0 and 64", {"codec": codec("linear", block=64 if rank else 256)}),
        ("exempt_1d is False on rank 0", {"codec": "linear", "exempt_1d": bool(rank)}),
        ("error_feedback is False on rank 0", {"codec": "linear", "error_feedback": bool(rank)}),
    ]
    for message, options in differing:
        model = DistributedDataParallel(network())
        model.register_comm_hook(*butterfly_hook(**options, timeout_s=10))
        with pytest.raises(SyncError, match=message):
            F.cross_entropy(model(batches(rank, 1)[0][0]), batches(rank, 1)[0][1]).backward()


def absent_at_handshake(rank: int, world_size: int) -> None:
    """Rank 1 never builds its strategy: the others say what they waited for, within the timeout."""
    start = time.monotonic()
    if rank != 1:
        with pytest.raises(SyncError, match="handshake: waited for"):
            build("lazy", network(), timeout_s=1)
        assert time.monotonic() - start < 20
    store_barrier("absent", world_size)


def late_rank(rank: int, world_size: int) -> None:
    """A rank that hangs: the others' step ends in time, naming the bucket."""
    for name in ("butterfly", "lazy"):
        sync = build(name, network(), timeout_s=2, bucket_bytes=2**20)
        start = time.monotonic()
        if rank == 1:
            store_barrier(f"waited for {name}", world_size)
            sync._threads.close()  # type: ignore[attr-defined]
        else:
            with pytest.raises(SyncError, match=f"{name}: waited for the .*bucket 1 of 1 .*, at most 2 s"):
                train_step(sync, batches(rank, 1)[0])
            assert time.monotonic() - start < 20
            store_barrier(f"waited for {name}", world_size)
            with pytest.raises(SyncError):
                sync.flush()
        store_barrier(f"late {name}", world_size)


def no_end_in_sight(rank: int, world_size: int) -> None:
    """A group whose collectives never end by themselves, as NCCL's: the threads give up in time."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(build_module, "own_group", lambda group, **_: own_group(group, timeout_s=1000))
        sync = build("butterfly", network(), timeout_s=2, bucket_bytes=2**20)
    start = time.monotonic()
    if rank == 0:
        with pytest.raises(SyncError, match="waited for the gradients of bucket 1 of 1 .* from the other ranks, at mo"):
            train_step(sync, batches(rank, 1)[0])
        assert time.monotonic() - start < 20
    store_barrier("no end", world_size)


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
        bucket = sync._buckets[1]  # type: ignore[attr-defined]
        inner = bucket.pack_reduce

        def die() -> None:
            inner()
            os.kill(os.getpid(), signal.SIGKILL)

        bucket.pack_reduce = die
        train_step(sync, batches(rank, 2)[1])
    start = time.monotonic()

    def go_on() -> None:
        for batch in batches(rank, 3):
            train_step(sync, batch)

    with pytest.raises(SyncError, match=r"lazy: waited for the .* and got: .*\. A rank has died, hangs, or does"):
        go_on()
    assert time.monotonic() - start < 20


CASES = {
    2: [
        "handshake_names_what_differs",
        "in_another_order",
        "messages_tell_their_order",
        "hooks_shake_hands",
        "absent_at_handshake",
        "late_rank",
        "no_end_in_sight",
    ],
    3: ["killed_in_the_middle"],
}
