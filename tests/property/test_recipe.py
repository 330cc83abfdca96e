"""Any recipe comes back from TOML, fits its schema, draws alike for a sample, and gives the oracle's pixels."""

import tomllib

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from augpipe import Augment, Recipe, View, ops, plan
from augpipe.recipes.recipe import Border
from tests.examples import examples
from tests.parity.images import noise
from tests.parity.schema import problems
from tests.parity.strategies import (
    AFFINE,
    ANY_OP,
    BORDERS,
    FLIPS,
    LENSES,
    ROTATIONS,
    borders_of,
    chains,
    ranges,
    recipes,
)
from tests.parity.table import described, expected_image

SCHEMA = Recipe.json_schema()
IDS = st.integers(0, 2**32 - 1)
SHIFTS = st.builds(ops.Translate, horizontal=ranges(-0.3, 0.3), vertical=ranges(-0.3, 0.3))
FARTHEST_PX = 2_000
"""The oracle pads an image as far as it is looked up; beyond its corner, a lens leads far."""
LENGTHS = st.one_of(st.integers(1, 5), st.integers(1, 60))


@st.composite
def any_recipes(draw: st.DrawFn) -> Recipe:
    fields = {"name": draw(st.text(max_size=20)), "channels": draw(st.sampled_from([1, 3]))}
    one_level = fields["channels"] == 1
    if draw(st.booleans()):
        views = draw(st.lists(st.builds(View, ops=chains(not one_level), count=st.integers(1, 64)), max_size=3))
        return Recipe(**fields, views=views, **draw(borders_of(*(view.ops for view in views))))
    chain = draw(chains(not one_level))
    return Recipe(**fields, ops=chain, **draw(borders_of(chain)))


@given(recipe=any_recipes())
def test_toml_gives_an_equal_recipe(recipe: Recipe) -> None:
    again = Recipe.model_validate(tomllib.loads(recipe.to_toml()))
    assert again == recipe
    assert again.to_toml() == recipe.to_toml()


@given(op=ANY_OP)
def test_every_op_comes_back_from_toml_and_json_and_fits_the_schema(op: ops.Op) -> None:
    recipe = Recipe(ops=(op,))
    assert Recipe.model_validate(tomllib.loads(recipe.to_toml())).ops == (op,)
    assert Recipe.model_validate_json(recipe.model_dump_json()) == recipe
    assert problems(tomllib.loads(recipe.to_toml()), SCHEMA, SCHEMA) == []
    assert isinstance(op.draws_text, str)


@examples(50)
@given(recipe=recipes(projective=False), height=LENGTHS, width=LENGTHS, sample_id=IDS, seed=st.integers(0, 2**64 - 1))
def test_any_recipe_on_any_image_gives_the_oracle_s_pixels(
    recipe: Recipe, height: int, width: int, sample_id: int, seed: int
) -> None:
    assert_oracle_agrees(recipe, height, width, sample_id, seed)


@examples(20)
@given(sigma_px=st.floats(0.1, 4.0), height=LENGTHS, width=st.integers(1, 5))
def test_an_image_narrower_than_its_blur_is_seen(sigma_px: float, height: int, width: int) -> None:
    """With less than half of each pixel's weight inside it."""
    recipe = Recipe(border="constant", ops=(ops.Blur(sigma_px=(sigma_px, sigma_px)),))
    assert_oracle_agrees(recipe, height, width, sample_id=0, seed=0)


@examples(20)
@given(
    lens=st.sampled_from([ops.LensDistortion(p=0.0), ops.GridDistortion(p=0.0), ops.Perspective(p=0.0)]),
    border=st.sampled_from(["constant", "wrap"]),
    height=LENGTHS,
    width=LENGTHS,
    size=st.integers(1, 70),
)
def test_what_does_not_bend_an_image_leaves_its_edges_alone(
    lens: ops.Op, border: Border, height: int, width: int, size: int
) -> None:
    """A resize behind it does not mix them with the border."""
    photograph = noise(height, width, seed=0)
    resized, found = (
        Augment(Recipe(border=border, ops=chosen), layout="NHWC")(photograph, sample_ids=[0])
        for chosen in ((ops.Resize(size=size),), (lens, ops.Resize(size=size)))
    )
    np.testing.assert_allclose(found, resized, atol=0.01)


@examples(30)
@given(
    grid=st.sampled_from(
        [ops.GridDistortion(p=1.0), ops.GridDistortion(num_steps=3, distort_limit=(-0.8, 0.8), p=1.0)]
    ),
    behind=st.sampled_from(
        [[], [ops.Flip(p=0.5)], [ops.Resize(size=90)], [ops.Resize(size=9)], [ops.CenterCrop(size=5)]]
    ),
    height=LENGTHS,
    width=LENGTHS,
)
def test_a_grid_that_stays_within_the_image_shows_no_border(
    grid: ops.Op, behind: list[ops.Op], height: int, width: int
) -> None:
    white = np.full((height, width, 3), 255, np.uint8)
    recipe = Recipe(border="constant", ops=[ops.Resize(size=40), grid, *behind])
    assert (Augment(recipe, dtype="uint8")(white, sample_ids=[0]) == 255).all()


@examples(40)
@given(
    border=st.sampled_from(BORDERS),
    before=st.one_of(AFFINE, LENSES),
    distortion=st.floats(0.01, 0.4),
    after=st.one_of(FLIPS, ROTATIONS, SHIFTS),
    height=LENGTHS,
    width=LENGTHS,
    sample_id=IDS,
)
def test_a_perspective_among_others_gives_the_oracle_s_pixels(
    border: Border, before: ops.Op, distortion: float, after: ops.Op, height: int, width: int, sample_id: int
) -> None:
    """Where the horizon stays outside: near it, float32 does not tell an image's pixels apart."""
    is_turned = isinstance(after, ops.Rotate | ops.QuarterTurn | ops.Transpose)
    assume(not is_turned or max(height, width) <= 4 * min(height, width))  # a long frame reaches it when it is turned
    recipe = Recipe(border=border, fill=(7, 200, 31), ops=(before, ops.Perspective(distortion=distortion), after))
    assert_oracle_agrees(recipe, height, width, sample_id, 0)


def assert_oracle_agrees(recipe: Recipe, height: int, width: int, sample_id: int, seed: int) -> None:
    photograph = noise(height, width, seed=sample_id)
    drawn = plan(recipe, [sample_id], sizes=[(height, width)], seed=seed)
    expected = described(drawn, 0)
    assume(np.abs(expected.source(*expected.grid())).max() < FARTHEST_PX)
    image = Augment(recipe, layout="NHWC", num_threads=1)(photograph, plan=drawn)
    expected = expected_image(photograph, drawn)
    assert image.shape == expected.shape
    error = np.abs(image - expected) * drawn.rows["std"][0] * 255
    assert error.max() < 0.05


@examples(60)
@given(recipe=recipes(normalised=False), height=LENGTHS, width=LENGTHS, sample_id=IDS)
def test_levels_stay_levels(recipe: Recipe, height: int, width: int, sample_id: int) -> None:
    """Before normalisation no value leaves 0..255, and none is missing."""
    photograph = noise(height, width, seed=sample_id)
    image = Augment(recipe)(photograph, sample_ids=[sample_id])
    assert np.isfinite(image).all()
    assert image.min() >= 0 and image.max() <= 255
    levels = Augment(recipe, dtype="uint8")(photograph, sample_ids=[sample_id])
    assert np.array_equal(levels, np.floor(image + np.float32(0.5)).astype(np.uint8))


@examples(50)
@given(lens=LENSES, sample_id=IDS)
def test_no_lens_folds_the_image(lens: ops.Op, sample_id: int) -> None:
    """Within the frame the look-up keeps its orientation: its Jacobian's determinant is positive."""
    if isinstance(lens, ops.OpticalDistortion):  # says of itself from which k on it folds
        assume(lens.k[0] >= (-0.33 if lens.mode == "fisheye" else -0.36))
    row = plan(Recipe(ops=(lens,)), [sample_id], sizes=[(60, 80)]).rows[0]
    k1, k2, k3, p1, p2 = row["lens"]
    angle, radius = np.meshgrid(np.linspace(0, 2 * np.pi, 41), np.linspace(0, 1, 41))
    x, y, r2 = radius * np.cos(angle), radius * np.sin(angle), radius**2
    radial = 1 + k1 * r2 + k2 * r2**2 + k3 * r2**3
    slope = 2 * (k1 + 2 * k2 * r2 + 3 * k3 * r2**2)
    xx = radial + slope * x * x + 2 * p1 * y + 6 * p2 * x
    yy = radial + slope * y * y + 6 * p1 * y + 2 * p2 * x
    xy = slope * x * y + 2 * p1 * x + 2 * p2 * y
    assert (xx * yy - xy**2).min() > 0
