"""Tile-addressable JPEGs: true sizes, what stands in a cut, and tables that do not fit their file."""

import pickle
from typing import Any

import numpy as np
import pytest

from augpipe.decoding import MAX_PIXELS, decode, probe, read_tiles, tile_scan
from augpipe.decoding.jpeg import decode_stored, read_frame
from tests.augpipe.decoding.image_files import encoded, exif, scene
from tests.augpipe.decoding.tiled_files import (
    KINDS,
    header_of,
    noise,
    table_of,
    tiled,
    tiles_in,
    with_markers,
    with_table,
    without_table,
)

PADDED_WIDTH = 353
"""22 and a bit MCUs of 16 pixels: 23 are no multiple of 3, 4, 5, 6 or 7."""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [PADDED_WIDTH, 350, 64, 3])
def test_the_pixels_are_those_of_a_plain_jpeg_of_the_true_size(kind: str, width: int) -> None:
    image = scene(50, width)
    data = tiled(image, kind, quality=80)
    header = header_of(data)
    tiles = tiles_in(data)
    assert (header.height, header.width, header.shape(2)) == (50, width, (25, -(-width // 2), 4))
    assert (tiles.height, tiles.width, tiles.stored_height) == (50, width, 50)
    padded = np.pad(image, ((0, 0), (0, tiles.stored_width - width), (0, 0)), mode="edge")
    options = {} if kind == "gray" else {"subsampling": kind}
    plain = encoded(padded[..., 0].copy() if kind == "gray" else padded, "JPEG", quality=80, **options)
    for factor in (1, 2, 4, 8):
        shape = header.shape(factor)
        expected = decode(plain, header_of(plain), dct_factor=factor)[: shape[0], : shape[1]]
        np.testing.assert_array_equal(decode(data, header, dct_factor=factor), expected)
        buffer = np.zeros(expected.size + 5, np.uint8)
        into = decode(data, header, dct_factor=factor, buffer=buffer)
        np.testing.assert_array_equal(into, expected)
        assert np.shares_memory(into, buffer) and not buffer[expected.size :].any()


def test_an_orientation_added_later_turns_the_true_image() -> None:
    data = tiled(scene(50, PADDED_WIDTH), "4:2:0")
    upright = decode(data, header_of(data))
    notes = exif(6).tobytes()
    assert notes.startswith(b"Exif\0\0")
    turned = with_markers(data, b"\xff\xe1" + (len(notes) + 2).to_bytes(2, "big") + notes)
    header = header_of(turned)
    assert (header.height, header.width, header.orientation) == (PADDED_WIDTH, 50, 6)
    assert header.tiles is not None and not header.has_tiles and header_of(data).has_tiles
    np.testing.assert_array_equal(decode(turned, header), np.rot90(upright, -1))


def test_an_app9_marker_of_somebody_else_is_a_note() -> None:
    plain = without_table(tiled(scene(50, 200), "4:2:0"))
    assert read_tiles(with_markers(plain, b"\xff\xe9\x00\x0asomebody")) is None
    assert read_tiles(with_markers(plain, b"\xff\xe9\x00\x02")) is None


def test_a_cut_needs_no_bytes_but_those_of_its_ranges() -> None:
    data = tiled(noise(130, 300), "4:2:0")
    tiles = tiles_in(data)
    region = tiles.region(100, 40, 180, 90)
    assert (region.left, region.top, region.right, region.bottom) == (64, 32, 192, 96)
    assert len(region.ranges) == 4
    sparse = bytearray(len(data))
    for start, stop in region.ranges:
        sparse[start:stop] = data[start:stop]
    cut = tiles.extract(bytes(sparse), 100, 40, 180, 90)
    assert cut == tiles.extract(data, 100, 40, 180, 90)
    assert cut == tiles.extract(memoryview(bytearray(data)), 100, 40, 180, 90)
    assert cut == tiles.join(region, [data[start:stop] for start, stop in region.ranges])
    assert (cut.first_x, cut.first_y, cut.height, cut.width) == (64, 32, 64, 128)


def test_a_margin_is_taken_where_chroma_is_enlarged() -> None:
    for kind, expected in {"4:2:0": (0, 0, 192, 48), "4:2:2": (0, 16, 384, 32), "4:4:4": (128, 16, 256, 32)}.items():
        tiles = tiles_in(tiled(noise(64, 512), kind))
        region = tiles.region(128, 16, 256, 32) if kind != "4:2:0" else tiles.region(64, 16, 128, 32)
        assert (region.left, region.top, region.right, region.bottom) == expected


def test_notes_that_come_and_go_do_not_matter() -> None:
    data = tiled(scene(50, 200), "4:2:0")
    noted = data[:20] + b"\xff\xfe\x00\x06note" + data[20:] + b"left over"
    cut = tiles_in(noted).extract(noted, 70, 20, 90, 40)
    assert cut.jpeg == tiles_in(data).extract(data, 70, 20, 90, 40).jpeg
    assert b"note" not in bytes(cut.jpeg) and b"augpipe" not in bytes(cut.jpeg)


def test_a_file_that_changed_since_is_refused() -> None:
    data = tiled(noise(130, 300), "4:2:0")
    tiles = tiles_in(data)
    with pytest.raises(ValueError, match="does not end with its restart marker: the file has changed"):
        tiles.extract(bytes(len(data)), 100, 40, 180, 90)
    with pytest.raises(ValueError, match="the file has changed"):
        tiles.extract(data[: len(data) // 4], 100, 40, 180, 90)
    region = tiles.region(100, 40, 180, 90)
    with pytest.raises(ValueError, match="not as long as the region's ranges"):
        tiles.join(region, [data[start : stop - 1] for start, stop in region.ranges])
    other = tiled(noise(130, 300, 1), "4:2:0")
    with pytest.raises(ValueError, match="the file has changed"):
        tiles.extract(other, 100, 40, 180, 90)


@pytest.mark.parametrize("rectangle", [(-1, 0, 5, 5), (0, 0, 0, 5), (5, 5, 4, 6), (0, 0, 301, 5), (0, 0, 5, 131)])
def test_a_rectangle_outside_the_image(rectangle: tuple[int, int, int, int]) -> None:
    tiles = tiles_in(tiled(scene(130, 300), "4:2:0"))
    with pytest.raises(ValueError, match=r"is no rectangle in 300x130 pixels; keep 0 <= left < right <= width"):
        tiles.region(*rectangle)


def test_padding_is_no_part_of_the_image() -> None:
    tiles = tiles_in(tiled(scene(50, PADDED_WIDTH), "4:2:0"))
    assert tiles.region(0, 0, PADDED_WIDTH, 50).right == tiles.stored_width > PADDED_WIDTH
    with pytest.raises(ValueError, match=f"is no rectangle in {PADDED_WIDTH}x50 pixels"):
        tiles.region(0, 0, PADDED_WIDTH + 1, 50)
    with pytest.raises(ValueError, match="is no rectangle in 177x25 pixels"):
        tiles.region(0, 0, 178, 25, dct_factor=2)


def test_a_header_with_tiles_is_pickled_and_compared_and_shown() -> None:
    data = tiled(scene(50, 200), "4:2:0")
    header = header_of(data)
    again = pickle.loads(pickle.dumps(header))
    assert again == header
    assert again.tiles.extract(data, 0, 0, 9, 9) == tiles_in(data).extract(data, 0, 0, 9, 9)
    assert len(repr(header)) < 600


JPEG = tiled(noise(70, 300), "4:2:0")
TABLE = table_of(JPEG)
PLAIN = without_table(JPEG)


def changed(**fields: Any) -> bytes:
    return with_table(JPEG, TABLE._replace(**fields))


def lengths_changed(at: int, by: int) -> bytes:
    """One end between two tiles moved, all others left where they are."""
    lengths = TABLE.lengths.copy()
    lengths[at] += by
    lengths[at + 1] -= by
    return changed(lengths=lengths)


def without_eight_tiles() -> bytes:
    """Eight segments more than the header has tiles for, which the table hides within one tile: the numbers fit."""
    stops = np.cumsum(TABLE.lengths) + (len(PLAIN) - int(TABLE.lengths.sum()))
    double = PLAIN[: stops[7]] + PLAIN[stops[7] - int(TABLE.lengths[:8].sum()) : stops[7]] + PLAIN[stops[7] :]
    lengths = TABLE.lengths.copy()
    lengths[8] += int(TABLE.lengths[:8].sum())
    return with_table(double, TABLE._replace(lengths=lengths))


def into_a_second_image() -> bytes:
    """A table whose first tiles lie in the file's image, and the others in one that was appended."""
    lengths = TABLE.lengths.copy()
    lengths[8] += len(JPEG)
    return with_table(PLAIN, TABLE._replace(lengths=lengths)) + JPEG


def patched(find: bytes, replacement: bytes) -> bytes:
    assert JPEG.count(find) == 1
    return JPEG.replace(find, replacement)


def progressive() -> bytes:
    return with_table(encoded(noise(70, 300), "JPEG", progressive=True, restart_marker_blocks=4), TABLE)


DAMAGED = {
    "another picture's": (with_table(tiled(noise(70, 300, 1), "4:2:0"), TABLE), "tile 0 of 25 does not end with"),
    "of another size": (
        with_table(tiled(noise(70, 200), "4:2:0"), TABLE),
        "speaks of 300x70 pixels, the header of 209x70",
    ),
    "of more tiles": (changed(lengths=TABLE.lengths[:-5]), "it has 20 tiles, the header 25"),
    "no width": (patched(b"\x00\x46\x01\x2c\x02", b"\x00\x46\x00\x00\x02"), "speaks of 0x70 pixels"),
    "one byte on": (lengths_changed(3, 1), "tile 3 of 25"),
    "far out": (changed(lengths=np.full(25, 2**32 - 1)), "truncated JPEG"),
    "hidden tiles": (without_eight_tiles(), "more markers in the coded data than tiles"),
    "a second picture": (into_a_second_image(), "tile 8 of 25|more markers"),
    "another interval": (
        patched(b"\xff\xdd\x00\x04\x00\x04", b"\xff\xdd\x00\x04\x00\x03"),
        "rows of 20 MCUs do not end",
    ),
    "no interval": (patched(b"\xff\xdd\x00\x04\x00\x04", b"\xff\xfe\x00\x04\x00\x04"), "no baseline one"),
    "other height": (patched(b"\x00\x46\x01\x31\x03", b"\x00\x66\x01\x31\x03"), "it has 25 tiles, the header 35"),
    "other sampling": (patched(b"\x03\x01\x22\x00", b"\x03\x01\x41\x00"), "no baseline one"),
    "progressive": (progressive(), "no baseline one of gray, 4:4:4, 4:2:2 or 4:2:0"),
    "cut off": (JPEG[: len(JPEG) * 2 // 3], "truncated JPEG"),
    "another version": (patched(b"tiles\0\x01", b"tiles\0\x02"), "version 2, and 1 is read; update augpipe"),
    "a part is missing": (patched(b"tiles\0\x01\0\0\0\1", b"tiles\0\x01\0\0\0\2"), "part 0 of 2 stands where"),
    "twice": (with_markers(JPEG, JPEG[20 : 20 + JPEG[20:].index(b"\xff\xdb")]), "part 0 of 1 stands where"),
    "empty": (with_markers(PLAIN, b"\xff\xe9\x00\x10augpipe tiles\0"), "a marker of 14 bytes is too short"),
    "no body": (with_markers(PLAIN, b"\xff\xe9\x00\x15augpipe tiles\0\1\0\0\0\1"), "0 bytes are too short"),
    "odd": (
        with_markers(PLAIN, b"\xff\xe9\x00\x1baugpipe tiles\0\1\0\0\0\1\0\x46\1\x2c\2\1"),
        "1 bytes are no lengths",
    ),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_table_that_does_not_fit_is_refused_with_the_reason(name: str) -> None:
    data, reason = DAMAGED[name]
    assert data != JPEG
    with pytest.raises(ValueError, match=reason):
        read_tiles(data)
    with pytest.raises(ValueError, match=reason):
        probe(data, max_pixels=MAX_PIXELS)


def test_a_segment_that_libjpeg_turbo_does_not_know_is_left_out_of_a_cut() -> None:
    sound = tiled(noise(40, 90), "gray")
    data = sound[:3] + b"\xf0" + sound[4:]  # the JFIF marker becomes one that it refuses
    with pytest.raises(ValueError, match=r"damaged JPEG: .*subsampling"):
        decode(data, header_of(data))
    cut = tiles_in(data).extract(data, 0, 0, 20, 20)
    pixels = decode_stored(cut.jpeg, cut.height, cut.width, 1, None, may_end_early=cut.holds_last)
    assert np.array_equal(pixels[:20, :20], decode(sound, header_of(sound))[:20, :20])


def test_nothing_is_cut_out_of_nothing() -> None:
    bounds, data = np.array([0, 2], np.int64), np.array([0xFF, 0xD9], np.uint8)
    memory = np.full(3, 7, np.uint8)
    assert not tile_scan.cut(data, bounds, 1, 0, 0, 0, 0, memory[1:1])
    assert not tile_scan.cut(data, bounds, 1, 0, 1, 0, 1, memory[1:1])
    assert memory.tolist() == [7, 7, 7]


def test_what_a_mismatch_tells_to_do() -> None:
    with pytest.raises(ValueError, match=r"write the file anew, or remove its APP9 markers to have it decoded without"):
        read_tiles(lengths_changed(3, 1))
    assert read_tiles(PLAIN) is None
    decode(PLAIN, header_of(PLAIN))


def test_the_size_limit_counts_what_is_decoded() -> None:
    data = tiled(scene(50, PADDED_WIDTH), "4:2:0")
    with pytest.raises(ValueError, match="more than max_pixels"):
        probe(data, max_pixels=50 * PADDED_WIDTH)
    assert read_frame(memoryview(data)).width * 50 == 50 * tiles_in(data).stored_width
    probe(data, max_pixels=50 * tiles_in(data).stored_width)
