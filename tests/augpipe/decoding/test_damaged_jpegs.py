"""Damaged JPEGs that would pass as good: what libjpeg-turbo refuses at its strictest is refused."""

import io

import numpy as np
import pytest
from PIL import Image

from augpipe.datasets.prepare.upright import open_upright
from augpipe.decoding import MAX_PIXELS, decode, probe
from tests.augpipe.decoding.changed_bytes import is_refused, one_byte_changes, scans
from tests.augpipe.decoding.image_files import encoded, jpeg_kinds, scene, ycck_jpeg
from tests.augpipe.decoding.odd_jpegs import Sampling, jpeg_of_scans, resampled_jpeg

JPEGS = jpeg_kinds(90, 120)
CMYK = Image.fromarray(scene(90, 120)).convert("CMYK")
FOUR_COLOURS = {
    "cmyk": encoded(CMYK, "JPEG"),
    "cmyk progressive": encoded(CMYK, "JPEG", progressive=True),
    "ycck": ycck_jpeg(Image.fromarray(scene(90, 120))),
}
ODD_SAMPLINGS: list[list[Sampling]] = [
    [(3, 1), (1, 1), (1, 1)],
    [(1, 1), (1, 2), (1, 1)],
    [(4, 2), (1, 1), (1, 1)],
    [(1, 1), (1, 1), (2, 2), (1, 1)],
]


def is_taken(data: bytes, dct_factor: int = 1) -> bool:
    try:
        decode(data, probe(data, max_pixels=MAX_PIXELS), dct_factor=dct_factor)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize(("seed", "kind"), [*enumerate(JPEGS)])
def test_one_changed_byte_that_libjpeg_refuses_is_refused(seed: int, kind: str) -> None:
    num_refused = 0
    for number, (at, data) in enumerate(one_byte_changes(JPEGS[kind], 250, seed)):
        if is_refused(data):
            num_refused += 1
            assert not is_taken(data, (1, 2, 4, 8)[number % 4]), at
    assert num_refused > 10


@pytest.mark.parametrize("kind", ["420", "gray", "progressive", "restart rows"])
@pytest.mark.parametrize("padding", [b"\0", b"\0" * 99, b"\x20" * 9, b"\xf7" * 50])
def test_padding_before_the_end_mark_is_harmless(kind: str, padding: bytes) -> None:
    data = JPEGS[kind]
    header = probe(data, max_pixels=MAX_PIXELS)
    assert np.array_equal(decode(data[:-2] + padding + data[-2:], header), decode(data, header))


@pytest.mark.parametrize("kind", ["420", "gray", "progressive", "restart rows"])
def test_other_bytes_before_the_end_mark_may_be_codes(kind: str) -> None:
    """libjpeg does not notice the first ones, which it has loaded already."""
    sound, num_refused = JPEGS[kind], 0
    for num in range(1, 20):
        for rest in (bytes(range(1, num + 1)), bytes(num) + b"\1", b"\1" + bytes(num), b"\x20" * num):
            data = sound[:-2] + rest + b"\xff\xd9"
            assert is_taken(data) == (not is_refused(data)), rest
            num_refused += is_refused(data)
    data = sound[:-2] + b"left over" * 50 + b"\xff\xd9"
    with pytest.raises(ValueError, match="^damaged JPEG: .* extraneous bytes before marker 0xd9"):
        decode(data, probe(data, max_pixels=MAX_PIXELS))
    assert num_refused > 20


@pytest.mark.parametrize("kind", FOUR_COLOURS)
def test_cmyk_that_libjpeg_refuses_is_refused(kind: str) -> None:
    sound, num_refused = FOUR_COLOURS[kind], 0
    assert is_taken(sound)
    start, stop = scans(sound)[0][0], scans(sound)[-1][1]
    cut = [sound[:at] + sound[at + 40 :] for at in range(start, stop - 40, 97)]
    for data in [*cut, *(data for _, data in one_byte_changes(sound, 60, 1))]:
        if is_refused(data, "CMYK"):
            num_refused += 1
            assert not is_taken(data)
    assert num_refused > 20
    padded = sound[:-2] + bytes(9) + sound[-2:]
    assert np.array_equal(
        decode(padded, probe(padded, max_pixels=MAX_PIXELS)), decode(sound, probe(sound, max_pixels=MAX_PIXELS))
    )


def test_prepare_refuses_damaged_cmyk() -> None:
    sound = FOUR_COLOURS["cmyk"]
    start = scans(sound)[0][0]
    assert open_upright(sound, MAX_PIXELS).kind == "JPEG"
    with pytest.raises(ValueError, match="^damaged JPEG: "):
        open_upright(sound[: start + 200] + sound[start + 240 :], MAX_PIXELS)


def test_a_wrong_sampling_byte_of_a_sound_file_is_noticed() -> None:
    """The sampling is one that simplejpeg has no name for: as many blocks of each component do not follow."""
    sound = JPEGS["420"]
    at = sound.index(b"\xff\xc0") + 11
    for sampling in (0x13, 0x23, 0x24, 0x31, 0x32, 0x42):
        data = sound[:at] + bytes([sampling]) + sound[at + 1 :]
        with pytest.raises(ValueError, match="^damaged JPEG: "):
            decode(data, probe(data, max_pixels=MAX_PIXELS))


@pytest.mark.parametrize("rows", [0, 2])
@pytest.mark.parametrize("progressive", [False, True], ids=["sequential", "progressive"])
@pytest.mark.parametrize("samplings", ODD_SAMPLINGS, ids=str)
def test_files_of_odd_sampling_are_refused_where_libjpeg_would(
    samplings: list[Sampling], progressive: bool, rows: int
) -> None:
    """A component's scans are those of a gray file, in which libjpeg tells damage."""
    sound, grays = jpeg_of_scans(90, 75, samplings, progressive=progressive, rows=rows)
    header = probe(sound, max_pixels=MAX_PIXELS)
    assert not header.is_jpeg
    with Image.open(io.BytesIO(sound)) as image:
        assert np.array_equal(decode(sound, header)[..., :3], np.asarray(image.convert("RGB")))
    of_grays = [(nth, start) for nth, gray in enumerate(grays) for start, _ in scans(gray)]
    num_refused = 0
    for at, data in one_byte_changes(sound, 50, 7):
        (nth, gray_start), start = next(
            (place, start) for place, (start, stop) in zip(of_grays, scans(sound), strict=True) if start <= at < stop
        )
        in_gray, gray = at - start + gray_start, grays[nth]
        if is_refused(gray[:in_gray] + data[at : at + 1] + gray[in_gray + 1 :], "GRAY"):
            num_refused += 1
            assert not is_taken(data), at
    assert num_refused > 5


@pytest.mark.parametrize("interval", [0, 3])
@pytest.mark.parametrize("samplings", ODD_SAMPLINGS[:2], ids=str)
def test_interleaved_files_of_odd_sampling_are_refused_where_libjpeg_would(
    samplings: list[Sampling], interval: int
) -> None:
    """libjpeg tells damage in the same codes of a file of RGB."""
    sound, plain = resampled_jpeg(48, 72, samplings, interval)
    with Image.open(io.BytesIO(sound)) as image:
        expected = np.asarray(image.convert("RGB"))
    for data in (sound, sound[:-2] + bytes(9) + sound[-2:]):
        assert np.array_equal(decode(data, probe(data, max_pixels=MAX_PIXELS))[..., :3], expected)
    start, stop = scans(sound)[0]
    num_refused = 0
    pieces = [(at, data[at : at + 1], at + 1) for at, data in one_byte_changes(sound, 100, 9)]
    for at, piece, behind in [*pieces, *((at, b"", at + 20) for at in range(start, stop - 20, 31))]:
        if is_refused(plain[:at] + piece + plain[behind:]):
            num_refused += 1
            assert not is_taken(sound[:at] + piece + sound[behind:]), at
    assert num_refused > 40
    with pytest.raises(ValueError, match="^truncated JPEG: its "):
        decode(sound[: stop - 5], probe(sound, max_pixels=MAX_PIXELS))


def test_chroma_of_a_quarter_of_the_rows_is_libjpegs() -> None:
    """4:4:1, for which simplejpeg's reader of headers has no name."""
    data = jpeg_of_scans(90, 120, [(1, 4), (1, 1), (1, 1)])[0]
    header = probe(data, max_pixels=MAX_PIXELS)
    assert header.is_jpeg
    with Image.open(io.BytesIO(data)) as image:
        assert np.array_equal(decode(data, header)[..., :3], np.asarray(image))
    for factor in (2, 4, 8):
        assert decode(data, header, dct_factor=factor).shape == header.shape(factor)
    num_refused = 0
    for at, changed in one_byte_changes(data, 80, 3):
        if is_refused(changed):
            num_refused += 1
            assert not is_taken(changed), at
    assert num_refused > 10
