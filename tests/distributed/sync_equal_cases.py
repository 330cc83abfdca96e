"""Cases: butterfly and lazy in fp32 against torch's DDP, step for step."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from tests.distributed.sync_models import OPTIMIZERS, assert_same_everywhere, batches, build, network, weights

NUM_STEPS = 20
RTOL, ATOL = 64 * 2**-24, 64 * 2**-24
"""Ranks' gradients are added in another order than in Gloo's ring: half an ulp (2^-24) of the sum a
step; 20 steps through a smooth network and optimizers with a sizeable epsilon may add that up 64 times."""

AMP_TOLERANCE = 2**-8
"""Where a float32 weight's last bit tips its rounding to bfloat16, a whole unit of bfloat16 enters the next step."""


class Scaler(torch.amp.GradScaler):
    """Of small scale, for gradients in float32."""

    def __init__(self, enabled: bool) -> None:
        super().__init__("cpu", init_scale=1024.0, growth_interval=3, enabled=enabled)


def loss_of(module: nn.Module, batch: tuple[Tensor, Tensor], autocast: torch.dtype | None) -> Tensor:
    with torch.autocast("cpu", dtype=autocast or torch.bfloat16, enabled=autocast is not None):
        return F.cross_entropy(module(batch[0]), batch[1])


def by_ddp(rank: int, optimizer: str, *, clip: float | None, accumulate: int, amp: str) -> Tensor:
    """The oracle: a plain DDP loop, nothing of ours in it."""
    model = network()
    module = DistributedDataParallel(model)
    update = OPTIMIZERS[optimizer](model.parameters())
    scaler = Scaler(amp == "float16")
    for step in range(NUM_STEPS):
        own = batches(rank, accumulate, start=step * accumulate)
        with module.no_sync():
            for batch in own[:-1]:
                scaler.scale(loss_of(module, batch, getattr(torch, amp, None))).backward()
        scaler.scale(loss_of(module, own[-1], getattr(torch, amp, None))).backward()
        scaler.unscale_(update)
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        scaler.step(update)
        scaler.update()
        update.zero_grad()
    return weights(model)


def by_ours(
    name: str, rank: int, optimizer: str, *, clip: float | None, accumulate: int, amp: str, **options: Any
) -> Tensor:
    model = network()
    sync = build(name, model, optimizer, clip_norm=clip, **options)
    scaler = Scaler(amp == "float16")
    for step in range(NUM_STEPS):
        own = batches(rank, accumulate, start=step * accumulate)
        with sync.no_sync():
            for batch in own[:-1]:
                scaler.scale(loss_of(sync.module, batch, getattr(torch, amp, None))).backward()
        scaler.scale(loss_of(sync.module, own[-1], getattr(torch, amp, None))).backward()
        report = sync.step(scaler if amp == "float16" else None)
        assert (report.grad_norm is None) == (clip is None)
        assert not report.found_inf
    sync.flush()
    result = weights(model)
    sync.close()
    return result


def compare(rank: int, world_size: int, optimizer: str, **how: Any) -> None:
    expected = by_ddp(rank, optimizer, **how)
    for name in ("butterfly", "lazy"):
        found = by_ours(name, rank, optimizer, **how)
        assert_same_everywhere(found)
        if world_size <= 2 and how["clip"] is None:
            assert torch.equal(found, expected), f"{name}: {(found - expected).abs().max()}"
        else:
            rtol, atol = (AMP_TOLERANCE, AMP_TOLERANCE / 4) if how["amp"] else (RTOL, ATOL)
            torch.testing.assert_close(found, expected, rtol=rtol, atol=atol)


def sgd(rank: int, world_size: int) -> None:
    compare(rank, world_size, "sgd", clip=None, accumulate=1, amp="")


def rmsprop(rank: int, world_size: int) -> None:
    compare(rank, world_size, "rmsprop", clip=None, accumulate=1, amp="")


def adamw(rank: int, world_size: int) -> None:
    compare(rank, world_size, "adamw", clip=None, accumulate=1, amp="")


def clipped(rank: int, world_size: int) -> None:
    for optimizer in OPTIMIZERS:
        compare(rank, world_size, optimizer, clip=0.3, accumulate=1, amp="")


def accumulated(rank: int, world_size: int) -> None:
    for optimizer in OPTIMIZERS:
        compare(rank, world_size, optimizer, clip=None, accumulate=3, amp="")


def amp_bfloat16(rank: int, world_size: int) -> None:
    for optimizer in OPTIMIZERS:
        compare(rank, world_size, optimizer, clip=None, accumulate=1, amp="bfloat16")


def amp_float16(rank: int, world_size: int) -> None:
    for optimizer in OPTIMIZERS:
        compare(rank, world_size, optimizer, clip=None, accumulate=1, amp="float16")


def everything(rank: int, world_size: int) -> None:
    compare(rank, world_size, "adamw", clip=0.3, accumulate=2, amp="float16")


PLAIN = ["sgd", "rmsprop", "adamw"]
ALL = [*PLAIN, "clipped", "accumulated", "amp_bfloat16", "amp_float16", "everything"]
CASES = {1: ALL, 2: ALL, 3: [*PLAIN, "everything"], 4: ["sgd", "adamw", "everything"]}
"""By world size."""
