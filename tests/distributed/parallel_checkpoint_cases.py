"""Cases: checkpoints of networks whose layers are split, taken up by as many model ranks, by others, and by none."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from augpipe.trainer.checkpoint import Checkpoint, DamagedError, Saver, agree_on_newest
from augpipe.trainer.checkpoint.save import Copied
from augpipe.trainer.config.tables import EmaConfig, OptimConfig, ScheduleConfig
from augpipe.trainer.loop.run_network import make_average
from augpipe.trainer.loop.state import Counters, RunState
from augpipe.trainer.models.finetune import trainable
from augpipe.trainer.optim.optimizer import make_optimizer
from augpipe.trainer.optim.schedule import Plateau
from augpipe.trainer.strategies import strategy
from augpipe.trainer.tensors import tensor_file
from tests.distributed.largest_storage import noting
from tests.distributed.parallel_state_cases import WHOLE, images, network, shared_folder, split_network

tensor_file.CHUNK_BYTES = WHOLE // 8
Name = Literal["ddp", "butterfly", "lazy"]
OPTIM = OptimConfig(name="adamw", lr=0.01, decay_1d=False, eps=1e-3)
TOLERANCE = 1e-5


def run_state(
    name: Name,
    model_size: int,
    *,
    dropout: float = 0.5,
    optim: OptimConfig = OPTIM,
    trains: str = "all",
    **sync: Any,
) -> RunState:
    """A run that has just begun; with one model rank its layers are not split."""
    split = split_network(model_size, dropout=dropout) if model_size > 1 else None
    model = network(dropout=dropout) if split is None else split.model
    trainable(model, trains)
    loader: Any = SimpleNamespace(
        seed=0, source=SimpleNamespace(classes=("a",)), state_dict=lambda: {"seed": 0}, load_state_dict=lambda _: None
    )
    return RunState(
        model=model,
        strategy=strategy(
            name,
            model,
            lambda parameters: make_optimizer(optim, parameters),
            split=split,
            **{"bucket_bytes": 40_000, "timeout_s": 20.0} | sync,
        ),
        loader=loader,
        plateau=Plateau(ScheduleConfig()),
        scaler=None,
        ema=make_average(EmaConfig(decay=0.5), model),
        counters=Counters(),
        split=split,
    )


def train(state: RunState, steps: range) -> None:
    """Each rank on batches of its own; the average takes in each step."""
    assert state.ema is not None
    state.model.train()
    for step in steps:
        labels = torch.arange(6) % 11
        F.cross_entropy(state.strategy.module(images(100 * step + dist.get_rank())), labels).backward()
        state.strategy.step()
        state.strategy.flush()
        state.ema.update_parameters(state.model)
        state.counters.step += 1


def whole(state: RunState, model: nn.Module | None = None) -> dict[str, Tensor]:
    """Copies of the network's parameters, or of those of one with as many parts, whole."""
    found = dict((model or state.model).named_parameters())
    names = {} if state.split is None else state.split.parts
    return {
        name: state.split.gather(name, value.detach()) if state.split and name in names else value.detach().clone()
        for name, value in found.items()
    }


def close(state: RunState) -> None:
    state.strategy.close()
    if state.split is not None:
        state.split.close()


SYNC: dict[str, Any] = {"strategy": "as it was"}


def save(folder: Path, state: RunState, sync: dict[str, Any] = SYNC) -> None:
    """As the loop does; no rank makes a whole layer."""
    saver = Saver(folder, dist.group.WORLD, keep=9, asynchronous=False, about={"sync": sync})
    limit = WHOLE if state.split is not None else 2 * WHOLE
    with noting(limit, Copied, "write"):
        common = state.common() if dist.get_rank() == 0 or state.writes_common else {}
        saver.save(state.counters.step, common, state.own(torch.device("cpu")), state.box_at)
    assert saver.last_step == state.counters.step
    dist.barrier()


def resume(folder: Path, state: RunState, sync: dict[str, Any] = SYNC) -> Checkpoint:
    """As the loop does; no rank makes a whole layer."""
    path = agree_on_newest(folder, dist.group.WORLD)
    assert path is not None
    checkpoint = Checkpoint(path)
    world: Any = SimpleNamespace(rank=dist.get_rank(), size=dist.get_world_size(), device=torch.device("cpu"))
    with noting(WHOLE if state.split is not None else 2 * WHOLE):
        state.load(checkpoint, world, sync)
    return checkpoint


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float = 0.0) -> None:
    assert found.keys() == expected.keys()
    for name, value in found.items():
        torch.testing.assert_close(value, expected[name], rtol=tolerance, atol=tolerance)


def alike_to_the_last_bit(rank: int, world_size: int) -> None:
    """The same ranks go on as if nothing had been: dropout, the average and the optimizer, too."""
    for name, options in (("butterfly", {}), ("lazy", {"codec": "dynamic-tree", "error_feedback": True})):
        folder = shared_folder()
        first = run_state(name, 2, **options)
        train(first, range(2))
        save(folder, first)
        train(first, range(2, 4))
        second = run_state(name, 2, **options)
        resume(folder, second)
        assert second.split is not None and second.split.num_forwards == 2 and second.counters.step == 2
        train(second, range(2, 4))
        assert_same(whole(second), whole(first))
        assert first.ema is not None and second.ema is not None
        assert_same(whole(second, second.ema.module), whole(first, first.ema.module))
        close(first)
        close(second)


ADAMW, RMSPROP = OPTIM, OptimConfig(name="rmsprop", lr=1e-3, eps=1e-3, momentum=0.5)
TAKEN_UP: list[tuple[Name, int, OptimConfig, list[tuple[Name, int]]]] = [
    ("lazy", 1, ADAMW, [("lazy", 2), ("lazy", 4)]),
    ("lazy", 2, RMSPROP, [("lazy", 1), ("lazy", 4), ("butterfly", 2)]),
    ("lazy", 4, ADAMW, [("lazy", 1), ("lazy", 2)]),
    ("butterfly", 1, RMSPROP, [("butterfly", 4)]),
    ("butterfly", 2, ADAMW, [("butterfly", 1), ("lazy", 2)]),
    ("butterfly", 4, RMSPROP, [("butterfly", 2)]),
]
"""Strategy and model ranks that save, and those that go on. Slices of lazy owners are cut anew from each number to each
other; what stands by parameter is read by parts as weights are, so every number saves once and goes on once."""


def cut_anew(rank: int, world_size: int) -> None:
    """From each number of model ranks to each other, and to another strategy, with either optimizer."""
    for name, before, optim, others in TAKEN_UP:
        folder = shared_folder()
        first = run_state(name, before, dropout=0.0, optim=optim)
        train(first, range(2))
        saved, averaged = whole(first), whole(first, first.ema.module)
        save(folder, first)
        train(first, range(2, 4))
        for other, now in others:
            second = run_state(other, now, dropout=0.0, optim=optim)
            resume(folder, second, SYNC if other == name else {"strategy": other})
            assert_same(whole(second), saved)
            assert_same(whole(second, second.ema.module), averaged)
            train(second, range(2, 4))
            assert_same(whole(second), whole(first), TOLERANCE)
            close(second)
        close(first)


def without_a_rest(rank: int, world_size: int) -> None:
    """All that trains is split, so that only the shards have a state; cut anew, too."""
    taken_up: list[tuple[Name, int, int]] = [("ddp", 2, 1), ("butterfly", 2, 2), ("lazy", 2, 2), ("lazy", 1, 2)]
    for name, before, now in taken_up:
        first = resumed_as_if_never_stopped(name, before, now, trains="last-fc:3")
        if before > 1:
            assert first.strategy.state_dict()["rest"] is None


def resumed_as_if_never_stopped(name: Name, before: int, now: int, **options: Any) -> RunState:
    """Saved after two steps by `before` model ranks, taken up by `now`; the run that went on, closed."""
    folder = shared_folder()
    first, second = run_state(name, before, dropout=0.0, **options), run_state(name, now, dropout=0.0, **options)
    train(first, range(2))
    save(folder, first)
    train(first, range(2, 4))
    resume(folder, second)
    train(second, range(2, 4))
    assert_same(whole(second), whole(first), 0.0 if before == now else TOLERANCE)
    close(first)
    close(second)
    return first


def contents_are_named_alike(rank: int, world_size: int) -> None:
    """A checkpoint of split layers has the names and shapes of one without; each rank reads its part alone."""
    shapes = []
    for model_size in (1, world_size):
        folder = shared_folder()
        state = run_state("butterfly", model_size)
        train(state, range(1))
        save(folder, state)
        checkpoint = Checkpoint(folder / "step-000000001")
        shapes.append(checkpoint.common_shapes())
        common = checkpoint.common(state.box_at)
        for name, value in state.model.named_parameters():
            assert torch.equal(common["model"][name], value), name
        close(state)
    assert shapes[0] == shapes[1]
    assert shapes[0]["/optimizer/state/2.3.weight/exp_avg"] == shapes[0]["/model/2.3.weight"]


def another_network_is_refused(rank: int, world_size: int) -> None:
    """Whose whole layers are of other shapes, though a part may be of the same."""
    folder = shared_folder()
    state = run_state("butterfly", 1)
    dist.barrier()
    common = state.common()
    common["model"]["2.0.weight"] = torch.zeros(300 // world_size, 200)
    saver = Saver(folder, dist.group.WORLD, keep=9, asynchronous=False, about={})
    saver.save(1, common if rank == 0 else {}, state.own(torch.device("cpu")))
    close(state)
    dist.barrier()
    split = run_state("butterfly", world_size)
    with pytest.raises(ValueError, match=r"size mismatch for 2\.0\.weight: .* in the checkpoint, \[300, 200\] here"):
        resume(folder, split)
    close(split)


def damage_is_seen(rank: int, world_size: int) -> None:
    """A rank's file that is cut short, or was never written, is no checkpoint; the one before it is taken."""
    folder = shared_folder()
    state = run_state("butterfly", world_size)
    for step in range(3):
        train(state, range(step, step + 1))
        save(folder, state)
    if rank == 0:
        cut = folder / "step-000000003" / f"rank{world_size - 1}.safetensors"
        cut.write_bytes(cut.read_bytes()[:-1])
        gone = folder / "step-000000002" / f"rank{world_size - 1}.safetensors"
        gone.unlink()
    dist.barrier()
    resumed = run_state("butterfly", world_size)
    assert resume(folder, resumed).step == 1
    dist.barrier()  # each rank has read its part
    if rank == 0:
        cut = folder / "step-000000001" / f"rank{world_size - 1}.safetensors"
        cut.write_bytes(cut.read_bytes()[:-1] + b"?")
    dist.barrier()
    with pytest.raises(DamagedError, match="none of the 3 checkpoints"):
        resume(folder, resumed)
    close(state)
    close(resumed)


CASES = {
    2: [
        "alike_to_the_last_bit",
        "contents_are_named_alike",
        "another_network_is_refused",
        "damage_is_seen",
        "without_a_rest",
    ],
    4: ["alike_to_the_last_bit", "cut_anew"],
}
