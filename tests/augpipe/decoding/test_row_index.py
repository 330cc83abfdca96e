"""Row indexes as bytes: of the right file and undamaged, or none."""

import zlib
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from augpipe.decoding import probe
from augpipe.decoding.jpeg import own_decoder
from augpipe.decoding.row_index import HEADER, POINT_BYTES, FileSum, row_index_of, unpack
from augpipe.gpu_ops.jpeg.workspace import HAS_WIDE_VECTORS, NO_POINTS
from tests.augpipe.decoding.image_files import encoded, scene

FILE = encoded(scene(90, 200), "JPEG", quality=80, subsampling=0)
INDEX_BYTES = HEADER.size + 24 * POINT_BYTES

pytestmark = pytest.mark.skipif(not HAS_WIDE_VECTORS, reason="this CPU leaves JPEGs to libjpeg-turbo")


@cache
def index() -> bytes:
    """That of FILE; not made where tests are only collected, as the decoder may have to be compiled for it."""
    return row_index_of(FILE, 90, 200)


def test_an_index_holds_a_point_for_every_16_mcus_of_every_row() -> None:
    points = unpack(index(), FileSum.of(FILE))
    assert (points.row_step, points.column_step, points.num_rows) == (1, 16, 12)
    assert len(points.positions) == len(points.predictors) == 12 * 2
    assert len(index()) == INDEX_BYTES
    assert points.positions[0] == 0 and not points.predictors[0].any()
    assert (np.diff(points.positions.astype(np.int64)) > 0).all()
    assert row_index_of(memoryview(FILE), 90, 200) == index()


@given(st.integers(0, INDEX_BYTES * 8 - 1))
def test_one_changed_bit_makes_it_none(bit: int) -> None:
    changed = bytearray(index())
    changed[bit // 8] ^= 1 << bit % 8
    assert unpack(bytes(changed), FileSum.of(FILE)) is NO_POINTS


@given(st.integers(0, INDEX_BYTES - 1))
def test_one_that_is_cut_off_is_none(length: int) -> None:
    assert unpack(index()[:length], FileSum.of(FILE)) is NO_POINTS


@given(st.integers(0, len(FILE) - 1), st.integers(1, 255))
def test_that_of_a_file_that_has_changed_is_none(at: int, difference: int) -> None:
    changed = bytearray(FILE)
    changed[at] ^= difference
    assert unpack(index(), FileSum.of(bytes(changed))) is NO_POINTS


def test_that_of_a_longer_file_is_none() -> None:
    assert unpack(index(), FileSum.of(FILE + b"\0")) is NO_POINTS


def test_what_lies_behind_it_is_no_part_of_it() -> None:
    np.testing.assert_array_equal(
        unpack(index() + b"more", FileSum.of(FILE)).positions, unpack(index(), FileSum.of(FILE)).positions
    )


@given(st.lists(st.tuples(st.integers(16, INDEX_BYTES - 1), st.integers(1, 255)), min_size=1, max_size=4), st.data())
def test_a_forged_one_with_right_sums_gives_pixels_or_none(changes: list[tuple[int, int]], data: st.DataObject) -> None:
    forged = bytearray(index())
    for at, difference in changes:
        forged[at] ^= difference
    forged[4:8] = zlib.crc32(forged[8:]).to_bytes(4, "little")
    left, top = data.draw(st.integers(0, 199)), data.draw(st.integers(0, 89))
    right, bottom = data.draw(st.integers(left + 1, 200)), data.draw(st.integers(top + 1, 90))
    decoder = own_decoder()
    assert decoder is not None
    guard = np.full(64, 77, np.uint8)
    out = np.concatenate([np.zeros((right - left) * (bottom - top) * 4, np.uint8), guard])
    points = unpack(bytes(forged), FileSum.of(FILE))
    codes = np.frombuffer(FILE, np.uint8)
    decoder.decode(codes, 90, 200, (left, top, right, bottom), out[: -len(guard)], points)
    np.testing.assert_array_equal(out[-len(guard) :], guard)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(encoded(scene(40, 50), "JPEG", progressive=True), id="progressive"),
        pytest.param(encoded(scene(40, 50), "JPEG", restart_marker_rows=1), id="restart markers"),
        pytest.param(encoded(scene(40, 50), "PNG"), id="PNG"),
        pytest.param(encoded(scene(40, 50), "JPEG")[:-30], id="cut off"),
        pytest.param(b"", id="empty"),
    ],
)
def test_files_without_an_index(data: bytes) -> None:
    assert row_index_of(data, 40, 50) == b""


def test_a_photograph_takes_two_kilobytes() -> None:
    data = encoded(scene(375, 500), "JPEG", quality=90, subsampling=0)
    header = probe(data, max_pixels=10**6)
    assert len(row_index_of(data, header.height, header.width)) == HEADER.size + 47 * 4 * POINT_BYTES < 2_100
