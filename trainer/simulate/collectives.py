"""One exchange of a rank under a virtual clock: buckets are packed, travel and are unpacked, as the schedule says."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from augpipe.trainer.exchange.schedule import BackwardProgress, Collective
from augpipe.trainer.simulate.layers import VALUE_BYTES
from augpipe.trainer.simulate.links import Links
from augpipe.trainer.simulate.workload import Workload


class Trains(Protocol):
    """The rank whose exchange it is."""

    async def compute(self, seconds: float, lane: str, what: str) -> None:
        """Take one of its cores for so long."""

    async def wait(self, event: asyncio.Event) -> None:
        """Have it wait for others, and count that."""

    def note(self, lane: str, what: str, start_s: float) -> None:
        """Something that ends now, for the timeline."""

    def count(self, num_bytes: int) -> None:
        """Bytes that were sent."""


class _Way:
    """How far a collective of a step has come on this rank."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.packed = asyncio.Event()
        self.arrived = asyncio.Event()
        self.done = asyncio.Event()


class Turns:
    """One thread of a rank issues the collectives of all of its exchanges, in an order that is the same on all ranks.

    Args:
        works: the exchanges.
        completed: the parameters of each exchange that are complete one after the other in a backward pass.
        num: collectives that are under way at a time.
    """

    def __init__(self, works: Sequence[Workload], completed: Sequence[Sequence[Sequence[int]]], num: int) -> None:
        order: dict[tuple[int, Collective], None] = {}
        progress = [BackwardProgress(work.exchange) for work in works]
        for parameters in completed:
            for place, of_exchange in enumerate(parameters):
                for parameter in reversed(of_exchange):
                    order |= dict.fromkeys((place, one) for one in progress[place].complete(parameter))
        for is_agreed in (True, False):
            for place, work in enumerate(works):
                left = (one for one in work.collectives if (one.phase == "agree") == is_agreed)
                order |= dict.fromkeys((place, one) for one in left)
        self._numbers = {key: number for number, key in enumerate(order)}
        self._may = defaultdict[int, asyncio.Event](asyncio.Event)
        self._may[0].set()
        self._under_way = asyncio.Semaphore(num)

    async def take(self, place: int, step: int, collective: Collective) -> None:
        """Wait until all before this one are under way, and there is room."""
        number = step * len(self._numbers) + self._numbers[place, collective]
        await self._may[number].wait()
        await self._under_way.acquire()
        self._may[number + 1].set()

    def give_back(self) -> None:
        """One has arrived."""
        self._under_way.release()


class Collectives:
    """What `ExchangeThreads` does for a strategy: one thread issues, and two pack and unpack for each phase.

    Args:
        work: whose exchange is played.
        links: of the ranks that take part.
        place: this rank's among them.
        rank: whose cores it takes, and who waits.
        turns: when a collective may be issued.
        number: which of the exchanges in `turns` it is.
    """

    def __init__(self, work: Workload, links: Links, place: int, rank: Trains, turns: Turns, number: int = 0) -> None:
        self._work = work
        self._links = links
        self._place = place
        self._turns, self._number = turns, number
        self._rank = rank
        self._ways: dict[tuple[int, Collective], _Way] = defaultdict(_Way)
        self._progress = BackwardProgress(work.exchange)

    def start(self, group: asyncio.TaskGroup, num: int) -> None:
        """Begin the threads, for `num` steps."""
        group.create_task(self._issue(num))
        for phase in ("reduce", "gather"):
            group.create_task(self._pack(phase, num))
            group.create_task(self._unpack(phase, num))

    def begin_step(self) -> None:
        """No gradient is there yet."""
        self._progress.begin_step()

    async def await_weights(self, parameters: Sequence[int], step: int) -> None:
        """Where weights travel, they are awaited where they are used."""
        if step and self._work.exchange.awaited == "use":
            for parameter in parameters:
                for bucket in self._progress.buckets_of[parameter]:
                    await self._rank.wait(self._ways[step - 1, Collective(phase="gather", bucket=bucket)].done)

    def complete(self, parameters: Sequence[int], step: int) -> None:
        """The gradients of some parameters lie in their buckets: begin what this completes."""
        for parameter in reversed(parameters):
            for collective in self._progress.complete(parameter):
                self._ways[step, collective].begun.set()

    async def finish(self, step: int) -> None:
        """Wait for what an update needs."""
        for collective in self._work.exchange.during_backward:
            await self._rank.wait(self._ways[step, collective].done)
        for collective in self._work.collectives:
            if collective.phase == "agree":
                self._ways[step, collective].begun.set()
                await self._rank.wait(self._ways[step, collective].arrived)

    def go_on(self, step: int) -> None:
        """The update is done: begin what comes behind it."""
        for collective in self._work.exchange.after_update:
            self._ways[step, collective].begun.set()

    async def flush(self, step: int) -> None:
        """Wait for what comes behind a step's update."""
        for collective in self._work.exchange.after_update:
            await self._ways[step, collective].done.wait()

    async def _each(self, num: int, phase: str, act: Callable[[int, Collective, _Way], Awaitable[None]]) -> None:
        """Walk the list of collectives, step after step, as each thread does."""
        for step in range(num):
            for collective in self._work.collectives:
                if phase in ("", collective.phase):
                    await act(step, collective, self._ways[step, collective])

    async def _pack(self, phase: str, num: int) -> None:
        async def act(step: int, collective: Collective, way: _Way) -> None:
            await way.begun.wait()
            if phase == "gather":
                await self._ways[step, Collective(phase="reduce", bucket=collective.bucket)].done.wait()
            await self._rank.compute(self._work.pack_s(collective, self._place), "pack", str(collective))
            way.packed.set()

        await self._each(num, phase, act)

    async def _issue(self, num: int) -> None:
        under_way: list[asyncio.Task[None]] = []

        async def act(step: int, collective: Collective, way: _Way) -> None:
            await (way.begun if collective.phase == "agree" else way.packed).wait()
            await self._turns.take(self._number, step, collective)
            under_way.append(asyncio.create_task(self._travel(step, collective, way)))

        await self._each(num, "", act)
        await asyncio.gather(*under_way)

    async def _travel(self, step: int, collective: Collective, way: _Way) -> None:
        """Let a collective's messages travel; handing them to the network and taking them from it takes a core."""
        work, rank, key = self._work, self._rank, (step, collective)
        start = asyncio.get_running_loop().time()
        if work.settings.is_ring:
            own = VALUE_BYTES * work.slice_num(collective.bucket, self._place)
            sent = 2 * (work.ranks - 1) * own
            add_s = own / work.card.wire("fp32").add
            travelling = self._links.all_reduce(
                self._place, key, own, lambda: rank.compute(add_s, "unpack", f"{collective}, add")
            )
        else:
            to_each = work.sent(collective, self._place)
            sent = sum(to_each)
            travelling = self._links.all_to_all(self._place, key, to_each)
        handling_s = work.card.handling_s(sent)
        await asyncio.gather(travelling, rank.compute(handling_s, "link", f"{collective}, handed over"))
        rank.count(sent)
        rank.note("link", str(collective), start)
        self._turns.give_back()
        way.arrived.set()

    async def _unpack(self, phase: str, num: int) -> None:
        async def act(step: int, collective: Collective, way: _Way) -> None:
            await way.arrived.wait()
            await self._rank.compute(self._work.unpack_s(collective, self._place), "unpack", str(collective))
            way.done.set()

        await self._each(num, phase, act)
