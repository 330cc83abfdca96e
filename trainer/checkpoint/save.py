"""Writes checkpoints in the background, one at a time, and says when one failed."""

import logging
import shutil
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.staging import AsyncStager
from torch.distributed.checkpoint.state_dict_saver import async_save
from torch.distributed.checkpoint.storage import WriteResult

from augpipe.trainer.checkpoint.checkpoints_folder import finish_checkpoint, unfinished_path
from augpipe.trainer.checkpoint.parts import BoxAt, in_chunks
from augpipe.trainer.checkpoint.tree import flatten

logger = logging.getLogger("augpipe.trainer")

COMMON = "common"
"""Where what is the same on all ranks stands; rank 0 writes it."""
JSON = ".json"
"""The name of a part's text among its tensors."""


class AtomicWriter(FileSystemWriter):
    """Writes step-N.tmp; rank 0 alone calls `finish`, after every rank's files are on the disk, and renames it there.

    `finish` runs in the thread that writes in the background.
    """

    def __init__(self, folder: Path, step: int, about: dict[str, Any], keep: int) -> None:
        super().__init__(unfinished_path(folder, step), single_file_per_rank=True, sync_files=True)
        self._folder = folder
        self._step = step
        self._about = about
        self._keep = keep

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Write the table of contents and the sums, and give the folder its name."""
        super().finish(metadata, results)
        finish_checkpoint(self._folder, self._step, self._about, self._keep)


class _Staged(AsyncStager):
    """Hands on what is a copy already."""

    _synchronize_after_execute = False

    def stage(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        return state_dict

    def synchronize_staging(self) -> None:
        """There is nothing to wait for."""

    def close(self) -> None:
        """There is nothing to let go of."""


class Saver:
    """Saves by torch.distributed.checkpoint: every rank what is its own, rank 0 what all have in common too.

    Of tensors of which ranks have parts, each writes its part.
    """

    def __init__(
        self, folder: Path, group: dist.ProcessGroup, *, keep: int, asynchronous: bool, about: dict[str, Any]
    ) -> None:
        self._folder = folder
        self._group = group
        self._keep = keep
        self._asynchronous = asynchronous
        self._about = about
        self._pending: tuple[int, Future[Any]] | None = None
        self.num_failed = 0
        """Checkpoints that could not be written so far, the same on every rank once `wait` has returned."""
        self.last_step: int | None = None
        """The newest checkpoint that is known to be whole."""

    def save(self, step: int, common: dict[str, Any], own: dict[str, Any], box_at: BoxAt | None = None) -> None:
        """Begin to save the state after `step` steps; waits for the one before.

        Args:
            step: names the checkpoint.
            common: what is the same on every rank; looked at on rank 0, and on others for parts alone. Exactly one rank
                gives each part; one that is to write none gives {}.
            own: what is this rank's; both are copied before this returns.
            box_at: which tensors of `common` are parts; None where all are whole.
        """
        self.wait()
        rank = dist.get_rank(self._group)
        state = _named(f"rank{rank}", *flatten(own))
        if rank == 0:
            state |= _named(COMMON, *flatten(common, box_at))
        else:
            _, parts = flatten(common, box_at, parts_alone=True)
            state |= {f"{COMMON}{key}": part for key, part in parts.items()}
        about = {"step": step, "world_size": dist.get_world_size(self._group), **self._about}
        future = async_save(
            state,
            storage_writer=AtomicWriter(self._folder, step, about, self._keep),
            process_group=self._group,
            async_stager=_Staged(),
        )
        assert isinstance(future, Future)
        self._pending = step, future
        if not self._asynchronous:
            self.wait()

    def poll(self) -> None:
        """Take note of one that has ended meanwhile."""
        if self._pending is not None and self._pending[1].done():
            self.wait()

    def wait(self) -> None:
        """Wait for the one under way; a failure is logged and counted, and what it left is removed."""
        if self._pending is None:
            return
        step, future = self._pending
        self._pending = None
        try:
            future.result()
        except CheckpointException as error:
            self._failed(step, error)
        else:
            self.last_step = step

    def _failed(self, step: int, error: CheckpointException) -> None:
        self.num_failed += 1
        if dist.get_rank(self._group) == 0:
            kept = (
                f"The one after step {self.last_step} stays valid."
                if self.last_step is not None
                else "This run has none yet."
            )
            logger.error("the checkpoint after step %d was not written: %s. %s", step, _reasons(error), kept)
            shutil.rmtree(unfinished_path(self._folder, step), ignore_errors=True)  # it may not even be there


def _named(name: str, text: str, tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
    coded = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)
    return {f"{name}{key}": in_chunks(tensor) for key, tensor in tensors.items()} | {f"{name}/{JSON}": coded}


def _reasons(error: CheckpointException) -> str:
    """Each rank's reason, the same ones once."""
    by_reason: dict[str, list[int]] = {}
    for rank, (problem, _) in sorted(error.failures.items()):
        text = f"{type(problem).__name__}: {problem}"
        if isinstance(problem, OSError):
            where = f" ({problem.filename})" if problem.filename else ""
            text = f"{problem.strerror or problem}{where}"
        by_reason.setdefault(text.rstrip("."), []).append(rank)
    return "; ".join(
        f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}: {text}" for text, ranks in by_reason.items()
    )
