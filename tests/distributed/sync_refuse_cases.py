"""Cases: what would set ranks apart, or would be of no effect, is refused by name on all ranks, within the timeout."""

import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from augpipe.trainer import butterfly_hook
from augpipe.trainer.strategies import SyncError, strategy
from tests.distributed.sync_fault_cases import store_barrier
from tests.distributed.sync_models import assert_same_everywhere, batches, build, network, train_step, weights

NAMES = ("ddp", "butterfly", "lazy")
NO_HANG_S = 15
"""With a timeout of 5 s."""


class Phase(nn.Module):
    """A complex parameter beside a real one."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.turn = nn.Parameter(torch.randn(3, 3, dtype=torch.complex64))
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        return (x.to(torch.complex64) @ self.turn * self.scale).abs().sum()


def complex_parameters(rank: int, world_size: int) -> None:
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(rank))
    for codec in ("fp32", "dynamic-tree"):
        model = DistributedDataParallel(Phase())
        state, hook = butterfly_hook(codec=codec, timeout_s=5)
        model.register_comm_hook(state, hook)
        with pytest.raises(ValueError, match=r"the hook: a gradient of shape \(3, 3\) is complex64"):
            model(x).backward()
        state.close()
    for name, codec in (("ddp", "dynamic-tree"), ("butterfly", "fp32"), ("lazy", "fp32")):
        with pytest.raises(ValueError, match="parameter turn is torch.complex64"):
            build(name, Phase(), codec=codec)
    sync = build("ddp", Phase())  # torch's own all-reduce takes them
    for _ in range(3):
        sync.module(x).backward()
        assert sync.step().non_finite == 0
    assert_same_everywhere(torch.view_as_real(sync.module.module.turn.detach()).reshape(-1))  # type: ignore[union-attr, arg-type]
    sync.close()


def clipping_before_the_step(rank: int, world_size: int) -> None:
    """The gradients are on their way: their norm would be 0, and nothing clipped."""
    for name in ("butterfly", "lazy"):
        model = network()
        sync = build(name, model)
        for clip in (nn.utils.clip_grad_norm_, nn.utils.clip_grad_value_):
            images, labels = batches(rank, 1)[0]
            F.cross_entropy(sync.module(images), labels).backward()
            with pytest.raises(
                RuntimeError,
                match=r"under butterfly and lazy gradients.*\(\.\.\., clip_norm=\.\.\.\)",
            ):
                clip(model.parameters(), 1.0)
            sync.step()
            assert all(parameter.grad is None for parameter in model.parameters())
        with sync.no_sync():  # gradients that are still here
            F.cross_entropy(sync.module(images), labels).backward()
        assert nn.utils.clip_grad_norm_(model.parameters(), 1.0) > 0
        F.cross_entropy(sync.module(images), labels).backward()
        sync.step()
        sync.flush()
        assert_same_everywhere(weights(model))
        F.cross_entropy(sync.module(images), labels).backward()
        sync.close()
        assert all(parameter.grad is None for parameter in model.parameters())


def steps_tell_what_is_not_finite(rank: int, world_size: int) -> None:
    for name in NAMES:
        sync = build(name, network())
        images, labels = batches(rank, 1)[0]
        assert train_step(sync, (images, labels)).non_finite == 0
        if rank == 1:
            images[0, 0, 0, 0] = float("nan")
        assert train_step(sync, (images, labels)).non_finite > 0, name
        sync.close()


def hooked(model: nn.Module, state: Any, hook: Any) -> DistributedDataParallel:
    wrapped = DistributedDataParallel(model, bucket_cap_mb=0.02)
    wrapped.register_comm_hook(state, hook)
    return wrapped


def one_state_for_two_models(rank: int, world_size: int) -> None:
    """In turn, as a GAN's, and in one backward."""
    images = batches(rank, 1)[0][0]
    for together in (False, True):
        state, hook = butterfly_hook("dynamic-tree", error_feedback=True, timeout_s=5)
        first, second = hooked(network(), state, hook), hooked(network(), state, hook)
        start = time.monotonic()
        loss = second(images).square().mean()
        if together:
            loss = loss + first(images).square().mean()
        else:
            first(images).square().mean().backward()
        with pytest.raises(ValueError, match=r"this hook state is another model's.*butterfly_hook\(\.\.\.\)"):
            loss.backward()
        assert time.monotonic() - start < NO_HANG_S
        state.close()
    state, hook = butterfly_hook("dynamic-tree", error_feedback=True, timeout_s=5)
    model = hooked(network(), state, hook)
    for _ in range(4):  # DDP orders the parameters anew after the first
        model(images).square().mean().backward()
    again = hooked(model.module, state, hook)  # the same parameters
    again(images).square().mean().backward()
    state.close()


def sparse_gradients(rank: int, world_size: int) -> None:
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(50, 8, sparse=True)
            self.out = nn.Linear(8, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(self.words(x)).square().mean()

    x = torch.tensor([1 + rank, 3, 5])
    for codec in ("fp32", "dynamic-tree"):
        state, hook = butterfly_hook(codec, timeout_s=5)
        model = hooked(Words(), state, hook)
        start = time.monotonic()
        with pytest.raises(ValueError, match=r"a gradient of shape \(50, 8\) is sparse.*sparse=False"):
            model(x).backward()
        assert time.monotonic() - start < NO_HANG_S
        state.close()
    for name in ("butterfly", "lazy"):
        sync = build(name, Words(), timeout_s=5)
        with pytest.raises(ValueError, match="parameter words.weight has a sparse gradient"):
            sync.module(x).backward()
        sync.close()


def an_error_in_the_hook(rank: int, world_size: int) -> None:
    """Of one rank alone: it says what, and the other one what it waited for."""
    state, hook = butterfly_hook("dynamic-tree", timeout_s=5)
    model = hooked(network(), state, hook)
    images, labels = batches(rank, 1)[0]
    F.cross_entropy(model(images), labels).backward()
    if rank == 1:
        make = state._send
        sent = []

        def fails(*args: Any, **kwargs: Any) -> None:
            sent.append(args)
            if len(sent) == 2:
                raise ZeroDivisionError("a mistake of ours")
            make(*args, **kwargs)

        state._send = fails  # type: ignore[method-assign]
    start = time.monotonic()
    expected = (ZeroDivisionError, "a mistake of ours") if rank == 1 else (SyncError, "butterfly hook: waited for the ")
    with pytest.raises(expected[0], match=expected[1]):
        F.cross_entropy(model(images), labels).backward()
    assert time.monotonic() - start < NO_HANG_S
    store_barrier("an error in the hook", world_size)
    state.close()


def an_error_on_a_thread(rank: int, world_size: int) -> None:
    state, hook = butterfly_hook("dynamic-tree", timeout_s=5)
    # without buffers, which DDP would wait for
    model = hooked(nn.Sequential(nn.Flatten(), nn.Linear(192, 50), nn.Tanh(), nn.Linear(50, 10)), state, hook)
    images, labels = batches(rank, 1)[0]
    F.cross_entropy(model(images), labels).backward()
    if rank == 1:

        def fails(_bucket: Any) -> None:
            raise ZeroDivisionError("a mistake of ours")

        state.after_gather = fails  # type: ignore[method-assign]
    start = time.monotonic()

    def go_on() -> None:
        for _ in range(2):  # the other rank may have had all that it needed of this step
            F.cross_entropy(model(images), labels).backward()

    with pytest.raises(SyncError, match="got: a mistake of ours" if rank == 1 else "waited for the "):
        go_on()
    assert time.monotonic() - start < NO_HANG_S
    store_barrier("an error on a thread", world_size)
    state.close()


def layers_that_come_later(rank: int, world_size: int) -> None:
    """Unfrozen, new or moved after the strategy was built: no rank would average them."""
    images, labels = batches(rank, 1)[0]

    def thaw(model: nn.Sequential, _sync: Any) -> None:
        model[4].requires_grad_(True)

    def add(model: nn.Sequential, _sync: Any) -> None:
        torch.manual_seed(3)
        model.append(nn.Linear(10, 10))

    def add_group(_model: nn.Sequential, sync: Any) -> None:
        sync.optimizer.add_param_group({"params": [nn.Parameter(torch.ones(3))]})

    def add_both(model: nn.Sequential, sync: Any) -> None:
        add(model, sync)
        sync.optimizer.add_param_group({"params": list(model[-1].parameters())})

    changes: list[tuple[Callable[..., None], str]] = [
        (thaw, "was frozen, or not there"),
        (add, "was frozen, or not there"),
        (add_group, "the optimizer has a parameter of shape"),
        (add_both, "was frozen, or not there|the optimizer has a parameter of shape"),
    ]
    for name, codec in (("ddp", "fp32"), ("ddp", "linear"), ("butterfly", "fp32"), ("lazy", "fp32")):
        for change, message in changes:
            model = network()
            assert isinstance(model, nn.Sequential)
            model[4].requires_grad_(False)
            sync = build(name, model, codec=codec)
            train_step(sync, (images, labels))
            change(model, sync)
            with pytest.raises(ValueError, match=message):
                train_step(sync, (images, labels))
            sync.close()
    for name in ("butterfly", "lazy"):
        moved = network()
        sync = build(name, moved)
        train_step(sync, (images, labels))
        parameter = next(moved.parameters())
        parameter.data = parameter.data.clone()
        with pytest.raises(ValueError, match="lies elsewhere than when the strategy was built"):
            train_step(sync, (images, labels))
        sync.close()
    some = network()
    assert isinstance(some, nn.Sequential)
    sync = build("ddp", some, parameters=some[4].parameters(), find_unused_parameters=True)  # the others are another's
    train_step(sync, (images, labels))
    sync.close()


def optimizers_that_differ(rank: int, world_size: int) -> None:
    def sgd(**options: Any) -> Callable[[Iterable[nn.Parameter]], Optimizer]:
        return lambda parameters: torch.optim.SGD(parameters, **options)

    def grouped(lr: float) -> Callable[[Iterable[nn.Parameter]], Optimizer]:
        def make(parameters: Iterable[nn.Parameter]) -> Optimizer:
            given = list(parameters)
            return torch.optim.AdamW([{"params": given[:2]}, {"params": given[2:], "lr": lr}], lr=0.1)

        return make

    differing: list[tuple[str, Any]] = [
        (r"lr of param group 0 is 0.1 on rank 0 and 0.2 on rank 1", sgd(lr=0.1 * (1 + rank))),
        (r"momentum of param group 0 is 0.9 on rank 0 and 0.0 on rank 1", sgd(lr=0.1, momentum=0.9 * (1 - rank))),
        (r"lr of param group 1 is 0.1 on rank 0 and 0.3 on rank 1", grouped(0.1 + 0.2 * rank)),
    ]
    for name in NAMES:
        for message, make in differing:
            with pytest.raises(SyncError, match=message):
                strategy(name, network(), make, timeout_s=5)  # type: ignore[arg-type]


def rates_that_drift_apart(rank: int, world_size: int) -> None:
    """As when each rank lowers its learning rate by its own loss."""
    for name, codec in (("ddp", "fp32"), ("ddp", "linear"), ("butterfly", "fp32"), ("lazy", "fp32"), ("lazy", "nf4")):
        model = network()
        sync = build(name, model, codec=codec)
        for factor in (1.0, 0.5):  # all alike
            sync.set_lr(factor)
            train_step(sync, batches(rank, 1)[0])
        sync.flush()
        before = weights(model)
        sync.set_lr(0.25 * (1 + rank))
        with pytest.raises(SyncError, match=rf"rank {1 - rank}'s optimizer has other .*\(lr=0\.0125|0\.025"):
            train_step(sync, batches(rank, 1)[0])
        if name != "lazy":
            assert_same_everywhere(weights(model))
            assert torch.equal(weights(model), before)
        sync.close()


def buffers_that_differ(rank: int, world_size: int) -> None:
    for name in NAMES:
        model = nn.Linear(3, 2)
        model.register_buffer("seen", torch.zeros(4 + rank))
        with pytest.raises(SyncError, match=r"buffer seen \(4,\) float32 .*is buffer seen \(5,\) float32"):
            build(name, model, timeout_s=5)
    with pytest.raises(SyncError, match="find_unused_parameters is False on rank 0 and True on rank 1"):
        build("ddp", network(), find_unused_parameters=rank == 1, timeout_s=5)


def means_of_large_gradients(rank: int, world_size: int) -> None:
    """2.5e38 on each rank: their sum is beyond float32, their mean is not."""
    for name in NAMES:
        for dtype in (torch.float32, torch.bfloat16):
            model = nn.Linear(70, 3, bias=False).to(dtype)
            sync = strategy(name, model, lambda p: torch.optim.SGD(p, lr=1e-38), timeout_s=20)  # type: ignore[arg-type]
            before = weights(model).clone()
            sync.module(torch.ones(1, 70, dtype=dtype)).sum().mul(2.5e38).backward()
            report = sync.step()
            sync.flush()
            assert report.non_finite == 0
            torch.testing.assert_close(weights(model), before - 2.5, rtol=2e-2, atol=1e-2)
            sync.close()
    wrapped = DistributedDataParallel(nn.Linear(70, 3, bias=False))
    state, hook = butterfly_hook(timeout_s=20)
    wrapped.register_comm_hook(state, hook)
    wrapped(torch.ones(1, 70)).sum().mul(2.5e38).backward()
    gradient = wrapped.module.weight.grad
    assert gradient is not None and torch.equal(gradient, torch.full((3, 70), 2.5e38))
    state.close()


CASES = {
    2: [
        "complex_parameters",
        "clipping_before_the_step",
        "steps_tell_what_is_not_finite",
        "one_state_for_two_models",
        "sparse_gradients",
        "an_error_in_the_hook",
        "an_error_on_a_thread",
        "layers_that_come_later",
        "optimizers_that_differ",
        "rates_that_drift_apart",
        "buffers_that_differ",
        "means_of_large_gradients",
    ],
    3: ["means_of_large_gradients"],
}
