"""Regions of JPEGs with DALI: it is asked for nothing else, and no bit differs from whole decodes by our own."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("nvidia.dali")

from hypothesis import given, settings
from hypothesis import strategies as st

from augpipe import Recipe
from augpipe.dali.decoder import DaliDecoder
from augpipe.ops import Flip, MultiResolutionCrop, Rotate
from augpipe.planning.kernel_rows import dct_factors
from augpipe.recipes import deep_image
from tests.augpipe.dali.loader_pairs import mixed_bag
from tests.augpipe.decoding.image_files import scene
from tests.augpipe.loader.jpeg_loaders import Decodes, header_of, jpeg_files, make, of_kind, turned, whole
from tests.augpipe.loader.loader_sources import PAPER, RECIPES, arrays, jpegs
from tests.contracts.backends import assert_same
from tests.parity.strategies import BORDERS

FILES = jpeg_files(32)
MIXED: list[Any] = [*FILES, *[turned(FILES[4 + i], i) for i in range(2, 9)], *arrays(2), *jpegs(4)]
FULL_SIZE = Recipe(name="full size", ops=(Rotate(), MultiResolutionCrop(size=60, scales=(90, 120)), Flip()))
LARGE = [of_kind(scene(512, 640, seed), "4:2:0") for seed in range(6)]


class Submitted:
    """What DALI was asked for since the last look: pixels of each region, and of the image that it is from."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._files: list[int] = []
        self._regions: list[int] = []
        submit = DaliDecoder.submit

        def submitted(decoder: DaliDecoder, encoded: list[bytes], regions: Any, whole: Any) -> None:
            headers = [header_of(data) for data in encoded]
            self._files += [header.height * header.width for header in headers]
            self._regions += ((regions[:, 2] - regions[:, 0]) * (regions[:, 3] - regions[:, 1])).tolist()
            submit(decoder, encoded, regions, whole)

        monkeypatch.setattr(DaliDecoder, "submit", submitted)

    def look(self) -> tuple[list[int], list[int]]:
        """(images, regions)."""
        found = self._files[:], self._regions[:]
        self._files.clear()
        self._regions.clear()
        return found


def test_dali_is_asked_for_what_is_cropped_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    loader = make(LARGE, deep_image(224, (512,)), backend="dali")
    decodes, submitted = Decodes(monkeypatch), Submitted(monkeypatch)
    for _ in range(4):
        assert sum(len(batch) for batch in loader) == len(LARGE)
    _, regions = submitted.look()
    assert len(regions) == 4 * len(LARGE) and decodes.look() == ([], [])
    assert 0.15 < np.mean(regions) / (512 * 640) < 0.5


@pytest.mark.parametrize("recipe", [*RECIPES.values(), FULL_SIZE], ids=lambda recipe: recipe.name)
def test_what_is_at_full_size_goes_to_dali(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    loader, other = make(MIXED, recipe, backend="dali"), make(MIXED, recipe)
    submitted = Submitted(monkeypatch)
    for _ in range(2):
        expected = whole(other)
        assert assert_same(loader, expected) == len(MIXED)
        takes = [isinstance(data, bytes) and header_of(data).may_scale for data in MIXED]
        num = sum(
            takes[i] and factor == 1
            for batch in expected
            for i, factor in zip(batch.sample_ids.tolist(), dct_factors(batch.plan.views).tolist(), strict=True)
        )
        assert len(submitted.look()[0]) == num > 10


def test_among_everything_that_is_read() -> None:
    contents = [*mixed_bag().values(), *FILES[:12]]
    assert assert_same(make(contents, PAPER, backend="dali"), whole(make(contents, PAPER))) == len(contents)


@settings(max_examples=25)
@given(
    border=st.sampled_from(BORDERS),
    degrees=st.floats(1, 180),
    size=st.tuples(st.integers(1, 90), st.integers(1, 90)),
    extra=st.integers(0, 120),
    seed=st.integers(0, 2**64 - 1),
)
def test_random_crops(border: Any, degrees: float, size: tuple[int, int], extra: int, seed: int) -> None:
    crop = MultiResolutionCrop(size=size, scales=(max(size) + extra,))
    recipe = Recipe(border=border, ops=(Rotate(max_deg=degrees, step=None), crop, Flip()))
    dali, native = (make(FILES, recipe, seed=seed, batch_size=16, backend=backend) for backend in ("dali", "native"))
    assert assert_same(dali, whole(native)) == len(FILES)


@pytest.mark.parametrize("room", [0, 100_000, 50_000_000])
@pytest.mark.parametrize("recipe", [PAPER, FULL_SIZE], ids=lambda recipe: recipe.name)
def test_a_cache(recipe: Recipe, room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What may be kept is decoded whole, for another epoch looks elsewhere; of what has no room, regions are enough."""
    loader = make(FILES, recipe, backend="dali", cache="host", cache_bytes=room)
    other = make(FILES, recipe)
    submitted = Submitted(monkeypatch)
    given = []
    for _ in range(3):
        assert assert_same(loader, whole(other)) == len(FILES)
        given.append(submitted.look())
    files, regions = given[0]
    assert files == regions or room == 0
    if recipe is FULL_SIZE and room < 1_000_000:
        files, regions = given[1]
        assert all(region <= file for file, region in zip(files, regions, strict=True))
        assert sum(regions) < 0.9 * sum(files)
    elif recipe is FULL_SIZE:
        assert given[1:] == [([], [])] * 2
    assert loader.cache_statistics is not None and (loader.cache_statistics.hits > 0) == (room > 0)
