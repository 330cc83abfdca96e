"""Cases: the loop trains a network whose layers are split among ranks, as it trains one whose are not."""

from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from augpipe.trainer.loop import run
from augpipe.trainer.report.metrics import read_rows
from augpipe.trainer.strategies import SyncError
from tests.distributed.train_amp_cases import shared_folder
from tests.distributed.train_runs import assert_no_pickles, config, write_photos

NUM_IMAGES = 27
"""In batches of 4 × 4: the epoch's last one is cut short, and some ranks have an image of it more than others."""
CONV = {"model": {"name": "small-cnn", "options": {"width": 2, "dropout": 0.0}}}
MLP = {"model": {"name": "mullapudi-mlp", "options": {"hidden": [24, 16], "dropout": 0.5, "in_features": 768}}}
TOLERANCE = 2e-5
"""Tolerance of losses: sums of float32 in another order, through a few steps."""


def losses(rank: int, folder: Path, name: str, **tables: Any) -> list[tuple[float, float, float]]:
    """(loss, top-1, norm) of each step."""
    photos = folder / "photos" if rank else write_photos(folder, NUM_IMAGES)
    dist.barrier()
    made = config(folder / name, photos, **({"optim": {"name": "sgd", "lr": 0.05, "clip_norm": 1.0}} | tables))
    result = run(made)
    dist.barrier()
    rows = read_rows(folder / name / "metrics.csv")
    assert result.step == len(rows) == 4
    is_split = made.parallel.model > 1
    for row in rows:
        assert (float(row["activations_mb"]) > 0) == is_split
        assert float(row["sent_mb"]) > float(row["activations_mb"])
    return [(float(row["loss"]), float(row["top1"]), float(row["grad_norm"])) for row in rows]


def assert_alike(found: list[tuple[float, float, float]], expected: list[tuple[float, float, float]]) -> None:
    for mine, theirs in zip(found, expected, strict=True):
        assert mine == pytest.approx(theirs, rel=TOLERANCE), (found, expected)


def as_without_splitting(rank: int, world_size: int) -> None:
    """Whatever the strategy, the scheme, and where logits are."""
    with shared_folder(rank) as folder:
        expected = losses(rank, folder, "whole", **CONV)
        for number, (strategy, parallel) in enumerate(
            [
                ("ddp", {"model": 2}),
                ("butterfly", {"model": 2, "scheme": "rotate", "logits": "split"}),
                ("lazy", {"model": 2, "layers": ["classifier.*"], "logits": "split"}),
            ]
        ):
            sync = {"strategy": strategy, "bucket_bytes": 2000}
            assert_alike(losses(rank, folder, f"run{number}", sync=sync, parallel=parallel, **CONV), expected)
            assert_no_pickles(folder / f"run{number}")


def on_one_model_axis(rank: int, world_size: int) -> None:
    """All ranks share all layers, and no gradient travels; dropout draws alike, however they are split."""
    with shared_folder(rank) as folder:
        expected = losses(rank, folder, "two", parallel={"model": 2}, **MLP)
        for scheme in ("gather", "rotate"):
            parallel = {"model": 4, "scheme": scheme, "layers": ["2", "5"]}
            assert_alike(losses(rank, folder, scheme, parallel=parallel, **MLP), expected)


def resumed_on_other_meshes(rank: int, world_size: int) -> None:
    """A run that is stopped in the middle goes on with other parts of its layers, or without, as if never stopped."""
    with shared_folder(rank) as folder:
        photos = folder / "photos" if rank else write_photos(folder, NUM_IMAGES)
        dist.barrier()
        for number, (tables, strategy, meshes) in enumerate([(CONV, "butterfly", (2, 1)), (MLP, "lazy", (2, 4))]):
            sync, optim = {"strategy": strategy, "bucket_bytes": 2000}, {"name": "adamw", "lr": 0.01}
            layers = {"layers": ["2", "5"]} if tables is MLP else {}
            found = []
            for name, stages in (("stopped", [(meshes[0], 2), (meshes[1], None)]), ("straight", [(meshes[-1], None)])):
                out = folder / f"{name}{number}"
                for model, max_steps in stages:
                    parallel = {"model": model} | layers
                    run(config(out, photos, max_steps=max_steps, parallel=parallel, sync=sync, optim=optim, **tables))
                    dist.barrier()
                found.append([float(row["loss"]) for row in read_rows(out / "metrics.csv")])
            assert len(found[0]) == 4
            assert found[0] == pytest.approx(found[1], rel=1e-4), found


def encoded(rank: int, world_size: int) -> None:
    """In 8 bits, gradients as well as activations: fewer bytes, and nearly the same losses."""
    with shared_folder(rank) as folder:
        wide = {
            "model": {"name": "mullapudi-mlp", "options": {"hidden": [512, 512], "dropout": 0.0, "in_features": 768}}
        }
        whole = losses(rank, folder, "whole", parallel={"model": 2}, **wide)
        coded = {"model": 2, "activations": "dynamic-tree", "deltas": "dynamic-tree"}
        found = losses(
            rank, folder, "coded", parallel=coded, sync={"strategy": "lazy", "codec": "dynamic-tree"}, **wide
        )
        sent = [float(read_rows(folder / name / "metrics.csv")[0]["sent_mb"]) for name in ("whole", "coded")]
    for mine, theirs in zip(found, whole, strict=True):
        assert mine[0] == pytest.approx(theirs[0], rel=0.05)
    assert sent[1] < 0.45 * sent[0]


def refused(rank: int, world_size: int) -> None:
    """What does not fit is said on all ranks, before anything begins."""
    with shared_folder(rank) as folder:
        photos = folder / "photos" if rank else write_photos(folder, NUM_IMAGES)
        dist.barrier()
        with pytest.raises(ValueError, match=r"parallel\.model=3 does not divide the run's 4 ranks: .*1, 2, 4\."):
            run(config(folder / "three", photos, parallel={"model": 3}))
        with pytest.raises(ValueError, match="is not a fully connected layer"):
            run(config(folder / "none", photos, parallel={"model": 2, "layers": ["nothing*"]}))
        dist.barrier()
        with pytest.raises(SyncError, match=r"parallel\.model is 2 on rank 0 and 1 on rank 3"):
            run(config(folder / "other", photos, parallel={"model": 1 if rank == 3 else 2}))


CASES = ["as_without_splitting", "on_one_model_axis", "resumed_on_other_meshes", "encoded", "refused"]
