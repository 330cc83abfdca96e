"""The model of streams itself: what it takes for a race, and that it finds one that only some orders have."""

from typing import Any

import pytest

from tests.happens_before import Device, Race, every_order, some_orders


def test_memory_is_used_in_the_order_of_events() -> None:
    device = Device()
    other = device.stream("other")
    device.use("write", writes=["x"])
    with device.on(other), pytest.raises(Race, match=r"^read \(1\) uses x and does not wait for its last write, write"):
        device.use("read", reads=["x"])
    other.wait_event(device.main.record_event())
    with device.on(other):
        device.use("read", reads=["x"])
    with pytest.raises(Race, match=r"write \(2\) writes x and does not wait for read \(2\), which reads it"):
        device.use("write", writes=["x"])


def test_the_host_must_have_seen_the_end_of_what_it_touches() -> None:
    device = Device()
    device.use("copy", reads=["pinned"])
    event = device.main.record_event()
    assert not event.query()
    with pytest.raises(Race, match="fill .* does not wait for copy"):
        device.use_on_host("fill", writes=["pinned"])
    event.synchronize()
    assert event.query()
    device.use_on_host("fill", writes=["pinned"])
    with device.on(device.stream()):  # what is queued later on any stream comes after what the host did
        device.use("copy", reads=["pinned"])


class TwoActors:
    """One writes twice and tells after the first time; the other reads when it is told: a race in one order of two."""

    def __init__(self) -> None:
        self.device = Device()
        self.other = self.device.stream()
        self.left = [2, 1]
        self.told: Any = None

    def ready(self) -> list[int]:
        return [actor for actor, left in enumerate(self.left) if left and (actor == 0 or self.told)]

    def step(self, actor: int) -> None:
        self.left[actor] -= 1
        if actor == 0:
            self.device.use("write", writes=["x"])
            self.told = self.told or self.device.main.record_event()
        else:
            self.other.wait_event(self.told)
            with self.device.on(self.other):
                self.device.use("read", reads=["x"])

    def state(self) -> Any:
        return tuple(self.left), self.device.state()

    def check_end(self) -> None:
        assert self.left == [0, 0]


def test_a_race_of_one_order_is_found_and_the_order_told() -> None:
    with pytest.raises(Race) as found:
        every_order(TwoActors)
    assert any("in the order [0, 0, 1]" in note or "in the order [0, 1, 0]" in note for note in found.value.__notes__)
    with pytest.raises(Race):
        some_orders(TwoActors, num=20, seed=1)
