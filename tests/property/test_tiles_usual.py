"""The short way through a tiled file's header takes what `prepare` writes, and finds what the long one does."""

from dataclasses import fields
from itertools import product
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from augpipe.decoding import Tiles, read_tiles, tile_scan, tiles
from augpipe.decoding.jpeg import read_frame
from augpipe.decoding.tile_table import ALONE
from tests.augpipe.decoding.image_files import exif
from tests.augpipe.decoding.tiled_files import KINDS, noise, table_of, tiled, with_markers

FILES = [
    tiled(noise(height, width), kind, quality=quality, tile=tile)
    for kind in KINDS
    for height, width, tile in [(1, 1, (16, 8)), (33, 70, (32, 16)), (90, 260, (128, 16))]
    for quality in (30, 97)
]
START = np.frombuffer(ALONE, np.uint8)
LARGE = tiled(noise(1700, 1700, 3), "4:2:0", quality=10, tile=(16, 16))


def slow(data: bytes) -> Tiles | None:
    """What the long way finds, None where it refuses the file."""
    try:
        return read_tiles(data)
    except ValueError:
        return None


def is_same(fast: Tiles | None, other: Tiles | None) -> bool:
    assert fast is not None
    return other is not None and all(
        np.array_equal(getattr(fast, part.name), getattr(other, part.name)) for part in fields(Tiles)
    )


def usual(data: bytes) -> Tiles | None:
    return tiles.usual_tiles(memoryview(data))


@pytest.mark.parametrize("data", FILES)
def test_what_prepare_writes_is_taken(data: bytes) -> None:
    found = usual(data)
    assert is_same(found, read_tiles(data))


def test_what_is_not_usual_is_left_to_the_long_way() -> None:
    data = FILES[-1]
    assert usual(LARGE) is None and read_tiles(LARGE) is not None  # too many tiles
    notes = exif(6).tobytes()
    turned = with_markers(data, b"\xff\xe1" + (len(notes) + 2).to_bytes(2, "big") + notes)
    assert usual(turned) is None and read_tiles(turned) is not None
    stuffed = data[:20] + b"\xff" + data[20:]
    assert usual(stuffed) is None and read_tiles(stuffed) is not None
    noted = with_markers(data, b"\xff\xe1\x00\x0dhttp://adob" + b"\xff\xfe\x00\x04hi")
    assert is_same(usual(noted), read_tiles(noted))


@pytest.mark.parametrize(("kind", "num_taken"), [("4:2:0", 3), ("gray", 1)])
def test_sampling_factors_are_taken_as_by_the_long_way(kind: str, num_taken: int) -> None:
    """Whatever they are, of each component: of one tile, so that the table fits them all."""
    file = tiled(noise(1, 1), kind)
    at = read_frame(memoryview(file)).size_at + 6
    taken = set()
    for factors in product([0x11, 0x12, 0x14, 0x21, 0x22, 0x41, 0x10, 0x00], repeat=file[at - 2]):
        changed = bytearray(file)
        changed[at : at + 3 * len(factors) : 3] = bytes(factors)
        found, other = usual(bytes(changed)), slow(bytes(changed))
        if other is None:
            assert found is None, factors
        else:
            assert is_same(found, other), factors
            taken.add(factors)
    assert len(taken) == num_taken


@settings(max_examples=400)
@given(st.data(), st.sampled_from(FILES))
def test_a_changed_file_is_never_taken_for_another(data: st.DataObject, file: bytes) -> None:
    changed = bytearray(file)
    head = len(file) - sum(table_of(file).lengths.tolist())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.one_of(st.integers(2, head - 1), st.integers(2, len(file) - 1)))
        others = [changed[at] ^ 1, (changed[at] + 1) % 256, 0x00, 0xFF, 0xD9, 0xDA, 0xE9]
        changed[at] = data.draw(st.sampled_from(others))
    cut = bytes(changed[: data.draw(st.sampled_from([len(file), len(file), len(file) - 1, head]))])
    found = usual(cut)
    assert found is None or is_same(found, slow(cut))


@pytest.mark.parametrize("file", [FILES[0], FILES[-1]])
def test_nothing_outside_the_file_is_read(file: bytes) -> None:
    """In plain Python an index beyond an array's end is an error, which compiled code does not see."""
    head = len(file) - sum(table_of(file).lengths.tolist())
    with (
        patch.object(tile_scan, "place_segments", tile_scan.place_segments.py_func),
        patch.object(tile_scan, "_uint16", tile_scan._uint16.py_func),
    ):
        for end in [*range(head + 2), len(file)]:
            array = np.frombuffer(file[:end], np.uint8)
            bounds, found = np.zeros(4096, np.int64), np.zeros(9, np.int64)
            num = tile_scan.scan_usual.py_func(array, START, np.zeros(2048, np.uint8), bounds, found)
            assert (num > 0) == (end == len(file))


@pytest.mark.parametrize("room", [0, 1, 2, 100])
def test_short_memory_is_not_written_beyond(room: int) -> None:
    array, found = np.frombuffer(FILES[-1], np.uint8), np.zeros(9, np.int64)
    memory, bounds = np.full(2048, 7, np.uint8), np.full(4096, 7, np.int64)
    assert tile_scan.scan_usual(array, START, memory[:room], bounds, found) == 0
    assert (memory[room:] == 7).all()
    assert tile_scan.scan_usual(array, START, np.zeros(2048, np.uint8), bounds[: min(room, 9)], found) == 0
    assert (bounds[min(room, 9) :] == 7).all()
