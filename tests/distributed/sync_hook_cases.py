"""Cases: the butterfly as a hook of a plain DDP trainer."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from augpipe.trainer import butterfly_hook
from tests.distributed.sync_models import OPTIMIZERS, assert_same_everywhere, batches, network, weights


def trained(rank: int, codec: str | None, *, accumulate: int = 1, scale: bool = False, num: int = 5) -> Tensor:
    """A plain loop; two lines of it are the hook's."""
    model = DistributedDataParallel(network(), bucket_cap_mb=0.02)
    state = None
    if codec is not None:
        state, hook = butterfly_hook(codec=codec, timeout_s=20)
        model.register_comm_hook(state, hook)
    optimizer = OPTIMIZERS["sgd"](model.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=scale)
    for step in range(num):
        own = batches(rank, accumulate, start=step * accumulate)
        with model.no_sync():
            for images, labels in own[:-1]:
                scaler.scale(F.cross_entropy(model(images), labels)).backward()
        scaler.scale(F.cross_entropy(model(own[-1][0]), own[-1][1])).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    if state is not None:
        assert state.meter.total["gradients"] > 0
        state.close()
    return weights(model)


def exact(rank: int, world_size: int) -> None:
    """In fp32 the hook's weights are DDP's; also through no_sync and a scaler."""
    for accumulate, scale in ((1, False), (3, False), (1, True)):
        expected = trained(rank, None, accumulate=accumulate, scale=scale)
        found = trained(rank, "fp32", accumulate=accumulate, scale=scale)
        assert world_size > 2 or torch.equal(found, expected)
        torch.testing.assert_close(found, expected, rtol=64 * 2**-24, atol=64 * 2**-24)


def encoded(rank: int, world_size: int) -> None:
    """Near to fp32, and the same on all ranks."""
    expected = trained(rank, None)
    for codec in ("bf16", "dynamic-tree", "nf4", "one-bit"):
        found = trained(rank, codec, accumulate=1)
        assert_same_everywhere(found)
        assert 0 < (found - expected).abs().max() < 0.25


def scaler_sees_nan(rank: int, world_size: int) -> None:
    model = DistributedDataParallel(network())
    state, hook = butterfly_hook(codec="dynamic-tree", timeout_s=20)
    model.register_comm_hook(state, hook)
    optimizer = OPTIMIZERS["sgd"](model.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    start = weights(model)
    images, labels = batches(rank, 1)[0]
    if rank == 0:
        images[0, 0, 0, 0] = math.inf
    scaler.scale(F.cross_entropy(model(images), labels)).backward()
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 128.0
    assert torch.equal(weights(model), start)
    state.close()


def frozen_layers(rank: int, world_size: int) -> None:
    """DDP's find_unused_parameters goes with the hook."""

    class Sometimes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(4)
            self.a, self.b, self.c = nn.Linear(192, 10), nn.Linear(192, 10), nn.Linear(192, 10).requires_grad_(False)

        def forward(self, x: Tensor, both: bool) -> Tensor:
            x = x.flatten(1)
            return self.a(x) + self.c(x) + (self.b(x) if both else 0)

    def run(with_hook: bool) -> Tensor:
        model = DistributedDataParallel(Sometimes(), find_unused_parameters=True)
        state, hook = butterfly_hook(timeout_s=20)
        if with_hook:
            model.register_comm_hook(state, hook)
        optimizer = OPTIMIZERS["sgd"](model.parameters())
        for step, (images, labels) in enumerate(batches(rank, 4)):
            F.cross_entropy(model(images, step == 2 and rank == 0), labels).backward()
            optimizer.step()
            optimizer.zero_grad()
        state.close()
        return weights(model)

    torch.testing.assert_close(run(True), run(False), rtol=64 * 2**-24, atol=64 * 2**-24)


CASES = {2: ["exact", "encoded", "scaler_sees_nan", "frozen_layers"], 3: ["exact"]}
