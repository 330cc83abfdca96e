"""Batches that the device may still be working on, and what must stay alive until it is done."""

import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from augpipe.cuda.failures import KernelError, SampleIds, first_line, is_cuda_error
from augpipe.cuda.streams import Event


@dataclass(frozen=True, kw_only=True, eq=False)
class _Batch:
    event: Event
    """Recorded after the batch's last launch."""
    owners: tuple[Any, ...]
    """Whatever holds the memory that the launches read."""
    sample_ids: SampleIds
    release: Callable[[], None]
    """Called once the event has passed."""


class InFlight:
    """Keeps owners alive until the device has passed their batch, for at most `max_batches` of them.

    The device is only asked, never waited for, except that one batch too many waits for the oldest one's end. When
    the object goes, it waits for all of them. One thread at a time.
    """

    def __init__(self, recipe: str, max_batches: int) -> None:
        self._recipe = recipe
        self._max_batches = max_batches
        self._batches: list[_Batch] = []

    def __len__(self) -> int:
        return len(self._batches)

    def make_room(self) -> None:
        """Let go of what has passed; if `max_batches` remain, wait for the oldest.

        Raises:
            KernelError: the device reports an error.
        """
        with self.explaining(()):
            self._let_go()
            while len(self._batches) >= self._max_batches:
                self._batches[0].event.synchronize()
                self._let_go()

    def add(self, event: Event, owners: Sequence[Any], sample_ids: SampleIds, release: Callable[[], None]) -> None:
        """Keep `owners` until `event` has passed, and call `release` then."""
        self._batches.append(_Batch(event=event, owners=tuple(owners), sample_ids=sample_ids, release=release))

    def drain(self) -> None:
        """Wait until the device has passed all of them, and let go of them.

        Raises:
            KernelError: the device reports an error.
        """
        with self.explaining(()):
            for batch in self._batches:
                batch.event.synchronize()
            self._let_go()

    @contextmanager
    def explaining(self, sample_ids: SampleIds) -> Generator[None, None, None]:
        """Turn a CUDA error into a `KernelError`; `sample_ids` are named where no earlier batch is unfinished."""
        try:
            yield
        except Exception as error:
            if not is_cuda_error(error):
                raise
            ids = self._batches[0].sample_ids if self._batches else sample_ids
            raise KernelError(first_line(error), self._recipe, ids) from error

    def _let_go(self) -> None:
        passed = [batch.event.query() for batch in self._batches]  # all: batches of several streams pass each other
        batches = self._batches
        self._batches = [batch for batch, has_passed in zip(batches, passed, strict=True) if not has_passed]
        for batch, has_passed in zip(batches, passed, strict=True):
            if has_passed:
                batch.release()

    def __del__(self) -> None:
        if sys.is_finalizing():
            return  # the process's memory goes with its context
        for batch in self._batches:
            try:
                batch.event.synchronize()
            except Exception:
                return  # after a CUDA error, which was raised where it was met, no work goes on
