"""What the tests of training share: tiny images, configs, ranks over Gloo, and a look into checkpoints."""

import gzip
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from augpipe.trainer.checkpoint import Checkpoint
from augpipe.trainer.config import RunConfig, load_config, make_config
from augpipe.trainer.models import build
from tests.augpipe.decoding.image_files import encoded, scene, write_files
from tests.distributed.rank_processes import run_script

RANK = """
import json, sys
from datetime import timedelta
import torch.distributed as dist
from augpipe.trainer.config import make_config
from augpipe.trainer.loop import run
rank, meeting_place, stages = json.loads(sys.argv[1])
for number, (size, jobs) in enumerate(stages):
    if rank >= size:
        continue
    if size > 1:
        meet = f"file://{meeting_place}-{number}"
        dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=size, timeout=timedelta(seconds=60))
    for job in jobs:
        run(make_config(job))
    if size > 1:
        dist.destroy_process_group()
"""
SAVE_AGAIN = """
from pathlib import Path
from augpipe.trainer.checkpoint import Saver
from augpipe.trainer.loop.state import RunState
def load(state, checkpoint, world, sync, inner=RunState.load):
    inner(state, checkpoint, world, sync)
    if checkpoint.world_size != world.size:
        folder = checkpoint.path.parents[1] / "loaded"
        saver = Saver(folder, world.saving, keep=9, asynchronous=False, about={})
        common = state.common() if world.is_first or state.writes_common else {}
        saver.save(checkpoint.step, common, state.own(world.device), state.box_at)
RunState.load = load
"""
"""Ranks that take up a checkpoint of another number of ranks save what they have before they train, in `loaded`."""


def write_photos(folder: Path, num: int, classes: int = 2) -> Path:
    """A folder of class folders."""
    files = {f"c{i % classes}/{i:03}.jpg": encoded(scene(24, 24 + i % 5, i), "JPEG") for i in range(num)}
    write_files(folder, {f"photos/{name}": data for name, data in files.items()})
    return folder / "photos"


def settings(out: Path, photos: Path, **tables: Any) -> dict[str, Any]:
    """A config as nested dicts: a few images of 16 pixels, a network of a few weights."""
    made: dict[str, Any] = {
        "out": str(out),
        "epochs": 2,
        "device": "cpu",
        "data": {"source": str(photos), "size": 16, "scales": [18, 20], "batch_size": 4, "drop_last": False},
        "model": {"name": "small-cnn", "options": {"width": 2, "dropout": 0.2}},
        "optim": {"name": "sgd", "lr": 0.05},
        "report": {"log_every": 1, "sample_ids": True, "progress": False},
        "faults": {"timeout_s": 60, "heartbeat_timeout_s": 20},
    }
    for name, value in tables.items():
        made[name] = {**made.get(name, {}), **value} if isinstance(value, dict) else value
    return made


def config(out: Path, photos: Path, **tables: Any) -> RunConfig:
    return make_config(settings(out, photos, **tables))


def run_ranks(meeting_place: Path, *stages: tuple[int, list[dict[str, Any]]]) -> None:
    """Run configs one after the other, each stage's on its number of ranks; a rank's traceback is in the failure.

    All stages are run by the same processes, of which the last ones are idle where there are fewer ranks.
    """
    size = max(size for size, _ in stages)
    run_script(SAVE_AGAIN + RANK, [[rank, str(meeting_place), stages] for rank in range(size)], flags=("-W", "error"))


def checkpoints(out: Path) -> list[str]:
    """Names of the run's checkpoints, oldest first."""
    return sorted(path.name for path in (out / "checkpoints").iterdir())


def contents(out: Path, name: str) -> dict[str, torch.Tensor]:
    """All tensors of a checkpoint, read as docs/checkpoints.md has it, without augpipe."""
    return tensors_in(out / "checkpoints" / name)


def tensors_in(folder: Path) -> dict[str, torch.Tensor]:
    """All tensors of a checkpoint's folder, whole."""
    dtypes = {"F32": torch.float32, "F64": torch.float64, "I64": torch.int64, "U8": torch.uint8, "I32": torch.int32}
    found: dict[str, torch.Tensor] = {}
    for path in sorted(folder.glob("rank*.safetensors")):
        data = bytearray(path.read_bytes())
        first = 8 + int.from_bytes(data[:8], "little")
        header = json.loads(data[8:first])
        parts = header.pop("__metadata__", {})
        for name, about in header.items():
            start, stop = about["data_offsets"]
            dtype = dtypes[about["dtype"]]
            value = torch.frombuffer(data[first + start : first + stop] or bytearray(8), dtype=dtype)
            value = value[: math.prod(about["shape"])].reshape(about["shape"])
            if name in parts:
                part = json.loads(parts[name])
                whole = found.setdefault(name, torch.empty(part["shape"], dtype=dtype))
                ends = zip(part["offsets"], about["shape"], strict=True)
                whole[tuple(slice(offset, offset + size) for offset, size in ends)] = value
            else:
                assert name not in found
                found[name] = value
    return found


def whole_state(checkpoint: Checkpoint) -> dict[str, torch.Tensor]:
    """What does not depend on the number of ranks: weights, averages, the optimizer's state of all of them."""
    common, owns = checkpoint.common(), checkpoint.of_all_ranks()
    found: dict[str, torch.Tensor] = {}
    for part, averaged, prefix in (("model", "buffers", ""), ("ema", "ema_buffers", "module.")):
        statistics = checkpoint.averaged_buffers(averaged)
        is_own = {f"{prefix}{name}" for name in owns[0][averaged]}
        found |= {f"{part}/{name}": value for name, value in common[part].items() if name not in is_own}
        found |= {f"{averaged}/{name}": value.float() for name, value in statistics.items()}
    if common["optimizer"] is not None:
        for name, entries in common["optimizer"]["state"].items():
            found |= {f"{name}/{entry}": value for entry, value in entries.items()}
    slices: dict[str, dict[int, dict[Any, torch.Tensor]]] = {}
    for own in owns:
        for place, model_rank, where, value in slices_in(own["sync"]):
            slices.setdefault(place, {}).setdefault(model_rank, {})[where] = value
    split = (common["parallel"] or {"parts": {}})["parts"]
    for place, of_ranks in slices.items():
        flat = [torch.cat([ranges[where] for where in sorted(ranges)]) for _, ranges in sorted(of_ranks.items())]
        name, _, entry = place.rpartition("/")
        if name in split and entry != "step":
            dim, shape = split[name]["dim"], list(split[name]["shape"])
            shape[dim] = -1
            found[place] = torch.cat([part.view(shape) for part in flat], dim)
        else:
            found[place] = flat[0]
    return {place: value.reshape(-1) for place, value in found.items()}


def slices_in(sync: dict[str, Any]) -> Iterator[tuple[str, int, tuple[int, int], torch.Tensor]]:
    """(Place, model rank, range of elements, values) of each slice of the optimizer's state that a rank has."""
    pieces = [(0, sync["rest"]), *sync["shards"].items()] if sync.get("kind") == "split" else [(0, sync)]
    for model_rank, piece in pieces:
        if piece is None or piece.get("kind") != "shard":
            continue
        for name, ranges in piece["state"].items():
            for where, entries in ranges.items():
                yield from (
                    (f"{name}/{entry}", model_rank, where if value.ndim else (0, 1), value.reshape(-1))
                    for entry, value in entries.items()
                )
        for name, residuals in piece["update_residuals"].items():
            yield from ((f"{name}/residual", model_rank, where, value) for where, value in residuals.items())


def assert_no_pickles(out: Path) -> None:
    """Every file of a run's folder is a text, a file of safetensors, or a zip of arrays that are no objects."""
    for path in (path for path in out.rglob("*") if path.is_file()):
        data = path.read_bytes()
        if path.suffix == ".safetensors":
            length = int.from_bytes(data[:8], "little")
            header = json.loads(data[8 : 8 + length])
            ends = [about["data_offsets"][1] for name, about in header.items() if name != "__metadata__"]
            assert 8 + length + max(ends) == len(data), path
        elif path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as archive:  # arrays of objects raise ValueError
                assert all(archive[name].dtype != object for name in archive.files), path
                assert [f"{name}.npy" for name in archive.files] == archive.zip.namelist(), path
        elif path.suffix == ".log":  # of parameter servers: events, 40 bytes of numbers each
            assert path.parent.name == "order" and len(data) % 40 == 0, path
        else:
            (gzip.decompress(data) if path.suffix == ".gz" else data).decode()


def network_of(out: Path, name: str, part: str) -> nn.Module:
    """The run's small-cnn of three classes with the weights of a checkpoint, as the docs have it."""
    settings = load_config(out / "config.toml")
    model = build("small-cnn", num_classes=3, **settings.model.options)
    saved = contents(out, name)
    model.load_state_dict({key.removeprefix(part): value for key, value in saved.items() if key.startswith(part)})
    return model.eval()


def sample_ids(out: Path, rank: int) -> list[tuple[int, int, list[int]]]:
    """(step, epoch, ids) of each step of a rank."""
    lines = (out / f"samples-rank{rank}.csv").read_text().splitlines()[1:]
    rows = [line.split(",") for line in lines]
    return [(int(step), int(epoch), [int(i) for i in ids.split()]) for step, epoch, ids in rows]
