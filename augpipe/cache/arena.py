"""Memory for pixels that is taken piece by piece up to a budget, and handed back all at once."""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

logger = logging.getLogger("augpipe")

ALIGNMENT_BYTES = 16
"""Every piece begins at a multiple of it: more than the 4 that one load of an RGBX pixel needs."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Segment:
    """One allocation."""

    memory: Any
    """What owns it: a numpy array, a torch tensor."""
    address: int
    """The address of its first byte, a multiple of `ALIGNMENT_BYTES`; in device memory where the segment lies there."""
    num_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Place:
    """A piece of a segment; whoever took it alone writes to it."""

    segment: Segment
    offset: int
    """Bytes from the segment's beginning."""
    num_bytes: int

    @property
    def address(self) -> int:
        return self.segment.address + self.offset


class Arena:
    """Segments that are allocated when they are needed, and cut up in the order in which pieces are asked for.

    A piece goes to the newest gap that is large enough. Safe from several threads; they wait for each other while a
    segment is allocated.

    Args:
        budget_bytes: the segments together never take more.
        segment_bytes: how large a segment is; a larger piece gets a segment of its own, and the last segment is as
            large as the budget leaves it.
        allocate: a segment of so many bytes, or None where the memory is left to others: then the arena ends there.
        out_of_memory: what `allocate` raises where there is none left. The arena ends there too, and logs a warning.
    """

    def __init__(
        self,
        budget_bytes: int,
        segment_bytes: int,
        allocate: Callable[[int], Segment | None],
        out_of_memory: tuple[type[BaseException], ...] = (MemoryError,),
    ) -> None:
        assert budget_bytes >= 0 and segment_bytes > 0
        self._budget_bytes = budget_bytes
        self._segment_bytes = aligned(segment_bytes)
        self._allocate = allocate
        self._out_of_memory = out_of_memory
        self._segments: tuple[Segment, ...] = ()
        self._allocated_bytes = 0
        self._gaps: list[Place] = []
        self._too_large: int | None = None
        self._lock = threading.Lock()

    @property
    def budget_bytes(self) -> int:
        """What the segments together may take; it shrinks to what they take where no more is to be had."""
        return self._budget_bytes

    @property
    def allocated_bytes(self) -> int:
        """What the segments together take."""
        return self._allocated_bytes

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Those allocated so far; the arena alone decides how long they live."""
        return self._segments

    @property
    def _left_bytes(self) -> int:
        return floor(self._budget_bytes - self._allocated_bytes)

    def take(self, num_bytes: int) -> Place | None:
        """A piece of at least `num_bytes`, its content arbitrary; None where it does not fit.

        Raises:
            BaseException: what `allocate` raises, unless it means that there is no memory.
        """
        wanted = aligned(num_bytes)
        told = ""
        with self._lock:
            if self._too_large is not None and wanted >= self._too_large:
                return None
            place = self._cut(wanted)
            if place is None and wanted <= self._left_bytes:
                told = self._grow(min(max(self._segment_bytes, wanted), self._left_bytes))
                place = self._cut(wanted)
            if place is None:
                self._too_large = wanted  # a full arena is asked often, and need not be searched each time
        if told:
            logger.warning(told)
        return place

    def give_back(self, place: Place) -> None:
        """Make the room of a piece that is no longer used free for others."""
        with self._lock:
            self._too_large = None
            start, end = place.offset, place.offset + place.num_bytes
            for gap in [gap for gap in self._gaps if gap.segment is place.segment]:
                if gap.offset + gap.num_bytes == start or gap.offset == end:
                    start, end = min(start, gap.offset), max(end, gap.offset + gap.num_bytes)
                    self._gaps.remove(gap)
            self._gaps.append(Place(segment=place.segment, offset=start, num_bytes=end - start))

    def _cut(self, wanted: int) -> Place | None:
        for position in reversed(range(len(self._gaps))):  # the ends of full segments, too small mostly, come last
            gap = self._gaps[position]
            if gap.num_bytes < wanted:
                continue
            rest = gap.num_bytes - wanted
            if rest:
                self._gaps[position] = Place(segment=gap.segment, offset=gap.offset + wanted, num_bytes=rest)
            else:
                del self._gaps[position]
            return Place(segment=gap.segment, offset=gap.offset, num_bytes=wanted)
        return None

    def _grow(self, size: int) -> str:
        """Allocate a segment; where that cannot be, end there, and say why if somebody ought to know."""
        told = ""
        segment: Segment | None = None
        try:
            segment = self._allocate(size)
        except self._out_of_memory as problem:
            told = (
                f"the cache holds {self._allocated_bytes} bytes and stops growing: another {size} of its "
                f"{self._budget_bytes} bytes are not to be had ({_first_line(problem)}). What is in it stays in use, "
                "and other photographs are decoded each time. Lower cache_bytes to leave memory to others."
            )
        if segment is None:
            self._budget_bytes = self._allocated_bytes
            return told
        self._segments = (*self._segments, segment)
        self._allocated_bytes += segment.num_bytes
        self._gaps.append(Place(segment=segment, offset=0, num_bytes=segment.num_bytes))
        return ""


def aligned(num_bytes: int) -> int:
    """`num_bytes` and what is added to it to end at a multiple of `ALIGNMENT_BYTES`."""
    return -(-num_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def floor(num_bytes: int) -> int:
    """The last multiple of `ALIGNMENT_BYTES` up to `num_bytes`."""
    return num_bytes // ALIGNMENT_BYTES * ALIGNMENT_BYTES


def _first_line(problem: BaseException) -> str:
    return (str(problem).splitlines() or [type(problem).__name__])[0]
