"""The protocol of what runs chunks, and its reports meanwhile."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from augpipe.datasets.prepare.chunk import ChunkTask
from augpipe.datasets.prepare.run_plan import RunPlan
from augpipe.sources.protocol import Source

MOST_ATTEMPTS = 3
"""How often a chunk is begun whose workers die: once may be bad luck, such as memory that another program took."""


@dataclass(frozen=True, kw_only=True)
class Watcher:
    """What is told while a run goes on; each is called from one thread, and may do nothing."""

    planned: Callable[[RunPlan, int], None] = lambda plan, num_done: None
    """The plan, and how many images are done already."""
    progress: Callable[[int], None] = lambda num: None
    """So many more images are done; below 0 where a worker died and its chunk is begun again."""
    notice: Callable[[str], None] = lambda text: None
    """Something that a user should read, in one line."""


class Engine(Protocol):
    """Has `journal.complete_chunk` called for tasks, somewhere."""

    def run(self, source: Source, tasks: Iterable[ChunkTask], watcher: Watcher) -> None:
        """Do all tasks, in any order; at its end, whatever that is, no worker is left at work.

        Raises:
            SampleError, OSError: as `complete_chunk`.
            WorkerDiedError: a chunk's workers died `MOST_ATTEMPTS` times.
        """


class WorkerDiedError(RuntimeError):
    """A chunk cannot be done, as the workers that do it die."""


class Attempts:
    """Counts how often each chunk was begun in vain."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._deaths: Counter[int] = Counter()

    def died(self, task: ChunkTask, how: str, num_done: int | None = None) -> None:
        """A worker has died; returns where the chunk is to be begun again.

        Args:
            task: what it worked on.
            how: it died.
            num_done: images of the chunk that it had finished, about; None where that is not known.

        Raises:
            WorkerDiedError: that was the last attempt.
        """
        self._deaths[task.number] += 1
        deaths = self._deaths[task.number]
        where = f"photographs {task.start} to {task.stop - 1}"
        if num_done is not None:
            where = f"photograph {task.start + num_done}, or soon after"
        if deaths == MOST_ATTEMPTS:
            raise WorkerDiedError(
                f"shard {task.number:06} cannot be made: {deaths} workers died over it, the last one {how}, at "
                f"{where}. Check that photograph, and that memory is enough for the workers"
            )
        self._watcher.notice(
            f"a worker died ({how}) at {where}; shard {task.number:06} is begun again (attempt {deaths + 1} of "
            f"{MOST_ATTEMPTS})"
        )
