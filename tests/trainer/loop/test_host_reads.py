"""How often a step and an evaluation would make the host wait for a GPU; how many launches looking at gradients takes.

On the CPU nothing waits, so what is counted is what would: each time that Python asks a tensor for its numbers.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import methodcaller
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.utils._python_dispatch import TorchDispatchMode

from augpipe.trainer.codecs import codec
from augpipe.trainer.config import make_config
from augpipe.trainer.loop import step as step_module
from augpipe.trainer.loop.evaluate import averaged_buffers, evaluate
from augpipe.trainer.loop.precision import make_scaler
from augpipe.trainer.loop.step import Step, UpdateBatches
from augpipe.trainer.loop.world import World
from augpipe.trainer.strategies import Strategy, strategy
from augpipe.trainer.strategies.ddp import Ddp
from augpipe.trainer.strategies.update import AgreedScaler, Found
from tests.trainer.host_copies import arriving

TAKES_NUMBERS = ("tolist", "numpy", "cpu")
"""Methods of a tensor that give its numbers to the host by no operation of torch's."""


class HostReads(TorchDispatchMode):
    """Counts, in this thread, operations, reads of numbers, and numbers that are made a tensor of their own.

    On a GPU the host waits for each of the last two. Numbers that lie in the host's memory in any case are `free`.
    """

    def __init__(self, *free: Tensor) -> None:
        super().__init__()
        self._free = {one.untyped_storage().data_ptr() for one in free}
        self._held: list[Tensor] = []
        self.num_ops = self.num_reads = self.num_made = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = function._schema.name
        self.num_ops += 1
        self.num_made += name.startswith("aten::lift_fresh")
        if name == "aten::_local_scalar_dense":
            self.take(args[0])
        return function(*args, **(kwargs or {}))

    def take(self, tensor: Tensor) -> None:
        """A tensor's numbers come to the host."""
        self.num_reads += tensor.untyped_storage().data_ptr() not in self._free

    def arrived(self, copied: Tensor) -> Tensor:
        """A copy in the host's memory: reading it is free."""
        self._held.append(copied.clone())
        self._free.add(self._held[-1].untyped_storage().data_ptr())
        return self._held[-1]


@contextmanager
def host_reads(*free: Tensor) -> Iterator[HostReads]:
    counted = HostReads(*free)

    def counting(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Tensor, *args: Any, **kwargs: Any) -> Any:
            counted.take(self)
            found = method(self, *args, **kwargs)
            return counted.arrived(found) if name == "cpu" else found

        return call

    with pytest.MonkeyPatch.context() as patched, counted:
        for name in TAKES_NUMBERS:
            patched.setattr(Tensor, name, counting(name, getattr(Tensor, name)))
        yield counted


def test_every_way_of_taking_numbers_is_counted() -> None:
    """The counter of this file itself."""
    methods = [methodcaller(name) for name in ("item", "tolist", "numpy", "cpu")]
    for take in (*methods, np.asarray, float, int, bool):
        with host_reads() as counted:
            take(torch.ones(()))
        assert counted.num_reads == 1, take
    number = torch.ones(())
    with host_reads(number) as counted:
        number.item()
        torch.tensor(2.0)
    assert (counted.num_reads, counted.num_made) == (0, 1)


def network(num_parameters: int) -> nn.Module:
    torch.manual_seed(5)
    layers = [nn.Linear(6, 6) for _ in range(num_parameters // 2 - 1)]
    return nn.Sequential(nn.Flatten(), *layers, nn.Linear(6, 3))


def synced(name: str, model: nn.Module, clip_norm: float | None) -> Strategy:
    """A strategy of one rank; `ddp` with all that it does among several."""
    names = {parameter: known for known, parameter in model.named_parameters()}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if name == "alone":
        return strategy("ddp", model, lambda _: optimizer, clip_norm=clip_norm)
    return Ddp(
        model,
        optimizer,
        names,
        codec=codec("fp32"),
        exempt_1d=True,
        error_feedback=False,
        clip_norm=clip_norm,
        bucket_bytes=2**20,
        group=dist.new_group(),  # type: ignore[arg-type]  # it may not be this rank's, and here it is
        find_unused_parameters=False,
        timeout_s=60.0,
        issuer=None,
        left_to_others=[],
        strangers=lambda: iter(()),
    )


def batches(num: int) -> list[Any]:
    class Batch(SimpleNamespace):
        def __len__(self) -> int:
            return 4

    torch.manual_seed(7)
    return [
        Batch(images=torch.randn(4, 1, 2, 3), labels=torch.arange(4) % 3, sample_ids=np.arange(4)) for _ in range(num)
    ]


def scale_of(scaler: GradScaler | None) -> list[Tensor]:
    """Where a scaler keeps its scale: in the host's memory, as another test has it."""
    return [] if scaler is None or scaler._scale is None else [scaler._scale]


@pytest.mark.parametrize("num_parameters", [4, 40])
@pytest.mark.parametrize("name", ["alone", "ddp"])
@pytest.mark.parametrize(
    "tables",
    [
        {},
        {"faults": {"on_nan": "skip"}},
        {"faults": {"on_nan": "ignore"}},
        {"optim": {"clip_norm": 0.1}},
        {"optim": {"clip_norm": 0.1}, "faults": {"on_nan": "ignore"}},
        {"optim": {"amp": "fp16", "clip_norm": 0.1}},
    ],
    ids=str,
)
def test_a_step_reads_from_the_device_once(
    world: World, name: str, num_parameters: int, tables: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loss and count go along: their copy begins before the strategy's read, and is looked at after it."""
    order: list[str] = []
    monkeypatch.setattr(step_module, "HostCopy", arriving(order, lambda numbers: counted.arrived(numbers)))
    config = make_config({"data": {"source": "x"}, **tables})
    made = synced(name, network(num_parameters), config.optim.clip_norm)
    inner = made.step
    monkeypatch.setattr(made, "step", lambda scaler: (order.append("decided"), inner(scaler))[1])
    scaler = make_scaler(config)
    step = Step(config, world, made.module, made, scaler)
    for _ in range(3):
        order.clear()
        with host_reads(*scale_of(scaler)) as counted:
            result = step.run(iter(batches(2)), UpdateBatches(num_batches=2, num_samples=8))
        assert counted.num_reads == 1
        assert order == ["copied", "decided", "read"]
        assert math.isfinite(result.loss_sum) and 0 <= result.num_correct <= 8 and not result.is_skipped
    made.close()


@pytest.mark.parametrize("name", ["alone", "ddp"])
@pytest.mark.parametrize("clip_norm", [None, 0.1])
@pytest.mark.parametrize("scaled", [False, True])
def test_looking_at_gradients_takes_as_many_operations_for_any_number_of_them(
    world: World, name: str, clip_norm: float | None, scaled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config({"data": {"source": "x"}, "faults": {"on_nan": "stop" if scaled else "ignore"}})
    scaler, num_ops = make_scaler(config), []
    for num_parameters in (4, 40):
        model = network(num_parameters)
        made = synced(name, model, clip_norm)
        monkeypatch.setattr(made.optimizer, "step", lambda: None)
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        with host_reads(*scale_of(scaler)) as counted:
            made.step(scaler)
        assert counted.num_made == 0
        num_ops.append(counted.num_ops)
        made.close()
    assert num_ops[0] == num_ops[1]


def test_the_scale_stays_with_the_host() -> None:
    """A device without numbers, of which whoever reads one gets an error."""
    config = make_config({"data": {"source": "x"}, "optim": {"amp": "fp16"}})
    device = torch.device("meta")
    scaler, agreed = make_scaler(config), AgreedScaler(device)
    assert scaler is not None
    first = scaler.get_scale()
    assert scaler.scale(torch.zeros((), device=device)).is_meta
    for num_bad, expected in ((0, first), (2, first / 2), (0, first / 2)):
        found = Found(square_sum=9.0, num_bad=num_bad, non_finite=num_bad)
        decision = agreed.decide(scaler, found, 1.0)
        assert decision.found_inf is (num_bad > 0) and scaler.get_scale() == expected


def test_an_evaluation_reads_as_often_for_any_number_of_batches(world: World) -> None:
    class Batches(list[Any]):
        def set_epoch(self, epoch: int) -> None:
            assert epoch == 0

    config = make_config({"data": {"source": "x"}})
    reads = []
    for num in (1, 5):
        loader: Any = Batches(batches(num))
        with host_reads() as counted:
            found = evaluate(config, world, network(4), loader)
        assert found.num_samples == 4 * num
        reads.append(counted.num_reads)
    assert reads[0] == reads[1]


def test_a_network_without_buffers_exchanges_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dist, "get_world_size", lambda _group: 2)
    with averaged_buffers(nn.Linear(2, 1), world.control):
        pass  # an exchange of nothing would be an error


def test_buffers_are_averaged_by_one_read_for_any_number_of_them(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of any floating-point type and shape; another rank with the same ones leaves them as they are."""
    monkeypatch.setattr(dist, "get_world_size", lambda _group: 2)
    monkeypatch.setattr(dist, "all_reduce", lambda flat, group: flat.mul_(2))
    model = nn.Sequential(*(nn.BatchNorm2d(num) for num in (3, 5, 4)))
    model[1].half()
    for buffer in model.buffers():
        buffer.fill_(3)
    with host_reads() as counted, averaged_buffers(model, world.control):
        assert counted.num_reads == 1
        means = [buffer.clone() for buffer in model.buffers()]
    assert all(bool((mean == 3).all()) for mean in means)
