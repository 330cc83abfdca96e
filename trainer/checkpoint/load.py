"""Reads a checkpoint back, whatever the world size that wrote it."""

import math
from collections.abc import Collection
from itertools import combinations
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from augpipe.trainer.checkpoint.checkpoints_folder import newest_whole
from augpipe.trainer.checkpoint.manifest import rank_paths, read_json, read_manifest
from augpipe.trainer.checkpoint.save import COMMON
from augpipe.trainer.checkpoint.tree import restore
from augpipe.trainer.exchange.objects import broadcast_json
from augpipe.trainer.tensors.box import Box, BoxAt
from augpipe.trainer.tensors.tensor_file import DamagedError, TensorFile


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
        except (DamagedError, OSError) as error:  # the other ranks wait for its word
            found = [None, str(error)]
    name, problem = broadcast_json(found, group)
    if problem is not None:
        raise DamagedError(problem)
    return None if name is None else folder / name


class Checkpoint:
    """One checkpoint, opened: all headers are read, and of the rest what is asked for.

    Raises:
        DamagedError: it is not whole; see `verify` for what is looked at before.
    """

    def __init__(self, path: Path) -> None:
        manifest = read_manifest(path)
        self.path = path
        self.world_size: int = manifest["world_size"]
        """Ranks that wrote it."""
        self.step: int = manifest["step"]
        """Steps done before it."""
        self.sync: dict[str, Any] | None = manifest.get("sync")
        """The [sync] table that it was written under; None in checkpoints that do not tell."""
        self._files: dict[str, list[TensorFile]] = {}
        """By a tensor's name, the files that have a part of it."""
        for rank in range(self.world_size):
            file = TensorFile(rank_paths(path, rank)[0])
            for name in file.entries:
                self._files.setdefault(name, []).append(file)
        for name, files in self._files.items():
            entries = [file.entries[name] for file in files]
            boxes, shape = [entry.box for entry in entries], entries[0].box.shape
            is_one = all(entry.dtype == entries[0].dtype and entry.box.shape == shape for entry in entries)
            if not is_one or sum(math.prod(box.sizes) for box in boxes) != math.prod(shape):
                raise DamagedError(f"{files[-1].path}: the parts of {name} in this file and others are not a whole")
            if any(one.common_with(other) for one, other in combinations(boxes, 2)):
                raise DamagedError(f"{files[-1].path}: the parts of {name} in this file and others overlap")

    def common(self, box_at: BoxAt | None = None, *, entries: Collection[str] | None = None) -> dict[str, Any]:
        """What the ranks had in common, or these `entries` of it, as "model" is one; no others are read.

        Of tensors for which `box_at` has a box of their shape, this part alone.
        """
        return self._read(0, COMMON, box_at, entries)

    def common_tensors(self, entry: str) -> dict[str, Tensor]:
        """The tensors of one entry that is flat, "model" or "ema", by their names there.

        Raises:
            DamagedError: there is no such entry, or something in it is not a tensor.
        """
        return self._tensors(0, entry, self.common(entries=(entry,)).get(entry))

    def num_averaged(self) -> int:
        """How many weights the moving average in "ema" is of; 0 where there is none.

        Raises:
            DamagedError: it is not one number.
        """
        found = self.common_tensor("ema/n_averaged")
        if found is None:
            return 0
        if found.numel() != 1 or found.is_floating_point():
            raise DamagedError(f"{self.path}: ema/n_averaged is not a number, it has the shape {tuple(found.shape)}")
        return int(found)

    def common_tensor(self, place: str) -> Tensor | None:
        """One of the tensors that the ranks had in common, as "ema/n_averaged"; None where there is none."""
        name = f"{COMMON}/{place}"
        return self._tensor(name, None) if name in self._files else None

    def common_shapes(self) -> dict[str, tuple[int, ...]]:
        """By its place, as "/model/fc.weight", the shape of each tensor that the ranks had in common, whole."""
        return {
            name.removeprefix(COMMON): files[0].entries[name].box.shape
            for name, files in self._files.items()
            if name.startswith(f"{COMMON}/")
        }

    def of_rank(self, rank: int, *, entries: Collection[str] | None = None) -> dict[str, Any]:
        """What was a rank's own, of those that wrote it, or these `entries` of it."""
        return self._read(rank, f"rank{rank}", None, entries)

    def of_all_ranks(self, *, entries: Collection[str] | None = None) -> list[dict[str, Any]]:
        """What was each rank's own, or these `entries` of it."""
        return [self.of_rank(rank, entries=entries) for rank in range(self.world_size)]

    def averaged_buffers(self, entry: str) -> dict[str, Tensor]:
        """The mean over ranks of their running statistics, "buffers" or "ema_buffers", as an evaluation takes it.

        Raises:
            DamagedError: something there is not a tensor, or ranks have different shapes.
        """
        values: dict[str, list[Tensor]] = {}
        for rank, own in enumerate(self.of_all_ranks(entries=(entry,))):
            for name, value in self._tensors(rank, entry, own.get(entry, {})).items():
                if not value.is_floating_point():
                    continue
                of_ranks = values.setdefault(name, [])
                if of_ranks and of_ranks[0].shape != value.shape:
                    shape, other = tuple(value.shape), tuple(of_ranks[0].shape)
                    path = rank_paths(self.path, rank)[1]
                    raise DamagedError(f"{path}: {entry}/{name} has the shape {shape}, and another rank's has {other}")
                of_ranks.append(value.double())
        return {name: torch.stack(of_ranks).mean(0) for name, of_ranks in values.items()}

    def _read(self, rank: int, part: str, box_at: BoxAt | None, entries: Collection[str] | None) -> dict[str, Any]:
        _, path = rank_paths(self.path, rank)
        data = read_json(path)
        known: dict[str, Tensor] = {}

        def tensor_of(name: str) -> Tensor:
            if name not in known:  # text that names one a thousand times gets one
                known[name] = self._tensor(name, None if box_at is None else box_at(name.removeprefix(COMMON)))
            return known[name]

        try:
            found = {name: value for name, value in data[part].items() if entries is None or name in entries}
            return {name: restore(value, tensor_of) for name, value in found.items()}
        except DamagedError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise DamagedError(f"{path} is not a rank's state ({type(error).__name__}: {error})") from error

    def _tensors(self, rank: int, entry: str, found: Any) -> dict[str, Tensor]:
        path = rank_paths(self.path, rank)[1]
        if not isinstance(found, dict):
            raise DamagedError(f"{path}: {entry} is not a table of tensors")
        for name, value in found.items():
            if not isinstance(value, Tensor):
                raise DamagedError(f"{path}: {entry}/{name} is not a tensor")
        return found

    def _tensor(self, name: str, box: Box | None) -> Tensor:
        files = self._files[name]
        entry = files[0].entries[name]
        if box is None or box.shape != entry.box.shape:
            box = Box.all_of(entry.box.shape)
        tensor = torch.empty(box.sizes, dtype=entry.dtype)
        for file in files:
            file.read(name, box, tensor)
        return tensor
