"""Steps of training under a virtual clock: backward completes buckets, threads move them, the next forward waits."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from augpipe.trainer.simulate.clock import run_virtual
from augpipe.trainer.simulate.collectives import Collectives, Turns
from augpipe.trainer.simulate.layers import Layer, Stage, backwards, stages_of
from augpipe.trainer.simulate.links import EveryLink, Links, OneForAll
from augpipe.trainer.simulate.workload import Workload

MOST_IN_FULL = 16
"""Up to so many ranks each one is simulated; of more, rank 0 stands for all."""
LANES = ("compute", "pack", "link", "unpack")


@dataclass(frozen=True, kw_only=True)
class Span:
    """What rank 0 did, from when to when."""

    lane: str
    what: str
    start_s: float
    stop_s: float


@dataclass(kw_only=True)
class Played:
    """What became of some steps, as rank 0 saw them."""

    ends_s: list[float] = field(default_factory=list)
    """When each step ended."""
    flushed_s: float = 0.0
    """When all that was under way had arrived."""
    exposed_s: list[float] = field(default_factory=list)
    """What each step waited for others."""
    bytes_sent: int = 0
    """By rank 0 in all steps, control data included."""
    spans: list[Span] = field(default_factory=list)

    @property
    def step_s(self) -> float:
        """Seconds of a step among others: the mean of all except the first one."""
        return (self.ends_s[-1] - self.ends_s[0]) / (len(self.ends_s) - 1)


def play_steps(work: Workload, num: int = 4, *, in_full: bool | None = None) -> Played:
    """Train `num` steps on all ranks.

    Args:
        in_full: simulate every rank, or rank 0 for all of them; None: as many as MOST_IN_FULL in full, and all where
            ranks share cores of one machine.
    """
    assert work.ranks > 1, "one rank exchanges nothing"
    if in_full is None:
        in_full = work.ranks <= MOST_IN_FULL or work.card.machine_cores is not None
    return run_virtual(_play(work, num, in_full))[0]


async def _play(work: Workload, num: int, in_full: bool) -> Played:
    card = work.card
    links: Links = EveryLink(card, work.ranks) if in_full else OneForAll(card, work.ranks)
    shared = asyncio.Semaphore(card.machine_cores) if card.machine_cores is not None else None
    played = Played()
    async with asyncio.TaskGroup() as group:
        for rank in range(work.ranks if in_full else 1):
            own = shared or asyncio.Semaphore(card.cores)
            await _Rank(work, links, rank, own, played if rank == 0 else Played()).start(group, num)
    return played


class _Rank:
    """One rank: a thread that trains, and what moves the buckets of its exchanges."""

    def __init__(self, work: Workload, links: Links, rank: int, cores: asyncio.Semaphore, played: Played) -> None:
        self._work = work
        self._rank = rank
        self._cores = cores
        self._played = played
        self._forward = stages_of(work.layers)
        self._backward = backwards(self._forward)
        self._num_pieces = 1 if work.splitting is None else len(work.splitting.pieces)
        works = [work] if work.shards is None else [work, work.shards]
        completed = [
            [layer.parameters, layer.shards][: len(works)] for stage in self._backward for layer in stage.layers
        ]
        turns = Turns(works, completed, work.card.collectives_at_once)
        self._rest = Collectives(work, links, rank, self, turns)
        self._all = [self._rest]
        if work.splitting is not None:
            size = work.splitting.size
            self._place = rank % size
            self._model_axis = links.among(range(rank - self._place, rank - self._place + size))
            if work.shards is not None:
                data_axis = links.among(range(self._place, work.ranks, size))
                self._all.append(Collectives(work.shards, data_axis, rank // size, self, turns, 1))

    async def start(self, group: asyncio.TaskGroup, num: int) -> None:
        group.create_task(self._train(num), name=f"rank {self._rank} trains")
        for one in self._all:
            one.start(group, num)

    async def compute(self, seconds: float, lane: str, what: str) -> None:
        """Take a core for so long."""
        if seconds:
            async with self._cores:
                start = _now()
                await asyncio.sleep(seconds)
            self.note(lane, what, start)

    def note(self, lane: str, what: str, start_s: float) -> None:
        """Something that ends now."""
        if self._rank == 0:
            self._played.spans.append(Span(lane=lane, what=what, start_s=start_s, stop_s=_now()))

    def count(self, num_bytes: int) -> None:
        """Bytes that were sent."""
        self._played.bytes_sent += num_bytes

    async def wait(self, event: asyncio.Event) -> None:
        """Wait for others."""
        start = _now()
        await event.wait()
        self._played.exposed_s[-1] += _now() - start

    async def _train(self, num: int) -> None:
        passes = self._work.settings.passes
        for step in range(num):
            self._played.exposed_s.append(0.0)
            for one in self._all:
                one.begin_step()
            for turn in range(passes):
                await self._pass(self._forward, (step, turn), back=False)
                await self._pass(self._backward, (step, turn), back=True)
            for one in self._all:
                await one.finish(step)
            await self.compute(self._work.update_s, "compute", "optimizer")
            for one in self._all:
                one.go_on(step)
            self._played.ends_s.append(_now())
        for one in self._all:
            await one.flush(num - 1)
        self._played.flushed_s = _now()

    async def _pass(self, stages: Sequence[Stage], turn: tuple[int, int], *, back: bool) -> None:
        """One forward or backward pass: while a piece is computed, the exchanges of others are under way."""
        coming: list[_UnderWay] = []
        computed: tuple[Layer, ...] = ()
        for number, stage in enumerate([*stages, Stage(layers=(), is_cut=False)]):
            num = self._num_pieces if stage.is_cut else 1
            leaving: list[_UnderWay] = []
            for piece in range(num):
                for one in coming[piece : piece + 1] if stage.is_cut else coming:
                    await self._end(one)
                if piece == num - 1:
                    await self._complete(computed, turn)
                for layer in stage.layers:
                    if not back and piece == 0:
                        await self._await_weights(layer, turn[0])
                    seconds = layer.backward_s if back else layer.forward_s
                    await self._layer(seconds / num, f"{layer.name} {'backward' if back else 'forward'}")
                if stage.hop is not None:
                    ready = [piece] if stage.is_cut else range(self._num_pieces)
                    leaving += [await self._begin(stage, one, (*turn, number, one), back=back) for one in ready]
            coming, computed = leaving, stage.layers if back else ()

    async def _await_weights(self, layer: Layer, step: int) -> None:
        await self._rest.await_weights(layer.parameters, step)
        for one in self._all[1:]:
            await one.await_weights(layer.shards, step)

    async def _complete(self, layers: Sequence[Layer], turn: tuple[int, int]) -> None:
        """Take over the gradients of some layers, which are there with the last pass of a step."""
        if turn[1] == self._work.settings.passes - 1:
            for layer in layers:
                await self.compute(self._work.take_s(layer), "compute", f"{layer.name} copied")
                self._rest.complete(layer.parameters, turn[0])
                for one in self._all[1:]:
                    one.complete(layer.shards, turn[0])

    async def _layer(self, seconds: float, what: str) -> None:
        if self._work.layers_sleep:
            start = _now()
            await asyncio.sleep(seconds)
            self.note("compute", what, start)
        else:
            await self.compute(seconds, "compute", what)

    async def _begin(self, stage: Stage, piece: int, key: tuple[int, ...], *, back: bool) -> "_UnderWay":
        """Let a piece's features, or deltas, travel on the model axis."""
        work = self._work
        assert work.splitting is not None and stage.hop is not None
        crossing = work.splitting.crossing(stage.hop, self._place, work.card, back=back, piece=piece)
        what = f"{stage.name} {'deltas' if back else 'activations'}"
        await self.compute(crossing.encode_s, "pack", what)
        arrived = asyncio.Event()

        async def travel() -> None:
            start, num_bytes = _now(), sum(crossing.bytes_to)
            await asyncio.gather(
                self._model_axis.all_to_all(self._place, (key, back), crossing.bytes_to),
                self.compute(work.card.handling_s(num_bytes), "link", f"{what}, handed over"),
            )
            self.count(num_bytes)
            self.note("link", what, start)
            arrived.set()

        return _UnderWay(what, crossing.decode_s, arrived, asyncio.create_task(travel()))

    async def _end(self, one: "_UnderWay") -> None:
        """Wait for what travels, and decode it."""
        await self.wait(one.arrived)
        await self.compute(one.decode_s, "unpack", one.what)


@dataclass(frozen=True)
class _UnderWay:
    """An exchange of a piece's features, or deltas."""

    what: str
    decode_s: float
    arrived: asyncio.Event
    task: asyncio.Task[None]
    """Kept, since the loop keeps none."""


def _now() -> float:
    return asyncio.get_running_loop().time()
