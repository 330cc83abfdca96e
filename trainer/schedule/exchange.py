"""An exchange as data: who sends which slice of which bucket to whom, in which order, and what is in it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from augpipe.trainer.schedule.layout import Bucket, cut

Phase = Literal["reduce", "gather"]


@dataclass(frozen=True, kw_only=True)
class Transfer:
    """`src` sends elements `start` to `stop` of a bucket to `dst`."""

    phase: Phase
    """reduce: src's own values for the slice that dst owns; gather: what src, its owner, made of it."""
    bucket: int
    src: int
    dst: int
    start: int
    stop: int

    @property
    def num(self) -> int:
        """Elements."""
        return self.stop - self.start


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """One step's exchange among `world_size` ranks. `print` shows it."""

    mode: str
    world_size: int
    buckets: tuple[Bucket, ...]
    gathers: Literal["gradients", "weights"]
    """What an owner sends back: the averaged gradients of its slice, or the slice after its own update."""
    awaited: Literal["step", "use"]
    """When the gathered slices are waited for: by the step, or where a parameter is next used."""
    reduce_order: tuple[int, ...]
    """Buckets in the order in which they are sent to their owners."""
    gather_order: tuple[int, ...]
    """Buckets in the order in which owners send them back."""

    def slices(self, bucket: int) -> tuple[int, ...]:
        """Offsets of the owners' slices in a bucket, `world_size` + 1 of them."""
        return cut(self.buckets[bucket], self.world_size)

    def transfers(self) -> Iterator[Transfer]:
        """All transfers, phase by phase; those of one bucket and phase go at the same time."""
        for bucket in self.reduce_order:
            cuts = self.slices(bucket)
            for src, dst in self._pairs():
                yield Transfer(phase="reduce", bucket=bucket, src=src, dst=dst, start=cuts[dst], stop=cuts[dst + 1])
        for bucket in self.gather_order:
            cuts = self.slices(bucket)
            for src, dst in self._pairs():
                yield Transfer(phase="gather", bucket=bucket, src=src, dst=dst, start=cuts[src], stop=cuts[src + 1])

    def _pairs(self) -> Iterator[tuple[int, int]]:
        for shift in range(1, self.world_size):  # in a round each rank sends once and receives once
            for src in range(self.world_size):
                yield src, (src + shift) % self.world_size

    def bytes_sent(self, rank: int, num_bytes: Callable[[int, int], int]) -> int:
        """Payload bytes that `rank` sends a step; `num_bytes(kind, num)` is the encoded size of num values of a
        kind."""
        return sum(
            num_bytes(self.buckets[transfer.bucket].kind, transfer.num)
            for transfer in self.transfers()
            if transfer.src == rank
        )

    def __str__(self) -> str:
        wait = "waited for by the step" if self.awaited == "step" else "waited for where a parameter is next used"
        lines = [
            f"{self.mode}: {self.world_size} ranks, {len(self.buckets)} buckets of "
            f"{sum(bucket.num for bucket in self.buckets):,} values in all; owners send back {self.gathers}, {wait}"
        ]
        lines += [
            f"{transfer.phase:6}  bucket {transfer.bucket:3}  {transfer.src} -> {transfer.dst}  "
            f"[{transfer.start:,}, {transfer.stop:,})"
            for transfer in self.transfers()
            if transfer.num
        ]
        return "\n".join(lines)


def butterfly(buckets: Sequence[Bucket], world_size: int) -> Exchange:
    """Each rank owns a slice of every bucket, averages it, and sends the average back (Deep Image, section 3.1)."""
    order = tuple(range(len(buckets)))
    return Exchange(
        mode="butterfly",
        world_size=world_size,
        buckets=tuple(buckets),
        gathers="gradients",
        awaited="step",
        reduce_order=order,
        gather_order=order,
    )


def lazy(buckets: Sequence[Bucket], world_size: int) -> Exchange:
    """Each rank updates the slices it owns and sends weights, the first layers' first ('lazy update', section 3.1)."""
    order = tuple(range(len(buckets)))
    return Exchange(
        mode="lazy",
        world_size=world_size,
        buckets=tuple(buckets),
        gathers="weights",
        awaited="use",
        reduce_order=order,
        gather_order=order[::-1],
    )


MODES: dict[str, Callable[[Sequence[Bucket], int], Exchange]] = {"butterfly": butterfly, "lazy": lazy}
"""A mode makes an exchange of buckets. Hybrid parallelism joins here (the fully connected layers' buckets left out,
their activations exchanged instead), and so do parameter servers (owners that are not among the senders)."""
