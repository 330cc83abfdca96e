"""Damaged JPEGs that would pass as good: what libjpeg-turbo refuses at its strictest is refused."""

import numpy as np
import pytest

from augpipe.decoding import MAX_PIXELS, decode, probe
from tests.augpipe.decoding.changed_bytes import is_refused, one_byte_changes
from tests.augpipe.decoding.image_files import jpeg_kinds

JPEGS = jpeg_kinds(90, 120)


def is_taken(data: bytes, dct_factor: int = 1) -> bool:
    try:
        decode(data, probe(data, max_pixels=MAX_PIXELS), dct_factor=dct_factor)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize(("seed", "kind"), [*enumerate(JPEGS)])
def test_one_changed_byte_that_libjpeg_refuses_is_refused(seed: int, kind: str) -> None:
    num_refused = 0
    for number, (at, data) in enumerate(one_byte_changes(JPEGS[kind], 120, seed)):
        if is_refused(data):
            num_refused += 1
            assert not is_taken(data, (1, 2, 4, 8)[number % 4]), at
    assert num_refused > 10


@pytest.mark.parametrize("kind", ["420", "gray", "progressive", "restart rows"])
@pytest.mark.parametrize("padding", [b"\0", b"\0" * 99, b"\x20" * 2, b"\xf7" * 50])
def test_padding_before_the_end_mark_is_harmless(kind: str, padding: bytes) -> None:
    data = JPEGS[kind]
    header = probe(data, max_pixels=MAX_PIXELS)
    assert np.array_equal(decode(data[:-2] + padding + data[-2:], header), decode(data, header))


@pytest.mark.parametrize("kind", ["420", "gray", "progressive", "restart rows"])
@pytest.mark.parametrize("rest", [b"\x5f", b"\0\0\1", b"left over" * 50])
def test_other_bytes_before_the_end_mark_may_be_codes(kind: str, rest: bytes) -> None:
    data = JPEGS[kind][:-2] + rest + b"\xff\xd9"
    with pytest.raises(ValueError, match="^damaged JPEG: .* extraneous bytes before marker 0xd9"):
        decode(data, probe(data, max_pixels=MAX_PIXELS))
