"""The engine's threads: what a waiting thread may rely on."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from time import sleep
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from augpipe.trainer.sync import engine as module
from augpipe.trainer.sync.engine import Engine


class Stream:
    """A CUDA stream that notes what its events come after."""

    done: tuple[str, ...] = ()
    seen: tuple[str, ...] = ()

    def wait_event(self, event: tuple[str, ...]) -> None:
        Stream.seen = event

    def record_event(self) -> tuple[str, ...]:
        sleep(0.1)  # long enough for a thread that was woken too early
        return Stream.done


class Unit:
    """A bucket of nothing."""

    label, theirs, mine, theirs_split, mine_split = "a bucket", None, None, (), ()

    def __init__(self) -> None:
        self.reduced, self.done = Event(), Event()


def test_a_wait_on_a_card_is_for_the_last_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """`wait` makes the stream wait for the event recorded after unpacking, not for one of an earlier station."""

    @contextmanager
    def on(_stream: Stream) -> Iterator[None]:
        yield

    def at(name: str) -> Any:
        return lambda: setattr(Stream, "done", (*Stream.done, name))

    monkeypatch.setattr(torch.cuda, "Stream", lambda _device: Stream())
    monkeypatch.setattr(torch.cuda, "stream", on)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _device: Stream())
    monkeypatch.setattr(module, "_send", lambda *_: SimpleNamespace(wait=lambda: None))
    steps = ("pack_reduce", "reduce", "pack_gather", "unpack_gather")
    unit: Any = Unit()
    for name in steps:
        setattr(unit, name, at(name))
    none: Any = None
    engine = Engine("test", none, none, device=torch.device("cuda"), timeout_s=5, chained=True)
    engine.reduce(unit)
    engine.wait(unit.done, unit)
    assert Stream.seen == steps
    engine.close()
