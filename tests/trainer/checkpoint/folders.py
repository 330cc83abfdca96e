"""Checkpoints of two ranks that are written without any, and compared to the last bit."""

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from augpipe.trainer.checkpoint import Box, Checkpoint
from augpipe.trainer.checkpoint.checkpoints_folder import finish_checkpoint, unfinished_path
from augpipe.trainer.checkpoint.save import Copied
from augpipe.trainer.checkpoint.tree import flatten

WHOLE = (6, 4)
CUTS = (0, 2, 6)


def box_at(rank: int) -> Any:
    """ "fc" is cut into rows, and its average into columns."""
    start, stop = CUTS[rank : rank + 2]
    rows = Box(shape=WHOLE, offsets=(start, 0), sizes=(stop - start, 4))
    columns = Box(shape=(4, 6), offsets=(0, start), sizes=(4, stop - start))
    return {"/model/fc": rows, "/ema/fc": columns}.get


def common(step: int, rank: int | None = None) -> dict[str, Any]:
    """What the ranks have in common after a step, or what of it a rank has."""
    numbers = torch.Generator().manual_seed(step)
    fc, average = torch.randn(WHOLE, generator=numbers), torch.randn((4, 6), generator=numbers)
    if rank is not None:
        rows, columns = box_at(rank)("/model/fc"), box_at(rank)("/ema/fc")
        fc = rows.within(fc, Box.all_of(WHOLE))
        average = columns.within(average, Box.all_of((4, 6)))
    return {
        "model": {"fc": fc, "bias": torch.randn(3, generator=numbers, dtype=torch.float64)},
        "ema": {"fc": average, "n_averaged": torch.tensor(step)},
        "counters": {"step": step, "best": float("inf"), "name": "ä"},
    }


def own(step: int, rank: int) -> dict[str, Any]:
    """What is a rank's own."""
    numbers = torch.Generator().manual_seed(100 * step + rank)
    return {
        "sync": {"state": {(0, 5): {"exp_avg": torch.randn(5, generator=numbers)}}, "empty": torch.zeros(0, 3)},
        "buffers": {"mean": torch.randn(2, generator=numbers), "bf16": torch.ones(3, dtype=torch.bfloat16) * rank},
        "rng": torch.randint(256, (11,), generator=numbers, dtype=torch.uint8),
        "flags": torch.tensor([True, False]),
    }


def write(folder: Path, step: int) -> Path:
    """A checkpoint of two ranks."""
    files: dict[str, Any] = {}
    for rank in range(2):
        files |= Copied(rank, common(step, rank), own(step, rank), box_at(rank)).write(unfinished_path(folder, step))
    return finish_checkpoint(folder, step, {"step": step, "world_size": 2}, 9, files)


def contents(path: Path) -> tuple[list[str], dict[str, Tensor]]:
    """All that is in a checkpoint: JSON texts, tensors."""
    checkpoint = Checkpoint(path)
    parts = [checkpoint.common(), checkpoint.common(box_at(0)), checkpoint.common(box_at(1))]
    found = [flatten(part) for part in [*parts, *checkpoint.of_all_ranks()]]
    return [text for text, _ in found], {
        f"{number}/{name}": tensor for number, (_, tensors) in enumerate(found) for name, tensor in tensors.items()
    }


def is_same(found: tuple[list[str], dict[str, Tensor]], expected: tuple[list[str], dict[str, Tensor]]) -> bool:
    """Whether two are the same to the last bit."""
    return (
        found[0] == expected[0]
        and found[1].keys() == expected[1].keys()
        and all(torch.equal(tensor, expected[1][name]) for name, tensor in found[1].items())
    )


def sum_up(path: Path) -> None:
    """Let the list say what the files are now, as somebody does who wants to be believed."""
    manifest = json.loads((path / "manifest.json").read_text())
    for name, about in manifest["files"].items():
        if (path / name).is_file():
            data = (path / name).read_bytes()
            about |= {"num_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    del manifest["sha256"]
    write_list(path, manifest)


def write_list(path: Path, manifest: dict[str, Any]) -> None:
    """A list with its own sum, which is of its sorted JSON."""
    own_sum = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
    (path / "manifest.json").write_text(json.dumps(manifest | {"sha256": own_sum}))
