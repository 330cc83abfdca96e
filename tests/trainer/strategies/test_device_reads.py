"""How often a step makes the host wait for a GPU, and how many launches it takes, with several ranks.

On the CPU nothing waits, so what is counted is what would, in all threads: each time that Python asks a tensor of the
device for its numbers, or makes one of them there. The other ranks are played by twins.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from operator import methodcaller
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode

from augpipe.trainer.exchange import bucket as bucket_module
from augpipe.trainer.exchange import message
from augpipe.trainer.loop.precision import FiniteCheckScaler
from augpipe.trainer.parallel import make_mesh, split
from augpipe.trainer.strategies import Strategy, strategy
from augpipe.trainer.strategies import hook as hook_module
from augpipe.trainer.strategies.hybrid import Hybrid
from tests.trainer.host_copies import arriving
from tests.trainer.strategies.twins import twins

TAKES_NUMBERS = ("item", "tolist", "numpy", "cpu", "__int__", "__float__", "__bool__")
CASES = {
    "butterfly": ("butterfly", 2, 1),
    "lazy": ("lazy", 2, 1),
    "hybrid of butterflies": ("butterfly", 4, 2),
    "hybrid of lazy ones": ("lazy", 4, 2),
    "hybrid with whole shards": ("butterfly", 2, 2),
    "hybrid of DDP and a butterfly": ("ddp", 4, 2),
}
"""The strategy, the ranks, and how many of them are on the model axis."""


class Reads:
    """Where numbers were taken from the device, and how many were made there of the host's."""

    def __init__(self, *free: Tensor) -> None:
        self._free = {one.untyped_storage().data_ptr() for one in free}
        self._held: list[Tensor] = []
        self.taken: list[str] = []

    def take(self, tensor: Tensor, name: str) -> None:
        if tensor.untyped_storage().data_ptr() not in self._free:
            self.taken.append(f"{name} of {tuple(tensor.shape)}")

    def arrived(self, copied: Tensor) -> Tensor:
        """A copy in the host's memory: reading it is free."""
        self._held.append(copied.clone())
        self._free.add(self._held[-1].untyped_storage().data_ptr())
        return self._held[-1]


@contextmanager
def device_reads(*free: Tensor) -> Iterator[Reads]:
    """Count in all threads; within it the CPU is taken for a GPU whose work is only queued."""
    counted = Reads(*free)

    def counting(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Tensor, *args: Any, **kwargs: Any) -> Any:
            counted.take(self, name)
            found = method(self, *args, **kwargs)
            return counted.arrived(found) if name == "cpu" else found

        return call

    made = torch.tensor

    def making(*args: Any, device: Any = None, **kwargs: Any) -> Tensor:
        if device is not None:
            counted.taken.append("torch.tensor of the device")
        return made(*args, device=device, **kwargs)

    with pytest.MonkeyPatch.context() as patched:
        for name in TAKES_NUMBERS:
            patched.setattr(Tensor, name, counting(name, getattr(Tensor, name)))
        patched.setattr(torch, "tensor", making)
        yield counted


@pytest.fixture
def _queued(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is done to values is only queued, as on a GPU; without kernels of ours."""
    for module in (bucket_module, message):
        monkeypatch.setattr(module, "on_gpu", lambda _values: True)
    monkeypatch.setattr(message, "HAS_NUMBA_CUDA", False)


def test_every_way_of_taking_numbers_is_counted() -> None:
    """The counter of this file itself."""
    methods = [methodcaller(name) for name in ("item", "tolist", "numpy", "cpu")]
    for take in (*methods, np.asarray, float, int, bool, lambda _: torch.tensor(1.0, device="cpu")):
        with device_reads() as counted:
            take(torch.ones(()))
        assert counted.taken, take
    with device_reads() as counted:
        torch.ones(2).cpu()[1:].tolist()
    assert len(counted.taken) == 1


def network(num_layers: int, width: int = 64) -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(num_layers)))


@contextmanager
def made(
    case: str, *, clip_norm: float | None, num_layers: int = 4, width: int = 64, **options: Any
) -> Iterator[Strategy]:
    name, num_ranks, model_size = CASES[case]
    with twins(num_ranks):
        model, parts = network(num_layers, width), None
        if model_size > 1:
            names = [str(number) for number in range(num_layers // 2, num_layers)]
            parts = split(model, make_mesh(model_size), layers=names, timeout_s=20)
            model = parts.model
        sgd = partial(torch.optim.SGD, lr=0.1)
        found = strategy(name, model, sgd, clip_norm=clip_norm, split=parts, timeout_s=20, **options)  # type: ignore[arg-type]
        assert isinstance(found, Hybrid) == (model_size > 1)
        try:
            yield found
        finally:
            found.close()
            if parts is not None:
                parts.close()


@pytest.mark.usefixtures("_queued")
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("clip_norm", [None, 0.5])
@pytest.mark.parametrize("scaled", [False, True])
def test_a_step_reads_from_the_device_once(case: str, clip_norm: float | None, scaled: bool) -> None:
    """In whatever thread; also where several buckets, two strategies and a model axis have found something."""
    scaler = FiniteCheckScaler() if scaled else None
    free = [] if scaler is None or scaler._scale is None else [scaler._scale]
    images = torch.randn(8, 64, generator=torch.Generator().manual_seed(1))
    with made(case, clip_norm=clip_norm, bucket_bytes=64 * 64 * 4) as sync:
        for _ in range(3):
            loss = sync.module(images).square().mean()
            with device_reads(*free) as counted:
                (loss if scaler is None else scaler.scale(loss)).backward()
                report = sync.step(scaler)
                sync.flush()
            assert len(counted.taken) == 1, counted.taken
            assert not report.found_inf and report.non_finite == 0
            assert (report.grad_norm is None) == (clip_norm is None) and report.grad_norm != 0.0


class Launches(TorchDispatchMode):
    """Counts this thread's operations that are not views of what there is."""

    num = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.num += not function.is_view
        return function(*args, **(kwargs or {}))


@pytest.mark.usefixtures("_queued")
@pytest.mark.parametrize("case", ["butterfly", "lazy", "hybrid of butterflies", "hybrid of lazy ones"])
@pytest.mark.parametrize("clip_norm", [None, 1e-12])
@pytest.mark.parametrize("scaled", [False, True])
def test_a_step_takes_as_many_launches_for_any_number_of_parameters(
    case: str, clip_norm: float | None, scaled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And of buckets; but for the optimizer's. Buckets of two kilobytes hold two layers each."""
    scaler, found = FiniteCheckScaler() if scaled else None, []
    for num_layers, width, bucket_bytes in ((4, 16, 2**20), (16, 16, 2**20), (16, 16, 2**11)):
        with made(case, clip_norm=clip_norm, num_layers=num_layers, width=width, bucket_bytes=bucket_bytes) as sync:
            parts = sync._parts if isinstance(sync, Hybrid) else [sync]
            for part in parts:
                monkeypatch.setattr(part.optimizer, "step", lambda: None)
            for _ in range(2):  # the first step makes what is kept
                loss = sync.module(torch.ones(8, width)).square().mean()
                (loss if scaler is None else scaler.scale(loss)).backward()
                with Launches() as counted:
                    sync.step(scaler)
                sync.flush()
            found.append(counted.num)
    assert len(set(found)) == 1, found


@pytest.mark.usefixtures("_queued")
@pytest.mark.parametrize("codec", ["fp32", "dynamic-tree"])
def test_weights_come_and_go_by_as_many_launches_for_any_number_of_parameters(codec: str) -> None:
    """Of a bucket of the lazy update: what is sent of it, and what is brought into the model."""
    found = []
    for num_layers in (2, 8):
        with made("lazy", clip_norm=None, num_layers=num_layers, width=16, codec=codec, exempt_1d=False) as sync:
            (bucket,) = sync._buckets  # type: ignore[attr-defined]
            with torch.no_grad(), Launches() as counted:
                sync.before_gather(bucket)  # type: ignore[attr-defined]
                sync.after_gather(bucket)  # type: ignore[attr-defined]
            found.append(counted.num)
    assert found[0] == found[1] <= 3


@pytest.mark.usefixtures("_queued")
def test_the_hook_with_error_feedback_reads_a_backward_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a backward has found is copied as it ends, and looked at as the next one begins: nothing waits for it."""
    order: list[str] = []
    monkeypatch.setattr(hook_module, "HostCopy", arriving(order, lambda numbers: counted.arrived(numbers)))
    images = torch.randn(8, 64, generator=torch.Generator().manual_seed(1))
    with twins(2):
        model = DistributedDataParallel(network(2))
        state, hook = hook_module.butterfly_hook("dynamic-tree", error_feedback=True, timeout_s=20)
        model.register_comm_hook(state, hook)
        for number in range(4):  # the first one makes what is kept
            order.clear()
            loss = model(images if number < 2 else images * float("nan")).square().mean()
            with device_reads() as counted:
                loss.backward()
                order.append("ended")
            # codecs look at the CPU's numbers by numpy
            assert not [taken for taken in counted.taken if not taken.startswith("numpy")] or not number
            assert order == ["read", "copied", "ended"][number == 0 :]
        state.close()
