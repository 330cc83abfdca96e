"""`probe`: format, size and orientation by content, without decoding."""

import logging
import random
import struct
import sys
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from PIL import Image

from augpipe import Augment, Loader, recipes
from augpipe.datasets.formats.pairs import MapStyleSource
from augpipe.decoding import MAX_PIXELS, Header, probe
from augpipe.decoding.orientation import read_orientation
from tests.augpipe.decoding.image_files import (
    encoded,
    exif,
    jpeg_kinds,
    odd_files,
    other_kinds,
    png_16_bit_rgb,
    png_chunk,
    scene,
    tiff,
)
from tests.augpipe.loader.loader_sources import MemorySource

JPEGS, OTHERS = jpeg_kinds(), other_kinds()


@pytest.mark.parametrize("kind", JPEGS)
def test_a_plain_jpeg(kind: str) -> None:
    turned = kind == "exif"
    height, width = (61, 45) if turned else (45, 61)
    expected = Header(
        height=height,
        width=width,
        orientation=6 if turned else 1,
        format="JPEG",
        is_jpeg=True,
        is_progressive="progressive" in kind,
    )
    assert probe(JPEGS[kind], max_pixels=MAX_PIXELS) == expected
    assert probe(memoryview(JPEGS[kind]), max_pixels=MAX_PIXELS) == expected


@pytest.mark.parametrize("kind", OTHERS)
def test_more_than_8_bits_a_channel_are_told(kind: str) -> None:
    assert probe(OTHERS[kind], max_pixels=MAX_PIXELS).loses_bits == any(bits in kind for bits in ("16", "12"))


def test_bits_of_what_is_refused_are_not_told() -> None:
    """The one warning of a process is for a file that is used."""
    written = BytesIO()
    Image.new("F", (5, 4)).save(written, "TIFF")
    assert not probe(written.getvalue(), max_pixels=MAX_PIXELS).loses_bits


def test_the_first_file_of_more_than_8_bits_is_named_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("augpipe.validation.log_once._LOGGED", set())
    deep, plain = png_16_bit_rgb(np.zeros((45, 61, 3), np.uint16)), OTHERS["PNG rgb"]
    assert probe(tiff(np.zeros((5, 4, 3), np.uint16)), max_pixels=MAX_PIXELS).loses_bits
    with caplog.at_level(logging.WARNING, "augpipe"):
        list(Loader(MemorySource([plain, deep, deep]), recipes.none(), batch_size=1, shuffle=False, framework="numpy"))
        Augment(recipes.none())([plain, deep])
    found = [record.message for record in caplog.records if "8 bits" in record.message]
    assert len(found) == 1 and found[0].startswith("photo 1.jpg holds more than 8 bits a channel, of which the highest")


@pytest.mark.parametrize("is_in_a_data_set", [False, True])
def test_a_pillow_image_of_16_bits_is_named(
    is_in_a_data_set: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("augpipe.validation.log_once._LOGGED", set())
    deep = Image.fromarray(np.full((5, 4), 4000, np.uint16))
    with caplog.at_level(logging.WARNING, "augpipe"):
        if is_in_a_data_set:
            list(Loader(MapStyleSource([(deep, 0), (deep, 1)]), recipes.none(), batch_size=1, framework="numpy"))
        else:
            Augment(recipes.none())([deep.convert("L"), deep])
    found = [record.message for record in caplog.records if "8 bits" in record.message]
    assert len(found) == 1 and found[0].startswith("image ") and "of which the highest 8 are kept" in found[0]


@pytest.mark.parametrize("order", ["<", ">"])
def test_more_than_four_channels_are_refused_by_name(order: str) -> None:
    data = tiff(np.zeros((5, 4, 5), np.uint8), order=order, photometric=2)
    with pytest.raises(
        ValueError, match="^its 5 channels are more than four, which are not read; save it as gray, RGB"
    ):
        probe(data, max_pixels=MAX_PIXELS)


@pytest.mark.parametrize(("name", "file"), [*odd_files().items()])
def test_the_content_decides_and_the_name_is_never_asked(name: str, file: tuple[bytes, tuple[int, int]]) -> None:
    data, shape = file
    header = probe(data, max_pixels=MAX_PIXELS)
    assert (header.height, header.width) == shape
    if "named" in name:
        assert header.format.lower() == name.split()[0]


@pytest.mark.parametrize("order", ["<", ">"])
def test_orientation_in_both_byte_orders_and_beside_other_tags(order: str) -> None:
    mark = b"II" if order == "<" else b"MM"
    entries = struct.pack(order + "HHLHH", 0x010F, 3, 1, 9, 0) + struct.pack(order + "HHLHH", 0x0112, 3, 1, 8, 0)
    block = mark + struct.pack(order + "HLH", 42, 8, 2) + entries
    assert read_orientation(block) == 8
    assert read_orientation(b"Exif\0\0" + block) == 8


@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"Exif\0\0",
        b"XX*\0",
        b"II*\0\x08\0\0\0\x05\0",  # five entries, none there
        b"II*\0\xff\xff\xff\xff",
        b"II*\0\x08\0\0\0\x01\0" + struct.pack("<HHLHH", 0x0112, 3, 1, 9, 0),  # no such orientation
        b"II*\0\x08\0\0\0\x01\0" + struct.pack("<HHLHH", 0x0112, 2, 1, 6, 0),  # a text
        b"II*\0\x08\0\0\0\x01\0" + struct.pack("<HHLHH", 0x0112, 3, 2, 6, 6),  # two of them
    ],
)
def test_damaged_exif_leaves_an_image_upright(block: bytes) -> None:
    assert read_orientation(block) == 1
    if block:
        assert probe(encoded(scene(6, 9), "JPEG", exif=block), max_pixels=MAX_PIXELS).orientation == 1


def test_shape_at_a_dct_factor() -> None:
    header = Header(height=17, width=16, orientation=1, format="JPEG", is_jpeg=True)
    assert [header.shape(factor) for factor in (1, 2, 4, 8)] == [(17, 16, 4), (9, 8, 4), (5, 4, 4), (3, 2, 4)]


NOTED_GIF = {"comment": b"a note, of two lines\n" * 30}


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        *[(kind, {}) for kind in ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF")],
        *[("WEBP", {"lossless": True}), ("WEBP", {"exif": exif(1)}), ("WEBP", {"icc_profile": b"p"})],
        ("GIF", NOTED_GIF),
    ],
)
def test_max_pixels_is_the_largest_number_allowed(kind: str, options: dict[str, Any]) -> None:
    data = encoded(scene(20, 30), kind, **options)
    assert probe(data, max_pixels=600).height == 20
    with pytest.raises(ValueError, match=r"^claims 30x20 = 600 pixels, more than max_pixels=599; raise max_pixels if"):
        probe(data, max_pixels=599)


def webp_bomb() -> bytes:
    data = bytearray(encoded(scene(8, 8), "WEBP", lossless=True))
    assert data[12:16] == b"VP8L"
    data[21:25] = struct.pack("<L", 0x0FFFFFFF)
    return bytes(data)


def gif_bomb() -> bytes:
    data = bytearray(encoded(scene(8, 8), "GIF"))
    frame = data.index(b",\0\0\0\0\x08\0\x08\0")
    data[frame + 5 : frame + 9] = struct.pack("<HH", 12000, 12000)  # sticks out of the 8x8 screen
    return bytes(data)


@pytest.mark.parametrize(
    ("bomb", "claim"),
    [
        (webp_bomb(), "16384x16384"),
        (gif_bomb(), "12000x12000"),
        (
            tiff(np.zeros((1, 1, 1), np.uint8)).replace(
                struct.pack("<HHLL", 256, 4, 1, 1), struct.pack("<HHLL", 256, 4, 1, 10**9)
            ),
            "1000000000x1",
        ),
    ],
)
def test_bombs_of_other_formats_raise_no_warning(bomb: bytes, claim: str) -> None:
    for max_pixels, limit in ((MAX_PIXELS, "max_pixels="), (10**10, "Pillow's own PIL.Image.MAX_IMAGE_PIXELS=")):
        with pytest.raises(ValueError, match=f"^claims {claim} = [0-9]+ pixels, more than {limit}") as refusal:
            probe(bomb, max_pixels=max_pixels)
        assert refusal.value.__cause__ is None  # refused here, before Pillow could warn or set memory aside


def test_the_first_of_two_exif_blocks_counts() -> None:
    one, two = encoded(scene(6, 9), "JPEG", exif=exif(6)), encoded(scene(6, 9), "JPEG", exif=exif(3))
    start = two.index(b"\xff\xe1")
    block = two[start : start + 2 + struct.unpack_from(">H", two, start + 2)[0]]
    at = one.index(b"\xff\xdb")
    assert probe(one[:at] + block + one[at:], max_pixels=MAX_PIXELS).orientation == 6


@pytest.mark.parametrize("kind", ["PNG", "GIF", "BMP", "WEBP", "TIFF"])
def test_pillows_own_limit_is_named(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = encoded(scene(20, 30), kind)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 500)
    with pytest.raises(ValueError, match=r"^claims 30x20 = 600 pixels, more than Pillow's own PIL.Image.MAX_IMAGE_PIX"):
        probe(data, max_pixels=MAX_PIXELS)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    assert probe(data, max_pixels=MAX_PIXELS).width == 30


def patched_frame(at: int, value: int, marker: int = 0xC0) -> bytes:
    data = bytearray(JPEGS["420"])
    frame = data.index(b"\xff\xc0")
    data[frame + 1], data[frame + at] = marker, value
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (patched_frame(4, 12), "a JPEG of 12 bits a sample"),
        (patched_frame(9, 2), "a JPEG of 2 components"),
        (patched_frame(6, 0), "claims 61x0 pixels: a picture has at least one"),
        (patched_frame(4, 8, marker=0xC9), r"a JPEG of the kind SOF9 \(lossless, hierarchical or arithmetic-coded\)"),
        (patched_frame(4, 8, marker=0xC3), "a JPEG of the kind SOF3 "),
        (JPEGS["420"][:2] + b"\xff\xd9" + JPEGS["420"][2:], "damaged JPEG: marker 0xd9 stands before the first scan"),
        (JPEGS["420"][:2] + b"\xff\xe5\0\1" + JPEGS["420"][2:], "damaged JPEG: segment 0xe5 has an impossible length"),
        (b"\xff\xd8\xff\xda\0\x0c" + bytes(20), "damaged JPEG: a scan without a frame header"),
        (b"\xff\xd8\xff", "truncated JPEG: its 3 bytes end before the first scan"),
        (b"\xff\xd8\xff\xe0\xff\xff" + bytes(99), "truncated JPEG: its 105 bytes end before the first scan"),
        (b"\x89PNG\r\n\x1a\n", "(truncated|damaged) PNG: "),
        (b"GIF89a", "truncated GIF: its 6 bytes end before the first frame"),
        (b"GIF89a" + bytes(7) + b";", "damaged GIF: it has no frame"),
        (b"BM", "(truncated|damaged) BMP: "),
        (b"RIFF\0\0\0\0WEBPVP8 ", "truncated WebP: 16 bytes are less than its header"),
        (b"RIFF\0\0\0\0WEBPJUNK", "damaged WebP: its first chunk is b'JUNK'"),
        (b"II*\0", "truncated TIFF: its 4 bytes end before its directory"),
        (b"II*\0\xff\0\0\0", "truncated TIFF: its directory lies behind the end of its 8 bytes"),
        (
            b"<svg xmlns='http://www.w3.org/2000/svg'/>",
            "not a picture: it begins with b\"<svg xmlns='.*looks like text;",
        ),
        ("Ünïcödé ist Text".encode(), "not a picture: .*looks like text"),
        (
            b"\0\0\0\x1cftypavif\0\0\0\0",
            "a photograph in AVIF, whatever its name says, which is not read; convert it to JPEG",
        ),
    ],
)
def test_reasons(data: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match="^" + reason) as refusal:
        probe(data, max_pixels=MAX_PIXELS)
    assert type(refusal.value) is ValueError


def test_a_progressive_jpeg_of_too_many_scans_is_refused() -> None:
    data = JPEGS["progressive"]
    last_scan, num_others = data[data.rindex(b"\xff\xda") : -2], data.count(b"\xff\xda") - 1
    start = data.index(last_scan)
    most, one_more = (data[:start] + last_scan * (num - num_others) + data[-2:] for num in (100, 101))
    assert probe(most, max_pixels=MAX_PIXELS) == probe(data, max_pixels=MAX_PIXELS)
    with pytest.raises(ValueError, match="^a progressive JPEG of more than 100 scans: it may take minutes"):
        probe(one_more, max_pixels=MAX_PIXELS)


def test_scans_are_counted_up_to_the_end_mark() -> None:
    """Behind it a film may lie, and in a note anything."""
    data = JPEGS["progressive"]
    header = probe(data, max_pixels=MAX_PIXELS)
    assert probe(data + b"\xff\xda" * 200, max_pixels=MAX_PIXELS) == header
    note = b"\xff\xfe" + (2 + 400).to_bytes(2, "big") + b"\xff\xda" * 200
    assert probe(data[:2] + note + data[2:], max_pixels=MAX_PIXELS) == header


def test_a_jpeg_with_a_side_longer_than_libjpegs_longest_is_refused() -> None:
    """On every CPU, whichever decoder it has."""
    data = encoded(Image.new("L", (65_500, 1)), "JPEG")
    at = data.index(b"\xff\xc0") + 7
    assert probe(data, max_pixels=MAX_PIXELS).width == 65_500
    for side in (65_501, 65_535):
        longer = data[:at] + side.to_bytes(2, "big") + data[at + 2 :]
        with pytest.raises(ValueError, match=f"^claims {side}x1 pixels, and a JPEG's sides are 65500 at most"):
            probe(longer, max_pixels=MAX_PIXELS)


def test_damaged_animation_notes_raise_no_warning() -> None:
    still = OTHERS["PNG rgb"]
    header_end = 8 + 25
    for content in (bytes(8), struct.pack(">LL", 0xFFFFFFFF, 0)):
        noted = still[:header_end] + png_chunk(b"acTL", content) + still[header_end:]
        assert probe(noted, max_pixels=MAX_PIXELS) == probe(still, max_pixels=MAX_PIXELS)


def test_damaged_tiff_notes_raise_no_warning() -> None:
    data = bytearray(OTHERS["TIFF noted"])
    entry = data.index(struct.pack("<HH", 270, 2))  # the description
    data[entry + 8 : entry + 12] = b"\xf0\xff\xff\x7f"
    assert probe(bytes(data), max_pixels=MAX_PIXELS).height == 45


@pytest.mark.parametrize(
    ("tag", "kind", "count", "reason"),
    [
        (273, 4, 10**6, "truncated TIFF: tag 273 lies behind the end of its"),
        (256, 4, 0, "damaged TIFF: tag 256 has 0 values"),
        (259, 3, 2, "damaged TIFF: tag 259 has 2 values"),
        (257, 99, 1, "damaged TIFF: tag 257 has the unknown type 99"),
    ],
)
def test_damaged_tiff_layout(tag: int, kind: int, count: int, reason: str) -> None:
    data = bytearray(tiff(scene(4, 5)))
    entry = data.index(struct.pack("<H", tag), len(data) - 120)
    data[entry : entry + 8] = struct.pack("<HHL", tag, kind, count)
    with pytest.raises(ValueError, match="^" + reason):
        probe(bytes(data), max_pixels=MAX_PIXELS)


def test_the_first_of_two_tags_counts_in_a_tiff() -> None:
    data = bytearray(tiff(scene(4, 5)))
    entry = data.index(struct.pack("<H", 278), len(data) - 120)  # rows of a strip: all, unless something else is said
    data[entry : entry + 12] = struct.pack("<HHLL", 257, 4, 1, 3)
    header = probe(bytes(data), max_pixels=MAX_PIXELS)
    assert (header.height, header.width) == (4, 5)


def test_a_tiff_whose_tags_share_more_bytes_than_it_has() -> None:
    data = bytearray(tiff(scene(40, 50)))
    for tag, kind, count in ((258, 3, 2000), (273, 4, 1000)):  # 4,000 bytes each, of about 6,100
        entry = data.index(struct.pack("<H", tag), len(data) - 120)
        data[entry : entry + 12] = struct.pack("<HHLL", tag, kind, count, 8)
    with pytest.raises(ValueError, match="^truncated TIFF: tag 273 lies behind the end of its"):
        probe(bytes(data), max_pixels=MAX_PIXELS)


@pytest.mark.parametrize("kind", ["plain", "gray", "4:2:0", "exif", "progressive", "restart markers"])
def test_our_own_decoder_says_of_a_header_what_the_other_way_does(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, dict[str, Any]] = {
        "plain": {"subsampling": 0},
        "4:2:0": {"subsampling": 2},
        "exif": {"exif": exif(6)},
        "progressive": {"progressive": True},
        "restart markers": {"restart_marker_rows": 1},
    }
    image = scene(40, 50)
    sound = encoded(image[..., 0] if kind == "gray" else image, "JPEG", **options.get(kind, {}))
    end, chance = sound.index(b"\xff\xda") + 12, random.Random(kind)

    def verdict(data: bytes) -> Header | str:
        try:
            return probe(data, max_pixels=1_000_000)
        except ValueError as problem:
            return str(problem)

    damaged = [sound]
    for _ in range(400):
        changed = bytearray(sound)
        for _ in range(chance.choice([1, 1, 2])):
            changed[chance.randrange(2, end)] = chance.randrange(256)
        damaged.append(bytes(changed[: chance.choice([len(changed), chance.randrange(end)])]))
    found = [verdict(data) for data in damaged]
    monkeypatch.setattr(sys.modules["augpipe.decoding.probe"], "decoder_if_compiled", lambda: None)
    assert found == [verdict(data) for data in damaged]
    assert isinstance(found[0], Header) and any(isinstance(one, str) for one in found)
