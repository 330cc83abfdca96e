"""Ranks that were all stopped for a while (a suspended job) do not take each other for dead when they go on."""

import pytest
from torch._C._distributed_c10d import HashStore

from augpipe.trainer.loop import heartbeat as module
from augpipe.trainer.loop.heartbeat import Heartbeat


class Ring:
    """Two ranks' heartbeats, beaten by hand, under a clock that stands still."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(module.time, "monotonic", lambda: self.now)
        self.store = HashStore()
        self.ranks = [Heartbeat(self.store, rank, 2, 8.0) for rank in range(2)]
        self.seen: list[dict[int, tuple[str, float]]] = [{}, {}]
        self.num_beats = [0, 0]

    def beat(self, rank: int) -> None:
        self.num_beats[rank] += 1
        self.store.set(f"augpipe/alive/{rank}", str(self.num_beats[rank]))
        self.ranks[rank]._look(self.seen[rank])

    @property
    def obituary(self) -> str:
        self.ranks[1]._look(self.seen[1])
        self.ranks[0]._look(self.seen[0])
        return self.ranks[0]._obituary + self.ranks[1]._obituary


@pytest.fixture
def ring(monkeypatch: pytest.MonkeyPatch) -> Ring:
    ring = Ring(monkeypatch)
    for _ in range(3):
        ring.now += 1
        ring.beat(1)
        ring.beat(0)
    return ring


def test_whoever_wakes_first_waits_for_the_others(ring: Ring) -> None:
    ring.now += 60
    ring.beat(0)
    ring.beat(1)
    ring.beat(0)
    assert ring.obituary == ""


@pytest.mark.parametrize("stands_still_s", [0, 60])
def test_a_dead_one_is_found_all_the_same(ring: Ring, stands_still_s: float) -> None:
    ring.now += stands_still_s
    for _ in range(7):
        ring.now += 1
        ring.beat(0)
    assert ring.ranks[0]._obituary == ""
    for _ in range(2):
        ring.now += 1
        ring.beat(0)
    assert ring.ranks[0]._obituary.startswith("rank 1 has died: it has given no sign of life for ")
