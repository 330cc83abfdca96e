"""How long the parts of loading took, and who waited for whom: counted in every pass, and told by `Loader.explain`."""

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from augpipe.pipeline.items import BatchInProgress

Work = Literal["reading", "planning", "filling", "targets", "mixing", "copying"]
"""What the time of a stage counts as. Filling is decoding and rendering; what it reads late counts as reading."""


@dataclass(kw_only=True, slots=True)
class LoadTimes:
    """Passes of a loader from their first batches on, before which they may have waited for a compiler."""

    num_batches: int = 0
    num_images: int = 0
    waited_s: float = 0.0
    """While the consumer waited for batches."""
    used_s: float = 0.0
    """While the consumer used them: the rest of its step."""
    used_cpu_s: float = 0.0
    """CPU time of the consumer's thread meanwhile."""
    process_cpu_s: float = 0.0
    """CPU time of all threads of the process."""
    work_s: defaultdict[Work, float] = field(default_factory=lambda: defaultdict(float))
    """Seconds of the loader's threads, those of waiting for storage included."""
    work_cpu_s: float = 0.0
    """CPU time of the loader's threads."""
    dali_s: float = 0.0
    """While DALI decoded, one batch after the other."""
    read_bytes: int = 0
    num_cached: int = 0
    """Images that the cache held."""

    @property
    def seconds(self) -> float:
        """How long it counted."""
        return self.waited_s + self.used_s

    @property
    def images_per_s(self) -> float:
        """The rate of the whole loop, the consumer included; 0 before the second batch."""
        return self.num_images / self.seconds if self.seconds else 0.0


ENOUGH = 20
"""Batches of one pass that are enough to tell of it; shorter passes are counted together."""


class PassClock:
    """Counts the pass of a loader that is running or ran last, or several short ones.

    The thread that asks for batches writes here, and no other: nothing is locked.
    """

    def __init__(self) -> None:
        self.times = LoadTimes()
        self._last: tuple[float, float, float] | None = None

    def begin(self, *, anew: bool = False) -> None:
        """Count another pass."""
        if anew or self.times.num_batches >= ENOUGH:
            self.times = LoadTimes()
        self._last = None

    def asked(self) -> None:
        """The consumer asks for a batch."""
        if self._last is not None:
            wall, cpu, self._last = self._since_last(self._last)
            self.times.used_s += wall
            self.times.used_cpu_s += cpu

    def gave(self) -> None:
        """The consumer was given one. Nothing before the first one counts."""
        if self._last is None:
            self._last = _clocks()
        else:
            wall, _, self._last = self._since_last(self._last)
            self.times.num_batches += 1
            self.times.waited_s += wall

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Nothing that is done meanwhile counts as the consumer's."""
        try:
            yield
        finally:
            if self._last is not None:
                self._last = _clocks()

    def add(self, batch: "BatchInProgress") -> None:
        """Count a batch that is made."""
        if self._last is None:
            return  # a pass's first batch
        times, late_s = self.times, sum(item.read_s for item in batch.items)
        times.num_images += batch.num_own
        for work, seconds in batch.work_s.items():
            times.work_s[work] += seconds
        times.work_s["reading"] += late_s
        times.work_s["filling"] -= late_s
        times.work_cpu_s += batch.work_cpu_s
        times.dali_s += batch.dali_s
        times.read_bytes += sum(item.read_bytes for item in batch.items)
        times.num_cached += sum(item.is_cached for item in batch.items)

    def _since_last(self, last: tuple[float, float, float]) -> tuple[float, float, tuple[float, float, float]]:
        now = _clocks()
        self.times.process_cpu_s += now[2] - last[2]
        return now[0] - last[0], now[1] - last[1], now


def _clocks() -> tuple[float, float, float]:
    return time.perf_counter(), time.thread_time(), time.process_time()
