"""Cases: residuals of error feedback where steps are left out, the loss scale changes, or buckets are other ones."""

import math
import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.nn.parallel import DistributedDataParallel

from augpipe.trainer import butterfly_hook
from augpipe.trainer.strategies import strategy

STRATEGIES: tuple[Any, ...] = ("butterfly", "lazy")


def built(name: Any, *, codec: str = "one-bit", bucket_bytes: int = 2**20) -> tuple[nn.ParameterDict, Any]:
    model = nn.ParameterDict({key: nn.Parameter(torch.zeros(64, 64)) for key in "ab"})
    made = strategy(
        name,
        model,
        lambda parameters: torch.optim.SGD(parameters, lr=1.0),
        codec=codec,
        error_feedback=True,
        bucket_bytes=bucket_bytes,
        timeout_s=20,
    )
    return model, made


def gradients(rank: int, step: int) -> Tensor:
    return torch.randn((2, 64, 64), generator=torch.Generator().manual_seed(100 * step + rank))


def left_out(rank: int, world_size: int) -> None:
    """A step with an infinity in one tensor and a spike in the other leaves nothing behind, on whichever rank."""
    for name in STRATEGIES:
        for culprit in range(world_size):
            model, synced = built(name)
            scaler = GradScaler("cpu", init_scale=8.0, growth_interval=10**6)
            for step in range(3):
                ours = gradients(rank, step)
                if step == 1 and rank == culprit:
                    ours *= torch.tensor([math.inf, 1e20])[:, None, None]
                scaler.scale((model["a"] * ours[0]).sum() + (model["b"] * ours[1]).sum()).backward()
                assert synced.step(scaler).found_inf == (step == 1)
            synced.flush()
            assert max(weight.abs().max() for weight in model.parameters()) < 20
            synced.close()


def scale_changes(rank: int, world_size: int) -> None:
    """Powers of two are exact: weights do not depend on how the loss scale moves."""
    for name in STRATEGIES:
        found = []
        for growth in (1, 10**6):
            model, synced = built(name)
            scaler = GradScaler("cpu", init_scale=1024.0, growth_factor=4.0, growth_interval=growth)
            for step in range(4):
                ours = gradients(rank, step)
                scaler.scale((model["a"] * ours[0]).sum() + (model["b"] * ours[1]).sum()).backward()
                synced.step(scaler)
            synced.flush()
            found.append(torch.cat([weight.detach().flatten() for weight in model.parameters()]))
            synced.close()
        assert torch.equal(*found)


def other_ranks(rank: int, world_size: int) -> None:
    """A rank's residuals are no other's, and mean nothing among more or fewer ranks."""
    model, synced = built("butterfly")
    (model["a"] * gradients(rank, 0)[0]).sum().backward()
    synced.step()
    state = synced.state_dict()
    for ours in ({"rank": 1 - rank}, {"world_size": 3}, {}):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            synced.load_state_dict(state | ours)
        assert [str(warning.message).split(":")[0] for warning in told] == (
            ["error feedback of gradients starts again"] if ours else []
        )
        kept = {key: len(residual) for key, residual in synced.state_dict()["residuals"].items()}
        # of the slice that the other rank owns, and of the own one
        assert kept == ({} if ours else {("reduce", 0, 1 - rank): 64 * 64, ("gather", 0, rank): 64 * 64})
    synced.close()


def updates_without_feedback(rank: int, world_size: int) -> None:
    """Under lazy what an encoded update lacks comes with the next, also where gradients have no error feedback."""
    model = nn.ParameterDict({key: nn.Parameter(torch.zeros(2, 64)) for key in "abcd"})
    rates = {"a": 1.0, "b": 0.01, "c": 1.0, "d": 0.01}
    synced = strategy(
        "lazy",
        model,
        lambda _: torch.optim.SGD([{"params": [model[key]], "lr": lr} for key, lr in rates.items()]),
        codec="one-bit",
        timeout_s=20,
    )
    for _ in range(2):
        # in one bit as it is; of a block of two tensors' updates the mean goes first, and what it lacks comes second
        sum(weight.sum() for weight in model.values()).backward()  # type: ignore[union-attr]
        synced.step()
    synced.flush()
    for key, weight in model.items():
        torch.testing.assert_close(weight.detach(), torch.full((2, 64), -2 * rates[key]))
    synced.close()


def other_buckets(rank: int, world_size: int) -> None:
    """As many buckets, cut elsewhere: error feedback begins anew, and says so."""
    model, synced = built("butterfly", bucket_bytes=4 * 5000)
    model["a"].sum().backward()
    synced.step()
    state = synced.state_dict()
    synced.close()
    model, synced = built("butterfly", bucket_bytes=4 * 7000)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        synced.load_state_dict(state)
    assert any("starts again" in str(warning.message) for warning in told)
    for _ in range(2):
        model["a"].sum().backward()
        synced.step()
    synced.close()


class Backwards(nn.Module):
    """Two layers of one shape that DDP first lays out otherwise than backward reaches them."""

    def __init__(self) -> None:
        super().__init__()
        self.early, self.late = nn.Linear(64, 64, bias=False), nn.Linear(64, 64, bias=False)
        for weight in self.parameters():
            nn.init.zeros_(weight)

    def forward(self, gradient: Tensor) -> Tensor:
        # what reaches `early` is huge, what reaches `late` small
        return (self.early.weight * gradient * 1e6).sum() + (self.late(gradient) * 1e-3).sum()


def hook_rebuilt(rank: int, world_size: int) -> None:
    """A residual goes to the layer that it is of, though DDP's rebuilt bucket has the same shapes in another order."""
    model = DistributedDataParallel(Backwards())
    state, hook = butterfly_hook("one-bit", error_feedback=True, timeout_s=20)
    model.register_comm_hook(state, hook)
    for step in range(3):
        model.zero_grad()
        model(gradients(rank, step)[0]).backward()
        assert model.module.late.weight.grad.abs().max() < 10
    assert len(state._buckets) == len(state._sources) == 1  # nothing is kept of the buckets that there were
    state.close()


class Two(nn.Module):
    """Two weights whose gradients are what is given."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = (nn.Parameter(torch.zeros(64, 64)) for _ in range(2))

    def forward(self, ours: Tensor) -> Tensor:
        return (self.a * ours[0]).sum() + (self.b * ours[1]).sum()


def hook_left_out(rank: int, world_size: int) -> None:
    """A backward with something not finite leaves nothing behind in the next."""
    model = DistributedDataParallel(Two())
    state, hook = butterfly_hook("one-bit", error_feedback=True, timeout_s=20)
    model.register_comm_hook(state, hook)
    for step in range(4):
        ours = gradients(rank, step)
        if step == 2 and rank == 1:
            ours *= torch.tensor([math.inf, 1e20])[:, None, None]
        model.zero_grad()
        model(ours).backward()
        worst = max(float(weight.grad.abs().max()) for weight in model.parameters())
        assert step == 2 or worst < 20
    found = []
    for _ in range(2):
        model.zero_grad()
        model(gradients(rank, 4)).backward()
        found.append(model.module.a.grad.clone())
    assert not torch.equal(*found)  # and that is all: what the next ones lack is made up for again
    state.close()


CASES = {
    2: [
        "left_out",
        "scale_changes",
        "other_ranks",
        "updates_without_feedback",
        "other_buckets",
        "hook_rebuilt",
        "hook_left_out",
    ],
    3: ["left_out"],
}
