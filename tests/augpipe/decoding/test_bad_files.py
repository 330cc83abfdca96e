"""Files that are damaged, empty, hostile or no images: a ValueError with a plain reason, or the header's shape."""

import struct
import warnings
from collections.abc import Iterable
from io import BytesIO

import numpy as np
import pytest
import simplejpeg
from PIL import Image

from augpipe.decoding import MAX_PIXELS, decode, probe
from augpipe.decoding.pillow import PILLOW_ERRORS
from tests.augpipe.decoding.image_files import corruptions, encoded, jpeg_kinds, other_kinds, scene

JPEGS, OTHERS = jpeg_kinds(), other_kinds()
MOST_PIXELS = 300_000  # bounds the time that a damaged header can ask for


def decode_or_refuse(data: bytes) -> bool:
    """True where it decodes to the header's shape, False where it is refused; anything else fails the test."""
    refusal: ValueError | None = None
    try:
        header = probe(data, max_pixels=MOST_PIXELS)
        pixels = decode(data, header)
    except ValueError as error:
        refusal = error
    if refusal is None:
        assert pixels.shape == header.shape()
        assert (pixels[..., 3] == 255).all()
        return True
    assert type(refusal) is ValueError and str(refusal)
    assert not isinstance(refusal.__cause__, Warning), refusal.__cause__  # else warning filters decide over images
    return False


def verdicts(files: Iterable[bytes]) -> tuple[int, int]:
    """How many decode, and how many are refused."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        decodes = [decode_or_refuse(data) for data in files]
    return sum(decodes), len(decodes) - sum(decodes)


@pytest.mark.parametrize(("index", "kind"), [*enumerate(JPEGS)])
def test_corrupted_jpegs(index: int, kind: str) -> None:
    decoded, refused = verdicts(corruptions(JPEGS[kind], 100, seed=index))
    assert decoded and refused  # the damage is neither too small nor too large to show anything


@pytest.mark.parametrize(("index", "kind"), [*enumerate(OTHERS)])
def test_corrupted_files_of_other_formats(index: int, kind: str) -> None:
    _, refused = verdicts(corruptions(OTHERS[kind], 60, seed=1000 + index))
    assert refused


@pytest.mark.parametrize("kind", ["420", "gray", "progressive", "restart rows"])
def test_a_jpeg_cut_at_any_place_is_refused(kind: str) -> None:
    data = JPEGS[kind]
    for end in range(0, len(data) - 2, 7):
        with pytest.raises(ValueError, match=r"^((truncated|damaged) JPEG: |not a picture: |the file is empty)"):
            decode(data[:end], probe(data[:end], max_pixels=MAX_PIXELS))


@pytest.mark.parametrize("kind", ["PNG rgb", "GIF rgb", "BMP rgb", "WEBP rgb", "TIFF rgb", "JPEG cmyk"])
def test_other_files_cut_in_the_middle_are_refused(kind: str) -> None:
    data = OTHERS[kind]
    for end in (len(data) // 4, len(data) // 2, len(data) * 3 // 4):
        with pytest.raises(ValueError, match=r"^(truncated|damaged) (PNG|GIF|BMP|WebP|TIFF|JPEG): "):
            decode(data[:end], probe(data[:end], max_pixels=MAX_PIXELS))


@pytest.mark.parametrize("kind", ["smooth", "blocks", "palette"])
def test_a_png_whose_pixels_do_not_fit_their_checksum_is_refused(kind: str) -> None:
    """Pillow shows many of them: it does not compare the checksum, and stops where it has all rows."""
    rows, columns = np.mgrid[:48, :64]
    pixels = {
        "smooth": np.stack([columns * 3, rows * 5, rows * 0 + 60], -1).astype(np.uint8),
        "blocks": (((rows // 16 + columns // 16) % 2) * 255).astype(np.uint8),
        "palette": (rows // 16 + columns // 16).astype(np.uint8),
    }[kind]
    image = Image.fromarray(pixels)
    data = encoded(image.convert("P") if kind == "palette" else image, "PNG")
    header = probe(data, max_pixels=MAX_PIXELS)
    begin = data.index(b"IDAT")
    (length,) = struct.unpack_from(">L", data, begin - 4)
    num_shown = 0
    for place in range(begin + 4, begin + 4 + length):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[place] ^= 1 << bit
            with pytest.raises(ValueError, match="^(damaged|truncated) PNG: "):
                decode(damaged, header)
            num_shown += shows(damaged)
    assert num_shown > 0  # else the checksum is not needed


def shows(data: bytes | bytearray) -> bool:
    try:
        Image.open(BytesIO(data)).load()
    except PILLOW_ERRORS:
        return False
    return True


def test_the_librarys_own_error_stands_behind_the_reason() -> None:
    photo, drawing = encoded(scene(90, 90), "JPEG"), encoded(scene(90, 90), "PNG")
    with pytest.raises(ValueError, match=r"^truncated JPEG: Premature end of JPEG file$") as refusal:
        decode(photo[:-400], probe(photo, max_pixels=MAX_PIXELS))
    assert isinstance(refusal.value.__cause__, ValueError)
    with pytest.raises(ValueError, match=r"^truncated PNG: image file is truncated") as refusal:
        decode(drawing[:-400], probe(drawing, max_pixels=MAX_PIXELS))
    assert isinstance(refusal.value.__cause__, OSError)


def test_damage_within_the_data_is_refused_even_where_others_show_what_they_can() -> None:
    data = bytearray(JPEGS["restart rows"])
    restart = data.index(b"\xff\xd1")
    del data[restart - 20 : restart]
    left_over = data[:-2] + b"left over" * 50 + data[-2:]  # excuses nothing
    with pytest.raises(ValueError, match="^damaged JPEG: Corrupt JPEG data: "):
        decode(left_over, probe(left_over, max_pixels=MAX_PIXELS))
    with pytest.raises(ValueError, match="^damaged JPEG: Corrupt JPEG data: "):
        decode(data, probe(data, max_pixels=MAX_PIXELS))
    assert simplejpeg.decode_jpeg(bytes(data), strict=False).shape == (45, 61, 3)


@pytest.mark.parametrize("kind", ["420", "gray", "progressive", "restart rows"])
@pytest.mark.parametrize("rest", [b"\0", b"\0" * 99, b"left over" * 50])
def test_bytes_behind_the_end_mark_are_harmless(kind: str, rest: bytes) -> None:
    data = JPEGS[kind]
    header = probe(data, max_pixels=MAX_PIXELS)
    assert np.array_equal(decode(data + rest, header), decode(data, header))


def test_a_machine_out_of_memory_is_not_a_bad_file(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not any(issubclass(MemoryError, kind) for kind in PILLOW_ERRORS)
    header = probe(OTHERS["PNG rgb"], max_pixels=MAX_PIXELS)

    def no_memory(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("PIL.PngImagePlugin.PngImageFile.load", no_memory)
    with pytest.raises(MemoryError):
        decode(OTHERS["PNG rgb"], header)
