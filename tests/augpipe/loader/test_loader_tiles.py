"""What our own decoder does for loaders over tile-addressable JPEGs: far less is decoded, and damage is noticed."""

from typing import Any

import numpy as np
import pytest

from augpipe import Recipe, SampleError
from augpipe.ops import CenterCrop, MultiResolutionCrop
from augpipe.preview import over_epochs
from augpipe.recipes import deep_image
from tests.augpipe.decoding.image_files import scene
from tests.augpipe.decoding.tiled_files import header_of, table_of, tiled, tiles_in, with_table, without_table
from tests.augpipe.loader.loader_sources import PAPER, SEVERAL_VIEWS, MemorySource, arrays, jpegs
from tests.augpipe.loader.tiled_loaders import Decodes, decoding_whole, make, tiled_files, turned, whole
from tests.contracts.backends import assert_same

FILES = tiled_files(32)
MIXED: list[Any] = [
    *FILES[:16],
    *jpegs(6),
    *arrays(3),
    *[turned(FILES[4 + i], i) for i in range(2, 9)],
    without_table(FILES[4]),
    scene(90, 70)[..., 0],
]
CENTRE = Recipe(name="centre", ops=(CenterCrop(size=24, scale=120),))
"""Looks at the middle ninth or less; images of 240 pixels and more are decoded at half size."""
LARGE = [tiled(scene(512, 640, seed), "4:2:0") for seed in range(6)]


ALL_BYTES = sum(header_of(data).height * header_of(data).width * 4 for data in FILES)
"""The bytes of all pixels, before they are scaled."""


# What is decoded


@pytest.mark.parametrize(("recipe", "share"), [(MultiResolutionCrop(size=224, scales=(512,)), 0.34), (None, 0.5)])
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
def test_what_a_cache_takes_is_decoded_whole_and_of_the_rest_tiles(room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another epoch looks elsewhere in an image; views of one share a decode."""
    loader = make(FILES, SEVERAL_VIEWS, cache="host", cache_bytes=room)
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


# Files that are not what they say


def longer(data: bytes, which: int) -> bytes:
    """A file of which one tile goes on behind its last block, which the table agrees with."""
    tiles, table = tiles_in(data), table_of(data)
    stop = int(tiles.bounds[which + 1]) - 2
    lengths = table.lengths.copy()
    lengths[which] += 30
    return with_table(data[:stop] + b"\x55" * 30 + data[stop:], table._replace(lengths=lengths))


def test_bytes_behind_a_tile_are_damage_wherever_the_cut_ends() -> None:
    """Before the end mark of a whole JPEG such bytes do no harm; that of a cut was a restart marker."""
    one = Recipe(name="one", ops=(CenterCrop(size=4, scale=160),))
    good = tiled(scene(160, 160), "4:4:4", tile=(32, 16))
    tiles = tiles_in(good)
    middle = 80 // tiles.tile_height * tiles.num_columns + 80 // tiles.tile_width
    for which in (middle - tiles.num_columns, middle):
        bad = longer(good, which)
        with pytest.raises(SampleError, match="extraneous bytes"), decoding_whole():
            list(make([bad], one))
        with pytest.raises(SampleError, match=r"^photo 0\.jpg: damaged JPEG: .*extraneous bytes"):
            list(make([bad], one))
    last = longer(good, tiles.bounds.size - 2)
    assert_same(make([last], PAPER), whole(make([last], PAPER)))
