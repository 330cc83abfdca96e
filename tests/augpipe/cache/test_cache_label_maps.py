"""Label maps are found once they are written, lie where their rooms were, and take room of the images' arena."""

import numpy as np

from augpipe.cache.arena import Arena, Segment
from augpipe.cache.label_maps import HeldLabelMaps


def held(num_bytes: int = 160) -> HeldLabelMaps:
    def allocate(num: int) -> Segment:
        memory = np.zeros(num, np.uint8)
        return Segment(memory=memory, address=memory.ctypes.data, num_bytes=num)

    return HeldLabelMaps(5, Arena(num_bytes, num_bytes, allocate))


def test_a_label_map_is_found_once_it_is_committed() -> None:
    maps = held()
    assert maps.find(3) is None
    room = maps.reserve(3, 5, 3, 2)
    assert room is not None and (room.num_bytes, room.place.num_bytes) == (30, 32)
    assert maps.find(3) is None and maps.reserve(3, 5, 3, 2) is None and maps.held_bytes == 0
    maps.commit(room)
    found = maps.find(3)
    assert found is not None and found == room.labels and (found.width, found.label_bytes) == (3, 2)
    assert found.address == room.place.address and maps.held_bytes == 32
    assert maps.reserve(3, 5, 3, 2) is None and maps.find(0) is maps.find(4) is None


def test_room_that_is_not_written_is_anothers() -> None:
    maps = held(32)
    room = maps.reserve(1, 4, 8, 1)
    assert room is not None and maps.reserve(2, 4, 8, 1) is None
    maps.cancel(room)
    other = maps.reserve(2, 4, 8, 1)
    assert other is not None and other.labels.address == room.labels.address
    assert maps.find(1) is None and maps.held_bytes == 0


def test_one_that_does_not_fit_may_be_asked_for_again() -> None:
    maps = held(32)
    assert maps.reserve(0, 5, 7, 1) is None and maps.reserve(0, 5, 6, 1) is not None
