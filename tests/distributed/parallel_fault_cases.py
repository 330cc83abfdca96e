"""Cases: what goes wrong among the ranks of a model axis ends with a message on the others, never with a hang."""

import os
import signal
import time
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from augpipe.trainer.exchange.exchange_errors import SyncError
from augpipe.trainer.loop.precision import FiniteCheckScaler
from augpipe.trainer.parallel import Split, build_split, cross_entropy, make_mesh
from augpipe.trainer.strategies import strategy
from tests.distributed.parallel_state_cases import images, network

TIMEOUT_S = 5.0


def split_network(world_size: int, layers: str = "2.*", **options: Any) -> Split:
    return build_split(network, make_mesh(world_size), layers=layers, timeout_s=TIMEOUT_S, **options)


def build(split: Split) -> Any:
    return strategy(
        "butterfly",
        split.model,
        lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        split=split,
        timeout_s=TIMEOUT_S,
    )


def loss_of(split: Split, x: Tensor) -> Tensor:
    return cross_entropy(split.model(x), torch.arange(len(x)) % 11).mean()


def ranks_with_other_layers(rank: int, world_size: int) -> None:
    """Refused when the strategy is built, naming what differs."""
    split = split_network(world_size, "2.*" if rank == 0 else "2.[03]")
    with pytest.raises(SyncError, match=r"differ: split parameters is|differ: .*split layer 2\.6"):
        build(split)
    split.close()


def not_finite_reaches_the_loss(rank: int, world_size: int) -> None:
    """NaN in one rank's images, by any codec: in its loss, and in a step that all ranks leave out."""
    for codec in ("fp32", "dynamic-tree", "bf16"):
        split = split_network(world_size, activations=codec, deltas=codec, small=1)
        sync = build(split)
        before = [parameter.detach().clone() for parameter in split.model.parameters()]
        x = images(rank)
        if rank == 1:
            x[0] = torch.nan
        loss = loss_of(split, x)
        if rank == 1 or codec == "fp32":  # a codec's block may have numbers of another rank's images, too
            assert torch.isnan(loss).item() is (rank == 1)
        scaler = FiniteCheckScaler()
        scaler.scale(loss).backward()
        report = sync.step(scaler)
        assert report.found_inf and report.non_finite > 0
        for parameter, kept in zip(split.model.parameters(), before, strict=True):
            assert torch.equal(parameter, kept)
        sync.close()
        split.close()


def killed_in_an_exchange(rank: int, world_size: int) -> None:
    """kill -9 of a rank on its way to an exchange of activations; the last case: this rank does not come back."""
    split = split_network(world_size)
    F.mse_loss(split.model(images(rank)), torch.zeros(6, 11)).backward()
    if rank == world_size - 1:
        link = split._link
        submit = link._submit

        def die(what: str, *others: Any) -> Any:
            if what.startswith("activations"):
                os.kill(os.getpid(), signal.SIGKILL)
            return submit(what, *others)

        link._submit = die
        split.model(images(rank))
    start = time.monotonic()
    with pytest.raises(SyncError, match=r"model axis: waited for the activations .* and got: .* A rank has died"):
        split.model(images(rank))
    assert time.monotonic() - start < TIMEOUT_S + 5


CASES = {2: ["ranks_with_other_layers", "not_finite_reaches_the_loss", "killed_in_an_exchange"]}
