"""An exchange's order on a GPU, in every order in which its threads may run: each stage knows all that it reads."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from augpipe.trainer.codecs import codec
from augpipe.trainer.exchange import butterfly, fill_buckets, lazy
from augpipe.trainer.exchange import deadlines as deadlines_module
from augpipe.trainer.exchange import issuer as issuer_module
from augpipe.trainer.exchange import threads as threads_module
from augpipe.trainer.exchange.mark import Mark
from augpipe.trainer.exchange.threads import ExchangeThreads
from augpipe.trainer.strategies import hook as hook_module
from tests.happens_before import Device, every_order, some_orders

CUDA = torch.device("cuda")
DATA = {"reduce": ("theirs", "mine"), "gather": ("mine", "theirs")}
"""What each phase's collective reads and writes."""

MODES = ("butterfly", "lazy", "hook", "hook, whole")
"""The strategies, and the hook where DDP's buffers are copied, and where they are the buckets' memory as they are."""


class Work:
    """A collective on the backend's stream, which the thread's current stream can be made to wait for."""

    def __init__(self, device: Device, backend: Any) -> None:
        self._device, self._done = device, backend.record_event()

    def wait(self, *timeout: Any) -> None:
        self._device.current.wait_event(self._done)

    def is_completed(self) -> bool:
        return True

    def exception(self) -> None:
        return None


class FakeBucket:
    """What `BucketExchange` does to its memory, as work on a fake device."""

    theirs_split = mine_split = ()

    def __init__(self, number: int, device: Device, sends: str) -> None:
        self.number, self._device, self._sends = number, device, sends
        self.label = f"bucket {number}"
        self.theirs, self.mine = self.at("theirs"), self.at("mine")
        self.reduced, self.done = Mark(), Mark()
        self.done.set()

    def at(self, memory: str) -> str:
        return f"{memory} of {self.label}"

    def _use(self, stage: str, reads: str, writes: str) -> None:
        names = [[self.at(one) for one in of.split()] for of in (reads, writes)]
        self._device.use(f"{stage} {self.label}", reads=names[0], writes=names[1])

    def _add_up(self) -> None:
        """To what the slices of all buckets hold, in the order of buckets."""
        self._device.use(f"add up {self.label}", reads=[self.at("own"), "totals"], writes=["totals"])

    def pack_reduce(self) -> None:
        self._use("pack_reduce", "own others", "theirs residual control-of-reduce")

    def reduce(self) -> None:
        self._use("reduce", "mine", "own control-of-reduce")
        if self._sends == "weights":
            self._add_up()

    def pack_gather(self) -> None:
        self._use("pack_gather", "own", "own mine control-of-gather")
        if self._sends == "gradients":
            self._add_up()

    def unpack_gather(self) -> None:
        self._use("unpack_gather", "theirs", "others control-of-gather")


class Handler:
    """As the lazy strategy's: what is sent back comes from elsewhere, and all is brought into the model."""

    def __init__(self, device: Device, sends: str) -> None:
        self._device, self._sends = device, sends

    def before_reduce(self, bucket: Any) -> None:
        pass

    def before_gather(self, bucket: Any) -> None:
        if self._sends == "weights":
            self._device.use(f"before_gather {bucket.label}", reads=["owned"], writes=[bucket.at("own")])

    def after_gather(self, bucket: Any) -> None:
        self._device.use(
            f"after_gather {bucket.label}", reads=[bucket.at("own"), bucket.at("others")], writes=[bucket.at("model")]
        )

    def on_failure(self, error: Exception) -> None:
        raise error


class Memory:
    """A tensor by the names of the memory that it lies in; what is copied is noted on the device."""

    shape, dtype = (1,), torch.float32

    def __init__(self, device: Device, *names: str) -> None:
        self._device, self.names = device, names

    def _same(self, *_: Any) -> "Memory":
        return self

    reshape = to = view = __getitem__ = _same

    def numel(self) -> int:
        return 1

    def copy_(self, other: "Memory") -> None:
        self._device.use(f"{other.names} into {self.names}", reads=other.names, writes=self.names)

    @staticmethod
    def cat(parts: "list[Memory]", *, out: "Memory") -> None:
        for part in parts:
            out.copy_(part)


class Result:
    """torch's future, of a device: whoever waits for it waits for what the stream that sets it had queued by then."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._event: Any = None

    def set_result(self, _result: object) -> None:
        assert self._event is None
        self._event = self._device.current.record_event()

    def wait(self) -> None:
        self._device.current.wait_event(self._event)


class HookSteps:
    """The hook in the place of a strategy: DDP's buffers, which are the buckets' own memory (`is_whole`) or are copied
    there, filled by backward, and read where DDP has waited for its futures."""

    def __init__(self, device: Device, buckets: list[Any], monkeypatch: pytest.MonkeyPatch, *, is_whole: bool) -> None:
        monkeypatch.setattr(hook_module, "torch", Memory)
        self._device, self._buckets, self._is_whole = device, buckets, is_whole
        self._ddp = device.stream("DDP's, which waits for nothing but its futures")
        self.state = hook_module.ButterflyState(
            codec("fp32"), group=None, exempt_1d=False, error_feedback=False, timeout_s=5.0
        )

    def buffer(self, bucket: Any) -> Memory:
        values = bucket.at("own"), bucket.at("others")
        return Memory(self._device, *(values if self._is_whole else [bucket.at("buffer")]))

    def give(self, bucket: Any) -> None:
        """A bucket's gradients are complete."""
        buffer: Any = self.buffer(bucket)
        bucket.values = Memory(self._device, bucket.at("own"), bucket.at("others"))
        self._device.use(f"gradients of {bucket.label}", writes=buffer.names)
        future: Any = Result(self._device)
        given = hook_module._DdpBucket(buffer, [buffer], future, 1)
        self.state._given.append(given)
        self.state._under_way.append(bucket)
        self.state._sources[bucket] = [(given, [] if self._is_whole else [0])]

    def finish(self) -> None:
        """The end of backward, and the optimizer's step."""
        self.state._finish()
        with self._device.on(self._ddp):
            for given in self.state._given:
                given.future.wait()
                self._device.use("DDP's end of backward", reads=given.buffer.names)  # type: ignore[attr-defined]
        self._device.main.wait_stream(self._ddp)
        for bucket in self._buckets:
            self._device.use("update", reads=self.buffer(bucket).names)
        self.state._begin_backward()


class Steps:
    """Two steps of a strategy, by threads that only move when they are told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, mode: str, num_buckets: int, num_steps: int) -> None:
        self.device = device = Device()
        self._backend = backend = device.stream("backend")
        started: list[tuple[Any, ...]] = []

        class Thread:
            def __init__(self, *, target: Any, args: tuple[Any, ...] = (), **_: Any) -> None:
                started.append(args)

            def start(self) -> None:
                pass

        def all_to_all_single(output: str, data: str, *_: Any, **__: Any) -> Work:
            backend.wait_stream(device.current)
            with device.on(backend):
                device.use(f"{data} to {output}", reads=[data], writes=[output])
            return Work(device, backend)

        for module in (threads_module, issuer_module, deadlines_module):
            monkeypatch.setattr(module, "Thread", Thread)
        monkeypatch.setattr(threads_module, "dist", SimpleNamespace(all_to_all_single=all_to_all_single, Work=object))
        monkeypatch.setattr(torch.cuda, "current_stream", lambda _device=None: device.current)
        self._exchange = (lazy if mode == "lazy" else butterfly)(
            fill_buckets([64] * num_buckets, [0] * num_buckets, {0: 64}), 2
        )
        group: Any = SimpleNamespace()
        self.buckets: list[Any] = [FakeBucket(i, device, self._exchange.gathers) for i in range(num_buckets)]
        is_hook = mode.startswith("hook")
        hook = HookSteps(device, self.buckets, monkeypatch, is_whole=mode.endswith("whole")) if is_hook else None
        self._handler: Any = hook.state if hook else Handler(device, self._exchange.gathers)
        self._threads = ExchangeThreads("test", group, self._handler, device=CUDA, timeout_s=5.0)
        self._entries = self._threads._issuer._entries
        self._stages = [(queue, stage, device.stream()) for queue, stage in (args for args in started if args)]
        self._at_head: list[Any] = [None] * len(self._stages)
        self._issuers = device.stream("issuer's")
        self._entry: Any = None
        if hook:
            hook.state._threads = self._threads
        self._main = list(self._hook(hook, num_steps) if hook else self._strategy(num_steps))

    def _strategy(self, num_steps: int) -> Iterator[tuple[Callable[[], bool], Callable[[], None]]]:
        """What the strategy's own thread does, and when it is not waiting."""
        exchange, threads = self._exchange, self._threads

        def take(bucket: Any) -> None:
            threads.wait_gathered(bucket)
            self.device.use(f"gradients of {bucket.label}", reads=[], writes=[bucket.at("own"), bucket.at("others")])

        def begin(collective: Any) -> None:
            threads.begin(collective.phase, self.buckets[collective.bucket])

        def read_controls() -> None:
            self.device.main.synchronize()
            if exchange.gathers == "weights":
                self.device.use_on_host("everyone's totals", reads=["everyone's totals"])
            for bucket in self.buckets:
                controls = [bucket.at(f"control-of-{phase}") for phase in ("reduce", "gather")]
                self.device.use_on_host(f"controls of {bucket.label}", reads=controls)
                self.device.use(f"residual of {bucket.label} scaled", writes=[bucket.at("residual")])

        call: list[Any] = []

        def gather(_group: object) -> None:
            backend = self._backend
            backend.wait_stream(self.device.current)
            with self.device.on(backend):
                self.device.use("totals to all", reads=["totals"], writes=["everyone's totals"])
            threads.finish("totals", Work(self.device, backend))  # type: ignore[arg-type]

        def agree() -> None:
            for bucket in self.buckets:
                threads.wait_reduced(bucket)
            call.append(threads._begin_call("totals", gather))

        def update() -> None:
            threads._end_call(call.pop())
            read_controls()
            self.device.use("update", reads=[bucket.at("own") for bucket in self.buckets], writes=["owned"])

        def step() -> None:
            for bucket in self.buckets:
                threads.wait_gathered(bucket)
            read_controls()

        def use(bucket: Any) -> None:
            threads.wait_gathered(bucket)
            self.device.use(f"the model's {bucket.label}", reads=[bucket.at(m) for m in ("own", "others", "model")])

        for _ in range(num_steps):
            for one in exchange.collectives:
                if one.phase == "agree":
                    yield lambda: all(bucket.reduced.is_set() for bucket in self.buckets), agree
                    yield lambda: call[0].issued.is_set(), update
                    continue
                if one.phase == "reduce":
                    bucket = self.buckets[one.bucket]
                    yield lambda bucket=bucket: bucket.done.is_set(), lambda bucket=bucket: take(bucket)
                yield lambda: True, lambda one=one: begin(one)
            if exchange.awaited == "step":
                yield lambda: all(bucket.done.is_set() for bucket in self.buckets), step
        for bucket in self.buckets:
            yield lambda bucket=bucket: bucket.done.is_set(), lambda bucket=bucket: use(bucket)

    def _hook(self, hook: HookSteps, num_steps: int) -> Iterator[tuple[Callable[[], bool], Callable[[], None]]]:
        """What autograd's thread does under DDP, and when it is not waiting."""

        def begin(collective: Any) -> None:
            self._threads.begin(collective.phase, self.buckets[collective.bucket])

        for _ in range(num_steps):
            for one in self._exchange.collectives:
                if one.phase == "reduce":
                    yield lambda: True, lambda one=one: hook.give(self.buckets[one.bucket])
                yield lambda: True, lambda one=one: begin(one)
            yield lambda: all(bucket.done.is_set() for bucket in self.buckets), hook.finish

    def ready(self) -> list[int]:
        ready = [0] if self._main and self._main[0][0]() else []
        if self._entry is None and not self._entries.empty():
            self._entry = self._entries.get()
        if self._entry is not None:
            stage, task = self._entry.args
            ready += [1] if _may(stage, task) else []
        for i, (queue, stage, _) in enumerate(self._stages):
            if self._at_head[i] is None and not queue.empty():
                self._at_head[i] = queue.get()
            if self._at_head[i] is not None and _may(stage, self._at_head[i]):
                ready.append(2 + i)
        return ready

    def step(self, actor: int) -> None:
        assert actor in self.ready()
        if actor == 0:
            self._main.pop(0)[1]()
        elif actor == 1:
            entry, self._entry = self._entry, None
            with self.device.on(self._issuers):
                entry(self._issuers)
        else:
            _, stage, stream = self._stages[actor - 2]
            task, self._at_head[actor - 2] = self._at_head[actor - 2], None
            with self.device.on(stream):
                self._threads._advance(stage, task, stream)
        self._threads.check()

    def state(self) -> Any:
        return len(self._main), self.device.state()

    def check_end(self) -> None:
        assert not self._main and self._entry is None and not any(self._at_head)


def _may(stage: Any, task: Any) -> bool:
    """Whether a thread that comes to this stage would not wait."""
    return all(mark.is_set() for mark in stage.before(task))


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_every_stage_knows_all_that_it_reads(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two buckets, two phases and two steps, in whatever order the threads run."""
    assert every_order(lambda: Steps(monkeypatch, mode, 2, 2)) > 50


@pytest.mark.thinned(2)
@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_so_it_does_of_more_buckets(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three of them, whose gathers the butterfly's schedule puts behind other reductions, in orders that are drawn."""
    some_orders(lambda: Steps(monkeypatch, mode, 3, 2), num=200, seed=28)


def test_what_is_submitted_knows_the_callers_work_and_the_caller_its_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """As split layers do it: features are sent from where they were made, and read where they are waited for."""
    device = Device()
    backend = device.stream("backend")
    monkeypatch.setattr(torch.cuda, "Stream", lambda _device: device.stream())
    monkeypatch.setattr(torch.cuda, "stream", device.on)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _device=None: device.current)

    def collective() -> Work:
        backend.wait_stream(device.current)
        with device.on(backend):
            device.use("features to theirs", reads=["features"], writes=["theirs"])
        return Work(device, backend)

    issuer, group = issuer_module.Issuer("test", CUDA), Any
    for _ in range(3):
        device.use("forward", reads=["theirs"], writes=["features"])
        pending = issuer.submit("features", collective, group, 5.0)
        device.use("what is done meanwhile")
        pending.wait()
        device.use("use", reads=["theirs"])
    issuer.close()
