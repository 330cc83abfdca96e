"""Batches that are handed over on two streams, while the device lags behind: no memory is used before its time.

Actors take their steps in every order: host threads, and for each stream the device, which gets to its next event.
Each test of an order has others that break one thing in augpipe, and with that the order.
"""

import sys
from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from augpipe import TargetOptions, plan, recipes
from augpipe.batch_targets import ViewTargets
from augpipe.cache import PixelCache
from augpipe.cache.arena import Arena, Segment
from augpipe.cuda.cache_writer import CacheWriter
from augpipe.cuda.cuda_render import DeviceRenderer
from augpipe.cuda.in_flight import InFlight
from augpipe.cuda.staging import StagingBatch, StagingPool
from augpipe.dali import decoder as decoder_module
from augpipe.dali.decoder import DaliDecodeError, DaliDecoder
from augpipe.dali.device_op import DeviceAugment
from augpipe.dali.samples import SampleNumbers
from augpipe.decoding.decoded_pixels import LocatedPixels
from augpipe.gpu_ops.image.mix import MIX_JOB
from augpipe.gpu_ops.image.program_rows import SHARPNESS, row_dtype
from augpipe.gpu_ops.image.rows import KERNEL_ROW
from augpipe.pipeline import device_output
from augpipe.pipeline.dali_stage import DaliStage, _InFlight
from augpipe.pipeline.device_output import DeviceOutput
from augpipe.pipeline.items import BatchInProgress, Item
from augpipe.planning.output_format import OutputFormat
from tests.augpipe.cuda.checked import CPU, PAGE_BYTES, CheckedStreams, DaliPipeline, Machine
from tests.happens_before import FakeEvent, FakeStream, Race, every_order, some_orders

FORM = OutputFormat(dtype="uint8", layout="NCHW", framework="torch")
RECIPE = recipes.none()
ROWS = np.zeros(1, KERNEL_ROW)
MORE_ROWS = np.zeros(1, row_dtype(1, 0))
"""Of a view in two passes, which is sharpened: it takes memory for levels and for copies of them."""
MORE_ROWS["steps"]["kind"] = SHARPNESS
JOBS = np.zeros(1, MIX_JOB)
VIEWS: dict[str, Any] = {"tables": (ROWS, MORE_ROWS), "sizes": ((8, 8), (8, 8)), "mix_jobs": (JOBS, JOBS[:0])}
TARGETS = TargetOptions()
LABELS = np.zeros((16, 16), np.int32)
"""A page of them."""
RECORDS = plan(RECIPE, [0], sizes=[(16, 16)]).views[0]
REGION = np.array([[0, 0, 16, 16]], np.int32)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine(monkeypatch)
    monkeypatch.setattr(device_output, "streams_of", lambda device: CheckedStreams(machine))
    monkeypatch.setattr(device_output, "DeviceRenderer", partial(DeviceRenderer, max_pending=2))
    monkeypatch.setattr(device_output, "StagingPool", partial(StagingPool, segment_bytes=2 * PAGE_BYTES))
    monkeypatch.setattr(decoder_module, "require_dali", lambda device_id: SimpleNamespace(__cuda_version__=13000))
    monkeypatch.setattr(decoder_module, "_build", lambda *_: DaliPipeline(machine))
    return machine


def _nothing() -> None:
    pass


Step = Callable[[], None] | None
"""What an actor does next; None where it has to wait."""


class _Orders:
    """What the systems below share: a device whose streams get on, after the actors of their own."""

    def __init__(self, machine: Machine) -> None:
        machine.begin()
        self.machine, self.device = machine, machine.device
        self.callers = [self.device.stream("first"), self.device.stream("second")]
        self.streams = CheckedStreams(machine)

    def own_actors(self) -> list[Step]:
        """Their next steps."""
        raise NotImplementedError

    def own_state(self) -> Any:
        raise NotImplementedError

    def _actors(self) -> list[Step]:
        events = [stream.next_event for stream in self.device.streams]
        return [*self.own_actors(), *(event.synchronize if event is not None else None for event in events)]

    def ready(self) -> list[int]:
        return [number for number, step in enumerate(self._actors()) if step is not None]

    def step(self, actor: int) -> None:
        step = self._actors()[actor]
        assert step is not None
        step()

    def state(self) -> Any:
        return self.own_state(), self.device.state(), self.machine.memory.state()

    def check_end(self) -> None:
        assert self.own_actors() == [None] * len(self.own_actors())


def _batches(in_flight: InFlight) -> list[Any]:
    return in_flight._batches


def _asked_for(renderer: DeviceRenderer) -> Any:
    """The events that a renderer will ask for."""
    return tuple(batch.event.known for batch in _batches(renderer._in_flight))


class Rendering(_Orders):
    """Two threads have tensors augmented by one renderer, as `Augment` does, each on a stream of its own."""

    def __init__(self, machine: Machine, *num_batches: int, fails: bool = False) -> None:
        super().__init__(machine)
        self._renderer = DeviceRenderer(CPU, RECIPE, FORM, max_pending=2, streams=self.streams)
        self._left = list(num_batches)
        self._fails = fails

    def own_actors(self) -> list[Step]:
        return [partial(self._render, thread) if self._left[thread] else None for thread in (0, 1)]

    def own_state(self) -> Any:
        return tuple(self._left), _asked_for(self._renderer)

    def _render(self, thread: int) -> None:
        self._left[thread] -= 1
        pixels = self.machine.tensor(PAGE_BYTES)
        self.machine.use("load", [], [pixels])
        with self.device.on(self.callers[thread]):
            self.device.current.wait_stream(self.device.main)
            fails = self.machine.fails_next = self._fails and self._left == [1, 0]
            table = np.array([[pixels.data_ptr(), 16, 0, 0, 4]])
            try:
                images = self._renderer.render(table, VIEWS["tables"], VIEWS["sizes"], [pixels], [0], VIEWS["mix_jobs"])
            except TypeError:
                assert fails
                return
            self.machine.use("train", images)


class Loading(_Orders):
    """A loader makes batches ahead, and its caller takes each on one of two streams, uses it there and drops it.

    Args:
        num_recipes: each takes its turn, as where `Loader.batches` is given places of several epochs.
        has_cache: of the two images, of which each is in two batches that follow each other.
        has_dali: whether DALI decodes.
        fails: the batch whose second view cannot be launched.
        is_full: the batch for which the cache's table finds no memory.
        has_labels: whether label maps are looked up with the images of both views, out of the cache if there is one.
    """

    def __init__(
        self,
        machine: Machine,
        num_batches: int,
        *,
        num_recipes: int = 1,
        has_cache: bool = False,
        has_dali: bool = False,
        fails: int | None = None,
        is_full: int | None = None,
        has_labels: bool = False,
    ) -> None:
        super().__init__(machine)
        self._has_labels = has_labels
        self._num_batches, self._fails, self._is_full = num_batches, fails, is_full
        self._num_submitted = self._num_made = 0
        self._made: deque[tuple[DeviceOutput, BatchInProgress]] = deque()
        self._decoder = DaliDecoder(1, 1, 0, 2, as_on_gpu=False) if has_dali else None
        self._cache = None
        if has_cache:
            num_bytes = (4 if has_labels else 2) * PAGE_BYTES
            self._cache = PixelCache(2, Arena(num_bytes, num_bytes, self._segment), is_on_host=False)
        settings: Any = SimpleNamespace(recipe=RECIPE, form=FORM, targets=TARGETS if has_labels else None)
        self._outputs = [DeviceOutput(settings, CPU, self._cache) for _ in range(num_recipes)]
        for stream in self.callers:
            self._train(stream, [])  # in memory that the cache is given next

    def own_actors(self) -> list[Step]:
        num_under_way = self._num_submitted - self._num_made
        may_submit = self._decoder is not None and self._num_submitted < self._num_batches and num_under_way < 2
        may_make = self._num_made < self._num_batches if self._decoder is None else num_under_way > 0
        return [
            self._submit if may_submit else None,
            self._make if may_make and len(self._made) < 2 else None,
            *(partial(self._take, stream) if self._made else None for stream in self.callers),
        ]

    def own_state(self) -> Any:
        cached = tuple(batch.items[0].is_cached for _, batch in self._made)
        return self._num_submitted, self._num_made, cached, tuple(_asked_for(each._renderer) for each in self._outputs)

    def _segment(self, num_bytes: int) -> Segment:
        memory = self.machine.tensor(num_bytes)
        return Segment(memory=memory, address=memory.data_ptr(), num_bytes=num_bytes)

    def _submit(self) -> None:
        assert self._decoder is not None
        self._num_submitted += 1
        self._decoder.submit([memoryview(self.machine.host_memory(100))], REGION)

    def _make(self) -> None:
        number = self._num_made
        self._num_made += 1
        output, sample_id = self._outputs[number % len(self._outputs)], number // 2 % 2
        image: Any = SimpleNamespace(sample_id=sample_id, size=(16, 16), may_scale=False, shape=lambda _: (16, 16, 4))
        item = Item(position=0, wanted=sample_id, sample_id=sample_id, image=image)
        request: Any = SimpleNamespace(num_own=None)
        plan: Any = SimpleNamespace(sample_ids=[number], views=(RECORDS, RECORDS))
        batch = BatchInProgress(request=request, items=[item], plan=plan, **VIEWS)
        output.begin(batch)
        if self._cache is not None:
            item.pixels = self._cache.find(sample_id, 1)
            item.is_cached = item.pixels is not None
        if self._decoder is not None:
            unused: Any = None
            stage = DaliStage(unused, unused, unused, batch_size=1, device_id=0)
            stage._attach(_InFlight(batch=batch, items=[item], regions=REGION), self._decoder.collect())
        elif item.pixels is None:
            room = batch.target.staging.room(0, PAGE_BYTES)
            self.machine.write_on_host("decode", room)
            item.pixels = LocatedPixels.of(room.reshape(16, 16, 4))
        if self._has_labels:
            self._take_labels(output, batch, item)
        output.deliver(batch, batch.items)
        self._made.append((output, batch))

    def _take_labels(self, output: DeviceOutput, batch: BatchInProgress, item: Item) -> None:
        nothing = ViewTargets(size=(8, 8), image_ids=[0], counts=None, columns={}, dropped=[[]], label_maps=None)
        batch.targets = (nothing, nothing)
        if not output.label_maps.has(batch, item):
            output.label_maps.take(batch, item, LABELS)
            segment, first = batch.target.staging._places[~item.position]
            self.machine.write_on_host("read", segment.host[first : first + LABELS.nbytes])

    def _take(self, stream: FakeStream) -> None:
        output, batch = self._made.popleft()
        assert batch.plan is not None
        (number,) = batch.plan.sample_ids
        self.machine.fails_next, self.machine.is_full = number == self._fails, number == self._is_full
        try:
            with self.device.on(stream):
                images = output.finish(batch)
        except (TypeError, torch.OutOfMemoryError):
            assert number in (self._fails, self._is_full)
            return
        assert number not in (self._fails, self._is_full)
        self._train(stream, [*images, *(found.label_maps for found in batch.targets)])

    def _train(self, stream: FakeStream, images: list[Any]) -> None:
        with self.device.on(stream):
            self.machine.use("train", images, [self.machine.tensor(2 * PAGE_BYTES)])


class Collecting(_Orders):
    """Batches of DALI's that callers use where they lie, each on a stream that waits for it while the host does not."""

    def __init__(self, machine: Machine, num_batches: int, *, keeps_files: bool = True) -> None:
        super().__init__(machine)
        self._num_batches, self._keeps_files = num_batches, keeps_files
        self._num_submitted = self._num_taken = 0
        self._decoder = DaliDecoder(1, 1, 0, 2, as_on_gpu=False)
        self._in_flight = InFlight("none", 2)

    def own_actors(self) -> list[Step]:
        num_under_way = self._num_submitted - self._num_taken
        return [
            self._submit if self._num_submitted < self._num_batches and num_under_way < 2 else None,
            *(partial(self._take, stream) if num_under_way else None for stream in self.callers),
        ]

    def own_state(self) -> Any:
        return self._num_submitted, self._num_taken, tuple(batch.event.known for batch in _batches(self._in_flight))

    def _submit(self) -> None:
        self._num_submitted += 1
        self._decoder.submit([memoryview(self.machine.host_memory(100))], REGION)

    def _take(self, stream: FakeStream) -> None:
        self._num_taken += 1
        self._in_flight.make_room()
        decoded = self._decoder.collect(self.device.streams.index(stream))
        with self.device.on(stream):
            self.machine.use("train", [(int(decoded.addresses[0]), 768)])
            keep = decoded.keep if self._keeps_files else decoded.keep[:-1]
            self._in_flight.add(self.streams.record(), [keep], [0], _nothing)


class Operating(_Orders):
    """DALI decodes, calls its GPU operator on another stream of its own, and takes a copy of what that gives."""

    def __init__(self, machine: Machine, num_batches: int, *, is_on_own_stream: bool = True) -> None:
        super().__init__(machine)
        self._left = num_batches
        self._renderer = DeviceRenderer(CPU, RECIPE, FORM, max_pending=2, streams=self.streams)
        numbers = SampleNumbers(has_ids=False, epoch=0)
        on_operators = partial(self.device.on, self.callers[0]) if is_on_own_stream else nullcontext
        self._augment = DeviceAugment(RECIPE, 0, numbers, self._renderer, on_operators)

    def own_actors(self) -> list[Step]:
        return [self._run if self._left else None]

    def own_state(self) -> Any:
        return self._left, _asked_for(self._renderer)

    def _run(self) -> None:
        self._left -= 1
        operators, dali = self.callers[0], self.machine.dali
        dlpack = torch.utils.dlpack
        image = torch.from_numpy(self.machine.memory.take("DALI", 768)).view(16, 16, 3)
        with self.device.on(dali):
            dali.wait_stream(operators)  # DALI gives memory back in the order of the operator that used it last
            self.machine.use("decode", [], [image])
        operators.wait_stream(dali)
        finished = [dlpack.from_dlpack(capsule) for capsule in self._augment([dlpack.to_dlpack(image)])]
        with self.device.on(operators):
            self.machine.use("DALI's copy", finished)


@pytest.mark.parametrize(
    ("start", "at_least"),
    [
        pytest.param(lambda machine: Rendering(machine, 2, 1), 300, id="tensors"),
        pytest.param(lambda machine: Rendering(machine, 2, 1, fails=True), 200, id="tensors-launch-fails"),
        pytest.param(lambda machine: Loading(machine, 2), 300, id="staging"),
        pytest.param(lambda machine: Loading(machine, 2, fails=0), 100, id="staging-launch-fails"),
        pytest.param(lambda machine: Loading(machine, 2, has_cache=True), 300, id="cache"),
        pytest.param(lambda machine: Loading(machine, 2, has_cache=True, fails=0), 100, id="cache-launch-fails"),
        pytest.param(lambda machine: Loading(machine, 2, has_cache=True, is_full=0), 100, id="cache-finds-no-memory"),
        pytest.param(lambda machine: Loading(machine, 2, has_labels=True), 100, id="labels"),
        pytest.param(lambda machine: Loading(machine, 2, has_labels=True, has_cache=True), 100, id="labels-cache"),
        pytest.param(lambda machine: Loading(machine, 3, has_dali=True), 300, id="dali"),
        pytest.param(lambda machine: Collecting(machine, 3), 50, id="dali-host-does-not-wait"),
        pytest.param(lambda machine: Operating(machine, 4), 10, id="dali-operator"),
    ],
)
def test_every_order_is_right(machine: Machine, start: Callable[[Machine], _Orders], at_least: int) -> None:
    assert every_order(lambda: start(machine)) > at_least


LONGER = {
    "tensors": lambda machine: Rendering(machine, 4, 4),
    "staging": lambda machine: Loading(machine, 6),
    "staging-launch-fails": lambda machine: Loading(machine, 6, fails=2),
    "cache": lambda machine: Loading(machine, 6, has_cache=True),
    "cache-of-two-recipes": lambda machine: Loading(machine, 6, has_cache=True, num_recipes=2),
    "cache-finds-no-memory": lambda machine: Loading(machine, 6, has_cache=True, is_full=0),
    "labels-cache": lambda machine: Loading(machine, 6, has_labels=True, has_cache=True, num_recipes=2),
    "labels-cache-finds-no-memory": lambda machine: Loading(machine, 6, has_labels=True, has_cache=True, is_full=0),
    "dali": lambda machine: Loading(machine, 6, has_dali=True),
    "dali-launch-fails": lambda machine: Loading(machine, 6, has_dali=True, fails=2),
    "dali-cache": lambda machine: Loading(machine, 6, has_dali=True, has_cache=True),
    "dali-host-does-not-wait": lambda machine: Collecting(machine, 6),
}
"""More batches, so that all memory is used again, in orders that are drawn."""
NUM_ORDERS = 60
"""As many find each of the faults below."""


@pytest.mark.parametrize("num", [NUM_ORDERS, pytest.param(5 * NUM_ORDERS, marks=pytest.mark.deep)])
@pytest.mark.parametrize("which", LONGER)
def test_so_are_orders_of_more_batches(machine: Machine, which: str, num: int) -> None:
    some_orders(lambda: LONGER[which](machine), num=num, seed=28)


def _release_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    add = InFlight.add

    def release(self: InFlight, event: Any, owners: Any, sample_ids: Any, release: Callable[[], None]) -> None:
        release()
        add(self, event, owners, sample_ids, _nothing)

    monkeypatch.setattr(InFlight, "add", release)


def _release_where_a_launch_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    keep = DeviceRenderer._keep

    def release(self: DeviceRenderer, owners: Any, ids: Any, release: Callable[[], None] = _nothing) -> None:
        if sys.exc_info()[0] is not None:
            release()
            release = _nothing
        keep(self, owners, ids, release)

    monkeypatch.setattr(DeviceRenderer, "_keep", release)


def _keep_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    add = InFlight.add
    monkeypatch.setattr(InFlight, "add", lambda self, event, owners, *others: add(self, event, (), *others))


def _record_before_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CheckedStreams, "record", lambda self: FakeEvent(self.machine.device, frozenset()))


def _leave_out(kind: type, name: str) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda monkeypatch: monkeypatch.setattr(kind, name, lambda *_: None)


@pytest.mark.parametrize(
    ("start", "break_it", "race"),
    [
        pytest.param(LONGER["tensors"], _release_at_once, "fill the slot .* copy on", id="slot-given-back-at-once"),
        pytest.param(LONGER["tensors"], _record_before_all, "fill the slot .* copy on", id="event-too-early"),
        pytest.param(
            lambda machine: Rendering(machine, 2, 1, fails=True),
            _release_where_a_launch_fails,
            "fill the slot .* copy on",
            id="slot-given-back-where-a-launch-fails",
        ),
        pytest.param(LONGER["tensors"], _leave_out(CheckedStreams, "lend"), "load on main .* render", id="not-lent"),
        pytest.param(LONGER["staging"], _leave_out(StagingBatch, "wait"), "render on .* copy on aside", id="no-wait"),
        pytest.param(LONGER["staging"], _keep_nothing, "copy on aside .* render on", id="staging-not-kept"),
        pytest.param(LONGER["cache"], _leave_out(CacheWriter, "wait"), "render on .* pack on", id="cache-not-awaited"),
        pytest.param(LONGER["dali"], _keep_nothing, "decode on DALI .* render on", id="dali-not-kept"),
        pytest.param(
            LONGER["dali-host-does-not-wait"],
            _keep_nothing,
            "decode on DALI .* train on|write .* decode",
            id="not-kept",
        ),
        pytest.param(
            lambda machine: Collecting(machine, 6, keeps_files=False),
            None,
            "write .* decode on DALI",
            id="files-not-kept",
        ),
        pytest.param(
            LONGER["dali-host-does-not-wait"],
            _leave_out(FakeStream, "wait_event"),
            "train on .* decode on DALI",
            id="collect-does-not-wait",
        ),
        pytest.param(
            lambda machine: Operating(machine, 4, is_on_own_stream=False),
            None,
            "render on main .* decode on DALI",
            id="dali-operator-on-another-stream",
        ),
        pytest.param(
            lambda machine: Operating(machine, 4),
            _release_at_once,
            "fill the slot .* copy on",
            id="dali-operators-slot",
        ),
    ],
)
def test_what_is_broken_is_found(
    machine: Machine,
    start: Callable[[Machine], _Orders],
    break_it: Callable[[pytest.MonkeyPatch], None] | None,
    race: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if break_it is not None:
        break_it(monkeypatch)
    with pytest.raises((Race, DaliDecodeError), match=race):  # DALI's submit wraps what it meets
        some_orders(lambda: start(machine), num=300, seed=28)
