"""Ops within ops: what each draws, and that it acts on those images alone that it is applied to."""

import numpy as np
import pytest

from augpipe import Augment, Recipe, ops, plan, recipes
from augpipe.gpu_ops.random.philox import draws, seed_key
from augpipe.ops.frame import Frame
from augpipe.ops.frame_part import PartOfFrame
from augpipe.ops.random_words import RandomWords, Stream, stream_id

NUM = 60
SIZES = [(300 + i, 400 - i) for i in range(NUM)]

CHAINED = Recipe(
    ops=(
        ops.RandomResizedCrop(size=64),
        ops.SomeOf(
            num=(0, 3),
            ops=(
                ops.LensDistortion(),
                ops.OneOf(ops=(ops.Rotate(), ops.Translate(), ops.Blur(), ops.Posterize(bits=(2, 3)))),
                ops.AllOf(ops=(ops.Shear(about="corner"), ops.Equalize(), ops.OneOf(ops=(ops.Hue(), ops.Solarize())))),
                ops.ColorCast(),
                ops.Vignette(),
            ),
        ),
        ops.OneOf(ops=(ops.ColorCast(), ops.AllOf(ops=(ops.Vignette(), ops.Gamma(), ops.Stretch())), ops.Blur())),
    )
)


def as_bytes(rows: np.ndarray) -> list[bytes]:
    return [row.tobytes() for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize(
    "recipe",
    [recipes.trivial_augment_wide(), recipes.auto_augment(), recipes.timm("rand-m9-n3-mstd0.5-inc1"), CHAINED],
    ids=["trivial_augment_wide", "auto_augment", "timm", "chained"],
)
def test_an_image_is_planned_alike_in_any_company(recipe: Recipe) -> None:
    """Bit for bit: alone, in fours, and together with all others."""
    ids = np.arange(NUM) * 7919
    together = as_bytes(plan(recipe, ids, sizes=SIZES, epoch=3, seed=5).rows)
    for num in (1, 4):
        apart = [
            row
            for first in range(0, NUM, num)
            for row in as_bytes(
                plan(recipe, ids[first : first + num], sizes=SIZES[first : first + num], epoch=3, seed=5).rows
            )
        ]
        assert apart == together


def test_words_of_several_ops_are_those_of_each() -> None:
    stream = Stream(seed_key(9), 4, np.arange(50, 60).astype(np.uint32), "one_of:0:0")
    words = RandomWords(stream.words(2), stream)
    rows = [np.array([0, 7]), np.array([], np.int64), np.array([1, 2, 9])]
    asked = [("rotate", 2), ("blur", 3), ("all_of", 1)]
    for (name, num), own, made in zip(asked, rows, words.nested_apart(asked, rows), strict=True):
        expected = words.nested(name, num, own)
        np.testing.assert_array_equal(made.words[:, :num], expected.words)
        np.testing.assert_array_equal(expected.words, draws(9, 4, 50 + own, stream_id(f"one_of:0:0/{name}"), num))
        inner, expected_inner = (w.nested("flip", 1, slice(None)) for w in (made, expected))
        np.testing.assert_array_equal(inner.words, expected_inner.words)


def test_draws_within_an_op_stay_what_they_are() -> None:
    """These change only where a release says that draws do."""
    made = plan(recipes.auto_augment(), [3, 14, 159], sizes=[(300, 400)] * 3, epoch=2, seed=7)
    assert [text for i in range(3) for key, text in made.captions(i) if key == "one_of"] == GOLDEN


GOLDEN = ["saturation 0.20, solarize from 57", "equalize, equalize"]


def test_each_number_of_ops_is_as_likely_and_each_op_too() -> None:
    num = 3000
    group = ops.SomeOf(num=(1, 3), ops=(ops.Flip(), ops.Rotate(), ops.Blur(), ops.Gamma()), p=1.0)
    applied = plan(Recipe(ops=(group,)), range(num), sizes=[(30, 40)] * num).rows["drawn"]["some_of"]["applied"]
    counts = np.bincount(applied.sum(axis=1), minlength=5)
    assert counts[[0, 4]].tolist() == [0, 0] and np.abs(counts[1:4] - num / 3).max() < 4 * (num * 2 / 9) ** 0.5
    assert np.abs(applied.sum(axis=0) - num / 2).max() < 4 * (num / 4) ** 0.5


def test_some_of_has_room_for_as_many_as_act_at_once() -> None:
    group = ops.SomeOf(num=(0, 2), ops=(ops.Posterize(bits=(4, 4)), ops.Invert(p=1.0), ops.Solarize(), ops.Sharpen()))
    nested = ops.OneOf(ops=(group, ops.Rotate()))
    for one in (group, nested):
        rows = plan(Recipe(ops=(one, ops.Gamma())), [1], sizes=[(30, 40)]).rows
        assert (rows["steps"].shape, rows["tables"].shape) == ((1, 3), (1, 3, 256))
    rare = ops.SomeOf(num=(3, 3), ops=(ops.Gamma(), *(ops.Saturation() for _ in range(4))))
    rows = plan(Recipe(ops=(rare,)), [1], sizes=[(30, 40)]).rows
    assert rows["tables"].shape == (1, 1, 256)  # a table in each of three places would take more


def test_some_of_its_ops_act_in_the_order_of_the_list() -> None:
    levels = np.arange(256, dtype=np.uint8).reshape(16, 16)
    image = np.repeat(levels[:, :, None], 3, axis=2)
    changes = (lambda v: v & 0xF0, lambda v: 255 - v, lambda v: np.where(v < 100, v, 255 - v))
    listed = (ops.Posterize(bits=(4, 4), p=1.0), ops.Invert(p=1.0), ops.Solarize(threshold=(100, 100), p=1.0))
    recipe = Recipe(ops=(ops.SomeOf(num=(1, 2), ops=listed),))
    made = plan(recipe, range(NUM), sizes=[levels.shape] * NUM)
    images = Augment(recipe, dtype="uint8", layout="NHWC", framework="numpy")([image] * NUM, plan=made)
    applied = made.rows["drawn"]["some_of"]["applied"]
    assert len(np.unique(applied, axis=0)) == 6
    for found, which in zip(images, applied, strict=True):
        expected = levels.astype(np.int64)
        for change, acts in zip(changes, which, strict=True):
            expected = change(expected) if acts else expected
        np.testing.assert_array_equal(found[:, :, 0], expected)


def test_ops_that_are_not_applied_draw_nothing() -> None:
    made = plan(CHAINED, range(NUM), sizes=SIZES)
    drawn = made.rows["drawn"]["one_of"]
    assert (drawn["color_cast"]["shift"][~drawn["applied"][:, 0]] == 0).all()
    assert (drawn["all_of"]["vignette"]["strength"] > 0).tolist() == drawn["applied"][:, 1].tolist()


def test_a_part_of_a_frame_changes_its_images_alone() -> None:
    whole = Frame(np.full(5, 30), np.full(5, 40))
    ops.Flip(p=1).apply(whole, {"flipped": np.ones(5, np.bool_)})
    part = PartOfFrame(whole, np.array([1, 4]))
    ops.Translate(unit="px").apply(part, {"horizontal": np.array([3.0, 4.0]), "vertical": np.zeros(2)})
    ops.Blur().apply(part, {"sigma_px": np.array([1.0, 2.0])})
    assert whole.after_lens[:, 0, 2].tolist() == [0, 3, 0, 0, 4]  # to the right of a mirrored image
    assert whole.after_lens[:, 0, 0].tolist() == [-1] * 5
    assert whole.blur_variance is not None and whole.blur_variance.tolist() == [0, 1, 0, 0, 4]
    nested = PartOfFrame(part, np.array([1]))
    ops.ColorCast().apply(nested, {"shift": np.array([[5.0, 6.0, 7.0]])})
    assert whole.has_cast and whole.cast[4].tolist() == [5, 6, 7] and not whole.cast[:4].any()
    assert nested.heights.tolist() == [30]


def test_a_part_misses_what_is_not_shared_with_its_whole() -> None:
    """So an attribute that is added to frames alone is noticed."""
    part = PartOfFrame(Frame(np.full(5, 30), np.full(5, 40)), np.array([1]))
    known = {
        "crop_x",
        "crop_y",
        "crop_width",
        "crop_height",
        "is_cropped",
        "is_edge_kept",
        "is_edge_sharp",
        "is_unpadded",
        "kept_heights",
        "kept_widths",
        "lens_sizes",
        "mean",
        "objects",
        "padded",
        "std",
    }  # of ops that groups do not hold
    for name in vars(part.whole):
        assert hasattr(part, name) != (name in known), name
