"""The one thread that issues: its order, whose failure is whose, and what a wait on a card is for."""

import time
from collections.abc import Iterator
from datetime import timedelta
from threading import Event, current_thread
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from augpipe.trainer.exchange import threads as threads_module
from augpipe.trainer.exchange.exchange_errors import SyncError
from augpipe.trainer.exchange.issuer import Issuer, Pending
from augpipe.trainer.exchange.threads import ExchangeThreads
from augpipe.trainer.parallel.pieces import Works
from tests.trainer.exchange.cards import Stream, queued_work, work_of_older_torch
from tests.trainer.exchange.test_threads import Bucket, Handler

CPU = torch.device("cpu")
CARD = torch.device("cuda")
GROUP: Any = SimpleNamespace()


def work(log: list[object] | None = None) -> Any:
    """A collective that ends at once."""
    return SimpleNamespace(wait=lambda timeout: None if log is None else log.append(timeout))


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    made = Issuer("one", CPU)
    yield made
    made.close()


def exchange(
    name: str, issuer: Issuer, monkeypatch: pytest.MonkeyPatch, issued: list[str]
) -> tuple[ExchangeThreads, Handler]:
    """Threads of an exchange that share the issuer."""

    def all_to_all_single(_output: str, data: str, *_: Any, **__: Any) -> Any:
        issued.append(f"{current_thread().name}: {data}")
        return work()

    monkeypatch.setattr(
        threads_module, "dist", SimpleNamespace(all_to_all_single=all_to_all_single, Work=object, ProcessGroup=object)
    )
    handler, group = Handler(), Any
    made = ExchangeThreads(name, group, handler, device=CPU, timeout_s=5, issuer=issuer)
    return made, handler


def bucket(name: str, **seconds: float) -> Any:
    made: Any = Bucket(0, **seconds)
    made.theirs, made.mine = f"reduce {name}", f"gather {name}"
    return made


def test_two_exchanges_and_more_have_one_order(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of putting in, whatever is ready sooner; and one thread for all."""
    issued: list[str] = []
    (first, _), (second, _) = (exchange(name, issuer, monkeypatch, issued) for name in ("a", "b"))
    slow, quick = bucket("slow", pack_reduce=0.1, reduce=0.1), bucket("quick")
    timeouts: list[object] = []

    def other() -> Any:
        issued.append(f"{current_thread().name}: other")
        return work(timeouts)

    first.begin("reduce", slow)
    second.begin("reduce", quick)
    first.begin("gather", slow)
    pending = issuer.submit("something of ours", other, GROUP, 3.0)
    second.begin("gather", quick)
    pending.wait()
    second.wait_gathered(quick)
    assert [line.removeprefix("augpipe one: ") for line in issued] == [
        "reduce slow",
        "reduce quick",
        "gather slow",
        "other",
        "gather quick",
    ]
    assert timeouts == [timedelta(seconds=3)]
    first.close()
    assert issuer.submit("what follows", work, GROUP, 3.0).wait() is None, (
        "closing one exchange ended the others' thread"
    )
    second.close()


def test_a_failure_is_its_own_exchanges(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the broken one has in the queue is skipped, also what never gets packed; the other goes on."""
    issued: list[str] = []
    (broken, told), (sound, untold) = (exchange(name, issuer, monkeypatch, issued) for name in ("a", "b"))
    begun, bad, good = Event(), bucket("bad"), bucket("good")
    bad.reduce = lambda: begun.wait(5) and 1 / 0
    broken.begin("reduce", bad)
    broken.begin("gather", bad)  # never packed: its reduction fails
    sound.begin("reduce", good)
    sound.begin("gather", good)
    begun.set()
    with pytest.raises(SyncError, match="a: waited for the gradients of bucket 0 from the other ranks"):
        broken.wait_gathered(bad)
    sound.wait_gathered(good)
    assert [line.removeprefix("augpipe one: ") for line in issued] == ["reduce bad", "reduce good", "gather good"]
    assert len(told.told) == 1 and len(untold.told) == 2
    broken.close()
    sound.close()


def test_errors_name_what_was_waited_for(issuer: Issuer) -> None:
    """Whether issuing fails, or the collective, or its turn never comes; the thread goes on after each."""

    def endless(timeout: timedelta) -> None:
        raise RuntimeError("it ran for too long")

    with pytest.raises(SyncError, match=r"one: waited for the norms, at most 2 s, and got: division .*A rank has died"):
        issuer.submit("norms", lambda: 1 / 0, GROUP, 2.0).wait()
    with pytest.raises(SyncError, match=r"one: waited for the sums, at most 0\.5 s, and got: it ran for too long"):
        issuer.submit("sums", lambda: SimpleNamespace(wait=endless), GROUP, 0.5).wait()
    free = Event()
    held = issuer.submit("first", lambda: free.wait(5) and work(), GROUP, 5.0)
    with pytest.raises(SyncError, match=r"the second, at most 0\.05 s, and got: what is to be issued before it did no"):
        issuer.submit("second", work, GROUP, 0.05).wait()
    free.set()
    held.wait()
    issuer.submit("third", work, GROUP, 2.0).wait()


def test_a_closed_issuer_takes_no_more(issuer: Issuer) -> None:
    """What is in it is issued first; closing twice is fine."""
    last = issuer.submit("last", work, GROUP, 2.0)
    issuer.close()
    last.wait()
    issuer.close()
    with pytest.raises(RuntimeError, match="one is closed: build the strategy again"):
        issuer.submit("more", work, GROUP, 2.0)


def test_waits_add_up_until_they_are_told(issuer: Issuer) -> None:
    pending = issuer.submit("it", work, GROUP, 2.0)
    assert issuer.take_exposed_s() == 0.0
    pending.wait()
    assert issuer.take_exposed_s() > 0.0
    assert issuer.take_exposed_s() == 0.0


def test_on_a_card_it_waits_for_the_callers_stream(card: Stream) -> None:
    """The issuing thread's stream waits for what the caller had queued when it submitted, not for what came later."""
    issuer = Issuer("card", CARD)
    free = Event()
    issuer.put(lambda _stream: free.wait(5) and None)
    pending = issuer.submit("it", queued_work, GROUP, 2.0)
    card.queued.append("after")
    free.set()
    pending.wait()
    issuer.close()
    assert card.seen == [("before",)]


def issued(pending: Pending) -> Pending:
    """What was submitted, once its thread came to it: on a busy machine later than in its 0.05 s."""
    assert pending._issued.wait(30)
    return pending


def test_on_a_card_nobody_waits_and_a_deadline_is_kept(card: Stream) -> None:
    """What does not end: its group is ended once the failure can be found, and whoever comes next is told its name."""
    issuer, ended = Issuer("card", CARD), Event()
    found: list[object] = []

    def abort() -> None:
        found.append(issuer.failure)
        ended.set()

    group: Any = SimpleNamespace(abort=abort)
    issued(issuer.submit("quick", queued_work, group, 0.05)).wait()
    issued(issuer.submit("features", lambda: queued_work(lambda: False), group, 0.05)).wait()
    issuer.check()
    assert ended.wait(5)
    message = r"card: waited for the features, at most 0\.05 s, and got: it did not end. A rank has died"
    for call in (issuer.check, lambda: issuer.submit("more", queued_work, group, 1.0)):
        with pytest.raises(SyncError, match=message):
            call()
    assert found == [issuer.failure]
    issuer.close()


@pytest.mark.parametrize("timeout_s", [0.05, 60.0])
def test_on_a_card_what_ended_by_an_error_did_not_succeed(card: Stream, timeout_s: float) -> None:
    """It is found when its time is over, or when the next collective is watched, and told with its own words."""
    issuer, ended = Issuer("card", CARD), Event()
    group: Any = SimpleNamespace(abort=ended.set)
    issued(issuer.submit("quick", queued_work, group, timeout_s)).wait()
    issued(
        issuer.submit("features", lambda: queued_work(error=RuntimeError("NCCL: remote error")), group, timeout_s)
    ).wait()
    if timeout_s > 1:
        issuer.finish(queued_work(), group, timeout_s, lambda error: None)
    assert ended.wait(5)
    message = rf"card: waited for the features, at most {timeout_s:g} s, and got: NCCL: remote error. A rank has died"
    with pytest.raises(SyncError, match=message):
        issuer.check()
    issuer.close()


def test_an_older_torch_says_by_a_number_what_ended_by_an_error(card: Stream) -> None:
    issuer, ended = Issuer("card", CARD), Event()
    group: Any = SimpleNamespace(abort=ended.set)
    for result in (0, None):
        issued(issuer.submit("quick", lambda result=result: work_of_older_torch(result), group, 0.05)).wait()
    time.sleep(0.1)
    issuer.check()
    issued(
        issuer.submit("features", lambda: Works([work_of_older_torch(), work_of_older_torch(2)]), group, 0.05)
    ).wait()
    assert ended.wait(5)
    with pytest.raises(
        SyncError, match="card: waited for the features, at most 0.05 s, and got: NCCL ended it, with 2"
    ):
        issuer.check()
    issuer.close()


def test_a_failure_that_cannot_be_told_costs_no_other_deadline(card: Stream, caplog: pytest.LogCaptureFixture) -> None:
    """And the group is ended all the same."""
    issuer, ended = Issuer("card", CARD), [Event(), Event()]
    groups: list[Any] = [SimpleNamespace(abort=event.set) for event in ended]
    told: list[Exception] = []
    for group, fail in zip(groups, (lambda _error: 1 / 0, told.append), strict=True):
        issuer.finish(queued_work(lambda: False), group, 0.05, fail)
    assert all(event.wait(5) for event in ended)
    issuer.close()
    assert len(told) == 1 and "ZeroDivisionError" in caplog.text
