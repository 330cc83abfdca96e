"""Loaders over JPEGs of every kind, on every backend: what is decoded in part has the pixels of the whole."""

from itertools import islice
from typing import Any

import pytest

from augpipe import Loader, Recipe, SampleError, View
from augpipe.ops import CenterCrop, Flip, MultiResolutionCrop, Rotate
from tests.augpipe.decoding.image_files import encoded, scene
from tests.augpipe.loader.jpeg_loaders import (
    damaged,
    decoding_whole,
    header_of,
    jpeg_files,
    noise,
    of_kind,
    turned,
    whole,
)
from tests.augpipe.loader.loader_sources import arrays
from tests.contracts.backends import JPEGS, Backend, numbers, plain

SIDES = ((97, 131), (70, 66), (40, 75), (90, 80), (100, 140), (17, 60), (131, 66), (1, 70))
FILES = jpeg_files(16, sides=SIDES)
MIXED: list[Any] = [*FILES[:8], *JPEGS[:3], *arrays(2, 30, 22), *[turned(FILES[4], i) for i in range(2, 9)]]
MIXED += [scene(30, 22)[..., 0]]
ZOOMS = Recipe(name="zooms", ops=(MultiResolutionCrop(size=4, scales=(11, 23)), Rotate()))
"""An image of 100 pixels is decoded at 1/8 or 1/4 of its size."""
FULL_SIZE = Recipe(name="full size", ops=(Rotate(), MultiResolutionCrop(size=4, scales=(90, 120)), Flip()))
CENTRE = Recipe(name="centre", ops=(CenterCrop(size=(4, 3), scale=45),))
"""Looks at the very middle, of an image of 100 pixels at half its size."""
MIDDLE = Recipe(name="middle", ops=(CenterCrop(size=(4, 3), scale=100),))
VIEWS = Recipe(
    name="views",
    views=(
        View(ops=(MultiResolutionCrop(size=3, scales=(50,)),), count=2),
        View(ops=(CenterCrop(size=(2, 4), scale=40),)),
    ),
)
RECIPES = {recipe.name: recipe for recipe in (ZOOMS, FULL_SIZE, CENTRE, VIEWS)}
ALL_BYTES = sum(header_of(data).height * header_of(data).width * 4 for data in FILES)
"""Counts of pixels, before they are scaled."""
SKIP: dict[str, Any] = {"on_error": "skip"}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("options", [{}, {"batch_size": 1, "dtype": "float16"}])
@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_epochs_are_those_of_whole_decodes(backend: Backend, recipe: Recipe, options: dict[str, Any]) -> None:
    loader, other = (made(MIXED, recipe, **options) for made in (backend.loader, plain))
    for _ in range(2):
        assert backend.assert_as_plain(loader, whole(other)) == len(MIXED)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("room", [0, ALL_BYTES // 60, 4 * ALL_BYTES])
@pytest.mark.parametrize("recipe", [ZOOMS, FULL_SIZE, VIEWS], ids=lambda recipe: recipe.name)
def test_a_cache(backend: Backend, recipe: Recipe, room: int) -> None:
    """What it takes is decoded whole, for another epoch looks elsewhere; of what does not fit, regions are enough."""
    loader, other = backend.loader(FILES, recipe, cache="host", cache_bytes=room), plain(FILES, recipe)
    for _ in range(3):
        assert backend.assert_as_plain(loader, whole(other)) == len(FILES)
    assert (numbers(loader).hits > 0) == (room > 0)


def test_a_resume_by_another_backend(backend: Backend) -> None:
    expected = whole(plain(FILES, ZOOMS))
    for before, after in ((backend.loader, plain), (plain, backend.loader), (backend.loader, backend.loader)):
        loader, other = before(FILES, ZOOMS), after(FILES, ZOOMS)
        start = list(islice(loader, 2))
        other.load_state_dict(loader.state_dict())
        assert backend.assert_as_plain([*start, *other], expected) == len(FILES)


def test_ranks(backend: Backend) -> None:
    for rank in range(3):
        options = {"rank": rank, "world_size": 3}
        backend.assert_as_plain(backend.loader(MIXED, ZOOMS, **options), whole(plain(MIXED, ZOOMS, **options)))


# Files that are not what they say


@pytest.mark.parametrize("recipe", [MIDDLE, CENTRE], ids=lambda recipe: recipe.name)
def test_damage_below_the_region_is_not_noticed(backend: Backend, recipe: Recipe) -> None:
    """Be it decoded at full size or at half of it."""
    sound = encoded(noise(100, 140), "JPEG", restart_marker_rows=1)
    last = sound.rindex(b"\xff\xd5") + 2
    bad = sound[:last] + b"\xff\0" * 30 + sound[last + 60 :]  # no code is of ones alone
    with pytest.raises(SampleError), decoding_whole():
        list(plain([bad], recipe))
    found, expected = backend.loader([*FILES[:3], bad], recipe), plain([*FILES[:3], sound], recipe)
    assert backend.assert_as_plain(found, expected) == 4


ZOOMS_IN_TWO = Recipe(name="zooms in two", ops=(MultiResolutionCrop(size=4, scales=(13, 100)),))
"""An image of 100 pixels is decoded at 1/4 or at full size."""
QUARTER_BYTES = 25 * 35 * 4 + 16


def pair(backend: Backend, files: list[Any], **options: Any) -> tuple[Loader, Loader]:
    """(the one under test, the plain one), with caches on the host that hold as much."""
    settings: dict[str, Any] = {**SKIP, "batch_size": 2, "num_threads": 1, "cache": "host", **options}
    return backend.loader(files, ZOOMS_IN_TWO, **settings), plain(files, ZOOMS_IN_TWO, **settings)


def test_a_replacement_that_the_cache_knows_at_another_scale(backend: Backend) -> None:
    """Its region is its own, not that of the image whose place it takes."""
    files = [damaged(FILES[4]), FILES[12]]
    loader, other = pair(backend, files, cache_bytes=QUARTER_BYTES)
    for _ in range(12):
        assert backend.assert_as_plain(loader, whole(other)) == 2
    assert numbers(loader).num_held == 1 and numbers(loader).hits > 0 and numbers(loader).misses > 2


def test_a_replacement_in_a_batch_that_the_cache_knows(backend: Backend) -> None:
    """Those others in the batch that have to be read after all are not mistaken for damaged ones."""
    files = [FILES[4], of_kind(noise(400, 560), "4:2:0"), FILES[12], FILES[4]]
    loader, other = pair(backend, files, shuffle=False, rank=0, world_size=2, cache_bytes=2 * QUARTER_BYTES)
    for epoch in range(20):
        if epoch == 6:
            for one in (loader, other):
                one.source.contents[0] = OSError("it is gone")
        assert backend.assert_as_plain(loader, whole(other)) == 2
    assert numbers(loader).num_held == 2
    assert loader.skipped == other.skipped and set(loader.skipped) == {0}


def test_two_images_replaced_at_once(backend: Backend) -> None:
    cut = [data[: len(data) // 2] for data in JPEGS[:8]]
    files = [content for both in zip(cut, FILES, strict=False) for content in both]
    options: dict[str, Any] = {**SKIP, "batch_size": 16}
    loader, other = backend.loader(files, ZOOMS, num_threads=4, **options), plain(files, ZOOMS, **options)
    for _ in range(5):
        assert backend.assert_as_plain(loader, whole(other)) == 16
    assert loader.skipped == other.skipped and set(loader.skipped) == set(range(0, 16, 2))
