"""Cases: butterfly and lazy in fp32 against torch's DDP, step for step."""

from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from tests.distributed.sync_models import OPTIMIZERS, assert_same_everywhere, batches, build, network, weights

NUM_STEPS = 10
RTOL, ATOL = 32 * 2**-24, 32 * 2**-24
"""Ranks' gradients are added in another order than in Gloo's ring: half an ulp (2^-24) of the sum a
step; 10 steps through a smooth network and optimizers with a sizeable epsilon may add that up 32 times."""

AMP_TOLERANCE = 2**-8
"""Where a float32 weight's last bit tips its rounding to bfloat16, a whole unit of bfloat16 enters the next step."""


class Scaler(torch.amp.GradScaler):
    """A small scale, for gradients in float32."""

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
            for number, batch in enumerate(own[:-1]):
                with nullcontext() if number else sync.no_sync():  # a loop of somebody's around another one
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


def parameters_of_two_groups(rank: int, world_size: int) -> None:
    """Two strategies in one model: one layer averaged over all ranks, the other over two of the three."""
    pair = dist.new_group([0, 1])
    alone = [dist.new_group([one]) for one in range(world_size)][2]
    for name in ("butterfly", "lazy", "ddp"):
        torch.manual_seed(rank)
        model = nn.Sequential(nn.Linear(64, 64, bias=False), nn.Linear(64, 64, bias=False))
        everywhere, some = (layer.weight for layer in model)
        first = [nn.init.normal_(weight).clone().detach() for weight in (everywhere, some)]
        for weight in first:
            dist.broadcast(weight, 0)
        if rank == 2:
            first[1] = some.detach().clone()
        options: dict[str, Any] = {"clip_norm": 1e6}
        over_all = build(name, model, parameters=[everywhere], **options)
        over_some = build(
            name if name != "ddp" else "butterfly",
            model,
            parameters=[some],
            group=pair if rank < 2 else alone,
            **options,
        )
        for sync in (over_all, over_some):
            sync.optimizer.param_groups[0].update(lr=1.0, momentum=0.0, weight_decay=0.0)
        # the gradients do not depend on what goes through; DDP only wants its forward to have been called
        loss = 0.0 * over_all.module(torch.eye(64)).sum()
        (loss + (everywhere * (rank + 1)).sum() + (some * (rank + 1)).sum()).backward()
        reports = [sync.step() for sync in (over_all, over_some)]
        for sync in (over_all, over_some):
            sync.flush()
        mean_of_all, mean_of_some = (world_size + 1) / 2, 1.5 if rank < 2 else 3.0
        assert reports[0].grad_norm == pytest.approx(mean_of_all * 64)
        assert reports[1].grad_norm == pytest.approx(mean_of_some * 64)
        atol = 2**-6 if name == "lazy" else 0
        torch.testing.assert_close(everywhere, first[0] - mean_of_all, rtol=0, atol=atol)
        torch.testing.assert_close(some, first[1] - mean_of_some, rtol=0, atol=atol)
        assert list(over_all.full_optimizer_state()["groups"][0]["params"]) == ["0.weight"]
        for sync in (over_some, over_all):
            sync.close()
    with pytest.raises(ValueError, match="parameters has 1 tensors, of which 0 are trainable parameters of the model"):
        build("butterfly", model, parameters=[nn.Parameter(torch.zeros(2))])


PLAIN = ["sgd", "rmsprop", "adamw"]
ALL = [*PLAIN, "clipped", "accumulated", "amp_bfloat16", "amp_float16", "everything"]
CASES = {1: ALL, 2: ALL, 3: [*PLAIN, "everything", "parameters_of_two_groups"], 4: ["sgd", "adamw", "everything"]}
"""By world size."""
