"""Cases: whoever reads weights under lazy sees whole ones; each is a bug that others had, or could have had."""

import copy
import pickle
import time
import warnings
from collections.abc import Callable
from threading import Event

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel

from augpipe.trainer.strategies import Strategy
from tests.distributed.sync_models import assert_same_everywhere, batches, build, network, train_step, weights

SLOW_S = 0.15
SLOW_IN_EACH_STEP_S = 0.02
"""For the cases that train on: a reader who does not wait reads at once."""


def delayed(sync: Strategy, seconds: float = SLOW_S) -> None:
    """Make every gather late, so that whoever does not wait is caught."""
    for bucket in sync._buckets:  # type: ignore[attr-defined]
        inner = bucket.pack_gather

        def late(inner: Callable[[], None] = inner) -> None:
            time.sleep(seconds)
            inner()

        bucket.pack_gather = late


def stepped(model: nn.Module, rank: int, **options: object) -> tuple[Strategy, Tensor]:
    """A lazy strategy with a step's slices still on their way, and the weights that it will end with."""
    torch.manual_seed(0)
    expected = copy.deepcopy(model)
    oracle = build("butterfly", expected, "adamw")
    train_step(oracle, batches(rank, 1)[0])
    result = weights(expected)
    oracle.close()
    sync = build("lazy", model, "adamw", bucket_bytes=100_000, **options)
    delayed(sync)
    before = weights(model)
    train_step(sync, batches(rank, 1)[0])
    # the raw tensors are stale now, or the cases below would prove nothing
    assert not torch.equal(weights_unfenced(sync), result)
    assert not torch.equal(result, before)
    return sync, result


def weights_unfenced(sync: Strategy) -> Tensor:
    return torch.cat([p.detach().reshape(-1) for p in sync._plan.parameters])  # type: ignore[attr-defined]


def read_by_name(rank: int, world_size: int) -> None:
    model = network()
    names = [name for name, _ in model.named_parameters()]
    sync, expected = stepped(model, rank)
    found = [getattr(model.get_submodule(name.rpartition(".")[0]), name.rpartition(".")[2]) for name in names]
    assert torch.equal(torch.cat([parameter.detach().reshape(-1) for parameter in found]), expected)
    sync.close()


def evaluation_without_grad(rank: int, world_size: int) -> None:
    model = network()
    sync, expected = stepped(model, rank)
    model.eval()
    with torch.no_grad():
        found = model(batches(0, 1)[0][0])
    sync.flush()
    assert torch.equal(weights_unfenced(sync), expected)
    with torch.no_grad():
        assert torch.equal(found, model(batches(0, 1)[0][0]))
    sync.close()


def state_dict_of_model(rank: int, world_size: int) -> None:
    model = network()
    sync, expected = stepped(model, rank)
    state = copy.deepcopy(model.state_dict())
    names = [name for name, _ in model.named_parameters()]
    assert torch.equal(torch.cat([state[name].reshape(-1) for name in names]), expected)
    sync.close()


def state_dict_of_submodule(rank: int, world_size: int) -> None:
    model = network()
    sync, expected = stepped(model, rank)
    last = torch.cat([value.reshape(-1) for value in model[6].state_dict().values()])  # type: ignore[index]
    assert torch.equal(last, expected[-len(last) :])
    sync.close()


def ema(rank: int, world_size: int) -> None:
    model = network()
    average = AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.5))
    sync, expected = stepped(model, rank)
    average.update_parameters(model)  # the first update copies
    assert torch.equal(weights(average.module), expected)
    sync.close()


def deepcopied(rank: int, world_size: int) -> None:
    model = network()
    sync, expected = stepped(model, rank)
    twin = copy.deepcopy(model)
    assert torch.equal(weights(twin), expected)
    assert all(type(module._parameters) is dict for module in twin.modules())
    twin(batches(0, 1)[0][0]).sum().backward()  # and its hooks lead nowhere
    train_step(sync, batches(rank, 2)[1])
    sync.flush()
    assert torch.equal(weights(twin), expected)
    sync.close()


def pickled(rank: int, world_size: int) -> None:
    model = network()
    sync, expected = stepped(model, rank)
    twin = pickle.loads(pickle.dumps(model))
    assert torch.equal(weights(twin), expected)
    twin(batches(0, 1)[0][0])
    sync.close()


def load_state_dict_into_model(rank: int, world_size: int) -> None:
    for codec in ("fp32", "dynamic-tree"):
        model = network()
        other = {name: value + 0.25 for name, value in network().state_dict().items()}
        sync, _ = stepped(model, rank, codec="fp32") if codec == "fp32" else (build("lazy", model, codec=codec), None)
        model.load_state_dict(other)
        sync.flush()
        loaded = weights(model)
        assert torch.equal(loaded, torch.cat([other[n].reshape(-1) for n, _ in model.named_parameters()]))
        train_step(sync, batches(rank, 1)[0])
        sync.flush()
        moved = weights(model)
        assert 0 < (moved - loaded).abs().max() < 0.25  # a step from what was loaded, not from what was there before
        assert_same_everywhere(moved)
        if codec != "fp32":  # the first step, so it is that of a strategy which never had other weights
            fresh = network()
            fresh.load_state_dict(other)
            oracle = build("lazy", fresh, codec=codec)
            train_step(oracle, batches(rank, 1)[0])
            oracle.flush()
            assert torch.equal(weights(fresh), moved)
            oracle.close()
        with pytest.raises(RuntimeError, match="is being replaced by another tensor while lazy owns slices"):
            model.load_state_dict(other, assign=True)
        sync.close()


def state_dict_of_strategy(rank: int, world_size: int) -> None:
    """What an update lacks is known when it has been encoded: the state waits for that, and so does loading another."""
    sync = build("lazy", network(), "adamw", codec="dynamic-tree")

    def residuals() -> Tensor:
        kept = sync.state_dict()["update_residuals"]
        return torch.cat([piece for name in sorted(kept) for _, piece in sorted(kept[name].items())])  # copies

    train_step(sync, batches(rank, 1)[0])
    sync.flush()
    first, state = residuals(), copy.deepcopy(sync.state_dict())
    delayed(sync)
    train_step(sync, batches(rank, 1)[0])
    second = residuals()
    sync.flush()
    assert torch.equal(second, residuals()) and not torch.equal(second, first)
    train_step(sync, batches(rank, 1)[0])
    sync.load_state_dict(state)
    sync.flush()
    assert torch.equal(residuals(), first)
    sync.close()


def gradient_before_gathered(rank: int, world_size: int) -> None:
    """A gradient of a weight that was read past the fences waits for the slice that is still on its way."""

    def run(name: str) -> Tensor:
        torch.manual_seed(0)
        model = nn.Linear(64, 64, bias=False)
        weight = model.weight
        sync = build(name, model, "adamw", bucket_bytes=2**20)
        if name == "lazy":
            gathered_when_awaited(sync)
        for step in range(3):
            generator = torch.Generator().manual_seed(10 * step + rank)
            # the gradient does not depend on the weights, which may be stale here
            (weight * torch.randn(64, 64, generator=generator)).sum().backward()
            sync.step()
        sync.flush()
        sync.close()
        return weights(model)

    assert torch.equal(run("lazy"), run("butterfly"))


def gathered_when_awaited(sync: Strategy) -> None:
    """Gathers of the first bucket end once somebody waits for one, or much later."""
    threads, bucket = sync._threads, sync._buckets[0]  # type: ignore[attr-defined]
    wait, unpack, awaited = threads.wait_gathered, bucket.unpack_gather, Event()

    def waiting(of: object) -> None:
        awaited.set()
        wait(of)

    def late() -> None:
        awaited.wait(1.0)
        unpack()

    threads.wait_gathered, bucket.unpack_gather = waiting, late


class Shared(nn.Module):
    """One layer used twice, one weight in two layers, layers used in another order than registered, a child's weight
    used without calling the child, one parameter that only every second call uses, and a frozen one."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.last = nn.Linear(12, 10)
        self.twice = nn.Linear(12, 12)
        self.first = nn.Linear(192, 12)
        self.tied = nn.Linear(12, 12, bias=False)
        self.tied.weight = self.twice.weight
        self.borrowed = nn.Linear(12, 12)
        self.frozen = nn.Linear(12, 12).requires_grad_(False)
        self.sometimes = nn.Parameter(torch.ones(12))
        self.never = nn.Parameter(torch.ones(70, 3))
        self.use = False

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.first(x.flatten(1)))
        x = torch.tanh(self.tied(torch.tanh(self.twice(torch.tanh(self.twice(x))))))
        x = torch.tanh(F.linear(x, self.borrowed.weight, self.borrowed.bias))
        x = torch.tanh(self.frozen(x))
        return self.last(x * self.sometimes if self.use else x)  # type: ignore[no-any-return]


def shared_reordered_unused(rank: int, world_size: int) -> None:
    """`sometimes` has a gradient on rank 0 alone in odd steps and on none in even ones; `never` never."""

    def run(name: str, **options: object) -> tuple[Tensor, Shared]:
        model = Shared()
        sync = build(name, model, "adamw", bucket_bytes=1200, **options)
        if name == "lazy":
            delayed(sync, SLOW_IN_EACH_STEP_S)
        for step, batch in enumerate(batches(rank, 6)):
            model.use = bool(step % 2) and rank == 0
            train_step(sync, batch)
        sync.flush()
        sync.close()
        return weights(model), model

    # DDP leaves a parameter alone that no rank used, and averages zeros in where some ranks did
    expected, _ = run("ddp", find_unused_parameters=True)
    for name in ("butterfly", "lazy"):
        found, model = run(name)
        assert torch.equal(found, expected), f"{name}: {(found - expected).abs().max()}"
        assert torch.equal(model.never, torch.ones(70, 3))
        assert not torch.equal(model.sometimes, torch.ones(12))


def lstm_and_attention(rank: int, world_size: int) -> None:
    """Modules that read weights otherwise than by attribute: LSTM has a list, attention uses its child's weight."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(2)
            self.lstm = nn.LSTM(24, 16, batch_first=True)
            self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
            self.out = nn.Linear(16, 10)

        def forward(self, x: Tensor) -> Tensor:
            x, _ = self.lstm(x.flatten(2).transpose(1, 2).reshape(len(x), 8, 24))
            return self.out(self.attention(x, x, x)[0].mean(1))  # type: ignore[no-any-return]

    def run(name: str) -> Tensor:
        model = Net()
        sync = build(name, model, "sgd")
        if name == "lazy":
            delayed(sync, SLOW_IN_EACH_STEP_S)
        for batch in batches(rank, 4):
            train_step(sync, batch)
        sync.flush()
        sync.close()
        return weights(model)

    assert torch.equal(run("lazy"), run("ddp"))


def compiled(rank: int, world_size: int) -> None:
    """Captured graphs wait too, whichever way the fences stand."""

    def run(name: str, compile: bool, wait: str) -> Tensor:
        torch._dynamo.reset()
        model = network()
        sync = build(name, model, "sgd", wait=wait)
        if name == "lazy":
            delayed(sync, SLOW_IN_EACH_STEP_S)
        module = torch.compile(sync.module, backend="eager") if compile else sync.module
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # where a graph breaks, torch asks a non-leaf for its .grad and warns itself
            for batch in batches(rank, 3):
                F.cross_entropy(module(batch[0]), batch[1]).backward()
                sync.step()
        sync.flush()
        sync.close()
        return weights(model)

    expected = run("ddp", False, "use")
    assert torch.equal(run("lazy", True, "model"), expected)
    assert torch.equal(run("lazy", True, "use"), expected)


def waits_only_where_used(rank: int, world_size: int) -> None:
    """The laziness itself: after a step the first layer does not wait for the last layer's slices, clipping or not."""
    for clip in (None, 0.5):
        model = network()
        sync = build("lazy", model, "sgd", clip_norm=clip)
        delayed(sync)
        train_step(sync, batches(rank, 1)[0])
        pending = [not bucket.done.is_set() for bucket in sync._buckets]  # type: ignore[attr-defined]
        assert all(pending)
        _ = model[0].weight  # type: ignore[index]
        pending = [not bucket.done.is_set() for bucket in sync._buckets]  # type: ignore[attr-defined]
        assert pending[0] and not all(pending)
        sync.close()


def waits_at_the_model(rank: int, world_size: int) -> None:
    """With wait="model" everything is there when the first layer runs; else what later layers have is still coming."""
    for at in ("use", "model"):
        model = network()
        sync = build("lazy", model, "sgd", wait=at)
        delayed(sync)
        train_step(sync, batches(rank, 1)[0])
        pending: list[bool] = []

        def look(*_: object, sync: Strategy = sync, pending: list[bool] = pending) -> None:
            pending += [not bucket.done.is_set() for bucket in sync._buckets]  # type: ignore[attr-defined]

        model[0].register_forward_pre_hook(look)  # type: ignore[index]
        with torch.no_grad():
            model(batches(rank, 1)[0][0])
        assert len(pending) > 1 and any(pending) == (at == "use")
        sync.close()


def closed_model_is_free(rank: int, world_size: int) -> None:
    model = network()
    sync, expected = stepped(model, rank)
    sync.close()
    assert torch.equal(weights(model), expected)
    assert all(type(module._parameters) is dict and not module._forward_pre_hooks for module in model.modules())
    assert not any(p._post_accumulate_grad_hooks for p in model.parameters())
    model(batches(0, 1)[0][0]).sum().backward()


CASES = {
    2: [
        "read_by_name",
        "evaluation_without_grad",
        "state_dict_of_model",
        "state_dict_of_submodule",
        "ema",
        "deepcopied",
        "pickled",
        "load_state_dict_into_model",
        "state_dict_of_strategy",
        "gradient_before_gathered",
        "shared_reordered_unused",
        "lstm_and_attention",
        "compiled",
        "waits_only_where_used",
        "waits_at_the_model",
        "closed_model_is_free",
    ]
}
