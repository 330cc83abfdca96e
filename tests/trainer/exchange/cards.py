"""A CUDA device in name: streams that note what they wait for, and collectives that only streams wait for."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch


class Stream:
    """A CUDA stream that notes what it is made to wait for."""

    def __init__(self, *queued: str) -> None:
        self.queued = list(queued)
        self.seen: list[object] = []
        self.wait_event = self.seen.append

    def record_event(self) -> tuple[str, ...]:
        return tuple(self.queued)


def queued_work(is_done: Callable[[], bool] = lambda: True, error: Exception | None = None) -> Any:
    """A collective that a stream is made to wait for; one that the host waits for would be given a timeout.

    With an `error` it has ended by that, which torch calls completed, too.
    """
    return SimpleNamespace(wait=lambda: None, is_completed=is_done, exception=lambda: error)


def work_of_older_torch(result: int | None = 0) -> Any:
    """The same of a torch whose `exception` cannot be called: NCCL reports a number; None: another backend's."""

    def exception() -> None:
        raise TypeError("Unable to convert function return value to a Python type!")

    def get_future_result() -> Any:
        if result is None:
            raise NotImplementedError("Work::getFutureResult not implemented.")
        return SimpleNamespace(done=lambda: True, value=lambda: result)

    work = SimpleNamespace(wait=lambda: None, is_completed=lambda: True)
    return SimpleNamespace(**vars(work), exception=exception, get_future_result=get_future_result)


def pretend_card(monkeypatch: pytest.MonkeyPatch) -> Stream:
    """Give all threads one stream on "cuda"."""

    @contextmanager
    def on(_stream: object) -> Iterator[None]:
        yield

    stream = Stream("before")
    monkeypatch.setattr(torch.cuda, "Stream", lambda _device: stream)
    monkeypatch.setattr(torch.cuda, "stream", on)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _device: stream)
    return stream
