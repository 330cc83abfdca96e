"""Batches from regions are, in every bit, those from whole images, whatever recipe, image and border."""

from typing import Any

import numpy as np
import pytest
import simplejpeg
from hypothesis import HealthCheck, assume, event, given
from hypothesis import strategies as st

from augpipe import Recipe, View, ops
from augpipe.planning.kernel_rows import dct_factors
from augpipe.planning.plan import refusals
from augpipe.recipes import deep_image
from tests.augpipe.loader.jpeg_loaders import SIDES, Decodes, jpeg_files, make, whole
from tests.augpipe.loader.loader_sources import arrays, as_array, views_of
from tests.contracts.backends import assert_same
from tests.examples import examples
from tests.parity import strategies

FILES = jpeg_files(32)
"""Each of 8 sizes in each of 4 kinds of sampling."""


@st.composite
def recipes_of_views(draw: st.DrawFn) -> Recipe:
    """Recipes of one to three views that a batch can hold: each has a crop."""
    chains, views = [], []
    for _ in range(draw(st.integers(1, 3))):
        chain = [op for op in draw(strategies.chains()) if not op.is_crop]
        place = draw(st.integers(0, len(chain)))
        chains.append(strategies.padded_first([*chain[:place], *draw(strategies.CROP_CHAINS), *chain[place:]]))
        views.append(View(ops=chains[-1], count=draw(st.integers(1, 2))))
    return Recipe(views=views, **draw(strategies.borders_of(*chains)))


@pytest.fixture(scope="module")
def decodes() -> Any:
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield Decodes(monkeypatch)


@examples(25, suppress_health_check=[HealthCheck.too_slow])
@given(recipe=recipes_of_views(), seed=st.integers(0, 2**64 - 1))
def test_every_recipe(recipe: Recipe, seed: int, decodes: Decodes) -> None:
    usable = [i for i, reason in enumerate(refusals(recipe, SIDES * 4)) if reason is None]
    assume(usable)
    loader = make([FILES[i] for i in usable], recipe, seed=seed, shuffle=False)
    decodes.look()
    found = list(loader)
    num_whole, num_regions = map(len, decodes.look())
    eighths = [usable[i] for batch in found for i in batch.sample_ids[dct_factors(batch.plan.views) == 8]]
    num_left = sum(simplejpeg.decode_jpeg_header(FILES[i])[3] == "422" for i in eighths)
    assert (num_whole, num_regions) == (num_left, len(usable) - num_left)
    loader.set_epoch(0)
    assert assert_same(found, whole(loader)) == len(usable)
    event(f"views: {len(found[0].plan.views)}")


@examples(12, suppress_health_check=[HealthCheck.too_slow])
@given(recipe=recipes_of_views(), seed=st.integers(0, 2**64 - 1), batch_size=st.integers(3, 9))
def test_guests_that_are_decoded_where_they_are_pasted(recipe: Recipe, seed: int, batch_size: int) -> None:
    """What is mixed with samples of the same batch, which are decoded for their own sake, is mixed alike elsewhere."""
    assume(None in refusals(recipe, SIDES * 4))
    usable = [FILES[i] for i, reason in enumerate(refusals(recipe, SIDES * 4)) if reason is None]
    cut = recipe.model_copy(update={"mixing": (ops.CutMix(p=0.9),)})
    (expected,) = make(usable, cut, seed=seed, shuffle=False, batch_size=len(usable))
    found = [*make(usable, cut, seed=seed, shuffle=False, batch_size=batch_size)]
    for view, images in enumerate(views_of(expected)):
        np.testing.assert_array_equal(np.concatenate([as_array(views_of(batch)[view]) for batch in found]), images)


@examples(20)
@given(recipe=strategies.recipes(), which=st.integers(0, 31), seed=st.integers(0, 2**64 - 1))
def test_recipes_without_a_crop(recipe: Recipe, which: int, seed: int) -> None:
    """They keep the whole image, or what a stretch leaves of it."""
    assume(refusals(recipe, [SIDES[which % 8]]) == [None])
    loader = make([FILES[which]], recipe, seed=seed, batch_size=1)
    found = list(loader)
    loader.set_epoch(0)
    assert assert_same(found, whole(loader)) == 1


def test_images_were_scaled_while_they_were_decoded(decodes: Decodes) -> None:
    """That the comparison above meets every DCT factor."""
    for scale in (8, 16, 40, 120):
        list(make([*FILES[::8], *FILES[4::8], *arrays(2)], deep_image(8, (scale,))))
    assert decodes.factors == {1, 2, 4, 8}
