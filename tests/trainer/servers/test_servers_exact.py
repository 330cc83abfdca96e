"""What servers and workers compute, beside plain torch: one optimizer, one network, whole batches."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from augpipe.sampling import epoch_order
from augpipe.trainer.config.tables import OptimConfig, ScheduleConfig
from augpipe.trainer.servers.messages import LeaseName, Part, Update
from augpipe.trainer.servers.server import Server
from augpipe.trainer.servers.slices import FlatWeights
from augpipe.trainer.servers.specs import Compensation, ServerSpec
from tests.trainer.servers.local_run import (
    NUM_SAMPLES,
    LocalRun,
    Setting,
    assert_equal_states,
    images_and_labels,
    plain_network,
)

OPTIMIZERS = {
    "sgd": (OptimConfig(name="sgd", lr=0.05, momentum=0.9, weight_decay=1e-3), torch.optim.SGD, {"momentum": 0.9}),
    "rmsprop": (OptimConfig(name="rmsprop", lr=0.003, momentum=0, weight_decay=1e-3), torch.optim.RMSprop, {}),
    "adagrad": (OptimConfig(name="adagrad", lr=0.05, eps=1e-4, weight_decay=1e-3), torch.optim.Adagrad, {}),
    "adamw": (OptimConfig(name="adamw", lr=0.01, weight_decay=1e-3), torch.optim.AdamW, {}),
}
CONSTANT = ScheduleConfig(name="constant")


def optimizer_of(name: str, model: nn.Module) -> torch.optim.Optimizer:
    config, kind, options = OPTIMIZERS[name]
    more = {"alpha": config.alpha} if name == "rmsprop" else {}
    if config.eps is not None:
        more["eps"] = config.eps
    return kind(model.parameters(), lr=config.lr, weight_decay=config.weight_decay, **options, **more)


def mean_gradients(model: nn.Module, first: int, rank: int, world_size: int, epoch: int) -> tuple[list[Tensor], int]:
    """(each parameter's gradient of the mean loss of a rank's batch, its samples)."""
    images, labels = images_and_labels()
    positions = epoch_order.rank_positions(first, NUM_SAMPLES, 8, rank, world_size)
    ids = torch.from_numpy(epoch_order.sample_ids(positions, NUM_SAMPLES, 0, epoch, True))
    model.zero_grad()
    loss = nn.functional.cross_entropy(model(images[ids]), labels[ids], reduction="sum")
    (loss * (1.0 / len(ids))).backward()
    return [one.grad.clone() for one in model.parameters() if one.grad is not None], len(ids)


def plain_training(name: str, world_size: int, last: int = NUM_SAMPLES) -> list[Tensor]:
    """Parameters after two epochs in which ranks add their gradients in order, and divide by their number.

    Args:
        name: the optimizer.
        world_size: ranks, of 8 samples a step each.
        last: the position before which an epoch's last step begins.
    """
    model = plain_network()
    optimizer = optimizer_of(name, model)
    for epoch in range(2):
        for first in range(0, last, 8 * world_size):
            shares = [mean_gradients(model, first, rank, world_size, epoch) for rank in range(world_size)]
            mean = sum(num for _, num in shares) / world_size
            for index, one in enumerate(model.parameters()):
                parts = [gradients[index] * (num / mean) for gradients, num in shares]
                total = parts[0]
                for part in parts[1:]:
                    total = total + part
                one.grad = total / world_size
            optimizer.step()
    return [one.detach() for one in model.parameters()]


def trained(run: LocalRun) -> list[Tensor]:
    worker = run.setting.worker()
    worker.load([server.there._hand(-1, True) for server in run.hosts])
    return [one.detach() for one in worker.model.parameters()]


def largest_difference(found: list[Tensor], expected: list[Tensor]) -> float:
    return max((one - other).abs().max().item() for one, other in zip(found, expected, strict=True))


def moved(found: list[Tensor]) -> float:
    return largest_difference(found, [one.detach() for one in plain_network().parameters()])


def setting_of(name: str, mode: str, num_workers: int) -> Setting:
    return Setting(
        mode=mode,
        num_workers=num_workers,
        num_servers=3,
        optim=OPTIMIZERS[name][0],
        schedule=CONSTANT,
        network=plain_network,
    )


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_two_synchronous_workers_equal_two_ranks_bit_for_bit(name: str, tmp_path: Path) -> None:
    """24 steps of even shares; a sum of two has one order only."""
    setting = replace(setting_of(name, "sync", 2), drop_last=True)
    run = LocalRun(setting, tmp_path, 0).run()
    assert run.versions[-1] == 24
    found = trained(run)
    assert moved(found) > 0.02
    for one, other in zip(found, plain_training(name, 2, NUM_SAMPLES // 16 * 16), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("num_workers", [2, 4])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_synchronous_equals_training_on_whole_batches(name: str, num_workers: int, tmp_path: Path) -> None:
    """Up to rounding, with a last step of each epoch whose shares are of uneven sizes."""
    found = trained(LocalRun(setting_of(name, "sync", num_workers), tmp_path, 0).run())
    model = plain_network()
    optimizer = optimizer_of(name, model)
    images, labels = images_and_labels()
    for epoch in range(2):
        for first in range(0, NUM_SAMPLES, 8 * num_workers):
            positions = np.arange(first, min(first + 8 * num_workers, NUM_SAMPLES))
            ids = torch.from_numpy(epoch_order.sample_ids(positions, NUM_SAMPLES, 0, epoch, True))
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[ids]), labels[ids]).backward()
            optimizer.step()
    assert moved(found) > 0.02
    # the optimizers that divide by roots of tiny squares make rounding larger
    assert largest_difference(found, [one.detach() for one in model.parameters()]) <= 2e-5


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_asynchronous_with_one_worker_equals_plain_training(name: str, tmp_path: Path) -> None:
    found = trained(LocalRun(setting_of(name, "async", 1), tmp_path, 0).run())
    assert moved(found) > 0.02
    for one, other in zip(found, plain_training(name, 1), strict=True):
        assert torch.equal(one, other)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["constant", "adaptive"])
def test_compensation_of_strength_zero_is_none(kind: str, tmp_path: Path) -> None:
    plain = Setting(num_workers=3)
    how = Compensation(kind="adaptive" if kind == "adaptive" else "constant", strength=0.0)
    without = LocalRun(plain, tmp_path / "without", 0).run()
    with_it = LocalRun(replace(plain, compensation=how), tmp_path / "with", 0).run()
    assert max(one.staleness for one in with_it.applied) > 0
    if kind == "constant":
        assert_equal_states(with_it.checkpoint(52), without.checkpoint(52), 2)
    assert all(torch.equal(one, other) for one, other in zip(trained(with_it), trained(without), strict=True))


@pytest.mark.parametrize("kind", ["constant", "adaptive"])
def test_compensation_follows_its_formula_on_a_quadratic(kind: str) -> None:
    """Two workers take turns on the loss sum(a * w ** 2) / 2, so each gradient, a * w_then, is one update late."""
    model = nn.Linear(8, 1, bias=False)
    flat = FlatWeights(model)
    a = torch.linspace(0.5, 2.0, 8)
    how = Compensation(kind="adaptive" if kind == "adaptive" else "constant", strength=0.7, decay=0.9)
    spec = ServerSpec(
        index=0,
        slice=flat.cut(1)[0],
        num_buffers=(0, 0),
        optim=OptimConfig(name="sgd", lr=0.1, momentum=0.0, weight_decay=0.0),
        push_codec="fp32",
        pull_codec=None,
        compensation=how,
    )
    server = Server(spec).begin(flat)
    now = flat.values.clone()
    then = [now.clone(), now.clone()]
    mean_square = torch.zeros(8)
    parts = [server._hand(worker, True) for worker in range(2)]
    for number in range(12):
        worker = number % 2
        gradient = a * torch.from_numpy(parts[worker].wide.view("float32").copy())
        name = LeaseName(0, number, 0)
        empty = torch.zeros(0).numpy()
        push = Part(
            wide=gradient.numpy().view("uint8"),
            narrow=empty,
            buffers=empty,
            counts=torch.zeros(0, dtype=torch.int64).numpy(),
        )
        server.stage(worker, name, push)
        server.carry_out(number + 1, Update(pushes=(name,), num_samples=(8,), workers=(worker,), lr=1.0))
        parts[worker] = server._hand(worker, True)

        g = a * then[worker]
        strength: float | Tensor = 0.7
        if kind == "adaptive":
            mean_square = 0.9 * mean_square + (1 - 0.9) * g * g
            strength = 0.7 / torch.sqrt(mean_square + 1e-7)
        now = now - 0.1 * (g + strength * g * g * (now - then[worker]))
        then[worker] = now.clone()
        found = torch.from_numpy(parts[worker].wide.view("float32").copy())
        assert torch.allclose(found, now, rtol=0, atol=1e-6)
    assert (now - flat.values).abs().max() > 0.1


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_one_group_equals_as_many_synchronous_workers(name: str, tmp_path: Path) -> None:
    """Bit for bit for two, as a sum of two has one order only; with shares of uneven sizes up to rounding."""
    mixed = replace(setting_of(name, "mixed", 1), group_size=2)
    for drop_last, most in ((True, 0.0), (False, 2e-5)):
        group = LocalRun(replace(mixed, drop_last=drop_last), tmp_path / f"{drop_last}-mixed", 0).run()
        workers = replace(setting_of(name, "sync", 2), drop_last=drop_last)
        found, expected = trained(group), trained(LocalRun(workers, tmp_path / f"{drop_last}-sync", 0).run())
        assert moved(found) > 0.02
        assert largest_difference(found, expected) <= most


def test_dropout_follows_the_lease_whoever_drew_before(monkeypatch: pytest.MonkeyPatch) -> None:
    # seeding what workers do not compute on costs them a tenth of a small lease
    monkeypatch.setattr(torch, "manual_seed", lambda _: pytest.fail("the CPU's generator alone is to be seeded"))
    setting = Setting(network=lambda: nn.Sequential(nn.Dropout(0.5), nn.Linear(20, 5)))
    worker, plan = setting.worker(), setting.plan()

    def gradient(number: int) -> bytes:
        computed = worker.compute(plan.lease(0, number, 0), None, 1.0)
        return b"".join(part.wide.tobytes() for part in computed.parts)

    first = gradient(0)
    torch.rand(7)
    assert gradient(1) != first
    assert gradient(0) == first
