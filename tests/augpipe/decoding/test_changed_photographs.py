"""Photographs with one changed byte in a scan: what libjpeg-turbo refuses is refused, whole and in regions.

A few of them in every run, and many by `make test-deep`; all by fixed seeds.
"""

import io
import random
import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simplejpeg
from PIL import Image

from augpipe.decoding import MAX_PIXELS, decode, probe
from augpipe.decoding.jpeg import own_decoder
from augpipe.gpu_ops.jpeg.workspace import HAS_WIDE_VECTORS
from tests.augpipe.decoding.changed_bytes import is_refused, one_byte_changes, refuses_rows, scans
from tests.augpipe.decoding.image_files import Bytes, encoded
from tests.contracts.backends import CENTRE, plain

PARTS = 8
amounts = pytest.mark.parametrize(
    ("part", "num_parts", "num_changes"),
    [
        pytest.param(0, 16, 5, id="few"),
        *(pytest.param(part, PARTS, 80, id=f"part {part}", marks=pytest.mark.deep) for part in range(PARTS)),
    ],
)
"""Which photographs, every so manieth, and changes of each: by `make test-deep` 20,000 of shared photographs."""


def photographs(folder: Path, part: int, num_parts: int) -> list[tuple[bytes, int]]:
    """Some of the photographs, and a seed for each."""
    paths = sorted(folder.iterdir())[part::num_parts]
    return [(path.read_bytes(), zlib.crc32(path.name.encode())) for path in paths]


def decoded(data: bytes) -> Bytes | None:
    try:
        return decode(data, probe(data, max_pixels=MAX_PIXELS))
    except ValueError:
        return None


def libjpegs(data: bytes) -> Bytes:
    pixels: Bytes = simplejpeg.decode_jpeg(data, "RGBX", fastdct=False, fastupsample=False, strict=False)
    return pixels


@pytest.mark.slow
@amounts
def test_whole_photographs(photos_dir: Path, part: int, num_parts: int, num_changes: int) -> None:
    found = {"refused": 0, "taken": 0}
    for sound, seed in photographs(photos_dir, part, num_parts):
        for at, data in one_byte_changes(sound, num_changes, seed):
            pixels = decoded(data)
            found["taken" if pixels is not None else "refused"] += 1
            assert (pixels is None) == is_refused(data), (seed, at)
            assert pixels is None or np.array_equal(pixels, libjpegs(data)), (seed, at)
    assert min(found.values()) > 0.15 * sum(found.values()), found


@pytest.mark.slow
@amounts
@pytest.mark.skipif(not HAS_WIDE_VECTORS, reason="this CPU leaves JPEGs to libjpeg-turbo")
@pytest.mark.parametrize("restart", [False, True], ids=["plain", "restart markers"])
def test_regions(photos_dir: Path, part: int, num_parts: int, num_changes: int, restart: bool) -> None:
    """A region's rows of MCUs, down to its last one, are checked as far as libjpeg checks a file that ends there."""
    decoder, num_refused, num = own_decoder(), 0, 0
    assert decoder is not None
    for sound, seed in photographs(photos_dir, part, num_parts):
        chance = random.Random(seed)
        if restart:
            sound = encoded(halved(sound), "JPEG", subsampling=chance.choice([0, 2]), restart_marker_rows=1)
        height, width, _, subsampling = simplejpeg.decode_jpeg_header(sound)
        mcu_height = 16 if subsampling in ("420", "440") else 8
        start, stop = scans(sound)[0]
        markers = [start + found.start() for found in re.finditer(rb"\xff[\xd0-\xd7]", sound[start:stop])] + [stop]
        for at, data in one_byte_changes(sound, num_changes, seed):
            factor = chance.choice([1, 1, 2, 4, 8])
            rows, columns = -(-height // factor), -(-width // factor)
            left, top = chance.randrange(columns), chance.randrange(rows)
            right = chance.choice([columns, chance.randint(left + 1, columns)])
            bottom = chance.choice([rows, chance.randint(top + 1, rows)])
            num_mcu_rows = -(-min(bottom * factor, height) // mcu_height)
            if num_mcu_rows * mcu_height >= height:
                is_damaged = is_refused(data)
            else:  # the region's last row of MCUs is read up to its right edge
                num_mcu_rows -= right < columns
                marker = markers[num_mcu_rows - 1] if restart else None
                is_damaged = num_mcu_rows > 0 and refuses_rows(data, num_mcu_rows * mcu_height, marker)
            num += 1
            if not is_damaged:
                continue
            num_refused += 1
            out = np.empty((bottom - top) * (right - left) * 4, np.uint8)
            region, file = (left, top, right, bottom), np.frombuffer(data, np.uint8)
            assert not decoder.decode(file, height, width, region, out, factor=factor), (seed, at, region, factor)
    assert num_refused > 0.05 * num


def halved(data: bytes) -> Image.Image:
    with Image.open(io.BytesIO(data)) as image:
        return image.convert("RGB").reduce(2)


def kinds_of(image: Image.Image) -> dict[str, tuple[bytes, str]]:
    """A photograph in kinds that the shared ones are not of, and the colours in which libjpeg-turbo checks each."""
    options: dict[str, dict[str, Any]] = {
        "progressive": {"progressive": True},
        "4:2:2": {"subsampling": 1},
        "4:2:0 optimized": {"subsampling": 2, "optimize": True},
        "restart blocks": {"restart_marker_blocks": 7},
        "progressive restart": {"progressive": True, "restart_marker_rows": 1},
    }
    kinds = {name: (encoded(image, "JPEG", **chosen), "RGBX") for name, chosen in options.items()}
    kinds["gray"] = encoded(image.convert("L"), "JPEG"), "RGBX"
    for name in ("411", "440"):
        kinds[name] = simplejpeg.encode_jpeg(np.asarray(image), 85, "RGB", name), "RGBX"
    for name, progressive in (("cmyk", False), ("cmyk progressive", True)):
        kinds[name] = encoded(image.convert("CMYK"), "JPEG", progressive=progressive), "CMYK"
    return kinds


@pytest.mark.parametrize(
    ("num_parts", "num_changes"), [pytest.param(125, 4, id="few"), pytest.param(10, 30, marks=pytest.mark.deep)]
)
def test_photographs_of_other_kinds(photos_dir: Path, num_parts: int, num_changes: int) -> None:
    found = {"refused": 0, "taken": 0}
    for photograph, seed in photographs(photos_dir, 0, num_parts):
        for kind, (sound, colours) in kinds_of(halved(photograph)).items():
            header = probe(sound, max_pixels=MAX_PIXELS)
            for factor in (1, 2, 4, 8) if header.is_jpeg else (1,):
                assert decode(sound, header, dct_factor=factor).shape == header.shape(factor)
            for at, data in one_byte_changes(sound, num_changes, seed):
                verdict = "taken" if decoded(data) is not None else "refused"
                found[verdict] += 1
                assert (verdict == "refused") == is_refused(data, colours), (seed, kind, at)
    assert min(found.values()) > 0.15 * sum(found.values()), found


@pytest.mark.slow
@pytest.mark.parametrize("num_parts", [pytest.param(10, id="few"), pytest.param(1, marks=pytest.mark.deep)])
def test_a_loader_replaces_and_counts_them(photos_dir: Path, num_parts: int) -> None:
    """With a cache, for which photographs are decoded whole."""
    files = [next(one_byte_changes(sound, 1, seed))[1] for sound, seed in photographs(photos_dir, 0, num_parts)]
    refused = [nth for nth, data in enumerate(files) if is_refused(data)]
    loader = plain(files, CENTRE, on_error="skip", cache="host", cache_bytes=2**30, shuffle=False)
    ids = [sample_id for batch in loader for sample_id in batch.sample_ids.tolist()]
    assert sorted(loader.skipped) == refused and refused
    assert len(ids) == len(files) and not set(ids) & set(refused)
