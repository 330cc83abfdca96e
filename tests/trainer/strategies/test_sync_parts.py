"""The exchange's parts without ranks: residuals, clipping and the loss scale, and what becomes a message."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler

from augpipe.trainer.codecs import ErrorFeedback, codec
from augpipe.trainer.exchange.exchange_errors import SyncError
from augpipe.trainer.exchange.issuer import Issuer
from augpipe.trainer.exchange.message import LINE, CodecWire, ControlData, RawWire, padded
from augpipe.trainer.exchange.meter import CLASSES, Meter
from augpipe.trainer.strategies import StepReport, strategy
from augpipe.trainer.strategies.alone import Alone
from augpipe.trainer.strategies.ddp import Ddp
from augpipe.trainer.strategies.flat_buffers import make_plan
from augpipe.trainer.strategies.hybrid import Hybrid
from augpipe.trainer.strategies.owned_slices import check_elementwise
from augpipe.trainer.strategies.update import AgreedScaler, Found, clip_factor

SGD = torch.optim.SGD
BLOCK = 64
NOTHING = dict.fromkeys(CLASSES, 0)


def gradients(seed: int, num: int = 4 * BLOCK) -> Tensor:
    return torch.randn(num, generator=torch.Generator().manual_seed(seed))


def test_slices_that_are_written_together_have_residuals_of_their_own() -> None:
    """Also where one of them is empty, and where the values of one are not finite."""
    at_once, one_by_one = (ErrorFeedback(codec("one-bit", block=BLOCK)) for _ in range(2))
    wire = CodecWire(at_once)
    for step in range(3):
        slices = [gradients(2 * step), torch.empty(0), gradients(2 * step + 1, 3 * BLOCK)]
        if step == 1:
            slices[2][5] = math.nan
        payloads = [torch.empty(wire.num_bytes(len(values)), dtype=torch.uint8) for values in slices]
        values = [one.clone() for one in slices]
        count = wire.encode(values, payloads, [0, 1, 2])
        payload = torch.empty_like(payloads[2])
        assert count == one_by_one.encode_into(2, slices[2], payload) == (step == 1)
        assert torch.equal(payload, payloads[2])
        assert torch.equal(at_once.residual(2), one_by_one.residual(2))
    assert len(at_once.residual(0)) == 4 * BLOCK and torch.isfinite(at_once.residual(0)).all()
    assert set(at_once.state_dict()) == {0, 2}


def test_residuals_follow_the_loss_scale_and_are_dropped_whatever_they_are() -> None:
    feedback = ErrorFeedback(codec("one-bit"))
    feedback.load_state_dict({key: torch.tensor([1.0, -2.0]) for key in "ab"})
    feedback.scale(0.5, lambda key: key == "a")
    assert feedback.residual("a").tolist() == [0.5, -1.0] and feedback.residual("b").tolist() == [1.0, -2.0]
    given = torch.tensor([1.0, math.inf])
    feedback.load_state_dict({"a": given})
    feedback.scale(0.0)
    assert feedback.state_dict() == {} and given.tolist() == [1.0, math.inf]


@pytest.mark.parametrize("norm", [1e-7, 0.3, 0.5, 7.0, math.inf, math.nan])
def test_clipping_is_torchs(norm: float) -> None:
    weight, gradient = nn.Parameter(torch.zeros(2)), torch.tensor([norm, 0.0])
    weight.grad = gradient.clone()
    nn.utils.clip_grad_norm_([weight], 0.5)
    found = gradient * clip_factor(norm, 0.5)  # all of it becomes NaN where the norm is
    torch.testing.assert_close(found, weight.grad, rtol=2**-22, atol=0.0, equal_nan=True)


@pytest.mark.parametrize("factor", [1e-6, 2.0])
def test_a_norm_near_the_limit_is_clipped_as_torch_clips_it(factor: float) -> None:
    """Where the epsilon shows: it is as large as the norm."""
    weight = nn.Parameter(torch.zeros(1, dtype=torch.float64))
    weight.grad = torch.tensor([factor * 1e-6], dtype=torch.float64)
    nn.utils.clip_grad_norm_([weight], 1e-6)
    assert factor * 1e-6 * clip_factor(factor * 1e-6, 1e-6) == pytest.approx(float(weight.grad), rel=1e-12)


def test_a_scaler_that_hears_all_ranks_goes_as_one_that_finds_out_itself() -> None:
    """With a scale that is no power of two, and steps of which some are not finite."""
    options = {"init_scale": 3000.0, "growth_factor": 3.0, "backoff_factor": 0.25, "growth_interval": 2}
    told, alone = (GradScaler("cpu", **options) for _ in range(2))
    agreed = AgreedScaler(torch.device("cpu"))
    weight = nn.Parameter(torch.zeros(5, dtype=torch.float64))
    optimizer = torch.optim.SGD([weight], lr=0.0)
    told.scale(torch.zeros(1))  # both make their scale with the first loss
    for step, value in enumerate((1.0, 0.7, math.inf, 0.3, 0.9, math.nan, 1.1)):
        before = float(alone.scale(torch.ones(1)))
        gradient = gradients(step, 5).double() * value * before
        weight.grad = gradient.clone()
        alone.unscale_(optimizer)
        decision = agreed.decide(told, found(num_bad=not math.isfinite(value)), 1.0)
        assert decision.found_inf == (not math.isfinite(value)) and decision.norm == 3.0 * decision.inverse_scale
        torch.testing.assert_close(gradient * decision.inverse_scale, weight.grad, rtol=0, atol=0, equal_nan=True)
        alone.step(optimizer)
        alone.update()
        assert told.get_scale() == alone.get_scale()
        assert decision.residual_factor == (alone.get_scale() / before if math.isfinite(value) else 0.0)
    for off in (None, GradScaler("cpu", enabled=False)):
        decision = agreed.decide(told, found(num_bad=1), None)
        assert decision.found_inf and decision.residual_factor == 0.0 and decision.norm is None
        decision = agreed.decide(off, found(num_bad=1), None)
        assert not decision.found_inf and decision.inverse_scale == decision.residual_factor == 1.0


def found(*, num_bad: int) -> Found:
    return Found(square_sum=9.0, num_bad=num_bad, non_finite=num_bad)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("clip_norm", [None, 0.3, 1e6])
@pytest.mark.parametrize("amp", [False, True])
def test_one_rank_alone_steps_as_a_plain_loop_to_the_last_bit(
    dtype: torch.dtype, clip_norm: float | None, amp: bool
) -> None:
    """Also in and after a step that is left out."""
    values: list[list[Tensor]] = []
    reports: list[StepReport] = []
    for ours in (True, False):
        model = nn.Sequential(nn.Linear(7, 5), nn.Linear(5, 3)).to(dtype)
        for number, parameter in enumerate(model.parameters()):
            parameter.data.copy_(gradients(number, parameter.numel()).view(parameter.shape))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        sync = strategy("butterfly", model, lambda _, made=optimizer: made, clip_norm=clip_norm)
        scaler = GradScaler("cpu", init_scale=1024.0, growth_interval=2, enabled=amp)
        scaler.scale(torch.zeros(1))
        for step in range(6):
            for number, parameter in enumerate(model.parameters()):
                gradient = gradients(10 * step + number, parameter.numel()).view(parameter.shape)
                parameter.grad = (gradient * scaler.get_scale() * (math.inf if amp and step == 2 else 1)).to(dtype)
            if ours:
                reports.append(sync.step(scaler))
                continue
            scaler.unscale_(optimizer)
            if clip_norm is not None:
                norm = nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
                told = reports[step].grad_norm
                assert told == float(norm) or not math.isfinite(norm)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        values.append([parameter.detach() for parameter in model.parameters()])
    assert [report.found_inf for report in reports] == [amp and step == 2 for step in range(6)]
    assert [report.non_finite for report in reports] == [58 * (amp and step == 2) for step in range(6)]
    assert all(torch.equal(mine, plain) for mine, plain in zip(*values, strict=True))


def test_raw_values_count_what_is_not_finite() -> None:
    wire = RawWire(torch.float32, torch.float32)
    payload = torch.empty(wire.num_bytes(4), dtype=torch.uint8)
    for values, count in (
        ([1.0, 2.0, 3.0, 4.0], 0),
        ([3e38, 3e38, 3e38, 1.0], 0),  # their sum alone is infinite
        ([1.0, math.nan, math.inf, -math.inf], 3),
    ):
        assert wire.encode([torch.tensor(values)], [wire.view(payload)]) == count
        assert payload.view(torch.float32).numpy().tobytes() == torch.tensor(values).numpy().tobytes()


def test_raw_values_are_averaged_or_take_the_others_place() -> None:
    wire, values = RawWire(torch.bfloat16, torch.float32), torch.tensor([1.0, 2.0])
    payload = wire.view(torch.tensor([0.5, 0.25], dtype=torch.bfloat16).view(torch.uint8))
    wire.mean(payload[None], values)
    assert values.tolist() == [0.75, 1.125]
    wire.decode([payload], [values])
    assert values.tolist() == [0.5, 0.25]
    assert not wire.exact and RawWire(torch.float32, torch.float32).exact


def test_a_rank_without_values_sends_no_payload() -> None:
    wire, nothing = CodecWire(ErrorFeedback(codec("one-bit"))), torch.empty(0)
    assert wire.num_bytes(0) == 0 < wire.num_bytes(1)
    payload = torch.empty(0, dtype=torch.uint8)
    assert wire.encode([nothing], [payload]) == 0
    wire.decode([payload], [nothing])


@pytest.mark.parametrize("num_flags", [0, 1, 7, 8, 9, 17])
def test_control_data_come_back(num_flags: int) -> None:
    control = ControlData(num_flags)
    flags = [i % 3 == 1 or i == num_flags - 1 for i in range(num_flags)]
    packed = control.pack(2**40, 0.1, flags)
    assert packed.shape == (control.num_bytes,) and control.num_bytes == 24 + math.ceil(num_flags / 8)
    assert control.unpack(packed) == (2**40, 0.1, flags, 0)
    assert control.unpack(torch.stack([control.pack(0, 0.0, flags, tag=2**45 + 3), packed]))[3] == [2**45 + 3, 0]
    assert ControlData(num_flags).unpack(control.pack(0, math.inf, [])) == (0, math.inf, [False] * num_flags, 0)


def test_payloads_begin_at_lines() -> None:
    assert [padded(num) for num in (0, 1, LINE - 1, LINE, LINE + 1)] == [0, LINE, LINE, LINE, 2 * LINE]


@pytest.mark.parametrize(("dtype", "item_bytes"), [(torch.float32, 4), (torch.float64, 8), (torch.bfloat16, 4)])
def test_a_bucket_holds_as_many_bytes_as_asked_for(dtype: torch.dtype, item_bytes: int) -> None:
    """They are those of what is summed: bfloat16 in float32."""
    parameters = [nn.Parameter(torch.zeros(1000, dtype=dtype)) for _ in range(3)]
    names = dict(zip(parameters, "abc", strict=True))
    plan = make_plan("butterfly", names, world_size=2, codec=codec("fp32"), bucket_bytes=4096, exempt_1d=True)
    sizes = [bucket.num * item_bytes for bucket in plan.exchange.buckets]
    assert sum(sizes) == 3000 * item_bytes
    assert max(sizes) <= 4096 and min(sizes[:-1]) > 4096 - 2 * LINE * item_bytes


def test_the_meter_tells_what_is_new_and_all() -> None:
    meter = Meter()
    meter.add("weights", 5)
    assert meter.since_last() == NOTHING | {"weights": 5}
    meter.add("weights", 2)
    meter.add("control", 1)
    assert meter.since_last() == NOTHING | {"weights": 2, "control": 1}
    assert meter.total == NOTHING | {"weights": 7, "control": 1}
    both = Meter(meter, Meter())
    both.add("control", 4)
    assert both.total == NOTHING | {"weights": 7, "control": 5} == both.since_last()
    meter.add("deltas", 3)
    assert both.since_last() == NOTHING | {"deltas": 3} and meter.total["control"] == 1
    assert meter.since_last() == NOTHING | {"deltas": 3}
    assert not any(meter.since_last().values())


def test_a_learning_rate_is_a_factor_of_the_first_one_and_not_of_the_last() -> None:
    model = nn.Linear(2, 2)
    groups = [{"params": [model.weight], "lr": 0.5}, {"params": [model.bias], "lr": 0.125}]
    alone = strategy("ddp", model, lambda _: SGD(groups))
    for factor in (0.5, 1.0, 0.25):
        alone.set_lr(factor)
        assert [group["lr"] for group in alone.optimizer.param_groups] == [0.5 * factor, 0.125 * factor]


def test_gradients_are_dropped_once_they_are_used() -> None:
    model = nn.Linear(2, 2)
    alone = strategy("ddp", model, lambda parameters: SGD(parameters, lr=1.0), clip_norm=100.0)
    model(torch.ones(1, 2)).sum().backward()
    report = alone.step()
    assert report.grad_norm == pytest.approx(6**0.5) and report.non_finite == 0
    assert all(parameter.grad is None for parameter in model.parameters())
    (model.weight * torch.tensor([[1.0, math.nan], [math.inf, 1.0]])).sum().backward()
    assert alone.step().non_finite == 2  # before clipping by a norm of NaN, which leaves none


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_what_is_not_finite_is_told_also_where_nobody_clips_or_scales(dtype: torch.dtype) -> None:
    model = nn.Linear(2, 2, dtype=dtype)
    alone = strategy("ddp", model, lambda parameters: SGD(parameters, lr=1.0))
    for factor, count in (([1.0, 2.0], 0), ([3e38, 3e38], 0), ([math.nan, math.inf], 2)):
        (model.weight[0] * torch.tensor(factor)).sum().real.backward()
        assert alone.step().non_finite == count


class Lars(SGD):
    """Scales a step by the tensor's norm."""

    def step(self, closure: object = None) -> None:
        for group in self.param_groups:
            for weight in group["params"]:
                weight.data.sub_(group["lr"] * weight.data.norm() / weight.grad.norm() * weight.grad)


def test_an_optimizer_is_looked_through_at_the_first_rate_of_a_warm_up_too() -> None:
    for lr in (0.1, 0.0):
        with pytest.raises(ValueError, match="Lars does not treat each weight by itself"):
            check_elementwise(Lars([nn.Parameter(torch.zeros(3))], lr=lr))
        check_elementwise(SGD([nn.Parameter(torch.zeros(3))], lr=lr, momentum=0.5))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bucket_bytes": 0}, "bucket_bytes=0 must be a number above 0"),
        ({"timeout_s": 0.0}, r"timeout_s=0\.0 must be a number above 0"),
        ({"clip_norm": -1.0}, r"clip_norm=-1\.0 must be a number above 0"),
        ({"wait": "never"}, "wait='never' is unknown. Choose 'use' or 'model'"),
        ({"codec": "int8"}, "codec='int8' is unknown"),
        ({"optimizer": SGD([nn.Parameter(torch.zeros(1))], lr=0.1)}, "optimizer is SGD: give a function of the param"),
        ({"model": nn.Linear(2, 2).requires_grad_(False)}, "has no parameter with requires_grad=True"),
    ],
)
def test_what_no_rank_can_do_is_refused_alone_too(options: dict[str, Any], message: str) -> None:
    settings = {"model": nn.Linear(2, 2), "optimizer": lambda parameters: SGD(parameters, lr=0.1)} | options
    with pytest.raises(ValueError, match=message):
        strategy("lazy", **settings)


def test_a_split_network_tells_of_features_that_never_came() -> None:
    """Where only streams wait for them: before weights are updated, and before they are saved."""
    weight = nn.Parameter(torch.ones(2))
    issuer = Issuer("model axis", torch.device("cpu"))
    split: Any = SimpleNamespace(issuer=issuer, meter=Meter(), mesh=SimpleNamespace(model_size=1))
    shards = Alone(nn.ParameterList([weight]), SGD([weight], lr=1.0), {weight: "0"}, clip_norm=None)
    hybrid = Hybrid(None, shards, split, clip_norm=None, timeout_s=1.0)
    weight.grad = torch.ones(2)
    hybrid.step()
    assert weight.tolist() == [0.0, 0.0]
    issuer.failure = SyncError("features")
    weight.grad = torch.ones(2)
    for call in (hybrid.step, hybrid.flush):
        with pytest.raises(SyncError, match="features"):
            call()
    assert weight.tolist() == [0.0, 0.0]
    issuer.close()


def test_ddp_applies_nothing_that_an_exchange_left_behind() -> None:
    """On a GPU backward has returned before it is known that its exchange did not end."""
    failed = SyncError("a bucket")

    def check() -> None:
        raise failed

    ddp = object.__new__(Ddp)
    ddp._hook_state, ddp._issuer = SimpleNamespace(check=check), None  # type: ignore[assignment]
    with pytest.raises(SyncError, match="a bucket"):
        ddp.flush()
    order: list[str] = []
    ddp.flush = lambda: order.append("flush")  # type: ignore[method-assign]
    ddp._agreement = SimpleNamespace(digest=lambda: 2.0, compare=lambda *given: order.append("compare"))  # type: ignore[assignment]
    ddp._device, ddp._timeout_s, ddp.meter = torch.device("cpu"), 1.0, Meter()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        ddp._group = dist.group.WORLD
        norm, *told = ddp._told(torch.tensor([3.0], dtype=torch.float64)).tolist()
        assert (norm, told) == (3.0, [2.0]) and not order
        ddp._heard(told)
        assert order == ["flush", "compare"]
    finally:
        dist.destroy_process_group()
