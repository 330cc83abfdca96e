"""Cases: one step over two strategies with groups of their own, as data × model parallelism takes them.

The split is played: some parameters of an ordinary network are the shards, which each model rank has values and
gradients of its own for. The gradients are drawn, so that a plain loop that averages by hand is the oracle.
"""

import copy
import math
import time
import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import ProcessGroup

from augpipe.trainer.config.tables import OptimConfig
from augpipe.trainer.exchange.issuer import Issuer
from augpipe.trainer.exchange.meter import Meter
from augpipe.trainer.optim.optimizer import make_optimizer
from augpipe.trainer.strategies import Strategy, SyncError, merge, strategy
from tests.distributed.sync_models import OPTIMIZERS

NAMES = ("ddp", "butterfly", "lazy")
NUM_STEPS = 10
OVERFLOWS_AT = 4
TOLERANCE = 32 * 2**-24
"""As in the cases of `equal`: gradients are added in another order, and clipping's factor is rounded elsewhere."""
SHARDS = ("2.weight", "2.bias")
DELTA_BYTES = 4


@dataclass(frozen=True, kw_only=True)
class Mesh:
    data: ProcessGroup
    model: ProcessGroup
    data_size: int
    model_size: int
    data_rank: int
    model_rank: int


@cache
def mesh_of(rank: int, world_size: int, model_size: int) -> Mesh:
    data_size = world_size // model_size
    models = [dist.new_group(list(range(d * model_size, (d + 1) * model_size))) for d in range(data_size)]
    datas = [dist.new_group(list(range(m, world_size, model_size))) for m in range(model_size)]
    data_rank, model_rank = divmod(rank, model_size)
    model, data = models[data_rank], datas[model_rank]
    assert model is not None and data is not None
    return Mesh(
        data=data,
        model=model,
        data_size=data_size,
        model_size=model_size,
        data_rank=data_rank,
        model_rank=model_rank,
    )


class Split:
    """The shards of `SHARDS`; each time one has a gradient, deltas travel among the model ranks."""

    def __init__(self, model: nn.Module, mesh: Mesh, **settings: Any) -> None:
        self.mesh = mesh
        self.issuer = Issuer("model axis", torch.device("cpu"))
        self.meter = Meter()
        self.settings = {"model ranks": mesh.model_size, "scheme": "played"} | settings
        self.parts = dict.fromkeys(SHARDS)
        self.parameters = {p: name for name, p in model.named_parameters() if name in SHARDS and p.requires_grad}
        for shard in self.parameters:
            shard.register_hook(self._exchange)

    def _exchange(self, _gradient: Tensor) -> None:
        number = torch.full((1,), float(self.mesh.model_rank))
        group = self.mesh.model
        self.issuer.submit("deltas", lambda: dist.all_reduce(number, group=group, async_op=True), group, 20).wait()
        assert number.item() == sum(range(self.mesh.model_size))
        self.meter.add("deltas", DELTA_BYTES)


def network() -> nn.Sequential:
    """Shards of one size on all ranks, with several buckets, and values that `fill` sets."""
    return nn.Sequential(nn.Linear(40, 37), nn.BatchNorm1d(37, affine=False), nn.Linear(37, 50), nn.Linear(50, 31))


@cache
def drawn(shape: torch.Size, *key: int) -> Tensor:
    """Drawn once, as every strategy and optimizer is given the same; not to be written to."""
    seed = 0
    for number in key:
        seed = 1009 * seed + number + 1
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def fill(model: nn.Module, data_rank: int, model_rank: int) -> None:
    """First weights: only rank 0's count of the rest, only data rank 0's of a shard."""
    for number, (name, parameter) in enumerate(model.named_parameters()):
        key = (number, data_rank, model_rank if name in SHARDS else 10 * data_rank + model_rank)
        parameter.data.copy_(drawn(parameter.shape, *key))


def gradient(parameter: Tensor, number: int, step: int, batch: int, rank: int) -> Tensor:
    return 0.1 * drawn(parameter.shape, 77, number, step, batch, rank)


def overflows(name: str, step: int, rank: int, world_size: int) -> bool:
    """On the last rank alone, in one of its shards alone."""
    return step == OVERFLOWS_AT and rank == world_size - 1 and name == "2.weight"


def scaler_of(amp: bool) -> torch.amp.GradScaler:
    return torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3, enabled=amp)


@cache
def by_hand(
    mesh: Mesh, world_size: int, optimizer: str, *, clip: float | None, amp: bool, accumulate: int
) -> tuple[dict[str, Tensor], list[float]]:
    """The weights that this rank should have, and the norms; all ranks' gradients are averaged here, one by one."""
    models = [network() for _ in range(mesh.model_size)]
    for model_rank, model in enumerate(models):
        fill(model, 0, model_rank)
    first = dict(models[0].named_parameters())
    updated: list[tuple[str, nn.Parameter, int, list[int]]] = []
    for number, name in enumerate(first):
        if name not in SHARDS:
            updated.append((name, first[name], number, list(range(world_size))))
            continue
        for model_rank, model in enumerate(models):
            holders = list(range(model_rank, world_size, mesh.model_size))
            updated.append((name, dict(model.named_parameters())[name], number, holders))
    parameters = [parameter for _, parameter, _, _ in updated]
    update, scaler, norms = OPTIMIZERS[optimizer](parameters), scaler_of(amp), []
    for step in range(NUM_STEPS):
        for name, parameter, number, ranks in updated:
            total = torch.zeros_like(parameter, dtype=torch.float64)
            for rank in ranks:
                for batch in range(accumulate):
                    total += gradient(parameter, number, step, batch, rank)
                if amp and overflows(name, step, rank, world_size):
                    total *= math.inf
            parameter.grad = (total / len(ranks) * scaler.scale(torch.ones(1))).float()
        scaler.unscale_(update)
        norms.append(float(nn.utils.clip_grad_norm_(parameters, clip)) if clip is not None else 0.0)
        scaler.step(update)
        scaler.update()
    own = dict(models[mesh.model_rank].named_parameters())
    return {name: (own if name in SHARDS else first)[name].detach() for name in first}, norms


def backward(sync: Strategy, model: nn.Module, rank: int, step: int, batch: int, scale: Tensor, inf: bool) -> None:
    """Drawn gradients; what goes through the network has none, and only makes DDP begin."""
    loss = 0.0 * sync.module(torch.ones(2, 40)).sum()
    for number, (name, parameter) in enumerate(model.named_parameters()):
        factors = gradient(parameter, number, step, batch, rank)
        if inf and overflows(name, step, rank, dist.get_world_size()):
            factors = factors * math.inf
        loss = loss + (parameter * factors).sum()
    (loss * scale).backward()


def build(name: str, model: nn.Module, split: Split, optimizer: str = "sgd", **options: Any) -> Strategy:
    settings: dict[str, Any] = {"bucket_bytes": 4000, "timeout_s": 20} | options
    return strategy(name, model, OPTIMIZERS[optimizer], split=split, **settings)


def assert_same(mesh: Mesh, model: nn.Module) -> None:
    """The same bits wherever the same weights are: the rest on all ranks, a shard along the data axis."""
    for name, parameter in model.named_parameters():
        group = mesh.data if name in SHARDS else None
        everyones = [torch.empty_like(parameter) for _ in range(dist.get_world_size(group))]
        dist.all_gather(everyones, parameter.detach(), group=group)
        assert all(torch.equal(everyones[0], theirs) for theirs in everyones), name


def train(
    name: str,
    rank: int,
    mesh: Mesh,
    optimizer: str,
    *,
    clip: float | None,
    amp: bool,
    accumulate: int,
    **options: Any,
) -> tuple[nn.Module, list[Any]]:
    model = network()
    fill(model, mesh.data_rank, mesh.model_rank)
    split = Split(model, mesh)
    sync = build(name, model, split, optimizer, clip_norm=clip, **options)
    scaler, reports = scaler_of(amp), []
    for step in range(NUM_STEPS):
        with sync.no_sync():
            for batch in range(accumulate - 1):
                backward(sync, model, rank, step, batch, scaler.scale(torch.ones(())), False)
        backward(sync, model, rank, step, accumulate - 1, scaler.scale(torch.ones(())), amp)
        reports.append(sync.step(scaler if amp else None))
    sync.flush()
    sync.close()
    split.issuer.close()
    return model, reports


def compare(rank: int, world_size: int, name: str, model_size: int, optimizer: str, **how: Any) -> None:
    mesh = mesh_of(rank, world_size, model_size)
    options = {key: how.pop(key) for key in ("codec", "error_feedback") if key in how}
    expected, norms = by_hand(mesh, world_size, optimizer, **how)
    model, reports = train(name, rank, mesh, optimizer, **how, **options)
    assert_same(mesh, model)
    told = [(report.grad_norm, report.found_inf, report.non_finite) for report in reports]
    everyones: list[Any] = [None] * world_size
    dist.all_gather_object(everyones, repr(told))
    assert len(set(everyones)) == 1, everyones
    assert [step for step, report in enumerate(reports) if report.found_inf] == [OVERFLOWS_AT] * how["amp"]
    assert all(bool(report.non_finite) == report.found_inf for report in reports)
    num_exchanges = len(SHARDS) * how["accumulate"]
    assert all(report.bytes_sent["deltas"] == num_exchanges * DELTA_BYTES for report in reports)
    if how["clip"] is not None:
        found = [report.grad_norm for report in reports if not report.found_inf]
        right = [norm for norm, report in zip(norms, reports, strict=True) if not report.found_inf]
        assert found == pytest.approx(right, rel=1e-6 if not options else 0.02)
    start = network()
    fill(start, 0, 0)
    for known, parameter in model.named_parameters():
        if not options:
            off = (parameter.detach() - expected[known]).abs() - TOLERANCE * (1.0 + expected[known].abs())
            assert off.max() <= 0.0, f"{name}, {known}: {off.max()} beyond the tolerance"
        elif optimizer == "sgd" and known not in SHARDS:  # as far as the codec's error goes
            moved = expected[known] - dict(start.named_parameters())[known].detach()
            assert float((parameter.detach() - expected[known]).norm()) < 0.05 * float(moved.norm()), known


def all_strategies(
    rank: int, world_size: int, model_size: int, optimizers: tuple[str, ...] = ("sgd", "adamw"), **how: Any
) -> None:
    defaults: dict[str, Any] = {"clip": None, "amp": False, "accumulate": 1}
    for name in NAMES:
        for optimizer in optimizers:
            compare(rank, world_size, name, model_size, optimizer, **(defaults | how))


def plain(rank: int, world_size: int) -> None:
    all_strategies(rank, world_size, 2)


def clipped(rank: int, world_size: int) -> None:
    """With the other optimizer too where everything comes together."""
    all_strategies(rank, world_size, 2, ("sgd",), clip=0.5)


def overflow_in_one_shard(rank: int, world_size: int) -> None:
    """With the other optimizer too where everything comes together."""
    all_strategies(rank, world_size, 2, ("adamw",), amp=True)


def everything(rank: int, world_size: int) -> None:
    all_strategies(rank, world_size, 2, clip=0.5, amp=True, accumulate=3)


def encoded(rank: int, world_size: int) -> None:
    how = {"clip": 0.5, "amp": True, "accumulate": 2, "codec": "dynamic-tree", "error_feedback": True}
    all_strategies(rank, world_size, 2, ("sgd",), **how)


def other_meshes(rank: int, world_size: int) -> None:
    """All ranks on one axis: no shard is averaged, or none is split."""
    all_strategies(rank, world_size, world_size, clip=0.5, amp=True)
    all_strategies(rank, world_size, 1, clip=0.5, amp=True)


def begins_alike(rank: int, world_size: int) -> None:
    """Buffers and what is frozen are rank 0's, too, but for frozen shards."""
    mesh = mesh_of(rank, world_size, 2)
    model = network()
    fill(model, mesh.data_rank, mesh.model_rank)
    model[1].running_mean.fill_(rank)
    model[0].weight.requires_grad_(False)
    model[2].bias.requires_grad_(False)
    frozen = model[2].bias.detach().clone()
    split = Split(model, mesh)
    sync = build("butterfly", model, split)
    expected = network(), network()
    for one, model_rank in zip(expected, (0, mesh.model_rank), strict=True):
        fill(one, 0, model_rank)
    rest, own = (dict(one.named_parameters()) for one in expected)
    for name, parameter in model.named_parameters():
        wanted = frozen if name == "2.bias" else (own if name in SHARDS else rest)[name]
        assert torch.equal(parameter, wanted), name
    assert not model[1].running_mean.any()
    sync.close()


def rates_and_groups(rank: int, world_size: int) -> None:
    """The loop's optimizer is made twice, its options stay right, and a scheduler sees one optimizer."""
    mesh = mesh_of(rank, world_size, 2)
    config = OptimConfig(name="sgd", lr=0.5, weight_decay=0.1, decay_1d=False)
    for name in NAMES:
        model = network()
        split = Split(model, mesh)
        sync = strategy(name, model, lambda parameters: make_optimizer(config, parameters), split=split, timeout_s=20)
        groups = sync.optimizer.param_groups
        assert [group["weight_decay"] for group in groups] == [0.1, 0.0] * 2
        sync.set_lr(0.5)
        assert [group["lr"] for group in groups] == [0.25] * 4
        sync.set_lr(1.0)
        scheduler = torch.optim.lr_scheduler.StepLR(sync.optimizer, 1, 0.1)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            backward(sync, model, rank, 0, 0, torch.ones(()), False)
            sync.step()
            scheduler.step()
        assert [group["lr"] for group in groups] == [0.05] * 4
        assert len(sync.optimizer.state) == sum(len(group["params"]) for group in groups)
        sync.close()
        split.issuer.close()


def reading_waits_for_both(rank: int, world_size: int) -> None:
    """Under lazy, whoever reads a weight waits for it, whichever strategy's it is; also once one of them is closed."""
    mesh = mesh_of(rank, world_size, 2)
    model = network()
    sync = build("lazy", model, Split(model, mesh))
    for part in sync._parts:
        for bucket in part._buckets:
            inner = bucket.unpack_gather
            bucket.unpack_gather = lambda inner=inner: (time.sleep(0.1), inner())
    for step in range(2):
        backward(sync, model, rank, step, 0, torch.ones(()), False)
        sync.step()
        if step:
            sync._parts[1].close()
        read = {name: value.clone() for name, value in model.state_dict().items()}
        sync.flush()
        assert all(torch.equal(value, read[name]) for name, value in model.state_dict().items())
    sync.close()
    assert all(type(module._parameters) is dict for module in model.modules())


def states(rank: int, world_size: int) -> None:
    """A run goes on from its own state, from a full one and from all ranks' merged."""
    mesh = mesh_of(rank, world_size, 2)
    how: dict[str, Any] = {"clip_norm": 0.5}
    for name in NAMES:
        model = network()
        fill(model, mesh.data_rank, mesh.model_rank)
        sync = build(name, model, Split(model, mesh), "adamw", **how)
        for step in range(3):
            backward(sync, model, rank, step, 0, torch.ones(()), False)
            sync.step()
        sync.flush()
        weights = {key: value.clone() for key, value in model.state_dict().items()}
        own = copy.deepcopy(sync.state_dict())
        everyones: list[Any] = [None] * world_size
        dist.all_gather_object(everyones, own)
        sources = [own, copy.deepcopy(sync.full_optimizer_state()), merge(everyones)]
        ends = []
        for source in [None, *sources]:
            if source is not None:
                model = network()
                model.load_state_dict(weights)
                sync = build(name, model, Split(model, mesh), "adamw", **how)
                sync.load_state_dict(source)
            backward(sync, model, rank, 3, 0, torch.ones(()), False)
            sync.step()
            sync.flush()
            ends.append([parameter.detach().clone() for parameter in model.parameters()])
            if source is not sources[-1]:
                sync.close()
        # DDP lays its buckets out anew after the first step, and adds in another order then
        off = 0.0 if name != "ddp" else TOLERANCE
        for end in ends[1:]:
            for there, here in zip(ends[0], end, strict=True):
                torch.testing.assert_close(there, here, rtol=off, atol=off)
        with pytest.raises(ValueError, match=f"shards of model rank {1 - mesh.model_rank}, and this is model rank"):
            sync.load_state_dict(everyones[rank ^ 1])
        with pytest.raises(ValueError, match="split among 1 model ranks, and this one's is split among 2"):
            sync.load_state_dict(own["rest"])
        sync.close()


def ranks_that_split_otherwise(rank: int, world_size: int) -> None:
    """All ranks are told what differs, before anything else is exchanged."""
    mesh = mesh_of(rank, world_size, 2)
    model = network()
    with pytest.raises(SyncError, match="scheme is 'played' on rank 0 and 'earnest' on rank 3"):
        build("butterfly", model, Split(model, mesh, scheme="earnest" if rank == 3 else "played"))
    with pytest.raises(SyncError, match="model ranks is 2 on rank 0 and 4 on rank 1"):
        build("lazy", model, Split(model, mesh, **{"model ranks": 4 if rank == 1 else 2}))
    split = {"split": Split(model, mesh)} if rank != 2 else {}
    with pytest.raises(SyncError, match=r"split parameters is \['2.weight', '2.bias'\] on rank 0 and \[\] on rank 2"):
        strategy("butterfly", model, OPTIMIZERS["sgd"], timeout_s=20, **split)


def nothing_to_share(rank: int, world_size: int) -> None:
    """What cannot be asked for is said before ranks meet."""
    mesh = mesh_of(rank, world_size, 2)
    model = network()
    split = Split(model, mesh)
    with pytest.raises(ValueError, match="split knows the parameters, groups and issuer itself"):
        build("butterfly", model, split, issuer=split.issuer)
    model[2].requires_grad_(False)
    with pytest.raises(ValueError, match="no split layer has a trainable parameter"):
        build("butterfly", model, Split(model, mesh))


def nothing_but_shards(rank: int, world_size: int) -> None:
    """Where all that trains is split, every strategy steps alike, and states are taken up."""
    mesh = mesh_of(rank, world_size, 2)
    for name in NAMES:
        model = network()
        fill(model, 0, mesh.model_rank)
        for rest in (model[0], model[3]):
            rest.requires_grad_(False)
        split = Split(model, mesh)
        before = [parameter.detach().clone() for parameter in split.parameters]
        sync = build(name, model, split, clip_norm=1e6)
        sync.set_lr(0.5)
        with sync.no_sync():
            pass
        loss = sum((p * gradient(p, number, 0, 0, rank)).sum() for number, p in enumerate(split.parameters))
        loss.backward()
        report = sync.step()
        sync.flush()
        squares = 0.0
        for model_rank in range(2):
            for number, (first, shard) in enumerate(zip(before, split.parameters, strict=True)):
                mean = sum(gradient(first, number, 0, 0, of) for of in (model_rank, model_rank + 2)) / 2
                squares += float(torch.as_tensor(mean).double().square().sum())
                if model_rank == mesh.model_rank:
                    moved = first - 0.025 * (mean + 1e-3 * first)
                    torch.testing.assert_close(shard.detach(), moved, rtol=TOLERANCE, atol=TOLERANCE)
        assert report.grad_norm == pytest.approx(math.sqrt(squares), rel=1e-6)
        everyones: list[Any] = [None] * world_size
        dist.all_gather_object(everyones, copy.deepcopy(sync.state_dict()))
        for state in (sync.full_optimizer_state(), merge(everyones)):
            assert sorted(state["shards"]) == [0, 1] and state["rest"] is None
            sync.load_state_dict(state)
        sync.close()
        split.issuer.close()


CASES = {
    2: ["other_meshes"],
    4: [
        "plain",
        "clipped",
        "overflow_in_one_shard",
        "everything",
        "encoded",
        "begins_alike",
        "rates_and_groups",
        "reading_waits_for_both",
        "states",
        "nothing_to_share",
        "nothing_but_shards",
        "ranks_that_split_otherwise",
    ],
}
"""By world size."""
