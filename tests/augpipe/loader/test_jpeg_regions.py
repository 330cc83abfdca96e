"""The native backend decodes of an ordinary JPEG the region that is looked at; batches are the same."""

from typing import Any

import numpy as np
import pytest
import simplejpeg

from augpipe import Recipe, SampleError, View
from augpipe.decoding import jpeg
from augpipe.ops import CenterCrop, MultiResolutionCrop, RandomResizedCrop, Rotate
from augpipe.preview import over_epochs
from augpipe.recipes import deep_image
from tests.augpipe.decoding.image_files import encoded, exif, scene
from tests.augpipe.loader.jpeg_loaders import Decodes, decoding_whole, header_of, jpeg_files, make, of_kind
from tests.augpipe.loader.loader_sources import PAPER, MemorySource
from tests.contracts.backends import assert_same

IMAGES = [scene(120 + 7 * i, 150 + 9 * i, i) for i in range(6)]
PLAIN = [encoded(image, "JPEG", quality=90, subsampling=i % 3) for i, image in enumerate(IMAGES)]
OTHERS = [
    encoded(IMAGES[0], "JPEG", progressive=True),
    encoded(IMAGES[1], "JPEG", exif=exif(6)),
    encoded(IMAGES[2], "PNG"),
]
QUARTERED = simplejpeg.encode_jpeg(IMAGES[3], 90, "RGB", "411")
"""It looks ordinary until it is decoded."""

CROPS = Recipe(ops=(RandomResizedCrop(size=64, scale=(0.1, 0.4)), Rotate()))
CENTRE = Recipe(ops=(CenterCrop(size=24, scale=120),))
LARGE = [of_kind(scene(512, 640, seed), "4:2:0") for seed in range(6)]
FULL_SIZE = Recipe(views=(View(ops=(MultiResolutionCrop(size=16, scales=(400,)),), count=2),))
"""Two views of an image, for which it is not decoded at half its size."""
FILES = jpeg_files(32)
ALL_BYTES = sum(header_of(data).height * header_of(data).width * 4 for data in FILES)


def test_regions_are_decoded_and_batches_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    contents: list[Any] = [*PLAIN, *OTHERS, QUARTERED]
    with decoding_whole():
        expected = [list(make(contents, CROPS)) for _ in range(2)]
    decodes = Decodes(monkeypatch)
    for batches in expected:
        assert assert_same(make(contents, CROPS), batches) == len(contents)
        wholes, regions = decodes.look()
        assert len(wholes) == len(OTHERS) + 1 and len(regions) == len(PLAIN)
        assert max(regions) < 0.6 * min(image.shape[0] * image.shape[1] for image in IMAGES)


@pytest.mark.parametrize(("recipe", "share"), [(MultiResolutionCrop(size=224, scales=(512,)), 0.2), (None, 0.5)])
def test_of_a_crop_of_224_from_512_a_fraction_is_decoded(
    recipe: MultiResolutionCrop | None, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The crop alone is 15 % of the pixels; the paper's recipe, None here, turns and bends it beside."""
    loader = make(LARGE, deep_image(224, (512,)) if recipe is None else Recipe(ops=(recipe,)))
    decodes = Decodes(monkeypatch)
    for _ in range(4):
        assert sum(len(batch) for batch in loader) == len(LARGE)
    wholes, regions = decodes.look()
    assert wholes == [] and len(regions) == 4 * len(LARGE)
    assert 0.15 < np.mean(regions) / (512 * 640) < share
    with decoding_whole():
        list(loader)
    assert decodes.look() == ([512 * 640] * len(LARGE), [])


@pytest.mark.parametrize("room", [0, ALL_BYTES // 60, 4 * ALL_BYTES])
def test_what_a_cache_takes_is_decoded_whole_and_of_the_rest_regions(
    room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another epoch looks elsewhere in an image; views of one share a decode."""
    loader = make(FILES, FULL_SIZE, cache="host", cache_bytes=room)
    decodes = Decodes(monkeypatch)
    num_wholes, num_regions = [], []
    for _ in range(3):
        list(loader)
        wholes, regions = decodes.look()
        num_wholes.append(len(wholes))
        num_regions.append(len(regions))
    if room == 0:
        assert (num_wholes, num_regions) == ([0] * 3, [len(FILES)] * 3)
    elif room > ALL_BYTES:
        assert num_wholes[0] == len(FILES) and num_regions == [0] * 3
    else:
        assert num_wholes[0] > 0 and all(num_regions)


def test_preview() -> None:
    source = MemorySource(FILES[:4])
    found = over_epochs(source, PAPER, rows=4, cols=3)
    with decoding_whole():
        expected = over_epochs(source, PAPER, rows=4, cols=3)
    for row, wanted in zip(found.rows, expected.rows, strict=True):
        np.testing.assert_array_equal(row.original, wanted.original)
        assert row.original.shape[:2] == header_of(FILES[row.sample_id]).shape()[:2]
        for cell, other in zip(row.cells, wanted.cells, strict=True):
            assert cell.captions == other.captions
            np.testing.assert_array_equal(cell.image, other.image)


def test_damage_above_the_region_is_noticed_and_below_it_is_not() -> None:
    data = encoded(IMAGES[0], "JPEG", quality=90, restart_marker_rows=1)
    above, below = (data.index(bytes([0xFF, 0xD0 + marker])) for marker in (1, 6))
    for at, is_noticed in ((above, True), (below, False)):
        damaged = data[: at + 2] + b"\xff\0" * 30 + data[at + 62 :]  # no code is of ones alone
        loader = make([damaged], CENTRE)
        if is_noticed:
            with pytest.raises(SampleError, match="damaged JPEG"):
                list(loader)
        else:
            (batch,), (sound,) = list(loader), list(make([data], CENTRE))
            np.testing.assert_array_equal(batch.images, sound.images)
            with pytest.raises(SampleError, match="damaged JPEG"), decoding_whole():
                list(loader)


def test_without_wide_vectors_libjpeg_turbo_decodes_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = list(make(PLAIN, CROPS))
    monkeypatch.setattr(jpeg, "_local", jpeg._Local())
    monkeypatch.setattr("augpipe.gpu_ops.jpeg.workspace.HAS_WIDE_VECTORS", False)
    decodes = Decodes(monkeypatch)
    assert assert_same(make(PLAIN, CROPS), expected) == len(PLAIN)
    wholes, regions = decodes.look()
    assert len(wholes) == len(PLAIN) and not regions
