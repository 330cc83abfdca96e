"""Label maps are found once they are written, lie where their rooms were, and take room of the images' arena."""

import numpy as np
import pytest

from augpipe.cache.arena import Arena, Segment
from augpipe.cache.label_maps import HeldLabelMaps

U1, U2 = np.dtype(np.uint8), np.dtype(np.uint16)


def held(num_bytes: int = 160) -> HeldLabelMaps:
    def allocate(num: int) -> Segment:
        memory = np.zeros(num, np.uint8)
        return Segment(memory=memory, address=memory.ctypes.data, num_bytes=num)

    return HeldLabelMaps(5, Arena(num_bytes, num_bytes, allocate))


def test_a_label_map_is_found_once_it_is_committed() -> None:
    maps = held()
    assert maps.find(3) is None
    room = maps.reserve(3, (5, 3), U2)
    assert room is not None and (room.num_bytes, room.place.num_bytes) == (30, 32)
    assert maps.find(3) is None and maps.reserve(3, (5, 3), U2) is None and (maps.num_held, maps.held_bytes) == (0, 0)
    maps.commit(room)
    found = maps.find(3)
    assert found is not None and found == room.labels and (found.shape, found.dtype) == ((5, 3), U2)
    assert found.address == room.place.address and (maps.num_held, maps.held_bytes) == (1, 32)
    assert maps.reserve(3, (5, 3), U2) is None and maps.find(0) is maps.find(4) is None


@pytest.mark.parametrize("own", ["?", "u1", "i2", "f4", "i8", ">i4"])
@pytest.mark.parametrize("planes", [(), (1,), (3,)])
def test_one_that_is_kept_on_the_host_is_the_same_array(own: str, planes: tuple[int, ...]) -> None:
    maps, labels = held(640), np.arange(5 * 3 * np.prod(planes, dtype=int)).reshape(5, 3, *planes).astype(own)
    assert maps.array(2) is None
    maps.keep(2, labels)
    kept = maps.array(2)
    assert kept is not None and kept.dtype == np.dtype(own).newbyteorder("=") and not np.shares_memory(kept, labels)
    np.testing.assert_array_equal(kept, labels)


def test_room_that_is_not_written_is_anothers() -> None:
    maps = held(32)
    room = maps.reserve(1, (4, 8), U1)
    assert room is not None and maps.reserve(2, (4, 8), U1) is None
    maps.cancel(room)
    other = maps.reserve(2, (4, 8), U1)
    assert other is not None and other.labels.address == room.labels.address
    assert maps.find(1) is None and maps.held_bytes == 0


def test_one_that_does_not_fit_counts_once_and_may_be_asked_for_again() -> None:
    maps = held(48)
    room = maps.reserve(1, (5, 6), U1)
    assert room is not None
    for _ in range(2):
        assert maps.reserve(0, (5, 7), U1) is None
        assert (maps.num_did_not_fit, maps.did_not_fit_bytes) == (1, 48)
    maps.cancel(room)
    assert maps.reserve(0, (5, 7), U1) is not None and (maps.num_did_not_fit, maps.did_not_fit_bytes) == (0, 0)
