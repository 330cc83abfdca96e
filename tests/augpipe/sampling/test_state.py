"""Epochs, `set_epoch`, `state_dict` and `load_state_dict`: where a run stands, and how it goes on."""

import json
from itertools import islice
from typing import Any

import numpy as np
import pytest

from augpipe import Batch, Loader
from tests.augpipe.loader.loader_sources import CENTRE, PAPER, MemorySource, arrays, ids_of, samples

NUM, BATCH_SIZE = 23, 4
LENGTH = 6
IMAGES = arrays(NUM)
STICKY: dict[str, Any] = {"shuffle": "sticky", "world_size": 2, "cache": "host", "cache_bytes": 10_000_000}


def make(**options: Any) -> Loader:
    settings = {"batch_size": BATCH_SIZE, "framework": "numpy", "num_threads": 1, "seed": 5, "rank": 0} | options
    return Loader(MemorySource(IMAGES), settings.pop("recipe", CENTRE), **settings)


def epoch_ids(epoch: int, **options: Any) -> list[int]:
    """The order of an epoch, from a loader of its own."""
    loader = make(**options)
    loader.set_epoch(epoch)
    return ids_of(loader)


def standing(loader: Loader) -> tuple[int, int]:
    state = loader.state_dict()
    return state["epoch"], state["samples_consumed"]


def test_epochs_advance_by_themselves_and_each_has_its_own_order() -> None:
    loader = make()
    orders = []
    for epoch in range(3):
        assert loader.epoch == epoch
        orders.append(ids_of(loader))
        assert standing(loader) == (epoch + 1, 0)
    assert [sorted(order) for order in orders] == [list(range(NUM))] * 3
    assert orders == [epoch_ids(0), epoch_ids(1), epoch_ids(2)]
    assert len({tuple(order) for order in orders}) == 3


def test_len_is_the_same_before_during_and_after() -> None:
    loader = make()
    lengths = {len(loader)}
    for _ in range(2):
        for _ in loader:
            lengths.add(len(loader))
        lengths.add(len(loader))
    loader.load_state_dict(loader.state_dict() | {"samples_consumed": 8})
    lengths.add(len(loader))
    assert lengths == {LENGTH}
    assert len(list(loader)) == LENGTH - 2


@pytest.mark.parametrize("drop_last", [False, True])
def test_len_is_the_number_of_batches(drop_last: bool) -> None:
    for batch_size in (1, 4, 23) if drop_last else (1, 4, 23, 24):  # dropping the only batch is refused
        loader = make(batch_size=batch_size, drop_last=drop_last)
        assert len(loader) == len(list(loader)) == (NUM // batch_size if drop_last else -(-NUM // batch_size))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [4, 8, 12, 16, 20, 23]),
        ({"prefetch": 4, "num_threads": 2}, [4, 8, 12, 16, 20, 23]),  # and not what is prefetched
        ({"world_size": 2, "rank": 1}, [8, 16, 23]),  # samples of all ranks
        ({"drop_last": True}, [4, 8, 12, 16, 20]),
    ],
)
def test_the_state_counts_what_was_handed_out(options: dict[str, Any], expected: list[int]) -> None:
    loader = make(**options)
    assert standing(loader) == (0, 0)
    assert [standing(loader) for _ in loader] == [(0, num) for num in expected]
    assert standing(loader) == (1, 0)


def test_the_state_is_json_and_comes_back() -> None:
    loader = make(batch_size=np.int64(4), seed=np.int64(5), world_size=np.int64(1), rank=np.int64(0))
    loader.set_epoch(np.int64(2))
    next(iter(loader))
    state = loader.state_dict()
    assert json.loads(json.dumps(state)) == state
    other = make()
    other.load_state_dict(json.loads(json.dumps(state)))
    assert other.state_dict() == state


@pytest.mark.parametrize("drop_last", [False, True])
def test_a_state_of_the_last_batch_goes_on_with_the_next_epoch(drop_last: bool) -> None:
    loader = make(drop_last=drop_last)
    running = iter(loader)
    for _ in range(len(loader)):
        next(running)
    assert standing(loader) == (0, 20 if drop_last else NUM)
    other = make(drop_last=drop_last)
    other.load_state_dict(loader.state_dict())
    # the same without a resume, though the first pass never met its end
    assert ids_of(other) == ids_of(loader) == epoch_ids(1, drop_last=drop_last)
    other.load_state_dict(make(drop_last=drop_last).state_dict() | {"epoch": 1})  # between two epochs
    assert ids_of(other) == epoch_ids(1, drop_last=drop_last)


def test_the_usual_loop_resumed_after_the_last_batch_sees_no_epoch_twice() -> None:
    """`for epoch in ...: set_epoch(epoch); for batch in loader: ...`, with a checkpoint after epoch 2's last batch."""
    loader = make()
    loader.set_epoch(2)
    states = [loader.state_dict() for _ in loader]
    other = make()
    other.load_state_dict(states[-1])
    seen = []
    for epoch in range(2, 5):
        other.set_epoch(epoch)
        seen.append(ids_of(other))
    assert seen == [[], epoch_ids(3), epoch_ids(4)]


def test_a_look_after_a_resume_from_the_last_batch_keeps_the_resume() -> None:
    loader = make()
    loader.load_state_dict(loader.state_dict() | {"epoch": 2, "samples_consumed": NUM})
    assert ids_of(islice(loader, 1)) == epoch_ids(3)[:4]
    loader.set_epoch(2)
    assert ids_of(loader) == []
    assert ids_of(loader) == epoch_ids(3)


def test_a_loaded_position_lasts_until_another_epoch_is_set_or_its_rest_was_given() -> None:
    loader = make()
    state = loader.state_dict() | {"epoch": 2, "samples_consumed": 8}
    loader.load_state_dict(state)
    loader.set_epoch(2)
    iter(loader)  # never asked for anything
    assert standing(loader) == (2, 8)
    assert ids_of(loader) == epoch_ids(2)[8:]
    loader.load_state_dict(state)
    loader.set_epoch(4)
    assert standing(loader) == (4, 0)
    assert ids_of(loader) == epoch_ids(4)


@pytest.mark.parametrize("sets_epoch", [False, True])
def test_a_look_after_a_resume_keeps_the_resume(sets_epoch: bool) -> None:
    loader = make()
    loader.load_state_dict(loader.state_dict() | {"epoch": 2, "samples_consumed": 8})
    assert ids_of(islice(loader, 1)) == epoch_ids(2)[8:12]
    assert standing(loader) == (2, 12)  # a checkpoint taken here would go on
    if sets_epoch:
        loader.set_epoch(2)
        assert standing(loader) == (2, 8)
    assert ids_of(loader) == epoch_ids(2)[8:]
    assert ids_of(loader) == epoch_ids(3)
    loader.set_epoch(2)
    assert ids_of(loader) == epoch_ids(2)


@pytest.mark.parametrize("num_taken", [0, 1, LENGTH - 1, LENGTH])
def test_an_epoch_that_is_set_begins_at_its_start(num_taken: int) -> None:
    """A loop that counts its steps leaves the pass at the last batch without asking for one more."""
    loader = make()
    for epoch in (0, 1, 1, 0):
        loader.set_epoch(epoch)
        assert standing(loader) == (epoch, 0)
        assert ids_of(islice(loader, num_taken)) == epoch_ids(epoch)[: num_taken * BATCH_SIZE]
    loader.set_epoch(0)
    assert ids_of(loader) == epoch_ids(0)
    assert standing(loader) == (1, 0)


def test_an_epoch_that_is_set_amid_its_own_pass_comes_again() -> None:
    loader = make()
    running = iter(loader)
    start = ids_of(islice(running, 2))
    loader.set_epoch(0)
    assert start + ids_of(running) == ids_of(loader) == epoch_ids(0)
    assert ids_of(loader) == epoch_ids(1)


def test_a_resumed_epoch_whose_last_batch_was_taken_comes_whole_when_it_is_set() -> None:
    loader = make()
    loader.load_state_dict(loader.state_dict() | {"epoch": 2, "samples_consumed": 8})
    assert ids_of(islice(loader, LENGTH - 2)) == epoch_ids(2)[8:]
    loader.set_epoch(2)
    assert ids_of(loader) == epoch_ids(2)


def test_a_pass_that_begins_an_epoch_anew_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    loader = make()
    for _ in range(3):  # so many steps an epoch, they think
        assert ids_of(islice(loader, 3)) == epoch_ids(0)[:12]
    (told,) = caplog.messages
    assert told == (
        "epoch 0 begins again: the pass before was left after 3 of its 6 batches, and this one gives the same ones. "
        "Call loader.set_epoch(epoch) before each pass that is to be another epoch."
    )


def test_a_pass_that_begins_again_says_nothing_where_all_epochs_are_alike(caplog: pytest.LogCaptureFixture) -> None:
    loader = make(shuffle=False)  # for validation: Lightning looks at two batches of it first
    assert [ids_of(islice(loader, 2)), ids_of(loader)] == [[*range(8)], [*range(NUM)]]
    assert not caplog.messages
    for other in (make(), make(recipe=PAPER, shuffle=False)):
        caplog.clear()
        assert ids_of(islice(other, 2)) == ids_of(islice(other, 2))
        assert "begins again" in caplog.text


def test_a_rest_that_is_given_again_says_so(caplog: pytest.LogCaptureFixture) -> None:
    loader = make()
    loader.load_state_dict(loader.state_dict() | {"epoch": 2, "samples_consumed": 8})
    for _ in range(2):
        assert ids_of(islice(loader, 1)) == epoch_ids(2)[8:12]
    (told,) = caplog.messages
    assert told.startswith("the rest of epoch 2 begins again: the pass before was left after 1 of its 4 batches")


def test_what_begins_as_it_was_told_to_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    loader = make()
    iter(loader)
    ids_of(islice(loader, 2))
    loader.set_epoch(0)
    ids_of(islice(loader, LENGTH))
    ids_of(loader)
    loader.load_state_dict(loader.state_dict())
    ids_of(loader)
    assert make(rank=1, world_size=2).epoch == 0
    assert caplog.messages == []


def test_an_epoch_that_the_loaded_state_has_behind_it_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """A checkpoint behind the loop of epoch 1, and a resumed loop that begins with epoch 1."""
    loader = make()
    loader.set_epoch(1)
    ids_of(loader)
    state = loader.state_dict()
    for epoch in (2, 3):
        loader.load_state_dict(state)
        loader.set_epoch(epoch)
    assert caplog.messages == []
    loader.load_state_dict(state)
    loader.set_epoch(1)
    assert ids_of(loader) == epoch_ids(1)
    assert caplog.messages == [
        "set_epoch(1) gives epoch 1 again, which the loaded state has behind it. Call set_epoch(2), or none, to go on "
        "where it ended."
    ]


def test_a_loaded_rest_that_another_epoch_leaves_out_is_said(caplog: pytest.LogCaptureFixture) -> None:
    loader = make()
    loader.load_state_dict(loader.state_dict() | {"epoch": 2, "samples_consumed": 8})
    loader.set_epoch(3)
    assert caplog.messages == [
        "set_epoch(3) leaves out the rest of epoch 2, 15 of its 23 samples, with which the loaded state goes on. Call "
        "set_epoch(2), or none, to have it."
    ]
    loader.load_state_dict(loader.state_dict() | {"epoch": 2, "samples_consumed": NUM})
    loader.set_epoch(3)
    assert len(caplog.messages) == 1


def test_set_epoch_in_the_middle_of_a_pass_is_about_the_next_pass() -> None:
    loader = make()
    seen = []
    for number, batch in enumerate(loader):
        if number == 2:
            loader.set_epoch(7)
        seen += ids_of([batch])
    assert seen == epoch_ids(0)
    assert standing(loader) == (7, 0)
    assert ids_of(loader) == epoch_ids(7)


def test_set_epoch_before_the_first_batch_of_a_pass_is_about_that_pass() -> None:
    """Lightning makes the iterator, then tells the epoch: after a whole one it loads no loader's state."""
    loader = make()
    running = iter(loader)
    loader.set_epoch(5)
    assert ids_of(running) == epoch_ids(5)
    assert standing(loader) == (6, 0)
    loader.load_state_dict(loader.state_dict() | {"epoch": 2, "samples_consumed": 8})
    running = iter(loader)
    loader.set_epoch(2)
    assert ids_of(running) == epoch_ids(2)[8:]


def test_a_broken_off_pass_starts_its_epoch_anew() -> None:
    loader = make(recipe=PAPER)
    whole = samples(make(recipe=PAPER))
    for _ in loader:
        break
    assert standing(loader) == (0, BATCH_SIZE)  # a checkpoint taken here would go on
    assert samples(loader) == whole
    assert standing(loader) == (1, 0)


GOOD = make().state_dict()
WRONG: list[tuple[Any, str]] = [
    ({key: GOOD[key] for key in GOOD if key != "epoch"}, "the state lacks epoch. Give"),
    (
        GOOD | {"shuffle": False},
        "the state was taken with shuffle=False and this loader has shuffle=True: samples would",
    ),
    (
        GOOD | {"shuffle": "sticky", "world_size": 2},
        "the state was taken with shuffle=sticky and this loader has shuffle=True: samples would",
    ),
    (GOOD | {"version": 99}, "the state's version is 99, and this augpipe reads 2."),
    (GOOD | {"samples_consumed": -1}, "samples_consumed=-1"),
    (GOOD | {"samples_consumed": 24}, r"samples_consumed=24 leaves 0..23"),
    (GOOD | {"samples_consumed": 1.5}, "samples_consumed"),
    (GOOD | {"epoch": "two"}, "epoch"),
    (GOOD | {"seed": -1}, "seed=-1"),
]


@pytest.mark.parametrize(("state", "message"), WRONG)
def test_a_wrong_state_is_refused_and_changes_nothing(state: Any, message: str) -> None:
    loader = make()
    running = iter(loader)
    next(running)
    before = loader.state_dict()
    with pytest.raises(ValueError, match=message):
        loader.load_state_dict(state)
    assert loader.state_dict() == before
    assert ids_of(running) == epoch_ids(0)[BATCH_SIZE:]


def test_batches_keep_their_own_epoch() -> None:
    loader = make(recipe=PAPER)
    kept: list[Batch] = [*loader, *loader]
    epochs = [set(batch.plan.rows["epoch"].tolist()) for batch in kept]
    assert epochs == [{0}] * LENGTH + [{1}] * LENGTH


# Ranks that keep their samples


def test_sticky_epochs_hold_the_plain_epochs_samples() -> None:
    plain = dict(samples(make(recipe=PAPER)))
    ranks = [samples(make(recipe=PAPER, rank=rank, **STICKY)) for rank in range(2)]
    assert dict(ranks[0]) | dict(ranks[1]) == plain


@pytest.mark.parametrize("batch_size", [BATCH_SIZE, 3])
def test_a_sticky_epoch_is_resumed_by_as_many_ranks(batch_size: int) -> None:
    for rank in range(2):
        whole = samples(make(recipe=PAPER, shuffle="sticky", rank=rank, world_size=2))
        loader = make(recipe=PAPER, rank=rank, **STICKY)
        start = samples(islice(loader, 2))
        state = json.loads(json.dumps(loader.state_dict()))
        assert state["samples_consumed"] == 4 * BATCH_SIZE
        other = make(recipe=PAPER, rank=rank, batch_size=batch_size, **STICKY)
        other.load_state_dict(state)
        assert start + samples(other) == whole


@pytest.mark.parametrize("world_size", [1, 3])
def test_another_number_of_ranks_may_not_resume_within_a_sticky_epoch(world_size: int) -> None:
    before = make(shuffle="sticky", world_size=2)
    running = iter(before)
    next(running)
    loader = make(shuffle="sticky", world_size=world_size)
    untouched = loader.state_dict()
    message = rf"within an epoch by world_size=2 and this loader has world_size={world_size}: .* Resume with the same"
    with pytest.raises(ValueError, match=message):
        loader.load_state_dict(before.state_dict())
    assert loader.state_dict() == untouched
    list(islice(running, len(before) - 1))
    after_the_last_batch = before.state_dict()
    assert after_the_last_batch["samples_consumed"] == NUM
    assert list(running) == []
    for state in (after_the_last_batch, before.state_dict()):
        loader = make(shuffle="sticky", world_size=world_size)
        loader.load_state_dict(state)
        assert ids_of(loader) == epoch_ids(1, shuffle="sticky", world_size=world_size)
        assert loader.epoch == 2


@pytest.mark.parametrize("shuffle", [True, False])
def test_a_sticky_loader_refuses_a_state_of_another_order(shuffle: bool) -> None:
    with pytest.raises(ValueError, match=r"taken with shuffle=.*samples would be lost and repeated"):
        make(shuffle="sticky").load_state_dict(make(shuffle=shuffle).state_dict())
