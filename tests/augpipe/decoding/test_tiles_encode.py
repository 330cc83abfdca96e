"""`encode_tiled`: where tiles end, how much is padded, what a file holds, and its table's format."""

import io
import re
from typing import Any

import numpy as np
import pytest
from PIL import Image

from augpipe.datasets.shards.encode import encode_tiled, segment_lengths
from augpipe.decoding import decode
from augpipe.decoding.jpeg import read_frame
from augpipe.decoding.tile_table import IDENTIFIER, MARKER, TileTable, pack_table, unpack_table
from tests.augpipe.decoding.image_files import encoded, scene
from tests.augpipe.decoding.tiled_files import KINDS, header_of, noise, table_of, tiled, tiles_in


@pytest.mark.parametrize(("kind", "most_px"), [("4:2:0", 32), ("4:2:2", 88), ("4:4:4", 88), ("gray", 88)])
def test_the_padding_is_as_small_as_stated(kind: str, most_px: int) -> None:
    padding = [
        tiles_in(tiled(np.zeros((1, width, 3), np.uint8), kind)).stored_width - width for width in range(1, 2100, 3)
    ]
    assert min(padding) >= 0 and max(padding) <= most_px
    assert padding.count(0) > len(padding) // 2
    for widest in (61_825, 65_400):
        image = np.zeros((1, widest, 3), np.uint8)
        assert tiles_in(tiled(image, kind)).stored_width <= widest + most_px


@pytest.mark.parametrize("kind", KINDS)
def test_tiles_are_about_as_large_as_asked_for(kind: str) -> None:
    for tile in [(64, 16), (128, 16), (96, 8)]:
        for width in (512, 683, 767, 1024):
            tiles = tiles_in(tiled(np.zeros((40, width, 3), np.uint8), kind, tile=tile))
            assert 0.75 <= tiles.tile_width * tiles.tile_height / (tile[0] * tile[1]) <= 1.75
            assert (len(tiles.bounds) - 1) == tiles.num_columns * -(-40 // tiles.tile_height)


@pytest.mark.parametrize("kind", KINDS)
def test_all_samplings_and_a_row_that_is_one_tile(kind: str) -> None:
    data = tiled(noise(20, 24), kind)
    tiles = tiles_in(data)
    assert (tiles.num_columns, tiles.stored_width) == (1, 24)
    with Image.open(io.BytesIO(data)) as image:
        assert image.mode == ("L" if kind == "gray" else "RGB")


def test_the_quality_is_that_of_a_plain_jpeg() -> None:
    image = scene(100, 160)
    plain, ours = (
        Image.open(io.BytesIO(data)) for data in (encoded(image, "JPEG", quality=71), encode_tiled(image, 71))
    )
    assert ours.quantization == plain.quantization  # type: ignore[attr-defined]


def test_pillow_s_image_an_array_and_one_with_notes_give_the_same_bytes(tmp_path: Any) -> None:
    image = scene(50, 353)
    expected = encode_tiled(image, 85)
    noted = Image.fromarray(image)
    noted.save(tmp_path / "noted.png")
    noted.info.update(comment=b"a comment", icc_profile=b"p" * 100, exif=b"Exif\0\0MM", dpi=(72, 72))
    assert encode_tiled(noted, 85) == expected
    assert encode_tiled(Image.fromarray(image), 85) == expected
    with Image.open(tmp_path / "noted.png") as opened:
        assert encode_tiled(opened, 85) == expected
    assert encode_tiled(np.asfortranarray(image), 85) == expected


def test_a_file_is_a_plain_jpeg_and_one_marker_segment() -> None:
    data = encode_tiled(scene(50, 353))
    (start, stop) = read_frame(memoryview(data)).tile_tables[0]
    assert data[2:4] == b"\xff\xe0" and data[6:11] == b"JFIF\0"
    assert start == 24 and data[20:22] == bytes([0xFF, MARKER]) and data[24:].startswith(IDENTIFIER)
    plain = data[:20] + data[stop:]
    assert (segment_lengths(plain) == table_of(data).lengths).all()
    assert header_of(plain).tiles is None


def test_a_table_of_many_markers() -> None:
    image = np.zeros((3000, 2000), np.uint8)
    data = encode_tiled(image, 50, tile=(16, 8))
    tables = read_frame(memoryview(data)).tile_tables
    assert len(tables) == 2 and len(table_of(data).lengths) * 2 > 65_533
    cut = tiles_in(data).extract(data, 1900, 2900, 2000, 3000)
    pixels = decode(cut.jpeg, header_of(cut.jpeg))
    np.testing.assert_array_equal(pixels[-100:, -100:], decode(data, header_of(data))[2900:, 1900:])


@pytest.mark.parametrize("largest", [2**16 - 1, 2**16, 2**32 - 1])
@pytest.mark.parametrize("num", [1, 32_700, 100_000])
def test_a_table_comes_back(largest: int, num: int) -> None:
    lengths = np.random.default_rng(num).integers(0, largest, num, endpoint=True)
    lengths[0] = largest
    markers = pack_table(TileTable(65_535, 1, lengths))
    payloads = []
    while markers:
        assert markers[:2] == bytes([0xFF, MARKER])
        length = int.from_bytes(markers[2:4], "big")
        payloads.append(markers[4 : 2 + length])
        assert len(payloads[-1]) == length - 2 and payloads[-1].startswith(IDENTIFIER)
        markers = markers[2 + length :]
    table = unpack_table(payloads)
    assert (table.height, table.width) == (65_535, 1)
    np.testing.assert_array_equal(table.lengths, lengths)
    if len(payloads) > 1:
        with pytest.raises(ValueError, match=f"part 1 of {len(payloads)} stands where part 0 of {len(payloads)}"):
            unpack_table([payloads[1], payloads[0], *payloads[2:]])


@pytest.mark.parametrize(
    ("image", "options", "message"),
    [
        (noise(8, 8), {"quality": 0}, "quality=0 is not within 1..100"),
        (noise(8, 8), {"subsampling": "4:1:1"}, "subsampling='4:1:1' is none of 4:2:0, 4:2:2, 4:4:4"),
        (noise(8, 8), {"tile": (64, 4)}, "tile=(64, 4) is too small"),
        (np.zeros((8, 8), np.float32), {}, "an array must be uint8 (H, W, 3) or (H, W), and is float32 (8, 8)"),
        (np.zeros((8, 8, 4), np.uint8), {}, "and is uint8 (8, 8, 4)"),
        (np.zeros((0, 8, 3), np.uint8), {}, "a picture of 8x0 has no pixels"),
        (Image.new("CMYK", (8, 8)), {}, "mode 'CMYK' is neither RGB nor L; convert the picture first"),
        (np.zeros((65_501, 1), np.uint8), {}, "a JPEG has at most 65500 along each side"),
        (np.zeros((1, 65_500, 3), np.uint8), {}, "65500x1 pixels, stored as 65505 columns: a JPEG has at most 65500"),
    ],
)
def test_what_cannot_be_encoded(image: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        encode_tiled(image, **options)
