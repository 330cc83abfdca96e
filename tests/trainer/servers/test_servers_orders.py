"""Whatever the order in which calls arrive: what must hold of every run."""

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from augpipe.sampling import epoch_order
from augpipe.trainer.servers.order_log import Event, Kind, read_order
from tests.examples import examples
from tests.trainer.servers.local_run import NUM_SAMPLES, LocalRun, Setting, plain_network

RUNS = st.builds(
    Setting,
    mode=st.sampled_from(["sync", "async"]),
    num_workers=st.integers(2, 5),
    num_backup=st.integers(0, 1),
    staleness=st.sampled_from([None, 0, 1, 2]),
    push_every=st.integers(1, 2),
    num_kills=st.integers(0, 2),
    num_losses=st.integers(0, 1),
    save_every=st.sampled_from([0, 7]),
    network=st.just(plain_network),
)


@pytest.mark.slow
@examples(12)
@given(setting=RUNS, seed=st.integers(0, 2**32 - 1))
def test_what_holds_of_every_order(setting: Setting, seed: int) -> None:
    with TemporaryDirectory() as folder:
        run = LocalRun(setting, Path(folder), seed).run()
        events = [event for events in read_order(Path(folder) / "order", 0) for event in events]
    applied = [event for event in events if event.kind is Kind.APPLIED]

    # each sample of each epoch is trained on once
    plan = setting.plan()
    trained: Counter[tuple[int, int]] = Counter()
    for event in applied:
        for place in plan.places(plan.lease(*event.lease)):
            positions = epoch_order.rank_positions(place.first, NUM_SAMPLES, 8, place.rank, place.world_size)
            trained.update((place.epoch, int(position)) for position in positions)
    assert trained == Counter((epoch, position) for epoch in range(2) for position in range(NUM_SAMPLES))

    # no push is applied twice, and each to weights that are not older than those it came from
    assert len({event.lease for event in applied}) == len(applied)
    versions = [event.applied for event in events]
    assert versions == sorted(versions) and set(versions) == set(range(versions[-1] + 1))
    assert all(0 <= event.pulled < event.applied for event in applied)
    if setting.mode == "sync":
        assert all(event.pulled == event.applied - 1 for event in applied)
    elif setting.staleness is not None and not run.num_kills:  # who begins anew counts from the slowest
        bound = (setting.num_workers - 1) * (2 * setting.staleness + 1)
        assert all(event.applied - 1 - event.pulled <= bound for event in applied)
        assert largest_lead(events, setting.num_workers) <= setting.staleness


def largest_lead(events: list[Event], num_workers: int) -> int:
    """By how many pushes a worker that begins a lease is ahead of the slowest, at most."""
    pushes, largest = [0] * num_workers, 0
    for event in events:
        if event.kind is Kind.APPLIED:
            pushes[event.worker] += 1
        elif event.kind in (Kind.BEGAN, Kind.FETCHED):
            largest = max(largest, pushes[event.worker] - min(pushes))
    return largest
