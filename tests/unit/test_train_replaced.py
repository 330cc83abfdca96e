"""A checkpoint that takes another's place, and a batch of nothing: neither may cost what there was."""

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import HashStore

from augpipe.trainer.checkpoint import Saver
from augpipe.trainer.checkpoint.folder import newest_whole, remove_unfinished
from augpipe.trainer.loop.group import Group
from augpipe.trainer.loop.step import Step
from augpipe.trainer.sync import strategy


@pytest.fixture
def alone() -> Iterator[Any]:
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield dist.group.WORLD
    dist.destroy_process_group()


def test_killed_while_a_checkpoint_takes_anothers_place(
    alone: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saver = Saver(tmp_path, alone, keep=1, asynchronous=False, about={})
    saver.save(10, {"a": torch.ones(3)}, {"b": 1})
    inner = os.rename

    def killed(old: Any, new: Any) -> None:
        if str(old).endswith(".tmp") and Path(new).name == "step-000000010":
            raise OSError("killed")
        inner(old, new)

    monkeypatch.setattr(os, "rename", killed)
    saver.save(10, {"a": torch.zeros(3)}, {"b": 2})
    remove_unfinished(tmp_path)
    assert newest_whole(tmp_path) == tmp_path / "step-000000010"
    monkeypatch.undo()
    saver.save(10, {"a": torch.zeros(3)}, {"b": 2})
    assert [path.name for path in tmp_path.iterdir()] == ["step-000000010"]


def test_a_batch_of_nothing_leaves_running_statistics_alone() -> None:
    class Nothing(SimpleNamespace):
        def __len__(self) -> int:
            return 0

    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 2))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    config: Any = SimpleNamespace(
        optim=SimpleNamespace(amp="off", label_smoothing=0.0),
        model=SimpleNamespace(channels_last=False),
        faults=SimpleNamespace(on_nan="ignore"),
    )
    world: Any = SimpleNamespace(device=torch.device("cpu"), size=2)
    synced = strategy("ddp", model, lambda parameters: torch.optim.SGD(parameters, lr=1.0))
    empty: Any = Nothing(
        images=torch.zeros(0, 3, 8, 8), labels=torch.zeros(0, dtype=torch.int64), sample_ids=torch.zeros(0)
    )
    Step(config, world, model, synced, None).run(iter([empty]), Group(num_batches=1, num_samples=1))
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name
