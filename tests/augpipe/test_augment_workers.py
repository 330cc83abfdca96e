"""The transform in other processes: a DataLoader's workers, forks of any kind, and the module in them."""

import logging
import multiprocessing
import os
from typing import Any

import pytest
import torch

from augpipe import Augment
from augpipe.nn import AugmentModule
from tests.augpipe.loader.loader_sources import PAPER, TIMEOUT_S, arrays

IMAGE = arrays(1)[0]
NUM_SAMPLES = 8
NUM_EPOCHS = 3

FORKS = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


class Counted(torch.utils.data.Dataset[Any]):
    """One image again and again, augmented without ids: only the draws can differ."""

    def __init__(self, transform: Any) -> None:
        self.transform = transform

    def __len__(self) -> int:
        return NUM_SAMPLES

    def __getitem__(self, index: int) -> Any:
        return torch.as_tensor(self.transform(IMAGE))


class Numbered(Counted):
    """The same with ids."""

    def __getitem__(self, index: int) -> Any:
        return torch.as_tensor(self.transform(IMAGE, sample_ids=index))


def epochs(dataset: Counted, num_epochs: int = NUM_EPOCHS, **options: Any) -> list[list[bytes]]:
    """The pixels of each sample of each epoch, of a run that begins by seeding torch."""
    settings = {"batch_size": 2, "num_workers": 2, "multiprocessing_context": "fork", "timeout": TIMEOUT_S} | options
    state = torch.get_rng_state()
    try:
        torch.manual_seed(0)
        workers: Any = torch.utils.data.DataLoader(dataset, **settings)
        return [[image.numpy().tobytes() for batch in workers for image in batch] for _ in range(num_epochs)]
    finally:
        torch.set_rng_state(state)


def all_differ(found: list[list[bytes]]) -> bool:
    flat = [image for epoch in found for image in epoch]
    return len(flat) > 1 and len(set(flat)) == len(flat)


# Workers of torch's DataLoader


@FORKS
@pytest.mark.parametrize("is_kept", [False, True], ids=["new workers", "persistent workers"])
@pytest.mark.parametrize("kind", [Augment, AugmentModule])
def test_epochs_and_workers_differ_and_a_seeded_run_repeats(kind: Any, is_kept: bool) -> None:
    found = epochs(Counted(kind(PAPER, seed=1)), persistent_workers=is_kept)
    assert all_differ(found)
    assert epochs(Counted(kind(PAPER, seed=1)), persistent_workers=is_kept) == found
    other = epochs(Counted(kind(PAPER, seed=2)), persistent_workers=is_kept)
    assert all_differ([*found, *other])


@pytest.mark.slow
def test_spawned_workers_differ_too_and_repeat_what_forked_ones_draw() -> None:
    found = epochs(Counted(Augment(PAPER, 1)), 2, persistent_workers=True, multiprocessing_context="spawn")
    assert all_differ(found)
    if hasattr(os, "fork"):
        assert found == epochs(Counted(Augment(PAPER, 1)), 2, persistent_workers=True)


def test_one_process_counts_on_from_epoch_to_epoch() -> None:
    found = epochs(Counted(Augment(PAPER, 1)), num_workers=0, multiprocessing_context=None, timeout=0)
    expected = Augment(PAPER, 1)([IMAGE] * (NUM_EPOCHS * NUM_SAMPLES))
    assert [image for epoch in found for image in epoch] == [image.tobytes() for image in expected]


@FORKS
def test_ids_give_in_workers_what_they_give_in_one_process() -> None:
    found = epochs(Numbered(Augment(PAPER, 1)), 2)
    expected = Augment(PAPER, 1)([IMAGE] * NUM_SAMPLES, sample_ids=range(NUM_SAMPLES))
    assert found == [[image.tobytes() for image in expected]] * 2


# Forks by other means


def draw(transform: Augment, ids: Any, answers: Any) -> None:
    records: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: records.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("augpipe").addHandler(handler)
    found = [transform(IMAGE, sample_ids=None if ids is None else ids + i).tobytes() for i in range(2)]
    answers.put((found, records))


def in_forks(transform: Augment, ids: Any = None) -> list[tuple[list[bytes], list[str]]]:
    """What two processes draw that are forked from this one, and what they log."""
    context = multiprocessing.get_context("fork")
    answers: Any = context.SimpleQueue()
    processes = [context.Process(target=draw, args=(transform, ids, answers)) for _ in range(2)]
    for process in processes:
        process.start()
    found = [answers.get() for _ in processes]
    for process in processes:
        process.join(TIMEOUT_S)
    return found


@FORKS
def test_forked_copies_do_not_draw_alike_and_say_that_they_do_not_repeat() -> None:
    transform = Augment(PAPER, 1)
    children = in_forks(transform)
    own = [transform(IMAGE).tobytes() for _ in range(2)]
    assert all_differ([own, *(found for found, _ in children)])
    for _, records in children:
        assert len(records) == 1
        assert "forked" in records[0] and "does not repeat" in records[0] and "sample_ids" in records[0]


@FORKS
def test_forked_copies_with_ids_draw_as_one_process_and_say_nothing() -> None:
    transform = Augment(PAPER, 1)
    expected = [transform(IMAGE, sample_ids=7 + i).tobytes() for i in range(2)]
    assert in_forks(transform, ids=7) == [(expected, [])] * 2
