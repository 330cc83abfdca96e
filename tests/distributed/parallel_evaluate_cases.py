"""Cases: an evaluation of a network whose layers are split is that of the whole one; copies of it are of their own."""

import copy
from types import SimpleNamespace
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from augpipe.trainer.config import make_config
from augpipe.trainer.loop.evaluate import Evaluation, evaluate
from augpipe.trainer.parallel import Split
from tests.distributed.parallel_state_cases import images, network, split_network
from tests.distributed.sync_models import assert_same_everywhere
from tests.distributed.train_evaluate_cases import Batch, Batches

LENGTHS = ((4, 3, 0), (4, 0, 0), (4, 0, 2), (2, 0, 0))
"""How long each rank's batches are: in the second some ranks of an axis have none, in the third a whole axis may."""


def batches(rank: int) -> Batches:
    generator = torch.Generator().manual_seed(2 + rank)
    return Batches(
        [
            Batch(images=3 * torch.randn(num, 5, generator=generator), labels=torch.arange(num) % 11)
            for num in LENGTHS[rank]
        ]
    )


def evaluated(model: nn.Module, loader: Any, group: Any) -> Evaluation:
    world: Any = SimpleNamespace(device=torch.device("cpu"), control=group)
    return evaluate(make_config({"data": {"source": "x"}}), world, model, loader)


def in_numbers(found: Evaluation) -> Tensor:
    return torch.tensor([found.loss, found.top1, found.top5, found.num_samples], dtype=torch.float64)


def as_the_whole_network(rank: int, world_size: int) -> None:
    """With uneven and empty batches, logits whole and split, in one exchange or in pieces."""
    expected = evaluated(network(), batches(rank), dist.group.WORLD)
    assert expected.num_samples == sum(map(sum, LENGTHS[:world_size])) and 0 < expected.top5 < 1
    kinds: list[tuple[Literal["whole", "split"], Literal["gather", "rotate"]]] = [
        ("whole", "gather"),
        ("split", "gather"),
        ("split", "rotate"),
    ]
    for model_size in {2, world_size}:
        for logits, scheme in kinds:
            split = split_network(model_size, logits=logits, scheme=scheme)
            split.model.train()
            number = split.num_forwards
            found = in_numbers(evaluated(split.model, batches(rank), dist.group.WORLD))
            assert_same_everywhere(found)
            torch.testing.assert_close(found, in_numbers(expected), rtol=1e-5, atol=1e-6)
            assert split.model.training and split.num_forwards == number
            split.close()


def averages_are_of_their_own(rank: int, world_size: int) -> None:
    """A deep copy shares the exchanges, and no layer: its chains run its own weights."""
    split = split_network(2)
    split.model.eval()
    before = split.model(images(rank)).detach()
    averaged = AveragedModel(split.model)
    copied = Split(averaged.module, split.mesh, split._link, split._passes, split.issuer, split.settings)
    assert len(copied.chains) == len(split.chains) == 1
    for ours, theirs in zip(copied.chains, split.chains, strict=True):
        assert ours is not theirs and ours._passes is theirs._passes is split._passes
        placed = [one.module for run in ours.runs for one in run.modules]
        assert {id(module) for module in placed} <= {id(module) for module in averaged.module.modules()}
        assert not {id(module) for module in placed} & {id(module) for module in split.model.modules()}
    assert copy.deepcopy(split.mesh) is split.mesh
    with torch.no_grad():
        for parameter in split.model.parameters():
            parameter.zero_()
    assert torch.equal(averaged.module(images(rank)), before)
    assert not split.model(images(rank)).any()
    split.close()


CASES = {2: ["as_the_whole_network", "averages_are_of_their_own"], 4: ["as_the_whole_network"]}
