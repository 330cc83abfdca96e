"""Cases of encoded exchanges: same weights everywhere, bytes by the formula, exempt tensors, residuals, NaN."""

import itertools
import math
from typing import Any

import pytest
import torch
from torch import nn

from augpipe.trainer import codec
from augpipe.trainer.strategies import butterfly_bytes, strategy
from tests.distributed.sync_models import (
    assert_same_everywhere,
    batches,
    build,
    network,
    train_step,
    weights,
)

CODECS = ["bf16", "dynamic-tree", "dynamic-map", "linear", "mantissa", "static-tree", "nf4", "one-bit"]


def bit_identical(rank: int, world_size: int) -> None:
    """After every flush, for every codec, with and without error feedback."""
    for name in ("butterfly", "lazy", "ddp"):
        for codec_name in CODECS if name != "ddp" else ["dynamic-tree"]:
            model = network()
            sync = build(name, model, "adamw", codec=codec_name, error_feedback=codec_name != "linear", clip_norm=1.0)
            start = weights(model)
            for batch in batches(rank, 3):
                report = train_step(sync, batch)
                sync.flush()
                assert_same_everywhere(weights(model))
                assert math.isfinite(report.grad_norm)
                assert report.non_finite == 0
            assert not torch.equal(weights(model), start)
            sync.close()


def mean_of_gradients(rank: int, world_size: int) -> None:
    """One step of plain SGD is the mean gradient, off from the true one by no more than the codec's error bounds."""
    for name in ("butterfly", "lazy", "ddp"):
        model = network()
        sync = build(name, model, codec="dynamic-tree")
        group = sync.optimizer.param_groups[0]
        group.update(lr=1.0, momentum=0.0, weight_decay=0.0)
        before = [parameter.detach().clone() for parameter in model.parameters()]
        twin = network()
        nn.functional.cross_entropy(twin(batches(rank, 1)[0][0]), batches(rank, 1)[0][1]).backward()
        means, largest = [], []
        for parameter in twin.parameters():
            everyones = [torch.empty_like(parameter) for _ in range(world_size)]
            assert parameter.grad is not None
            torch.distributed.all_gather(everyones, parameter.grad)
            means.append(torch.stack(everyones).mean(0))
            largest.append(max(float(gradient.abs().max()) for gradient in everyones))
        train_step(sync, batches(rank, 1)[0])
        sync.flush()
        for old, parameter, mean, top in zip(before, model.parameters(), means, largest, strict=True):
            error = (old - parameter.detach() - mean).abs().max()
            # twice encoded, each time off by at most 1/32 of the block's largest, which may be a neighbour tensor's
            limit = 1e-6 if parameter.ndim == 1 else 2 / 32 * max(largest) + 1e-6
            assert error <= limit, (name, tuple(parameter.shape), float(error), top)
        sync.close()


def some_of_the_ranks(rank: int, world_size: int) -> None:
    """A group without rank 0: its first rank's weights, the mean over its ranks alone, and their bytes."""
    members = [1, 2]
    group = torch.distributed.new_group(members)
    assert group is not None
    if rank not in members:
        return
    for name, codec_name in (
        ("ddp", "fp32"),
        ("ddp", "bf16"),
        ("butterfly", "bf16"),
        ("lazy", "fp32"),
        ("lazy", "bf16"),
    ):
        torch.manual_seed(rank)
        model = nn.Linear(64, 64, bias=False)
        sync = build(name, model, codec=codec_name, group=group, clip_norm=1e6)
        sync.optimizer.param_groups[0].update(lr=1.0, momentum=0.0, weight_decay=0.0)
        torch.manual_seed(members[0])
        first = nn.Linear(64, 64, bias=False)
        (sync.module(torch.eye(64)) * rank).sum().backward()  # whole numbers, which bf16 holds
        report = sync.step()
        sync.flush()
        assert report.grad_norm == pytest.approx(1.5 * 64)
        # an update is encoded as the difference that it made, and so is rounded
        torch.testing.assert_close(model.weight, first.weight - 1.5, rtol=0, atol=2**-7 if name == "lazy" else 0)
        both: list[Any] = [None, None]
        torch.distributed.all_gather_object(both, model.weight.detach(), group=group)
        assert torch.equal(*both)
        sent = sum(sync.meter.total[key] for key in ("gradients", "weights"))
        num_bytes = 64 * 64 * (2 if codec_name == "bf16" else 4)
        assert sent == pytest.approx(butterfly_bytes(num_bytes, 2, lambda num: num), abs=2 * 64 * 4)
        sync.close()


def exempt_tensors_are_exact(rank: int, world_size: int) -> None:
    """Biases and normalisation weights come out as in fp32, to the last bit, unless exempt_1d=False."""

    def step(strategy_name: str, **options: Any) -> dict[str, torch.Tensor]:
        model = network()
        sync = build(strategy_name, model, **options)
        train_step(sync, batches(rank, 1)[0])
        sync.close()
        return {name: p.detach() for name, p in model.named_parameters()}

    exact = step("butterfly")
    for strategy_name in ("butterfly", "lazy", "ddp"):
        encoded = step(strategy_name, codec="linear")
        all_encoded = step(strategy_name, codec="linear", exempt_1d=False)
        for name, value in exact.items():
            assert torch.equal(value, encoded[name]) == (value.ndim == 1), (strategy_name, name)
            assert not torch.equal(value, all_encoded[name]), (strategy_name, name)


def bytes_by_formula(rank: int, world_size: int) -> None:
    """2(K-1)/K N (1 + 4/256) a rank and step on average over the ranks; no rank more than a slice's rounding beyond.

    In four bits a half for the 1, and a header of eight bytes for each slice.
    """
    num = sum(parameter.numel() for parameter in network().parameters() if parameter.ndim > 1)
    for name, codec_name in itertools.product(("butterfly", "lazy", "ddp"), ("dynamic-tree", "nf4")):
        code_bytes, header = {"dynamic-tree": (1.0, 0), "nf4": (0.5, 8)}[codec_name]
        formula = butterfly_bytes(num, world_size, lambda n: n) * (code_bytes + 4 / 256)
        model = network()
        sync = build(name, model, codec=codec(codec_name, block=256), bucket_bytes=2**20)
        sent = train_step(sync, batches(rank, 1)[0]).bytes_sent
        sync.flush()
        late = sync.meter.since_last()
        payload = sum(sent[key] + late[key] for key in ("gradients", "weights"))
        everyones = torch.zeros(world_size)
        everyones[rank] = payload
        torch.distributed.all_reduce(everyones)
        # each of K slices may have a last, short block: 4 bytes at most, and of half bytes one
        assert formula <= float(everyones.mean()) <= formula + 2 * world_size * (4 + header + (header > 0))
        assert abs(payload - formula) < 64 * 2 * world_size
        assert sync.meter.total["control"] < 200 * world_size * 4
        sync.close()
    controls = []
    for clip in (None, 1.0):
        sync = build("lazy", network(), clip_norm=clip)
        train_step(sync, batches(rank, 1)[0])
        sync.close()
        controls.append(sync.meter.total["control"])
    assert controls[1] - controls[0] == (world_size - 1) * 16  # the norm and a count, to each other rank


def residuals_are_sent_later(rank: int, world_size: int) -> None:
    """With error feedback the sum of what is applied follows the sum of gradients; without, small values are lost."""

    def drift(name: str, feedback: bool) -> float:
        torch.manual_seed(0)
        model = nn.Linear(64, 64, bias=False)
        sync = build(name, model, codec="one-bit", error_feedback=feedback)
        sync.optimizer.param_groups[0].update(lr=1.0, momentum=0.0, weight_decay=0.0)
        start = weights(model)
        x = torch.linspace(0.01, 1.0, 64).expand(8, 64) * (1 + rank)
        for _ in range(40):
            sync.module(x).sum().backward()
            sync.step()
        sync.flush()
        moved = start - weights(model)
        sync.close()
        # the loss is linear, so the mean gradient is the same in every step
        mean = x[0] * 8 * (1 + (world_size - 1) / 2) / (1 + rank)
        return float((moved / 40 - mean.expand(64, 64).reshape(-1)).abs().max() / mean.max())

    # lazy makes up for what an update lacks in any case, so it loses less without
    for name, times in (("butterfly", 4), ("ddp", 4), ("lazy", 3)):
        without = drift(name, False)
        assert without > 0.2
        assert drift(name, True) < without / times, name


def not_finite(rank: int, world_size: int) -> None:
    """A NaN on one rank: seen and reported on all, skipped by all with a scaler, and never encoded into nonsense."""
    for name in ("butterfly", "lazy", "ddp"):
        for codec_name in ("fp32", "dynamic-tree"):
            model = network()
            scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
            sync = build(name, model, codec=codec_name)
            start = weights(model)
            images, labels = batches(rank, 1)[0]
            bad = images.clone()
            if rank == world_size - 1:
                bad[0, 0, 0, 0] = math.nan
            scaler.scale(nn.functional.cross_entropy(sync.module(bad), labels)).backward()
            report = sync.step(scaler)
            assert report.found_inf
            assert report.non_finite > 0
            assert scaler.get_scale() == 128.0
            sync.flush()
            assert torch.equal(weights(model), start)
            for module in model.modules():
                if isinstance(module, nn.BatchNorm2d):
                    module.reset_running_stats()
            scaler.scale(nn.functional.cross_entropy(sync.module(images), labels)).backward()
            assert not sync.step(scaler).found_inf
            sync.flush()
            assert torch.isfinite(weights(model)).all()
            assert_same_everywhere(weights(model))
            nn.functional.cross_entropy(sync.module(bad), labels).backward()
            report = sync.step()
            sync.flush()
            if name != "ddp":
                assert report.non_finite > 0
            assert torch.isnan(weights(model)).any()
            sync.close()


def nan_in_one_slice(rank: int, world_size: int) -> None:
    """It is counted once, and by all, whether its rank keeps the slice or sends it to another."""
    for codec_name, error_feedback in (("fp32", False), ("dynamic-tree", False), ("dynamic-tree", True)):
        for owner in range(world_size):
            model = nn.Linear(64, 64, bias=False)
            sync = build("lazy", model, codec=codec_name, error_feedback=error_feedback, bucket_bytes=2**20)
            gradient = torch.ones(64, 64)
            if rank == 0:
                start, stop = sync._plan.exchange.slices(0)[owner : owner + 2]
                assert stop - start > 1000
                gradient.view(-1)[start + 5] = math.nan
            (model.weight * gradient).sum().backward()
            assert sync.step().non_finite == 1
            sync.close()
    for name in ("butterfly", "lazy"):
        model = nn.Linear(64, 64, bias=False)
        sync = build(name, model, bucket_bytes=2**20)
        gradient = torch.ones(64, 64)
        gradient[3, 3] = math.nan
        (model.weight * gradient).sum().backward()
        assert sync.step().non_finite == world_size  # of all ranks, and not of their mean
        sync.close()


def norm_is_of_what_is_applied(rank: int, world_size: int) -> None:
    """The owner encodes the mean once more: the norm, by which is clipped, is that of what all decode."""
    model = nn.Linear(64, 64, bias=False)
    nn.init.zeros_(model.weight)
    sync = build("butterfly", model, codec="one-bit", clip_norm=1e6)
    sync.optimizer.param_groups[0].update(lr=1.0, momentum=0.0, weight_decay=0.0)
    gradient = torch.randn(64, 64, generator=torch.Generator().manual_seed(rank)) ** 3
    (model.weight * gradient).sum().backward()
    report = sync.step()
    applied = float(model.weight.detach().double().norm())
    assert report.grad_norm == pytest.approx(applied, rel=1e-6)
    mean = gradient.clone()
    torch.distributed.all_reduce(mean)
    assert abs(float(mean.norm()) / world_size - applied) > 0.1 * applied  # or the above would prove nothing
    sync.close()


def mixed_dtypes_and_odd_sizes(rank: int, world_size: int) -> None:
    """bfloat16 beside float32 weights, fewer weights than ranks, a scalar, channels_last, an empty tensor."""

    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(3)
            self.scale = nn.Parameter(torch.tensor(1.5))
            self.tiny = nn.Parameter(torch.ones(1, 1))
            self.empty = nn.Parameter(torch.zeros(0, 4))
            self.conv = nn.Conv2d(3, 8, 3).to(memory_format=torch.channels_last)
            self.narrow = nn.Linear(288, 130).bfloat16()
            self.out = nn.Linear(130, 10)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = torch.tanh(self.conv(x) * self.scale * self.tiny).flatten(1)
            return self.out(self.narrow(x.bfloat16()).float()) + self.empty.sum()

    def run(name: str, **options: Any) -> torch.Tensor:
        model = Mixed()
        sync = build(name, model, "sgd", **options)
        for batch in batches(rank, 4):
            train_step(sync, batch)
        sync.flush()
        found = torch.cat([parameter.detach().float().reshape(-1) for parameter in model.parameters()])
        assert_same_everywhere(found)
        sync.close()
        return found

    expected = run("ddp")
    for name in ("butterfly", "lazy"):
        found = run(name)
        assert world_size > 2 or torch.equal(found, expected), (name, float((found - expected).abs().max()))
        torch.testing.assert_close(found, expected, rtol=2**-6, atol=2**-9)
        run(name, codec="dynamic-tree")


def refused(rank: int, world_size: int) -> None:
    """What cannot work says so before anything is exchanged."""
    model = network()
    for make in (
        torch.optim.LBFGS,
        lambda parameters: torch.optim.Adafactor(parameters),
        lambda parameters: torch.optim.Muon([p for p in parameters if p.ndim == 2]),
        lambda parameters: Lars(parameters, lr=0.1),
    ):
        with pytest.raises(ValueError, match="does not treat each weight by itself"):
            strategy("lazy", model, make, timeout_s=10)
    with pytest.raises(ValueError, match="is float64 and codec='dynamic-tree' takes float32"):
        build("butterfly", network().double(), codec="dynamic-tree")
    with pytest.raises(ValueError, match="strategy='ring' is unknown. Choose one of 'ddp', 'butterfly', 'lazy'"):
        build("ring", model)
    sync = build("butterfly", nn.Embedding(10, 4, sparse=True))
    with pytest.raises(ValueError, match="has a sparse gradient: only dense ones are exchanged"):
        sync.module(torch.tensor([1])).sum().backward()
    sync.close()
    sync = build("lazy", model)
    nn.functional.cross_entropy(sync.module(batches(rank, 1)[0][0]), batches(rank, 1)[0][1]).backward()
    with pytest.raises(RuntimeError, match="got a second gradient before step\\(\\): run every backward but the"):
        nn.functional.cross_entropy(sync.module(batches(rank, 1)[0][0]), batches(rank, 1)[0][1]).backward()
    sync.close()
    frozen = network()
    frozen[4].requires_grad_(False)
    sync = build("butterfly", frozen)
    frozen[4].requires_grad_(True)
    with pytest.raises(ValueError, match="was frozen, or not there, when the strategy was built"):
        train_step(sync, batches(rank, 1)[0])
    sync.close()


class Lars(torch.optim.SGD):
    """Scales a step by the tensor's norm."""

    def step(self, closure: Any = None) -> None:
        with torch.no_grad():
            for group in self.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        parameter.sub_(group["lr"] * parameter.norm() / parameter.grad.norm() * parameter.grad)


def every_optimizer(rank: int, world_size: int) -> None:
    """Elementwise optimizers of torch, under lazy as under DDP; param groups with options of their own."""
    makers = [
        torch.optim.Adagrad,
        torch.optim.Adadelta,
        torch.optim.Adam,
        torch.optim.Adamax,
        torch.optim.NAdam,
        torch.optim.RAdam,
        torch.optim.ASGD,
        torch.optim.Rprop,
    ]
    for maker in [*makers, torch.optim.SGD]:

        def grouped(parameters: Any, maker: Any = maker) -> torch.optim.Optimizer:
            parameters = list(parameters)
            decay = {} if maker is torch.optim.Rprop else {"weight_decay": 0.1}
            return maker(
                [
                    {"params": [p for p in parameters if p.ndim > 1], "lr": 0.01} | decay,
                    {"params": [p for p in parameters if p.ndim <= 1], "lr": 0.002},
                ],
                lr=0.1,
            )

        found = []
        for name in ("ddp", "lazy"):
            model = network()
            sync = strategy(name, model, grouped, bucket_bytes=8000, timeout_s=20)
            schedule = torch.optim.lr_scheduler.StepLR(sync.optimizer, 1, 0.5)
            for batch in batches(rank, 4):
                train_step(sync, batch)
                schedule.step()
            sync.flush()
            found.append(weights(model))
            sync.close()
        assert torch.equal(*found), f"{maker.__name__}: {(found[0] - found[1]).abs().max()}"


CASES = {
    2: [
        "mean_of_gradients",
        "exempt_tensors_are_exact",
        "bytes_by_formula",
        "residuals_are_sent_later",
        "not_finite",
        "nan_in_one_slice",
        "norm_is_of_what_is_applied",
        "mixed_dtypes_and_odd_sizes",
        "refused",
        "every_optimizer",
    ],
    3: [
        "some_of_the_ranks",
        "bit_identical",
        "bytes_by_formula",
        "mixed_dtypes_and_odd_sizes",
        "not_finite",
        "nan_in_one_slice",
    ],
}
