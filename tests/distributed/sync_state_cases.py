"""Cases: state_dict and back: bit-exact with the same ranks, the same training with fewer or more."""

import copy
import warnings
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from augpipe.trainer.checkpoint.tree import flatten
from augpipe.trainer.strategies import merge
from tests.distributed.sync_models import batches, build, network, train_step, weights


def resumed_is_bit_exact(rank: int, world_size: int) -> None:
    """Stop after three steps, resume in a new model and strategy: the weights of a run without a stop."""
    for name in ("butterfly", "lazy"):
        for options in ({}, {"codec": "dynamic-tree", "error_feedback": True}):
            straight = network()
            sync = build(name, straight, "adamw", **options)
            for batch in batches(rank, 6):
                train_step(sync, batch)
            sync.flush()
            sync.close()

            first = network()
            sync = build(name, first, "adamw", **options)
            for batch in batches(rank, 3):
                train_step(sync, batch)
            state, model_state = sync.state_dict(), first.state_dict()
            sync.close()
            second = network()
            sync = build(name, second, "adamw", **options)
            second.load_state_dict(model_state)
            sync.load_state_dict(state)
            for batch in batches(rank, 3, start=3):
                train_step(sync, batch)
            sync.flush()
            sync.close()
            assert torch.equal(weights(second), weights(straight)), (name, options)


def loaded_is_all_there_is(rank: int, world_size: int) -> None:
    """A state from before the first step leaves nothing of later ones; what is given is copied."""
    for name in ("butterfly", "lazy"):
        sync = build(name, network(), "adamw")
        fresh = copy.deepcopy(sync.state_dict())
        for batch in batches(rank, 2):
            train_step(sync, batch)
        later = sync.state_dict()
        text, kept = flatten(later)
        sync.load_state_dict(later)
        train_step(sync, batches(rank, 1)[0])
        assert flatten(later)[0] == text, name
        assert all(torch.equal(tensor, kept[place]) for place, tensor in flatten(later)[1].items()), name
        sync.load_state_dict(fresh)
        assert sync.state_dict()["state"] == {} and not sync.optimizer.state, name
        sync.close()


def shards_are_small(rank: int, world_size: int) -> None:
    model = network()
    sync = build("lazy", model, "adamw")
    train_step(sync, batches(rank, 1)[0])
    state = sync.state_dict()["state"]
    held = sum(piece["exp_avg"].numel() for pieces in state.values() for piece in pieces.values())
    total = sum(parameter.numel() for parameter in model.parameters())
    assert abs(held - total / world_size) < 64 * 8
    counts = torch.tensor([held])
    dist.all_reduce(counts)
    assert int(counts) == total
    sync.close()


def misfits_are_refused(rank: int, world_size: int) -> None:
    sync = build("lazy", network(), "adamw")
    train_step(sync, batches(rank, 1)[0])
    mine = sync.state_dict()
    sync.close()
    other = build("lazy", network(), "adamw", bucket_bytes=3000)
    with pytest.raises(ValueError, match="it is of another rank, world size or bucket size. Use merge"):
        other.load_state_dict(mine)
    with pytest.raises(ValueError, match="kind='shard'; expected format=2, kind='full'"):
        build("butterfly", network(), "adamw").load_state_dict(mine)
    with pytest.raises(ValueError, match=r"give merge\(\) the state_dict of every rank"):
        merge([mine])
    with pytest.raises(ValueError, match="the state is of param groups of"):
        other.load_state_dict(mine | {"groups": mine["groups"] * 2})
    other.close()


def resharded(rank: int, world_size: int) -> None:
    """2 ranks, then 3, then 1, on the same batches: as one rank from start to end; and over to another strategy."""
    pair, trio = dist.new_group([0, 1]), dist.new_group([0, 1, 2])
    single = [dist.new_group([one]) for one in range(world_size)][rank]

    def steps(name: str, model: nn.Module, state: Any, group: Any, start: int) -> Any:
        """Two steps, the same batch on every rank: any number of ranks then trains alike."""
        sync = build(name, model, "adamw", group=group)
        if state is not None:
            sync.load_state_dict(state)
        for batch in batches(0, 2, start=start):
            train_step(sync, batch)
        sync.flush()
        full = sync.full_optimizer_state()
        sync.close()
        return full

    expected = network()
    alone = None
    for part in range(4):
        alone = steps("lazy", expected, alone, single, 2 * part)
    model = network()
    full = steps("lazy", model, None, pair, 0) if rank < 2 else None
    handed: list[Any] = [(full, model.state_dict())]
    dist.broadcast_object_list(handed, src=0)
    full, state = handed[0]
    model.load_state_dict(state)
    full = steps("lazy", model, full, trio, 2)
    if rank == 0:
        full = steps("lazy", model, full, single, 4)
    handed = [(full, model.state_dict())]
    dist.broadcast_object_list(handed, src=0)
    full, state = handed[0]
    model.load_state_dict(state)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        steps("butterfly", model, full, trio, 6)
    if rank == 0:
        torch.testing.assert_close(weights(model), weights(expected), rtol=64 * 2**-24, atol=64 * 2**-24)


def full_state_of_channels_last(rank: int, world_size: int) -> None:
    """A whole tensor's state goes to the elements that it is of, in whatever order it or the weights lie in memory."""
    model = nn.Conv2d(16, 8, 3, bias=False).to(memory_format=torch.channels_last)
    sync = build("lazy", model, "adamw", codec="dynamic-tree")
    model(torch.ones(1, 16, 3, 3)).sum().backward()
    sync.step()
    full = sync.full_optimizer_state()
    values = torch.arange(16.0 * 8 * 9).reshape(8, 16, 3, 3)
    in_memory = values.permute(0, 2, 3, 1).reshape(-1)
    for layout in (torch.contiguous_format, torch.channels_last):
        given = values.contiguous(memory_format=layout)
        state = {"weight": full["state"]["weight"] | {"exp_avg": given}}
        sync.load_state_dict(full | {"state": state, "update_residuals": {"weight": given}})
        shard, again = sync.state_dict(), sync.full_optimizer_state()
        pieces = [(where, piece["exp_avg"]) for where, piece in shard["state"]["weight"].items()]
        pieces += shard["update_residuals"]["weight"].items()
        assert len(pieces) >= 2
        for where, piece in pieces:
            assert torch.equal(piece, in_memory[slice(*where)]), where
        assert torch.equal(again["state"]["weight"]["exp_avg"], values)
        assert torch.equal(again["update_residuals"]["weight"], values)
    sync.close()


CASES = {
    3: [
        "resumed_is_bit_exact",
        "loaded_is_all_there_is",
        "shards_are_small",
        "misfits_are_refused",
        "resharded",
        "full_state_of_channels_last",
    ]
}
