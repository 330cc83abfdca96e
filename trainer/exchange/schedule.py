"""An exchange as data: the collectives of a step in their order, and who sends which slice of which bucket to whom."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from augpipe.trainer.exchange.layout import Bucket, cut
from augpipe.validation.plural import count

Phase = Literal["reduce", "gather"]

LAG = 2
"""How many reductions the butterfly sends between a bucket's own and its gather: they fill the link while the bucket is
decoded, added up and encoded again. More of them would leave more to be gathered after the last one."""


@dataclass(frozen=True, kw_only=True)
class Collective:
    """One call that all ranks of the group make together."""

    phase: Phase | Literal["agree"]
    """reduce: slices go to their owners; gather: owners send them back; agree: all tell each other a few numbers, where
    clipping or a loss scale needs them before the update."""
    bucket: int = -1
    """The bucket's number; -1 for `agree`, which is of none."""

    def __str__(self) -> str:
        return self.phase if self.phase == "agree" else f"{self.phase} bucket {self.bucket}"


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
    """One step's exchange among `world_size` ranks. `print` shows it.

    `collectives` is what the threads carry out: one thread of each rank issues them in this order, step after step.
    None needs anything of a later one, so that thread never waits for what cannot come.
    """

    mode: str
    world_size: int
    buckets: tuple[Bucket, ...]
    collectives: tuple[Collective, ...]
    gathers: Literal["gradients", "weights"]
    """What an owner sends back: the averaged gradients of its slice, or the slice after its own update."""
    awaited: Literal["step", "use"]
    """When the gathered slices are waited for: by the step, or where a parameter is next used."""

    def slices(self, bucket: int) -> tuple[int, ...]:
        """Offsets of the owners' slices in a bucket, `world_size` + 1 of them."""
        return cut(self.buckets[bucket], self.world_size)

    @property
    def during_backward(self) -> tuple[Collective, ...]:
        """The collectives that begin as buckets are complete: all up to the agreement, where there is one."""
        return self.collectives[: self._agreement]

    @property
    def after_update(self) -> tuple[Collective, ...]:
        """Those that follow the owners' update, and are left out with it."""
        return self.collectives[self._agreement + 1 :]

    @property
    def _agreement(self) -> int:
        phases = [collective.phase for collective in self.collectives]
        return phases.index("agree") if "agree" in phases else len(phases)

    def transfers(self) -> Iterator[Transfer]:
        """All transfers, collective by collective; those of one go at the same time."""
        for collective in self.collectives:
            if collective.phase == "agree":
                continue
            phase, cuts = collective.phase, self.slices(collective.bucket)
            for shift in range(1, self.world_size):  # in a round each rank sends once and receives once
                for src in range(self.world_size):
                    dst = (src + shift) % self.world_size
                    owner = dst if phase == "reduce" else src
                    start, stop = cuts[owner : owner + 2]
                    yield Transfer(phase=phase, bucket=collective.bucket, src=src, dst=dst, start=start, stop=stop)

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
            f"{self.mode}: {count(self.world_size, 'rank')}, {count(len(self.buckets), 'bucket')} of "
            f"{sum(bucket.num for bucket in self.buckets):,} values in all; owners send back {self.gathers}, {wait}"
        ]
        lines += [
            f"{transfer.phase:6}  bucket {transfer.bucket:3}  {transfer.src} -> {transfer.dst}  "
            f"[{transfer.start:,}, {transfer.stop:,})"
            for transfer in self.transfers()
            if transfer.num
        ]
        return "\n".join(lines)


class BackwardProgress:
    """Which gradients of a step are there, and which collectives that begins; in a run and in a simulated one."""

    def __init__(self, exchange: Exchange) -> None:
        self._order = exchange.during_backward
        self.members = [bucket.parameters for bucket in exchange.buckets]
        """The parameters of each bucket."""
        self.buckets_of: dict[int, list[int]] = defaultdict(list)
        """The buckets of each parameter."""
        for bucket, members in enumerate(self.members):
            for parameter in members:
                self.buckets_of[parameter].append(bucket)
        self.begin_step()

    def begin_step(self) -> None:
        """No gradient is there yet."""
        self._missing = [len(members) for members in self.members]
        self._next = 0

    def complete(self, parameter: int) -> list[Collective]:
        """A parameter's gradient is there: the collectives that this begins, in their order."""
        for bucket in self.buckets_of[parameter]:
            self._missing[bucket] -= 1
        begun = []
        for collective in self._order[self._next :]:
            if collective.phase == "reduce" and self._missing[collective.bucket]:
                break
            begun.append(collective)
        self._next += len(begun)
        return begun


def interleaved(position: int, *, is_last: bool) -> list[Collective]:
    """What a bucket that is complete as the `position`-th of a step adds to the butterfly's list."""
    gathered = range(max(position - LAG, 0), position + 1 if is_last else position - LAG + 1)
    return [
        Collective(phase="reduce", bucket=position),
        *(Collective(phase="gather", bucket=bucket) for bucket in gathered),
    ]


def butterfly(buckets: Sequence[Bucket], world_size: int) -> Exchange:
    """Each rank owns a slice of every bucket, averages it, and sends the average back (Deep Image, section 3.1)."""
    last = len(buckets) - 1
    return Exchange(
        mode="butterfly",
        world_size=world_size,
        buckets=tuple(buckets),
        collectives=tuple(one for i in range(len(buckets)) for one in interleaved(i, is_last=i == last)),
        gathers="gradients",
        awaited="step",
    )


def lazy(buckets: Sequence[Bucket], world_size: int) -> Exchange:
    """Each rank updates the slices it owns and sends weights, the first layers' first ('lazy update', section 3.1)."""
    order = range(len(buckets))
    return Exchange(
        mode="lazy",
        world_size=world_size,
        buckets=tuple(buckets),
        collectives=(
            *(Collective(phase="reduce", bucket=bucket) for bucket in order),
            Collective(phase="agree"),
            *(Collective(phase="gather", bucket=bucket) for bucket in reversed(order)),
        ),
        gathers="weights",
        awaited="use",
    )


MODES: dict[str, Callable[[Sequence[Bucket], int], Exchange]] = {"butterfly": butterfly, "lazy": lazy}
"""A mode makes an exchange of buckets. Split layers take two exchanges, of a group each; parameter servers would join
here (owners that are not among the senders)."""
