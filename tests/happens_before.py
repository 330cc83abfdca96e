"""A model of a device's streams that knows what has happened before what: it finds races that no run on a CPU shows.

Work that is queued on a stream knows all that the stream was given before, and all that events it waited for stand for.
Whoever reads memory must know its last write; whoever writes must know that write and all reads since. What a test
queues and which memory that touches, the test says: `Device.use`, or what it puts in the place of kernels and copies.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from threading import local
from typing import Any, Protocol


class Race(AssertionError):
    """Work on memory that does not know of other work on it; the message says which."""


class FakeEvent:
    """What an event stands for: the work that is known where it was recorded."""

    def __init__(self, device: "Device", known: frozenset[str]) -> None:
        self._device = device
        self.known = known

    def query(self) -> bool:
        return self.known <= self._device.passed

    def synchronize(self) -> None:
        self._device.passed |= self.known


class FakeStream:
    """As much of `torch.cuda.Stream` as augpipe uses."""

    cuda_stream = 0

    def __init__(self, device: "Device", name: str) -> None:
        self.device, self.name = device, name
        self.known: frozenset[str] = frozenset()
        self._events: list[FakeEvent] = []

    def record_event(self, event: Any = None) -> FakeEvent:
        assert event is None
        self._events.append(FakeEvent(self.device, self.known))
        return self._events[-1]

    @property
    def next_event(self) -> FakeEvent | None:
        """The first event that the device has not passed; an actor that synchronizes with it lets the device get on."""
        return next((event for event in self._events if not event.query()), None)

    def wait_event(self, event: FakeEvent) -> None:
        self.known |= event.known

    def wait_stream(self, other: "FakeStream") -> None:
        self.known |= other.known

    def synchronize(self) -> None:
        self.device.passed |= self.known


class Device:
    """Streams, the memory that their work uses, and what the host knows that the device has passed."""

    def __init__(self) -> None:
        self.passed: frozenset[str] = frozenset()
        """Work that has ended, as the host has seen: whatever is queued or done later knows of it."""
        self.main = FakeStream(self, "main")
        self.streams = [self.main]
        self._here = local()
        self._written: dict[str, str] = {}
        self._read: dict[str, frozenset[str]] = {}
        self._times: dict[str, int] = {}

    def stream(self, name: str = "") -> FakeStream:
        """Another stream."""
        made = FakeStream(self, name or f"stream {len(self.streams)}")
        self.streams.append(made)
        return made

    @property
    def current(self) -> FakeStream:
        """The thread's current stream."""
        found: FakeStream = getattr(self._here, "stream", self.main)
        return found

    @contextmanager
    def on(self, stream: FakeStream) -> Iterator[None]:
        """Make a stream the thread's current one."""
        before, self._here.stream = self.current, stream
        try:
            yield
        finally:
            self._here.stream = before

    def use(self, what: str, *, reads: Sequence[str] = (), writes: Sequence[str] = ()) -> None:
        """Queue work on the current stream.

        Raises:
            Race: it does not know of work that it must come after.
        """
        stream = self.current
        name = self._name(what)
        self._check(name, stream.known | self.passed, reads, writes)
        stream.known |= {name}

    def use_on_host(self, what: str, *, reads: Sequence[str] = (), writes: Sequence[str] = ()) -> None:
        """Read or write memory there and then; so it must know that the device has passed what it comes after.

        What is queued from now on, on any stream, comes after it.
        """
        name = self._name(what)
        self._check(name, self.passed, reads, writes)
        self.passed |= {name}

    def _name(self, what: str) -> str:
        self._times[what] = self._times.get(what, 0) + 1
        return f"{what} ({self._times[what]})"

    def _check(self, name: str, known: frozenset[str], reads: Sequence[str], writes: Sequence[str]) -> None:
        for memory in sorted({*reads, *writes}):
            written = self._written.get(memory)
            if written is not None and written not in known:
                raise Race(f"{name} uses {memory} and does not wait for its last write, {written}")
        for memory in writes:
            for read in sorted(self._read.get(memory, frozenset()) - known):
                raise Race(f"{name} writes {memory} and does not wait for {read}, which reads it")
            self._written[memory], self._read[memory] = name, frozenset()
        for memory in reads:
            self._read[memory] = self._read.get(memory, frozenset()) | {name}

    def state(self) -> Any:
        """What decides about races to come; equal of two runs that cannot differ from here on."""
        known = tuple((stream.name, stream.known) for stream in self.streams)
        return known, self.passed, tuple(sorted(self._written.items())), tuple(sorted(self._read.items()))


class System(Protocol):
    """What `every_order` explores: actors that each take steps one after another."""

    def ready(self) -> list[int]:
        """The actors that could take a step now."""

    def step(self, actor: int) -> None:
        """Let an actor take its next step."""

    def state(self) -> Any:
        """All that decides what may come; hashable."""

    def check_end(self) -> None:
        """Where no actor is ready: raise unless all has been done."""


def every_order(start: Callable[[], System]) -> int:
    """Let actors take their steps in every order there is, equal states only once; returns how many states there are.

    Raises:
        Race, or whatever a step or the end raises; a note holds the order that led to it.
    """
    seen: set[Any] = set()
    unexplored: list[tuple[int, ...]] = [()]
    while unexplored:
        order = unexplored.pop()
        system = _replay(start, order)
        while (state := system.state()) not in seen:
            seen.add(state)
            ready = system.ready()
            if not ready:
                system.check_end()
                break
            *others, first = ready
            unexplored += [(*order, actor) for actor in others]
            order = (*order, first)  # gone on with as it stands: to get there again would take all steps
            with _noting(order):
                system.step(first)
    return len(seen)


def some_orders(start: Callable[[], System], *, num: int, seed: int) -> None:
    """`every_order`, of `num` orders that are drawn by a seed."""
    random = Random(seed)
    for _ in range(num):
        system, order = start(), []
        while ready := system.ready():
            order.append(random.choice(ready))
            with _noting(order):
                system.step(order[-1])
        system.check_end()


def _replay(start: Callable[[], System], order: Sequence[int]) -> System:
    system = start()
    with _noting(order):
        for actor in order:
            system.step(actor)
    return system


@contextmanager
def _noting(order: Sequence[int]) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        error.add_note(f"actors took their steps in the order {list(order)}")
        raise
