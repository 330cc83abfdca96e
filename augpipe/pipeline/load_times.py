"""How long the parts of loading took, and who waited for whom: counted in every pass, and told by `Loader.explain`."""

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, Self

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
    cpu_s: float = 0.0
    """CPU time of all threads of the process, in the first `cpu_seconds` of the pass."""
    consumer_cpu_s: float = 0.0
    """CPU time of the thread that asks for batches, as above."""
    cpu_seconds: float = 0.0
    work_s: defaultdict[Work, float] = field(default_factory=lambda: defaultdict(float))
    """Seconds of the loader's threads, those of waiting for storage included."""
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

    @property
    def cores(self) -> float:
        """How many cores the process kept busy."""
        return self.cpu_s / self.cpu_seconds if self.cpu_seconds else 0.0

    @property
    def consumer_cores(self) -> float:
        """The part of a core that the thread kept busy that asks for batches."""
        return self.consumer_cpu_s / self.cpu_seconds if self.cpu_seconds else 0.0


ENOUGH = 20
"""Batches of one pass that are enough to tell of it; shorter passes are counted together."""

CPU_EVERY = 8
"""Batches from one look at CPU time to the next."""


class PassClock:
    """Counts the pass of a loader that is running or ran last, or several short ones.

    The thread that asks for batches writes here, and no other: nothing is locked.
    """

    def __init__(self) -> None:
        self.times = LoadTimes()
        self._last_s: float | None = None  # when it was asked or gave
        self._cpu = _CpuStamp.now()

    def begin(self, *, resets: bool = False) -> None:
        """Count another pass, with the ones before unless they are long enough or `resets` says so."""
        if resets or self.times.num_batches >= ENOUGH:
            self.times = LoadTimes()
        self._last_s = None

    def asked(self) -> None:
        """The consumer asks for a batch."""
        if self._last_s is not None:
            now_s = time.perf_counter()
            self.times.used_s += now_s - self._last_s
            self._last_s = now_s

    def gave(self) -> None:
        """The consumer was given one. Nothing before the first one counts."""
        now_s, times = time.perf_counter(), self.times
        if self._last_s is None:
            self._cpu = _CpuStamp.now()
        else:
            times.num_batches += 1
            times.waited_s += now_s - self._last_s
            if times.num_batches < CPU_EVERY or times.num_batches % CPU_EVERY == 0:
                self._count_cpu()
        self._last_s = now_s

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Nothing that is done meanwhile counts as the consumer's."""
        try:
            yield
        finally:
            if self._last_s is not None:
                self._last_s, self._cpu = time.perf_counter(), _CpuStamp.now()

    def add(self, batch: "BatchInProgress", num_cached: int) -> None:
        """Count a batch that is made."""
        if self._last_s is None:
            return  # a pass's first batch
        times = self.times
        times.num_images += batch.num_own
        for work, seconds in batch.work_s.items():
            times.work_s[work] += seconds
        times.dali_s += batch.dali_s
        times.read_bytes += batch.read_bytes
        times.num_cached += num_cached

    def _count_cpu(self) -> None:
        before, self._cpu = self._cpu, _CpuStamp.now()
        self.times.cpu_s += self._cpu.process_s - before.process_s
        self.times.consumer_cpu_s += self._cpu.thread_s - before.thread_s
        self.times.cpu_seconds += self._cpu.wall_s - before.wall_s


class _CpuStamp(NamedTuple):
    """What the clocks say; asking two of them takes a microsecond each."""

    wall_s: float
    process_s: float
    thread_s: float

    @classmethod
    def now(cls) -> Self:
        return cls(time.perf_counter(), time.process_time(), time.thread_time())
