"""Owners live until their batch's event has passed, the host never waits without need, and errors name the batch."""

import gc
import pickle
import weakref

import numpy as np
import pytest
import torch

from augpipe.cuda.failures import KernelError, first_line, is_cuda_error
from augpipe.cuda.in_flight import InFlight
from tests.augpipe.cuda.fakes import LaterEvent

LOST = RuntimeError("CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be reported later.")


class Owner:
    pass


def filled(num: int, max_batches: int = 3) -> tuple[InFlight, list[LaterEvent], list["weakref.ref[Owner]"], list[int]]:
    """`num` batches under way; batch i has the sample ids 10 * i and 10 * i + 1."""
    in_flight = InFlight("paper", max_batches)
    events, owners, released = [LaterEvent() for _ in range(num)], [Owner() for _ in range(num)], []
    for i, (event, owner) in enumerate(zip(events, owners, strict=True)):
        in_flight.add(event, [owner, i], np.array([10 * i, 10 * i + 1]), lambda i=i: released.append(i))
    return in_flight, events, [weakref.ref(owner) for owner in owners], released


def alive(owners: list["weakref.ref[Owner]"]) -> list[int]:
    gc.collect()
    return [i for i, owner in enumerate(owners) if owner() is not None]


def test_owners_live_until_their_event_has_passed() -> None:
    in_flight, events, owners, released = filled(2)
    in_flight.make_room()
    assert alive(owners) == [0, 1] and released == []
    events[0].has_passed = True
    in_flight.make_room()
    assert alive(owners) == [1] and released == [0] and len(in_flight) == 1
    in_flight.make_room()
    assert released == [0]
    assert [event.num_waits for event in events] == [0, 0]


def test_a_batch_of_another_stream_may_pass_first() -> None:
    in_flight, events, owners, released = filled(2)
    events[1].has_passed = True
    in_flight.make_room()
    assert alive(owners) == [0] and released == [1]


def test_one_batch_too_many_waits_for_the_oldest_alone() -> None:
    in_flight, events, owners, released = filled(3, max_batches=3)
    in_flight.make_room()
    assert [event.num_waits for event in events] == [1, 0, 0]
    assert alive(owners) == [1, 2] and released == [0] and len(in_flight) == 2


def test_draining_waits_for_all() -> None:
    in_flight, events, owners, released = filled(2)
    in_flight.drain()
    assert [event.num_waits for event in events] == [1, 1]
    assert alive(owners) == [] and released == [0, 1]


def test_what_goes_away_waits_for_its_batches_first() -> None:
    in_flight, events, owners, _ = filled(2)
    seen = []
    events[1].synchronize = lambda: seen.append(alive(owners))  # type: ignore[method-assign]
    del in_flight
    gc.collect()
    assert seen == [[0, 1]]
    assert alive(owners) == []


def test_an_error_names_the_oldest_unfinished_batch() -> None:
    in_flight, events, _, _ = filled(2)
    events[0].has_passed = True
    in_flight.make_room()
    events[1].error = LOST
    with pytest.raises(
        KernelError, match="^CUDA error: an illegal memory access was encountered. CUDA reports.*'paper'.*ids 10, 11. "
    ) as caught:
        in_flight.make_room()
    assert caught.value.__cause__ is LOST
    assert caught.value.recipe == "paper" and caught.value.sample_ids == [10, 11]
    del in_flight  # and a lost device is not waited for again: nothing is raised
    gc.collect()


class CudaAPIError(Exception):
    """As numba's, by name."""


class AcceleratorError(RuntimeError):
    """As torch's, by name."""


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RuntimeError("CUDA error: device-side assert triggered"), True),
        (AcceleratorError("an illegal memory access was encountered"), True),
        (CudaAPIError("[700] Call to cuLaunchKernel results in CUDA_ERROR_ILLEGAL_ADDRESS"), True),
        (torch.OutOfMemoryError("CUDA out of memory."), False),
        (torch.OutOfMemoryError("CUDA error: out of memory"), False),
        (KernelError("CUDA error: told already", "", [1]), False),
        (RuntimeError("the linker failed"), False),
        (ValueError("CUDA error: of a user's"), False),
    ],
)
def test_what_is_a_cuda_error(error: Exception, expected: bool) -> None:
    assert is_cuda_error(error) is expected


def test_the_message_says_what_failed_where_and_what_to_do() -> None:
    error = KernelError("CUDA error: unspecified launch failure", "", range(20))
    assert str(error) == (
        "CUDA error: unspecified launch failure. CUDA reports an error late; the oldest batch that was unfinished then "
        "is of the recipe 'unnamed', sample ids 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 and 4 more. This "
        "process cannot use the device any more. Run it again with CUDA_LAUNCH_BLOCKING=1 in its environment: the "
        "error then arises where it is made, which may be another library's kernel."
    )
    assert error.sample_ids == list(range(20))
    copy = pickle.loads(pickle.dumps(error))
    assert str(copy) == str(error) and copy.sample_ids == error.sample_ids


def test_the_first_line_is_never_empty() -> None:
    assert first_line(RuntimeError("CUDA error: x.\nAdvice.")) == "CUDA error: x"
    assert first_line(AcceleratorError()) == "AcceleratorError"
