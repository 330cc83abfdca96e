"""Writes checkpoints in the background, one at a time, and says when one failed."""

import hashlib
import logging
import shutil
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch.distributed as dist

from augpipe.datasets.files.atomic import write_atomically
from augpipe.trainer.checkpoint.checkpoints_folder import finish_checkpoint, unfinished_path
from augpipe.trainer.checkpoint.manifest import rank_paths
from augpipe.trainer.checkpoint.tree import flatten
from augpipe.trainer.exchange.objects import broadcast_json, gather_json
from augpipe.trainer.tensors.box import Box, BoxAt
from augpipe.trainer.tensors.tensor_file import MAX_JSON_BYTES, write_tensors

logger = logging.getLogger("augpipe.trainer")

COMMON = "common"
"""Where what is the same on all ranks stands; rank 0 writes it."""


class Copied:
    """What a rank writes, copied; every rank what is its own, rank 0 what all have in common too."""

    def __init__(
        self,
        rank: int,
        common: dict[str, Any],
        own: dict[str, Any],
        box_at: BoxAt | None = None,
        *,
        may_hold_nan: bool = False,
    ) -> None:
        self._may_hold_nan = may_hold_nan
        self._rank = rank

        def box_of(name: str) -> Box | None:
            return None if box_at is None or not name.startswith(f"{COMMON}/") else box_at(name.removeprefix(COMMON))

        state = {f"rank{rank}": own}
        self._text, self._tensors = flatten(state | {COMMON: common} if rank == 0 else state, box_of)
        if rank > 0:
            _, parts = flatten({COMMON: common}, box_of, parts_only=True)
            self._tensors.update(parts)
            self._tensors.boxes.update(parts.boxes)

    def write(self, folder: Path) -> dict[str, Any]:
        """Write the rank's files; returns their lengths and sums by name.

        Raises:
            OSError: there is no room, or no right to.
            ValueError: a tensor holds NaN and may not, or there are too many.
        """
        folder.mkdir(parents=True, exist_ok=True)
        tensors, values = rank_paths(folder, self._rank)
        boxes = self._tensors.boxes
        found = {tensors.name: write_tensors(tensors, self._tensors, boxes, may_hold_nan=self._may_hold_nan)}
        text = self._text.encode()
        if len(text) > MAX_JSON_BYTES:
            raise ValueError(f"{values.name} would have {len(text):,} bytes, and {MAX_JSON_BYTES:,} are the most")
        write_atomically(str(values), text)
        return found | {values.name: {"num_bytes": len(text), "sha256": hashlib.sha256(text).hexdigest()}}


class Saver:
    """Saves the state of all ranks; of tensors of which ranks have parts, each writes its part."""

    def __init__(
        self, folder: Path, group: dist.ProcessGroup, *, keep: int, asynchronous: bool, about: dict[str, Any]
    ) -> None:
        self._folder = folder
        self._group = group
        self._keep = keep
        self._asynchronous = asynchronous
        self._about = about
        self._thread = ThreadPoolExecutor(1, "checkpoint")
        self._pending: tuple[int, Future[str | None]] | None = None
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
        may_hold_nan = bool(self._about.get("may_hold_nan"))
        try:
            copied: Copied | TypeError = Copied(
                dist.get_rank(self._group), common, own, box_at, may_hold_nan=may_hold_nan
            )
        except TypeError as error:  # the other ranks wait for its word
            copied = error
        self._pending = step, self._thread.submit(self._write, step, copied)
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
        (step, future), self._pending = self._pending, None
        problem = future.result()
        if problem is None:
            self.last_step = step
            return
        self.num_failed += 1
        if dist.get_rank(self._group) == 0:
            last = self.last_step
            kept = "This run has none yet." if last is None else f"The one after step {last} stays valid."
            logger.error("the checkpoint after step %d was not written: %s. %s", step, problem, kept)

    def _write(self, step: int, copied: Copied | TypeError) -> str | None:
        """Write this rank's files, and on rank 0, after all have, finish the checkpoint; returns why it failed."""
        folder = unfinished_path(self._folder, step)
        files, problem = {}, None
        # not before all have come so far: rank 0 removes what an earlier run left half written as this one begins
        dist.barrier(self._group)
        try:
            if isinstance(copied, TypeError):
                raise copied
            files = copied.write(folder)
        except Exception as error:  # the other ranks wait for its word
            problem = _reason(error)
        told = gather_json([files, problem], self._group)
        if dist.get_rank(self._group) == 0:
            problem = _reasons([theirs for _, theirs in told])
            if problem is None:
                about = {"step": step, "world_size": len(told), **self._about}
                files = {name: one[name] for one, _ in told for name in one}
                try:
                    finish_checkpoint(self._folder, step, about, self._keep, files)
                except Exception as error:
                    problem = f"rank 0: {_reason(error)}"
            if problem is not None:
                shutil.rmtree(folder, ignore_errors=True)  # before a rank begins with the next one; it may not be there
        answer: str | None = broadcast_json(problem, self._group)
        return answer


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.strerror or error}" + (f" ({error.filename})" if error.filename else "")
    return (str(error) if isinstance(error, ValueError | TypeError) else f"{type(error).__name__}: {error}").rstrip(".")


def _reasons(problems: list[str | None]) -> str | None:
    """Each rank's reason, the same ones once; None where no rank has one."""
    by_reason: dict[str, list[int]] = {}
    for rank, problem in enumerate(problems):
        if problem is not None:
            by_reason.setdefault(problem, []).append(rank)
    texts = [f"rank{'s'[: len(ranks) - 1]} {', '.join(map(str, ranks))}: {text}" for text, ranks in by_reason.items()]
    return "; ".join(texts) or None
