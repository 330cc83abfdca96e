"""Plans: golden values, who depends on what, saving and replaying, views, and what is refused."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from augpipe import Augment, Plan, Recipe, View, ops, plan, recipes
from augpipe.gpu_ops.image.plan_records import BORDERS, PLAN_FIELDS
from augpipe.ops.random_words import stream_id
from augpipe.planning.plan import refusals
from tests.parity.table import CASES, recipes_of

OTHERS = Recipe(
    border="reflect",
    fill=(1.0, 2.0, 3.0),
    ops=(
        ops.RandomResizedCrop(size=(64, 96)),
        ops.Rotate(max_deg=30, step=None),
        ops.BrownConrady(),
        ops.Stretch(),
        ops.Rotate(),
    ),
)
PROJECTED = Recipe(
    ops=(
        ops.Shear(about="corner", p=0.8),
        ops.Translate(),
        ops.BrownConrady(p=0.5),
        ops.Perspective(p=0.5),
        ops.QuarterTurn(),
        ops.Zoom(),
        ops.CenterCrop(size=(64, 96), scale=110),
        ops.Blur(),
    ),
)
SIZES = [(375, 500), (500, 333), (1024, 768)]


def drawn(recipe: Recipe, ids: object, seed: int = 0, epoch: int = 0, view: int = 0) -> np.ndarray:
    num = len(ids)  # type: ignore[arg-type]
    return plan(recipe, ids, sizes=[(400, 300)] * num, seed=seed, epoch=epoch).views[view]["drawn"]


# golden values

# They may change only with a new major version, and then the changelog says so: people rely on "the same seed, the same
# images". A new op, another batch size or a faster kernel are no reasons.
GOLDEN_IDS = [0, 7, 2**32 - 1]
GOLDEN_DEEP_IMAGE = {  # seed 2024, epoch 3
    "color_cast": {"shift": [[-2, -19, 0], [14, -15, -3], [-20, 0, 0]]},
    "vignette": {"radius": [0.34, 0.72, 0.46], "strength": [0.42, 0.46, 0.18]},
    "lens_distortion": {"kind": [1, 3, 2], "strength": [0.1, 0.196, 0.128]},
    "rotate": {"degrees": [-2, -10, 1]},
    "flip": {"flipped": [True, False, False]},
    "multi_resolution_crop": {"scale": [256, 512, 256], "x": [109, 200, 5], "y": [9, 302, 26]},
}
GOLDEN_OTHERS = {  # the largest seed and epoch
    "rotate": {"degrees": [-15.217064134776592, 7.702942010946572, 13.34649852477014]},
    "brown_conrady": {
        "k1": [-0.1350526168011129, -0.07980340905487537, 0.12305236821994187],
        "k2": [0, 0, 0],
        "k3": [0, 0, 0],
        "p1": [-0.004323102664202452, 0.014346030829474329, 0.01201024132780731],
        "p2": [0.00593904474750161, 0.013653203919529917, -0.017959363302215935],
    },
    "random_resized_crop": {
        "x": [89, 75, 30],
        "y": [31, 147, 394],
        "width": [292, 219, 311],
        "height": [225, 208, 404],
    },
    "stretch": {
        "horizontal": [1.0476420987397432, 1.0474029614706524, 1.2422130059683696],
        "vertical": [1.1712342679849825, 1.1079928883933463, 1.125721759616863],
    },
    "rotate_2": {"degrees": [1, 5, -4]},
}
GOLDEN_COMPOSED = {  # OTHERS, of sample 7
    "out_height": 64,
    "out_width": 96,
    "crop": [75, 147, 294, 355],
    "origin": [184, 248],
    "before": [[0.01648689111418185, -0.001442416069277202], [0.0013635384111756648, 0.015585315356561954]],
    "lens": [-0.07980340905487537, 0, 0, 0.014346030829474329, 0.013653203919529917],
    "after": [[130.4150814150127, -17.639629800979623, 0.5], [25.130431497286036, 185.79682831727837, 3.0]],
    "support": [2.1759237777825726, 2.9363667982255848],
    "border": 1,
    "fill": [1, 2, 3],
}


@pytest.mark.parametrize(
    ("recipe", "seed", "epoch", "golden"),
    [(recipes.deep_image(), 2024, 3, GOLDEN_DEEP_IMAGE), (OTHERS, 2**64 - 1, 2**32 - 1, GOLDEN_OTHERS)],
)
def test_golden_draws(recipe: Recipe, seed: int, epoch: int, golden: dict[str, dict[str, list[float]]]) -> None:
    values = plan(recipe, GOLDEN_IDS, sizes=SIZES, seed=seed, epoch=epoch).rows["drawn"]
    assert set(values.dtype.names) == set(golden)
    for op, fields in golden.items():
        assert values[op].dtype.names == tuple(fields)
        for name, expected in fields.items():
            found = values[op][name]
            if all(float(value).is_integer() for value in np.ravel(expected)):
                assert np.array_equal(found, expected), (op, name)
            else:
                np.testing.assert_allclose(found, expected, rtol=1e-9, atol=0)


def test_golden_maps() -> None:
    row = plan(OTHERS, GOLDEN_IDS, sizes=SIZES, seed=2**64 - 1, epoch=2**32 - 1).rows[1]
    for name, expected in GOLDEN_COMPOSED.items():
        np.testing.assert_allclose(row[name], expected, rtol=1e-9, atol=1e-12, err_msg=name)


def test_golden_streams() -> None:
    """CRC-32 of kind:place:view."""
    assert [stream_id("rotate:0:0"), stream_id("rotate:1:0"), stream_id("flip:0:3")] == [
        4007333879,
        4011419072,
        3357387939,
    ]


@pytest.mark.parametrize("chosen", [(), (ops.Brightness(),), (ops.Grayscale(p=0.5),), (ops.Grayscale(p=1.0),)])
def test_a_plan_of_one_channel_can_be_saved_whatever_was_drawn(chosen: tuple[ops.Op, ...], tmp_path: Path) -> None:
    recipe = Recipe(channels=1, ops=(ops.Resize(size=28), *chosen))
    for num in (1, 5):
        made = plan(recipe, range(num), sizes=[(30, 40)] * num)
        made.save(tmp_path / "plan.npz")
        loaded = Plan.load(tmp_path / "plan.npz")
        assert loaded.recipe == recipe and loaded.rows.tobytes() == made.rows.tobytes()


def test_plans_in_words() -> None:
    deep_image = plan(recipes.deep_image(), GOLDEN_IDS[:2], sizes=SIZES[:2], seed=2024, epoch=3)
    assert str(deep_image) == (
        "plan of 2 samples, recipe deep_image, seed 2024\n"
        "  sample 0 epoch 3: cast R -2, G -19; vignette radius 0.34, strength 42%; pincushion 0.100; "
        "rotated -2°; flipped; scale 256 px, x 109, y 9\n"
        "  sample 7 epoch 3: cast R +14, G -15, B -3; vignette radius 0.72, strength 46%; "
        "stretch vertical 0.196; rotated -10°; scale 512 px, x 200, y 302"
    )
    assert list(deep_image.captions(0))[3:5] == [("rotate", "rotated -2°"), ("flip", "flipped")]
    two = Recipe(views=(View(), View(ops=(ops.Flip(p=1.0),))))
    assert str(plan(two, [5], sizes=[(4, 4)])) == (
        "plan of 1 sample, recipe unnamed, seed 0\n"
        "  sample 5 epoch 0 view 0: unchanged\n"
        "  sample 5 epoch 0 view 1: flipped"
    )


# what depends on what


@pytest.mark.slow
@given(
    ids=st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=12),
    seed=st.integers(0, 2**64 - 1),
    epoch=st.integers(0, 2**32 - 1),
    data=st.data(),
)
def test_a_sample_s_plan_is_its_own(ids: list[int], seed: int, epoch: int, data: st.DataObject) -> None:
    """Neither the batch's other samples nor the order matter: every record is bit-equal."""
    sizes = [(100 + sample_id % 300, 400 - sample_id % 211) for sample_id in ids]
    for recipe in (recipes.deep_image(64, (70, 128)), OTHERS, PROJECTED):
        together = plan(recipe, ids, sizes=sizes, seed=seed, epoch=epoch).rows
        order = data.draw(st.permutations(range(len(ids))))
        shuffled = plan(recipe, [ids[i] for i in order], sizes=[sizes[i] for i in order], seed=seed, epoch=epoch).rows
        assert shuffled.tobytes() == together[order].tobytes()
        one = data.draw(st.integers(0, len(ids) - 1))
        alone = plan(recipe, ids[one : one + 1], sizes=sizes[one : one + 1], seed=seed, epoch=epoch).rows
        assert alone.tobytes() == together[one : one + 1].tobytes()


@pytest.mark.parametrize("name", CASES)
def test_each_op_plans_alone_as_in_a_batch(name: str) -> None:
    """To the bit: numpy adds up an axis in an order that depends on how the arrays around it are laid out."""
    sizes = [(120 + 7 * nth, 160 - 3 * nth) for nth in range(20)]
    for recipe in recipes_of(name, "context"):
        together = plan(recipe, range(20), sizes=sizes, seed=1).rows
        for one in range(20):
            alone = plan(recipe, [one], sizes=sizes[one : one + 1], seed=1).rows
            assert alone.tobytes() == together[one : one + 1].tobytes(), one


@pytest.mark.parametrize("num", [1, 3])
def test_sample_ids_are_an_array_of_their_own(num: int) -> None:
    """A record may take any number of bytes, and torch refuses an array with such steps, even of one number."""
    recipe = Recipe(ops=[ops.CenterCrop(size=8), ops.ElasticTransform()])
    drawn = plan(recipe, range(num), sizes=[(20, 20)] * num)
    assert drawn.rows.itemsize % 8
    assert drawn.sample_ids.strides == (8,)


def test_seed_epoch_and_sample_id_each_change_the_draws() -> None:
    recipe = recipes.deep_image(64, (256,))
    angles = {
        (seed, epoch): drawn(recipe, range(500), seed=seed, epoch=epoch)["multi_resolution_crop"]["x"]
        for seed in (0, 1, 2**32, 2**63)
        for epoch in (0, 1, 2**31)
    }
    columns = list(angles.values())
    for i, first in enumerate(columns):
        assert len(set(first)) > 100
        for other in columns[i + 1 :]:
            assert np.mean(first == other) < 0.05
    # (seed, id, epoch) are words of their own, never added up
    a, b = drawn(recipe, [1, 2], epoch=0), drawn(recipe, [0, 1], epoch=1)
    assert not np.array_equal(a["multi_resolution_crop"], b["multi_resolution_crop"])


def test_ops_draw_apart_from_each_other() -> None:
    """Two ops, and two of a kind, are not driven by the same words."""
    recipe = Recipe(ops=(ops.Rotate(step=None), ops.Stretch(), ops.Rotate(step=None), ops.RandomResizedCrop(step=None)))
    values = drawn(recipe, range(4000))
    columns = [
        values["rotate"]["degrees"],
        values["rotate_2"]["degrees"],
        values["stretch"]["horizontal"],
        values["stretch"]["vertical"],
        values["random_resized_crop"]["width"],
    ]
    correlation = np.corrcoef(columns) - np.eye(5)
    assert np.abs(correlation).max() < 5 / np.sqrt(4000)


EXTRA = (
    ops.Flip(),
    ops.Stretch(),
    ops.LensDistortion(),
    ops.Vignette(),
    ops.ColorCast(),
    ops.Normalize(),
    ops.RandomResizedCrop(size=20),
    ops.Translate(),
    ops.Shear(),
    ops.Zoom(),
    ops.QuarterTurn(),
    ops.Blur(),
)


@pytest.mark.parametrize("extra", EXTRA, ids=lambda op: op.op)
@pytest.mark.parametrize("place", [0, 2, 9])
def test_another_op_leaves_the_draws_of_the_others(extra: ops.Op, place: int) -> None:
    few = [op for op in (*EXTRA, ops.Rotate(), ops.Rotate(max_deg=3)) if op is not extra]
    more = [*few[:place], extra, *few[place:]]
    before, after = drawn(Recipe(ops=tuple(few)), range(40)), drawn(Recipe(ops=tuple(more)), range(40))
    for name in before.dtype.names:
        assert np.array_equal(before[name], after[name]), name


def test_order_border_fill_and_name_leave_the_draws_alone() -> None:
    plain = Recipe(ops=OTHERS.ops)
    assert np.array_equal(drawn(plain, range(20)), drawn(OTHERS, range(20)))
    chosen = (*EXTRA, ops.Rotate())
    first, last = drawn(Recipe(ops=chosen), range(20)), drawn(Recipe(ops=chosen[::-1]), range(20))
    for name in first.dtype.names:
        assert np.array_equal(first[name], last[name])


# views


def test_views_draw_apart() -> None:
    crop = ops.MultiResolutionCrop(size=64, scales=(300,))
    recipe = Recipe(views=(View(ops=(crop,), count=2), View(ops=(crop, ops.Flip()))))
    places = [drawn(recipe, range(300), view=view)["multi_resolution_crop"]["x"] for view in range(3)]
    for i in range(3):
        for j in range(i):
            assert np.mean(places[i] == places[j]) < 0.05
    assert len(plan(recipe, [0], sizes=[(300, 300)]).views) == 3
    assert [rows["view"][0] for rows in plan(recipe, [0], sizes=[(300, 300)]).views] == [0, 1, 2]


def test_the_first_view_draws_as_ops_alone_do_and_more_views_leave_it_alone() -> None:
    alone = drawn(OTHERS, range(30))
    several = Recipe(border="reflect", fill=OTHERS.fill, views=(View(ops=OTHERS.ops), View(ops=(ops.Flip(),), count=3)))
    assert np.array_equal(drawn(several, range(30)), alone)
    assert np.array_equal(
        drawn(several, range(30), view=2), drawn(several.model_copy(update={"border": "edge"}), range(30), view=2)
    )
    swapped = Recipe(views=(View(ops=(ops.Flip(),)), View(ops=OTHERS.ops)))
    assert not np.array_equal(drawn(swapped, range(30), view=1), alone)


# records


def test_records() -> None:
    made = plan(OTHERS, [3, 9], sizes=[(50, 60), (70, 80)], seed=11, epoch=4)
    assert made.rows.dtype.names == (*(field[0] for field in PLAN_FIELDS), "drawn")
    assert made.sample_ids.tolist() == [3, 9] and made.sample_ids.dtype == np.int64
    assert made.rows["epoch"].tolist() == [4, 4] and made.seed == 11 and made.recipe is OTHERS
    assert made.rows["height"].tolist() == [50, 70] and made.rows["width"].tolist() == [60, 80]
    assert made.rows["out_height"].tolist() == [64, 64] and made.rows["out_width"].tolist() == [96, 96]
    assert [BORDERS[border] for border in made.rows["border"]] == ["reflect", "reflect"]
    assert made.rows["fill"].tolist() == [[1, 2, 3]] * 2
    assert len(made) == 2
    assert made[1:].sample_ids.tolist() == [9]
    assert made[np.array([1, 0])].sample_ids.tolist() == [9, 3]
    assert (made.rows["origin"] % 8 == 0).all()


def test_without_ops_the_output_is_the_image() -> None:
    row = plan(Recipe(), [0], sizes=[(50, 60)]).rows[0]
    assert (row["out_height"], row["out_width"]) == (50, 60)
    assert row["crop"].tolist() == [0, 0, 60, 50]
    assert row["support"].tolist() == [1, 1]
    assert row["mean"].tolist() == [0, 0, 0] and row["std"] * 255 == pytest.approx([1, 1, 1])


# saving


@pytest.mark.parametrize(
    "recipe",
    [recipes.deep_image(48, (60, 90)), OTHERS, PROJECTED, Recipe(views=(View(ops=OTHERS.ops, count=2), View()))],
)
def test_saved_plans_come_back_and_replay_to_the_bit(recipe: Recipe, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    photographs = [rng.integers(0, 256, (*size, 3), np.uint8) for size in ((60, 80), (99, 64), (70, 70))]
    made = plan(recipe, [5, 6, 7], sizes=[image.shape[:2] for image in photographs], seed=2**64 - 1, epoch=9)
    made.save(tmp_path / "plan.npz")
    loaded = Plan.load(tmp_path / "plan.npz")
    assert loaded.recipe == recipe and loaded.seed == made.seed and len(loaded.views) == len(made.views)
    for before, after in zip(made.views, loaded.views, strict=True):
        assert before.dtype == after.dtype and before.tobytes() == after.tobytes()
    assert str(loaded) == str(made)
    first, again = Augment(recipe)(photographs, plan=made), Augment(recipe)(photographs, plan=loaded)
    by_seed = Augment(recipe, seed=2**64 - 1)(photographs, sample_ids=[5, 6, 7], epoch=9)
    for one, two, three in zip(
        *([images] if len(made.views) == 1 else images for images in (first, again, by_seed)), strict=True
    ):
        for a, b, c in zip(one, two, three, strict=True):
            assert a.tobytes() == b.tobytes() == c.tobytes()


def test_numpy_s_whole_numbers_are_whole_numbers(tmp_path: Path) -> None:
    made = plan(OTHERS, np.array([1, 2], np.uint32), sizes=[(50, 60)] * 2, seed=np.int64(3), epoch=np.uint8(4))  # type: ignore[arg-type]
    assert made.rows.tobytes() == plan(OTHERS, [1, 2], sizes=[(50, 60)] * 2, seed=3, epoch=4).rows.tobytes()
    made.save(tmp_path / "plan.npz")
    assert Plan.load(tmp_path / "plan.npz").seed == 3


def test_plans_are_pickled() -> None:
    made = plan(OTHERS, [1, 2], sizes=[(50, 60)] * 2)
    again = pickle.loads(pickle.dumps(made))
    assert again.recipe == made.recipe and again.rows.tobytes() == made.rows.tobytes()


def broken_files(folder: Path) -> dict[str, Path]:
    plan(OTHERS, [1], sizes=[(50, 60)]).save(folder / "whole.npz")
    whole = (folder / "whole.npz").read_bytes()
    (folder / "cut.npz").write_bytes(whole[: len(whole) // 2])
    (folder / "empty.npz").write_bytes(b"")
    (folder / "text.npz").write_text("not a plan")
    np.save(folder / "array.npy", np.zeros(3))
    np.savez(folder / "other.npz", a=np.zeros(3))
    return {path.name: path for path in folder.iterdir() if path.name != "whole.npz"}


@pytest.mark.parametrize("name", ["cut.npz", "empty.npz", "text.npz", "array.npy", "other.npz"])
def test_files_that_hold_no_plan(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=rf"{name}: not a saved plan"):
        Plan.load(broken_files(tmp_path)[name])


def test_plans_of_another_version(tmp_path: Path) -> None:
    made = plan(OTHERS, [1], sizes=[(50, 60)])
    fields = [name for name in made.rows.dtype.names if name != "lens"]
    older = Plan(recipe=OTHERS, seed=0, views=(made.rows[fields].astype([(f, made.rows.dtype[f]) for f in fields]),))
    older.save(tmp_path / "plan.npz")
    with pytest.raises(ValueError, match="the plan's fields are those of another version of augpipe. Plan it again"):
        Plan.load(tmp_path / "plan.npz")


# what is refused


@pytest.mark.parametrize("recipe", [OTHERS, Recipe()], ids=["drawing", "still"])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sample_ids": [1], "sizes": [(5, 0)]}, "sizes holds 0: heights and widths are at least 1 pixel"),
        ({"sample_ids": [-1], "sizes": [(5, 5)]}, r"sample_ids must lie in 0..4294967295, but holds -1"),
        ({"sample_ids": [2**32], "sizes": [(5, 5)]}, r"sample_ids must lie in 0..4294967295, but holds 4294967296"),
        ({"sample_ids": [0.5], "sizes": [(5, 5)]}, "sample_ids must be whole numbers, but has dtype float64"),
        ({"sample_ids": [1], "sizes": [(5, 5)], "epoch": -1}, "epoch must lie in 0..4294967295, but is -1"),
        ({"sample_ids": [1], "sizes": [(5, 5)], "seed": 2**64}, "seed must lie in 0..18446744073709551615"),
        ({"sample_ids": [1], "sizes": [(5, 5)], "seed": 1.5}, "seed must be a whole number, but is 1.5"),
    ],
)
def test_arguments_out_of_range(recipe: Recipe, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plan(recipe, **arguments)  # type: ignore[arg-type]


def test_refusals() -> None:
    recipe = Recipe(views=(View(ops=(ops.CenterCrop(size=20),)), View(ops=(ops.CenterCrop(size=30),))))
    reasons = refusals(recipe, [(30, 30), (29, 30), (5, 5)])
    assert reasons[0] is None
    assert reasons[1] and "crop of 30x30" in reasons[1]
    assert reasons[2] and "crop of 20x20" in reasons[2]
