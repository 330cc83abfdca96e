"""The threads of an exchange: the order in which collectives are issued, and what a waiting thread may rely on."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from threading import Event, current_thread
from time import sleep
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from augpipe.trainer.exchange import butterfly, fill_buckets
from augpipe.trainer.exchange import threads as module
from augpipe.trainer.exchange.bucket import controls_of
from augpipe.trainer.exchange.exchange_errors import SyncError
from augpipe.trainer.exchange.host_copy import HostCopy
from augpipe.trainer.exchange.mark import Mark
from augpipe.trainer.exchange.threads import ExchangeThreads
from tests.trainer.exchange.cards import queued_work

STAGES = ("pack_reduce", "reduce", "pack_gather", "unpack_gather")


class Bucket:
    """A bucket of nothing; its stages take as long as they are told to."""

    theirs, mine, theirs_split, mine_split = "theirs", "mine", (), ()

    def __init__(self, number: int = 0, **seconds: float) -> None:
        self.label = f"bucket {number}"
        self.reduced, self.done = Mark(), Mark()
        self.done.set()
        for stage in STAGES:
            setattr(self, stage, lambda stage=stage: sleep(seconds.get(stage, 0.0)))


class Handler:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def before_reduce(self, bucket: Any) -> None:
        pass

    def before_gather(self, bucket: Any) -> None:
        self.told.append(("before", bucket.label))

    def after_gather(self, bucket: Any) -> None:
        self.told.append(("after", bucket.label))

    def on_failure(self, error: SyncError) -> None:
        self.told.append(error)


@contextmanager
def started(
    monkeypatch: pytest.MonkeyPatch, *, device: str = "cpu", timeout_s: float = 5.0, **replaced: Any
) -> Iterator[tuple[ExchangeThreads, Handler, list[str]]]:
    """Threads whose collectives end at once, the handler, and which thread issued what."""
    issued: list[str] = []

    def all_to_all_single(output: str, data: str, *_: Any, **__: Any) -> Any:
        issued.append(f"{current_thread().name}: {data} to {output}")
        return SimpleNamespace(wait=lambda timeout: None)

    found = SimpleNamespace(all_to_all_single=all_to_all_single, Work=object)
    monkeypatch.setattr(module, "dist", SimpleNamespace(**vars(found) | replaced))
    handler, none = Handler(), Any
    threads = ExchangeThreads("test", none, handler, device=torch.device(device), timeout_s=timeout_s)
    try:
        yield threads, handler, issued
    finally:
        threads.close()


def test_one_thread_issues_in_the_order_of_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever takes how long: what is packed sooner than what comes before it waits."""
    exchange = butterfly(fill_buckets([64] * 4, [0] * 4, {0: 64}), 2)
    buckets: list[Any] = [
        Bucket(0, pack_reduce=0.05, reduce=0.1),
        Bucket(1, pack_gather=0.1),
        Bucket(2, reduce=0.05, pack_gather=0.05),
        Bucket(3),
    ]
    sent: list[str] = []
    for bucket in buckets:  # a bucket's name in the place of its memory
        bucket.theirs, bucket.mine = f"reduce {bucket.label}", f"gather {bucket.label}"

    def all_to_all_single(output: str, data: str, *_: Any, **__: Any) -> Any:
        sent.append(data)
        assert current_thread().name == "augpipe test issuing"
        return SimpleNamespace(wait=lambda timeout: None)

    with started(monkeypatch, all_to_all_single=all_to_all_single) as (threads, handler, _):
        for collective in exchange.collectives:
            threads.begin(collective.phase, buckets[collective.bucket])
        assert threads.call("something else", lambda group: (current_thread().name, list(sent))) == (
            "augpipe test issuing",
            [str(collective) for collective in exchange.collectives],
        )
        for bucket in buckets:
            threads.wait_gathered(bucket)
    assert handler.told.count(("before", "bucket 2")) == handler.told.count(("after", "bucket 2")) == 1
    assert all(handler.told.index(("before", b.label)) < handler.told.index(("after", b.label)) for b in buckets)


def test_waits_add_up_until_they_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is counted of a bucket that is ready, not even the time to look."""
    now = iter(range(100))
    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: next(now)))
    with started(monkeypatch) as (threads, _, _):
        bucket: Any = Bucket()
        for _ in range(3):
            bucket.done = Mark()
            bucket.done.wait = bucket.done.set
            threads.wait_gathered(bucket)
            threads.wait_gathered(bucket)
        threads.read(torch.zeros(()))
        assert threads.take_exposed_s() == 4.0 and threads.take_exposed_s() == 0.0


def test_closed_threads_take_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    bucket: Any = Bucket()
    with started(monkeypatch) as (threads, _, _):
        threads.close()
        with pytest.raises(RuntimeError, match="test is closed: build the strategy again"):
            threads.begin("reduce", bucket)


def test_a_failure_reaches_whoever_waits_and_whoever_comes_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told once, and all threads end."""
    begun = Event()
    broken: Any = Bucket()
    broken.pack_reduce = lambda: begun.wait(5) and 1 / 0
    later: Any = Bucket(1)
    with started(monkeypatch) as (threads, handler, issued):
        threads.begin("reduce", broken)
        threads.begin("gather", broken)
        begun.set()
        for wait in (threads.wait_reduced, threads.wait_gathered):
            with pytest.raises(
                SyncError, match="test: waited for the gradients of bucket 0 to be sent .*: division by"
            ):
                wait(broken)
        with pytest.raises(SyncError):
            threads.check()
        with pytest.raises(SyncError):
            threads.begin("reduce", later)
        with pytest.raises(SyncError):  # and none of its events will come
            threads.wait_reduced(later)
        (told,) = handler.told
        assert isinstance(told, SyncError) and isinstance(told.__cause__, ZeroDivisionError) and not issued
    assert not any(thread.is_alive() for thread in threads._threads)


def test_a_collective_without_an_end_is_waited_for_with_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """As under NCCL, where a wait without one never raises."""

    def wait(timeout: timedelta) -> None:
        assert timeout == timedelta(seconds=0.05)
        sleep(timeout.total_seconds())
        raise RuntimeError("it ran for too long")

    bucket: Any = Bucket()
    endless = SimpleNamespace(wait=wait)
    with started(monkeypatch, timeout_s=0.05, all_to_all_single=lambda *_, **__: endless) as (threads, _, _):
        threads.begin("reduce", bucket)
        message = r"waited for the gradients of bucket 0 from the other ranks, at most 0\.05 s, and got: it ran for too"
        with pytest.raises(SyncError, match=message):
            threads.wait_reduced(bucket)
        with pytest.raises(SyncError, match=message):
            threads.call("norms", lambda group: None)


@pytest.mark.usefixtures("card")
def test_on_a_card_all_is_queued_before_any_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """All stages of 25 buckets: nothing waits on the host, with a timeout or without."""
    exchange = butterfly(fill_buckets([64] * 25, [0] * 25, {0: 64}), 2)
    queued: list[str] = []
    buckets: list[Any] = [Bucket(number) for number in range(25)]
    for bucket in buckets:
        for stage in STAGES:
            setattr(bucket, stage, lambda stage=stage, bucket=bucket: queued.append(f"{stage} {bucket.label}"))
    is_done = Event()
    with started(monkeypatch, device="cuda", all_to_all_single=lambda *_, **__: queued_work(is_done.is_set)) as (
        threads,
        _,
        _,
    ):
        for collective in exchange.collectives:
            threads.begin(collective.phase, buckets[collective.bucket])
        for bucket in buckets:
            threads.wait_gathered(bucket)
        assert not is_done.is_set() and len(queued) == len(set(queued)) == 100
        is_done.set()


@pytest.mark.usefixtures("card")
def test_on_a_card_what_does_not_end_becomes_an_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """By its name, in the log and for all who come later; and the group is ended, so that no stream waits for ever."""
    ended = Event()
    bucket: Any = Bucket()
    with started(
        monkeypatch, device="cuda", timeout_s=0.1, all_to_all_single=lambda *_, **__: queued_work(lambda: False)
    ) as (threads, handler, _):
        threads._group = SimpleNamespace(abort=ended.set)  # type: ignore[assignment]
        threads.begin("reduce", bucket)
        threads.wait_reduced(bucket)  # the stream does
        assert ended.wait(5)
        with pytest.raises(SyncError, match=r"gradients of bucket 0 from the other ranks, at most 0\.1 s, .*not end"):
            threads.check()
        assert len(handler.told) == 1
    assert "bucket 0 from the other ranks" in caplog.text


@pytest.mark.usefixtures("card")
def test_what_failed_is_told_and_not_what_it_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Control data of an exchange that was ended is of an earlier one, and would look like another order of ranks."""
    bucket: Any = Bucket()
    bucket.controls = torch.zeros((2, 2, 64), dtype=torch.uint8)
    bucket.take_controls = lambda controls: pytest.fail("stale control data was looked at")
    with started(monkeypatch, device="cuda", all_to_all_single=lambda *_, **__: queued_work()) as (threads, _, _):
        threads._fail("gradients of bucket 0", TimeoutError("it did not end"))
        with pytest.raises(SyncError, match="waited for the gradients of bucket 0, .* it did not end"):
            threads.read_controls([bucket], HostCopy(controls_of([bucket])))
