"""The native backend decodes of an ordinary JPEG the region that is looked at; batches are the same."""

from typing import Any

import numpy as np
import pytest
import simplejpeg

from augpipe import Recipe, SampleError
from augpipe.decoding import jpeg
from augpipe.ops import CenterCrop, RandomResizedCrop, Rotate
from tests.augpipe.decoding.image_files import encoded, exif, scene
from tests.augpipe.loader.tiled_loaders import Decodes, decoding_whole, make
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
    monkeypatch.setattr("augpipe.gpu_ops.jpeg.decode.HAS_WIDE_VECTORS", False)
    decodes = Decodes(monkeypatch)
    assert assert_same(make(PLAIN, CROPS), expected) == len(PLAIN)
    wholes, regions = decodes.look()
    assert len(wholes) == len(PLAIN) and not regions
