"""Ranks that go on under another strategy, or with other buckets, have the optimizer's state that they had."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.distributed.train_runs import contents, run_ranks, settings, write_photos

LAZY: dict[str, Any] = {"strategy": "lazy", "bucket_bytes": 2000}
OTHERS: dict[str, dict[str, Any]] = {
    "ddp": {"strategy": "ddp"},
    "butterfly": {"strategy": "butterfly", "bucket_bytes": 2000},
    "other buckets": {"strategy": "lazy", "bucket_bytes": 1000},
}


@pytest.mark.slow
def test_shards_are_cut_anew_for_as_many_ranks(tmp_path: Path) -> None:
    photos = write_photos(tmp_path, 16)

    def job(name: str, sync: dict[str, Any], max_steps: int) -> dict[str, Any]:
        return settings(
            tmp_path / name,
            photos,
            sync=sync,
            max_steps=max_steps,
            optim={"name": "adamw", "lr": 0.01, "decay_1d": False},
        )

    first = [job(name, LAZY, 2) for name in OTHERS]
    run_ranks(2, tmp_path / "meet", [job("whole", LAZY, 4), *first])
    run_ranks(2, tmp_path / "meet again", [job(name, sync, 4) for name, sync in OTHERS.items()])
    whole = contents(tmp_path / "whole", "step-000000004", tmp_path)
    for name in OTHERS:
        resumed = contents(tmp_path / name, "step-000000004", tmp_path)
        weights = [key for key in whole if key.startswith("common/model")]
        assert len(weights) > 10
        assert [key for key in weights if not torch.equal(whole[key], resumed[key])] == [], name
