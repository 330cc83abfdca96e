"""A rectangle that is decoded from its tiles alone has the bits of the whole decode, and no wrong table is taken."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from augpipe.decoding import decode
from tests.augpipe.decoding.tiled_files import KINDS, Bytes, header_of, noise, table_of, tiled, tiles_in, with_table

FACTORS = (1, 2, 4, 8)
SIDES = st.one_of(st.integers(1, 40), st.integers(41, 260))


def part(data: bytes, left: int, top: int, right: int, bottom: int, factor: int) -> Bytes:
    """The rectangle's pixels from its tiles; the JPEG made of them must be one that stands alone."""
    cut = tiles_in(data).extract(data, left, top, right, bottom, dct_factor=factor)
    header = header_of(cut.jpeg)
    assert (header.height, header.width, header.tiles) == (cut.height, cut.width, None)
    pixels = decode(cut.jpeg, header, dct_factor=factor)
    return pixels[top - cut.first_y : bottom - cut.first_y, left - cut.first_x : right - cut.first_x]


@st.composite
def spans(draw: st.DrawFn, length: int, tile: int) -> tuple[int, int]:
    """First and last (excluded) of `length` pixels; often where tiles end, for that is where neighbours are missing."""
    ends = st.one_of(st.integers(0, length), st.sampled_from(range(0, length + 1, tile)))
    first = min(draw(ends), length - 1)
    return first, max(draw(ends), first + 1)


@settings(max_examples=150)
@given(st.data(), SIDES, SIDES, st.sampled_from(KINDS), st.sampled_from([(16, 8), (32, 16), (64, 16), (128, 16)]))
def test_every_rectangle_at_every_scale(
    data: st.DataObject, height: int, width: int, kind: str, tile: tuple[int, int]
) -> None:
    quality = data.draw(st.integers(20, 100))
    jpeg = tiled(noise(height, width, quality), kind, quality=quality, tile=tile)
    factor = data.draw(st.sampled_from(FACTORS))
    tiles = tiles_in(jpeg)
    whole = decode(jpeg, header_of(jpeg), dct_factor=factor)
    assert whole.shape == (-(-height // factor), -(-width // factor), 4)
    for _ in range(4):
        left, right = data.draw(spans(whole.shape[1], tiles.tile_width // factor))
        top, bottom = data.draw(spans(whole.shape[0], tiles.tile_height // factor))
        pixels = part(jpeg, left, top, right, bottom, factor)
        np.testing.assert_array_equal(pixels, whole[top:bottom, left:right])


def test_each_pixel_of_a_small_image_alone() -> None:
    for kind in KINDS:
        jpeg = tiled(noise(19, 37), kind, tile=(16, 8))
        for factor in FACTORS:
            whole = decode(jpeg, header_of(jpeg), dct_factor=factor)
            for y, x in np.ndindex(whole.shape[:2]):
                np.testing.assert_array_equal(part(jpeg, x, y, x + 1, y + 1, factor), whole[y : y + 1, x : x + 1])


@settings(max_examples=200)
@given(st.data(), st.sampled_from(KINDS))
def test_a_damaged_file_is_refused_or_its_parts_are_those_of_its_whole(data: st.DataObject, kind: str) -> None:
    jpeg = bytearray(tiled(noise(40, 90, 3), kind, tile=(32, 8)))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.one_of(st.integers(2, 200), st.integers(2, len(jpeg) - 1)))
        jpeg[at] = data.draw(st.one_of(st.sampled_from([0, 0xD0, 0xD9, 0xFF]), st.integers(0, 255)))
    stop = data.draw(st.one_of(st.just(len(jpeg)), st.integers(0, len(jpeg))))
    damaged = bytes(jpeg[:stop])
    try:
        header = header_of(damaged)
        whole = decode(damaged, header)
    except ValueError:
        return
    if header.tiles is not None:
        height, width = whole.shape[:2]
        for left, top, right, bottom in [(0, 0, 1, 1), (width // 2, height // 2, width, height), (0, 0, width, height)]:
            pixels = part(damaged, left, top, right, bottom, 1)
            np.testing.assert_array_equal(pixels, whole[top:bottom, left:right])


@settings(max_examples=150)
@given(st.data())
def test_no_table_but_the_right_one_is_taken(data: st.DataObject) -> None:
    jpeg = tiled(noise(50, 200, 5), "4:2:0", tile=(32, 16))
    table = table_of(jpeg)
    lengths = table.lengths.tolist()
    for _ in range(data.draw(st.integers(1, 3))):
        first, second = (data.draw(st.integers(0, len(lengths) - 1)) for _ in range(2))
        amount = data.draw(st.one_of(st.integers(-200, 200), st.integers(0, 2**32 - 1)))
        lengths[first] = min(max(lengths[first] + amount, 0), 2**32 - 1)
        lengths[second] = min(max(lengths[second] - amount, 0), 2**32 - 1)
    forged = with_table(jpeg, table._replace(lengths=np.array(lengths, np.int64)))
    if lengths == table.lengths.tolist():
        assert header_of(forged).tiles is not None
        return
    with pytest.raises(ValueError, match="tile table"):
        header_of(forged)
