"""Geometry that undoes itself, commutes, or leaves even images even: whatever the angle, the factor and the size."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from augpipe import Augment, Recipe, ops, plan
from tests.examples import examples
from tests.parity.images import noise
from tests.parity.strategies import BORDERS, recipes

LENGTHS = st.one_of(st.integers(1, 5), st.integers(1, 70))
SIZES = st.tuples(LENGTHS, LENGTHS)
ANGLES = st.floats(1.0, 180.0)
FACTORS = st.floats(0.5, 2.0)
IDS = st.integers(0, 2**32 - 1)
BORDER = st.sampled_from(BORDERS)
TOLERANCE = 0.05
"""Levels, on noise: float32 coordinates are off by up to 1e-4 pixels of these small images."""


def augmented(image: np.ndarray, chosen: list[ops.Op], sample_id: int = 0, border: str = "context") -> np.ndarray:
    return Augment(Recipe(border=border, ops=tuple(chosen)), layout="NHWC")(image, sample_ids=[sample_id])


def angles(recipe: Recipe, num: int, size: tuple[int, int]) -> list[list[float]]:
    """For each of `num` samples the angles of the recipe's rotations."""
    drawn = plan(recipe, range(num), sizes=[size] * num).rows["drawn"]
    return [[float(row[name]["degrees"]) for name in drawn.dtype.names if name.startswith("rotate")] for row in drawn]


@examples(30)
@given(recipe=recipes(), sizes=st.lists(SIZES, min_size=2, max_size=7), data=st.data())
def test_the_same_alone_and_in_any_batch(recipe: Recipe, sizes: list[tuple[int, int]], data: st.DataObject) -> None:
    """Plans and pixels, on one thread and on several, to the bit."""
    if any(op.is_crop and op.op == "center_crop" for op in recipe.ops):
        sizes = [(height + 40, width + 60) for height, width in sizes]
    images = [noise(*size, seed=i) for i, size in enumerate(sizes)]
    ids = data.draw(st.lists(IDS, min_size=len(sizes), max_size=len(sizes)))
    whole = plan(recipe, ids, sizes=sizes)
    batch = Augment(recipe, num_threads=3)(images, plan=whole)
    for position in data.draw(st.permutations(range(len(sizes))))[:3]:
        alone = plan(recipe, ids[position : position + 1], sizes=sizes[position : position + 1])
        assert alone.rows.tobytes() == whole.rows[position : position + 1].tobytes()
        image = Augment(recipe, num_threads=1)(images[position : position + 1], plan=alone)[0]
        assert np.asarray(image).tobytes() == np.asarray(batch[position]).tobytes()


@given(size=SIZES, right=st.floats(-1, 1), down=st.floats(-1, 1), border=BORDER)
def test_a_move_there_and_back_is_the_image(size: tuple[int, int], right: float, down: float, border: str) -> None:
    image = noise(*size)
    there = ops.Translate(horizontal=(right, right), vertical=(down, down))
    back = ops.Translate(horizontal=(-right, -right), vertical=(-down, -down))
    assert np.abs(augmented(image, [there, back], border=border) - image).max() < TOLERANCE


@given(size=SIZES, turns=st.lists(st.integers(0, 3), min_size=1, max_size=5), border=BORDER)
def test_four_quarters_are_none(size: tuple[int, int], turns: list[int], border: str) -> None:
    image = noise(*size)
    chosen = [ops.QuarterTurn(turns=(num,)) for num in [*turns, -sum(turns) % 4]]
    assert np.array_equal(augmented(image, chosen, border=border), image)


@given(size=SIZES, sample_id=IDS, border=BORDER)
def test_a_flip_before_a_perspective_is_that_of_the_flipped_image(
    size: tuple[int, int], sample_id: int, border: str
) -> None:
    photograph, seen = noise(*size), ops.Perspective(distortion=0.3)
    flip = ops.Flip(p=1.0)
    image = augmented(photograph, [flip, seen], sample_id, border)
    assert np.abs(augmented(photograph[:, ::-1], [seen], sample_id, border) - image).max() < TOLERANCE


@given(size=SIZES, direction=st.sampled_from(["horizontal", "vertical"]), border=BORDER)
def test_two_flips_are_none(size: tuple[int, int], direction: str, border: str) -> None:
    image = noise(*size)
    flip = ops.Flip(p=1.0, direction=direction)
    assert np.array_equal(augmented(image, [flip, flip], border=border), image)
    once = Augment(Recipe(border=border, ops=(flip,)), layout="NHWC", dtype="uint8")(image)
    assert np.array_equal(augmented(once, [flip], border=border), image)


@given(size=SIZES, degrees=ANGLES, border=st.sampled_from(["context", "reflect", "edge"]))
def test_there_and_back_again_is_the_image(size: tuple[int, int], degrees: float, border: str) -> None:
    """A few samples are turned twice by plus or minus an angle: those whose signs differ are as they were."""
    image = noise(*size)
    turn = ops.Rotate(max_deg=degrees, step=degrees)
    recipe = Recipe(border=border, ops=(turn, turn))
    opposite = [i for i, (first, last) in enumerate(angles(recipe, 8, size)) if first == -last]
    assert opposite
    assert np.abs(augmented(image, [turn, turn], opposite[0], border) - image).max() < TOLERANCE


@given(size=SIZES, across=FACTORS, down=FACTORS, sample_id=IDS, border=BORDER)
def test_a_flipped_image_gives_the_flipped_image(
    size: tuple[int, int], across: float, down: float, sample_id: int, border: str
) -> None:
    """Stretches and the paper's lenses know no left and right."""
    photograph = noise(*size)
    chosen = [ops.LensDistortion(), ops.Stretch(horizontal=(across, across), vertical=(down, down))]
    image = augmented(photograph, chosen, sample_id, border)
    flipped = augmented(photograph[:, ::-1], chosen, sample_id, border)
    assert np.abs(flipped[:, ::-1] - image).max() < TOLERANCE
    mirrored = augmented(photograph, [*chosen, ops.Flip(p=1.0)], sample_id, border)
    assert np.abs(mirrored[:, ::-1] - image).max() < TOLERANCE


@given(size=SIZES, left=st.integers(0, 40), top=st.integers(0, 40), sample_id=IDS)
def test_where_an_image_begins_makes_no_difference(size: tuple[int, int], left: int, top: int, sample_id: int) -> None:
    """A crop's surroundings look the same when more image is added beyond them."""
    photograph = noise(150 + 2 * size[0], 150 + 2 * size[1])  # even, so that no half is rounded
    chosen = [ops.CenterCrop(size=40), ops.Rotate(), ops.LensDistortion(), ops.Flip()]
    image = augmented(photograph, chosen, sample_id)
    # as much on either side, so that the crop stays where it was
    wider = np.pad(photograph, ((top, top), (left, left), (0, 0)), mode="edge")
    assert np.abs(augmented(wider, chosen, sample_id) - image).max() < TOLERANCE
