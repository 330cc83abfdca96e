"""Reads a checkpoint back, whatever the world size that wrote it."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load

from augpipe.trainer.checkpoint.checkpoints_folder import newest_whole
from augpipe.trainer.checkpoint.manifest import DamagedError, read_manifest
from augpipe.trainer.checkpoint.parts import BoxAt, PartTensor
from augpipe.trainer.checkpoint.save import COMMON, JSON
from augpipe.trainer.checkpoint.tree import restore


def agree_on_newest(folder: Path, group: dist.ProcessGroup) -> Path | None:
    """The checkpoint that all ranks go on from, which rank 0 has checked; None where there is none.

    Raises:
        DamagedError: on every rank, if none of them is whole.
    """
    found: list[str | None] = [None, None]
    if dist.get_rank(group) == 0:
        try:
            path = newest_whole(folder)
            found = [None if path is None else path.name, None]
        except DamagedError as error:
            found = [None, str(error)]
    dist.broadcast_object_list(found, group=group, group_src=0)
    name, problem = found
    if problem is not None:
        raise DamagedError(problem)
    return None if name is None else folder / name


class Checkpoint:
    """One checkpoint, opened; every method is called by all ranks at once."""

    def __init__(self, path: Path, group: dist.ProcessGroup) -> None:
        manifest = read_manifest(path)
        self.path = path
        self.world_size: int = manifest["world_size"]
        """Ranks that wrote it."""
        self.step: int = manifest["step"]
        """Steps done before it."""
        self.sync: dict[str, Any] | None = manifest.get("sync")
        """The [sync] table that it was written under; None in checkpoints that do not tell."""
        self._group = group
        self._reader = FileSystemReader(path)
        self._contents = self._reader.read_metadata().state_dict_metadata

    def common(self, box_at: BoxAt | None = None, *, entries: Collection[str] | None = None) -> dict[str, Any]:
        """What the ranks had in common, or these `entries` of it, as "model" is one; no others are read.

        Of tensors for which `box_at` has a box of their shape, this part alone.
        """
        return self._read([COMMON], box_at, entries)[COMMON]

    def common_tensor(self, place: str) -> torch.Tensor | None:
        """One of the tensors that the ranks had in common, as "ema/n_averaged"; None where there is none."""
        key = f"{COMMON}/{place}"
        about = self._contents.get(key)
        if not isinstance(about, TensorStorageMetadata):
            return None
        loaded: dict[str, Any] = {key: torch.empty(about.size, dtype=about.properties.dtype)}
        load(loaded, storage_reader=self._reader, process_group=self._group)
        tensor: torch.Tensor = loaded[key]
        return tensor

    def common_shapes(self) -> dict[str, tuple[int, ...]]:
        """By its place, the shape of each tensor that the ranks had in common, whole."""
        return {
            key.removeprefix(COMMON): tuple(about.size)
            for key, about in self._contents.items()
            if key.startswith(f"{COMMON}/") and isinstance(about, TensorStorageMetadata)
        }

    def of_rank(self, rank: int) -> dict[str, Any]:
        """What was a rank's own, of those that wrote it."""
        return self._read([f"rank{rank}"])[f"rank{rank}"]

    def of_all_ranks(self, *, entries: Collection[str] | None = None) -> list[dict[str, Any]]:
        """What was each rank's own, or these `entries` of it."""
        names = [f"rank{rank}" for rank in range(self.world_size)]
        parts = self._read(names, entries=entries)
        return [parts[name] for name in names]

    def _read(
        self, names: list[str], box_at: BoxAt | None = None, entries: Collection[str] | None = None
    ) -> dict[str, dict[str, Any]]:
        wanted: dict[str, torch.Tensor] = {}
        for key, about in self._contents.items():
            name, slash, place = key.partition("/")
            is_wanted = entries is None or place == JSON or place.partition("/")[0] in entries
            if name in names and is_wanted:
                assert isinstance(about, TensorStorageMetadata)
                box = None if box_at is None else box_at(slash + place)
                dtype = about.properties.dtype
                if box is not None and box.shape == tuple(about.size):
                    wanted[key] = PartTensor(torch.empty(box.sizes, dtype=dtype), box)
                else:
                    wanted[key] = torch.empty(about.size, dtype=dtype)
        # torch's types want a dict of anything
        loaded: dict[str, Any] = dict(wanted)
        load(loaded, storage_reader=self._reader, process_group=self._group)
        parts = {}
        for name in names:
            text = bytes(wanted[f"{name}/{JSON}"].numpy()).decode()
            tensors = {
                key.removeprefix(name): tensor.part if isinstance(tensor, PartTensor) else tensor
                for key, tensor in wanted.items()
                if key.startswith(f"{name}/")
            }
            parts[name] = restore(text, tensors, entries)
        return parts
