"""Checkpoints of version 1, which hold pickles, written in today's form."""

import json
import warnings
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load

from augpipe.trainer.checkpoint.checkpoints_folder import finish_checkpoint, finished, finished_path, unfinished_path
from augpipe.trainer.checkpoint.manifest import verify
from augpipe.trainer.checkpoint.save import COMMON, Copied
from augpipe.trainer.checkpoint.tree import restore


def convert(old: Path, folder: Path) -> Path:
    """Write a checkpoint of version 1 to `folder` in today's form; whoever wrote it can run code here, by its pickle.

    Raises:
        ValueError: it is damaged or of another version, or `folder` has one of this step.
    """
    manifest = verify(old, version=1)
    step, world_size = manifest["step"], manifest["world_size"]
    if finished_path(folder, step).exists():
        raise ValueError(f"{finished_path(folder, step)} exists. Remove it, or choose another folder.")
    reader = FileSystemReader(old)
    contents = reader.read_metadata().state_dict_metadata

    def state_of(part: str) -> dict[str, Any]:
        tensors: dict[str, Any] = {}
        for name, about in contents.items():
            if name.startswith(f"{part}/"):
                assert isinstance(about, TensorStorageMetadata)
                tensors[name] = torch.empty(about.size, dtype=about.properties.dtype)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="torch.distributed is disabled")
            load(tensors, storage_reader=reader, no_dist=True)
        text = bytes(tensors[f"{part}/.json"].numpy())
        state: dict[str, Any] = restore(json.loads(text), lambda place: tensors[f"{part}{place}"])
        return state

    files: dict[str, Any] = {}
    for rank in range(world_size):
        copied = Copied(rank, state_of(COMMON) if rank == 0 else {}, state_of(f"rank{rank}"))
        files |= copied.write(unfinished_path(folder, step))
    about = {key: value for key, value in manifest.items() if key not in ("version", "files")}
    return finish_checkpoint(folder, step, about, len(finished(folder)) + 1, files)
