"""`decode`: the right pixels, from every format, mode, orientation and scale."""

import io
from pathlib import Path

import numpy as np
import pytest
import simplejpeg
from PIL import Image, ImageOps

from augpipe.decoding import MAX_PIXELS, Header, decode, probe
from tests.augpipe.decoding.image_files import (
    ORIENTATION_TAG,
    Bytes,
    encoded,
    exif,
    jpeg_kinds,
    odd_sampling_jpeg,
    other_kinds,
    png_16_bit_rgb,
    scene,
    tiff,
)

JPEGS, OTHERS = jpeg_kinds(), other_kinds()
LUMA = np.array([0.299, 0.587, 0.114])


def header_of(data: bytes) -> Header:
    return probe(data, max_pixels=MAX_PIXELS)


def decoded(data: bytes, dct_factor: int = 1) -> Bytes:
    """RGB of `data`, after the checks that every result must pass."""
    header = header_of(data)
    pixels = decode(data, header, dct_factor=dct_factor)
    assert pixels.dtype == np.uint8
    assert pixels.shape == header.shape(dct_factor)
    assert pixels.flags.c_contiguous and pixels.flags.writeable
    assert (pixels[..., 3] == 255).all()
    return pixels[..., :3]


def pillow_rgb(data: bytes) -> Bytes:
    """The first frame as Pillow's own front door gives it, upright."""
    with Image.open(io.BytesIO(data)) as image:
        image.load()
        image.info.pop("transparency", None)  # convert would warn
        return np.asarray(ImageOps.exif_transpose(image).convert("RGB"))


@pytest.mark.parametrize("kind", [kind for kind in JPEGS if kind != "exif"])
def test_a_jpeg_is_simplejpegs_bit_for_bit(kind: str) -> None:
    assert np.array_equal(decoded(JPEGS[kind]), simplejpeg.decode_jpeg(JPEGS[kind], "RGB"))


@pytest.mark.parametrize("kind", [kind for kind in OTHERS if "16" not in kind])
def test_all_else_is_pillows_bit_for_bit(kind: str) -> None:
    header = header_of(OTHERS[kind])
    assert header.format.upper() == kind.split()[0] and not header.is_jpeg
    assert np.array_equal(decoded(OTHERS[kind]), pillow_rgb(OTHERS[kind]))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_orientation_is_undone_as_pillow_does(kind: str, orientation: int) -> None:
    data = encoded(scene(24, 40), kind, exif=exif(orientation))
    header = header_of(data)
    assert header.orientation == orientation
    assert header.may_scale == (kind == "JPEG" and orientation == 1)
    with Image.open(io.BytesIO(data)) as image:
        expected = np.asarray(ImageOps.exif_transpose(image).convert("RGB"))
    assert np.abs(decoded(data).astype(int) - expected).max() <= (2 if kind == "JPEG" else 0)


def test_sixteen_bits_keep_the_high_byte() -> None:
    rng = np.random.default_rng(5)
    gray = rng.integers(0, 65536, (11, 13, 1), dtype=np.uint16)
    colour = rng.integers(0, 65536, (11, 13, 3), dtype=np.uint16)
    high_gray, high_colour = np.repeat(gray >> 8, 3, axis=2), colour >> 8
    assert np.array_equal(decoded(encoded(Image.fromarray(gray[..., 0]), "PNG")), high_gray)
    assert np.array_equal(decoded(png_16_bit_rgb(colour)), high_colour)
    for order in "<>":
        assert np.array_equal(decoded(tiff(gray, order=order)), high_gray), order
        assert np.array_equal(decoded(tiff(colour, order=order)), high_colour), order
    deep = Image.fromarray(gray[..., 0])
    assert np.array_equal(decoded(encoded(deep, "TIFF", compression="tiff_lzw")), high_gray)


def test_tiffs_that_count_from_white_and_in_twelve_bits() -> None:
    gray = np.random.default_rng(6).integers(0, 65536, (4, 6, 1), dtype=np.uint16)
    assert np.array_equal(decoded(tiff(gray, photometric=0))[..., :1], 255 - (gray >> 8))
    levels = [0x123, 0xFED, 0x800, 0x07F]  # four numbers of 12 bits, high bits first: six bytes
    packed = np.frombuffer(b"".join((levels[i] << 12 | levels[i + 1]).to_bytes(3, "big") for i in (0, 2)), np.uint8)
    file = tiff(packed.reshape(1, 6, 1), bits=12).replace(b"\0\1\4\0\1\0\0\0\6\0\0\0", b"\0\1\4\0\1\0\0\0\4\0\0\0")
    assert decoded(file)[0, :, 0].tolist() == [level >> 4 for level in levels]


@pytest.mark.parametrize("mode", ["F", "I", "LAB"])
def test_modes_without_a_fixed_range_are_refused(mode: str) -> None:
    image = Image.fromarray(scene(8, 8))
    data = encoded(image.convert(mode) if mode == "LAB" else image.convert("L").convert(mode), "TIFF")
    with pytest.raises(ValueError, match=f"^its mode '{mode}' .* save it as 8-bit or unsigned 16-bit gray or RGB$"):
        decode(data, header_of(data))


def box_average(pixels: Bytes, factor: int) -> Bytes:
    height, width, channels = pixels.shape
    padded = np.pad(pixels, ((0, -height % factor), (0, -width % factor), (0, 0)), mode="edge")
    blocks = padded.reshape(padded.shape[0] // factor, factor, padded.shape[1] // factor, factor, channels)
    return np.rint(blocks.mean(axis=(1, 3))).astype(np.uint8)


def mean_difference(one: Bytes, other: Bytes) -> float:
    return float(np.abs(one.astype(float) - other).mean())


@pytest.mark.parametrize("factor", [2, 4, 8])
@pytest.mark.parametrize("kind", [kind for kind in JPEGS if kind != "exif"])
def test_a_dct_factor_is_nearly_a_box_average(kind: str, factor: int) -> None:
    small, average = decoded(JPEGS[kind], factor), box_average(decoded(JPEGS[kind]), factor)
    assert mean_difference(small @ LUMA, average @ LUMA) < 1
    if kind != "422":  # libjpeg keeps its colours at half the resolution
        assert mean_difference(small, average) < 2


@pytest.mark.parametrize("factor", [1, 2, 4, 8])
def test_a_dct_factor_holds_for_sides_of_any_length(factor: int) -> None:
    for height in (1, 2, 3, 5, 7, 8, 9, 15, 16, 17):
        for width in (1, 2, 4, 5, 6, 8, 9, 31, 33):
            data = encoded(scene(height, width), "JPEG", quality=95, subsampling="4:4:4")
            small = decoded(data, factor)
            assert small.shape[:2] == (-(-height // factor), -(-width // factor))
            assert mean_difference(small, box_average(decoded(data), factor)) < 3, (height, width)


def profile_part(number: int, num_parts: int) -> bytes:
    """A segment that holds one of the parts of a colour profile."""
    content = b"ICC_PROFILE\0" + bytes([number, num_parts]) + b"p" * 100
    return b"\xff\xe2" + (2 + len(content)).to_bytes(2, "big") + content


@pytest.mark.parametrize("factor", [1, 2, 4, 8])
@pytest.mark.parametrize("parts", [[(1, 2)], [(1, 1), (1, 1)], [(2, 1)]], ids=["one of two", "twice", "no such"])
@pytest.mark.parametrize("kind", [*(kind for kind in JPEGS if kind != "exif"), "JPEG cmyk"])
def test_a_profile_of_the_wrong_parts_does_not_damage_an_image(
    kind: str, parts: list[tuple[int, int]], factor: int
) -> None:
    data = (JPEGS | OTHERS)[kind]
    if factor > 1 and not header_of(data).is_jpeg:
        return
    at = data.index(b"\xff\xdb")
    noted = data[:at] + b"".join(profile_part(*part) for part in parts) + data[at:]
    assert np.array_equal(decoded(noted, factor), decoded(data, factor))


@pytest.mark.parametrize(("height", "width", "factor"), [(1, 3, 2), (3, 3, 2), (1, 2, 4), (5, 5, 4), (4, 3, 8)])
def test_tiny_images_are_box_averages_to_the_level(height: int, width: int, factor: int) -> None:
    """Two scales of libjpeg would give each of these the same size, so neither is taken."""
    noise = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
    data = encoded(noise, "JPEG", quality=95, subsampling="4:4:4")
    assert np.array_equal(decoded(data, factor), box_average(decoded(data), factor))


@pytest.mark.parametrize(("height", "width", "factor"), [(3, 40, 2), (40, 3, 2), (5, 40, 4), (100, 7, 4)])
def test_narrow_images_are_scaled_within_the_inverse_transform(height: int, width: int, factor: int) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
    data = encoded(noise, "JPEG", quality=95, subsampling="4:4:4")
    with Image.open(io.BytesIO(data)) as image:
        image.draft("RGB", (width // factor, height // factor))
        expected = np.asarray(image)
    assert expected.shape == (-(-height // factor), -(-width // factor), 3)
    assert np.array_equal(decoded(data, factor), expected)
    assert not np.array_equal(expected, box_average(decoded(data), factor))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_dct_factor_keeps_the_grid_of_the_stored_image(orientation: int) -> None:
    data = encoded(scene(41, 83), "JPEG", exif=exif(orientation))
    stored = Image.fromarray(box_average(simplejpeg.decode_jpeg(data), 4))
    stored.getexif()[ORIENTATION_TAG] = orientation
    assert mean_difference(decoded(data, 4), np.asarray(ImageOps.exif_transpose(stored))) < 2


def test_a_dct_factor_is_refused_where_it_cannot_be() -> None:
    png, odd = OTHERS["PNG rgb"], odd_sampling_jpeg()
    with pytest.raises(ValueError, match="^dct_factor=2 needs a JPEG that libjpeg-turbo decodes; use 1 for this PNG$"):
        decode(png, header_of(png), dct_factor=2)
    with pytest.raises(ValueError, match="^dct_factor=8 needs .* use 1 for this JPEG$"):
        decode(odd, header_of(odd), dct_factor=8)
    with pytest.raises(ValueError, match=r"^dct_factor=3 is none of \(1, 2, 4, 8\)$"):
        decode(JPEGS["420"], header_of(JPEGS["420"]), dct_factor=3)


@pytest.mark.parametrize("data", [*JPEGS.values(), *OTHERS.values(), encoded(scene(3, 3), "JPEG")])
def test_a_buffer_is_used_and_holds_the_same_pixels(data: bytes) -> None:
    header = header_of(data)
    for factor in (1, 2, 8) if header.is_jpeg else (1,):
        fresh = decode(data, header, dct_factor=factor)
        buffer = np.full(fresh.size + 9, 77, np.uint8)
        reused = decode(data, header, dct_factor=factor, buffer=buffer)
        assert np.shares_memory(reused, buffer)
        assert np.array_equal(reused, fresh)
        assert (buffer[fresh.size :] == 77).all()  # not a byte behind it


def test_a_buffer_that_cannot_hold_the_image_is_refused() -> None:
    data = JPEGS["420"]
    for buffer in (np.zeros(45 * 61 * 4 - 1, np.uint8), np.zeros(99999, np.uint8)[::2], np.zeros(99999, np.int8)):
        with pytest.raises(ValueError, match=r"^buffer must be C-contiguous uint8 of at least 10980 bytes, and is "):
            decode(data, header_of(data), buffer=buffer)


def test_memoryviews_and_bytearrays_decode_alike() -> None:
    for data in (JPEGS["420"], OTHERS["PNG rgb"], OTHERS["JPEG cmyk"]):
        for view in (memoryview(data), memoryview(bytearray(data))):
            assert np.array_equal(decode(view, header_of(data))[..., :3], decoded(data))


def test_a_header_of_another_file_is_noticed() -> None:
    small, large = encoded(scene(30, 40), "JPEG"), encoded(scene(50, 60), "JPEG")
    with pytest.raises(ValueError, match="^damaged JPEG: "):
        decode(small, header_of(large))
    with pytest.raises(ValueError, match="^damaged JPEG: "):
        decode(large, header_of(small))
    png, larger_png = encoded(scene(30, 40), "PNG"), encoded(scene(50, 60), "PNG")
    with pytest.raises(ValueError, match="^damaged PNG: its header claims 60x50 pixels, and 40x30 came out$"):
        decode(png, header_of(larger_png))


@pytest.mark.slow
def test_all_real_images_decode(photos_dir: Path) -> None:
    for path in sorted(photos_dir.rglob("*.JP*G")):
        data = path.read_bytes()
        header = header_of(data)
        assert header.is_jpeg, path.name
        if header.orientation == 1:
            assert np.array_equal(decoded(data), simplejpeg.decode_jpeg(data, "RGB")), path.name
        half = decode(data, header, dct_factor=2)
        assert half.shape == header.shape(2), path.name
