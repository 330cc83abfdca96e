"""What `keep_objects` says: fields, messages, words, files; what a plan asks for."""

from typing import Any

import numpy as np
import pytest

from augpipe import Recipe, View, ops
from augpipe.ops.keep_objects import KnownObjects
from augpipe.planning.plan import Plan, plan
from augpipe.validation.models import FieldError

CROPS = (ops.RandomCrop, ops.RandomResizedCrop, ops.MultiResolutionCrop)
SIZES = [(100, 120)]
BOX = KnownObjects(counts=np.array([1]), boxes=np.array([[40.0, 30.0, 70.0, 80.0]]), labels=np.array([0]))


@pytest.mark.parametrize(
    "fields",
    [
        {"rule": "centre"},
        {"rule": "visible", "share": 1.2},
        {"rule": "iou", "share": []},
        {"rule": "center", "share": 0.3},
        {"classes": {"dog": -1.0}},
        {"classes": {"dog": 0.0}},
        {"classes": ["dog"]},
        {"tries": 0},
        {"tries": 2000},
        {"fallback": "first"},
        {"rules": "center"},
    ],
    ids=str,
)
def test_impossible_fields(fields: dict[str, Any]) -> None:
    with pytest.raises(FieldError):
        ops.KeepObjects(**fields)


@pytest.mark.parametrize("kind", CROPS)
def test_a_crop_s_keep_objects_is_checked_with_it(kind: Any) -> None:
    with pytest.raises(ValueError, match=r"keep_objects=.* must be a KeepObjects\(...\), in TOML a table"):
        kind(keep_objects="center")
    with pytest.raises(ValueError, match=r"keep_objects.rule='centre'"):
        kind(keep_objects={"rule": "centre"})
    if kind is ops.RandomResizedCrop:
        assert kind(keep_objects=ops.KeepObjects(fallback="whole")).keep_objects.fallback == "whole"
    else:
        with pytest.raises(ValueError, match="keep_objects.fallback='whole' is for random_resized_crop"):
            kind(keep_objects=ops.KeepObjects(fallback="whole"))


def test_a_share_may_be_one_number_and_classes_are_a_table() -> None:
    keep = ops.KeepObjects(rule="visible", share=0.25, classes={"dog": 2, "3": 1.0})
    assert keep.shares == (0.25,) and keep.classes == (("dog", 2.0), ("3", 1.0))
    assert keep.model_dump()["classes"] == {"dog": 2.0, "3": 1.0}
    assert ops.KeepObjects.model_validate(keep.model_dump()) == keep and hash(keep) == hash(keep.model_copy())


@pytest.mark.parametrize(
    "keep",
    [
        ops.KeepObjects(),
        ops.KeepObjects(rule="iou", share=(0.1, 0.5), tries=9, fallback="last"),
        ops.KeepObjects(rule="all", classes={"a dog": 1.5}),
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", CROPS)
def test_a_recipe_is_read_back_from_its_file(kind: Any, keep: ops.KeepObjects, tmp_path: Any) -> None:
    recipe = Recipe(ops=[ops.Flip(), kind(keep_objects=keep)])
    recipe.dump(tmp_path / "keeping.toml")
    assert Recipe.load(tmp_path / "keeping.toml") == recipe
    assert Recipe.model_validate_json(recipe.model_dump_json()) == recipe
    assert eval(repr(recipe), vars(ops) | {"Recipe": Recipe}) == recipe


@pytest.mark.parametrize("kind", CROPS)
def test_without_it_nothing_is_written_that_earlier_releases_did_not(kind: Any) -> None:
    crop = kind()
    assert "keep_objects" not in crop.model_dump() and "keep_objects" not in Recipe(ops=[crop]).to_toml()
    assert crop.record.names == tuple(draw.name for draw in crop.draws)
    keeping = kind(keep_objects=ops.KeepObjects())
    assert keeping.record.names == (*crop.record.names, "keep_objects")
    assert keeping.num_variants is None and getattr(keeping.centred, "keep_objects", None) is None


def test_a_padded_crop_for_evaluation_looks_at_no_objects() -> None:
    crop = ops.RandomCrop(size=24, padding=4, keep_objects=ops.KeepObjects())
    assert crop.centred == ops.RandomCrop(size=24, padding=4, p=0.0)


@pytest.mark.parametrize(
    ("keep", "text"),
    [
        (ops.KeepObjects(), "the centre of an object is inside: 50 tries, then fallback object"),
        (
            ops.KeepObjects(rule="visible", tries=9, fallback="last"),
            "0.1 or 0.3 or 0.5 or 0.7 or 0.9 of an object is visible: 9 tries, then fallback last",
        ),
        (
            ops.KeepObjects(rule="iou", share=0.5, classes={"dog": 1.0, "cat": 2.0}),
            "an object and the crop have an IoU of 0.5, of dog or cat: 50 tries, then fallback object",
        ),
    ],
)
def test_what_is_drawn_in_words(keep: ops.KeepObjects, text: str) -> None:
    for kind in CROPS:
        assert kind(keep_objects=keep).draws_text.endswith(f"; again until {text}")


def test_a_caption_tells_the_tries() -> None:
    keep = ops.KeepObjects(rule="whole", tries=5)
    texts = [
        next(text for _, text in made.captions(0))
        for seed in range(12)
        for box in ([40.0, 30.0, 70.0, 80.0], [0.0, 0.0, 99.0, 99.0])
        for made in [
            plan(
                Recipe(ops=[ops.RandomCrop(size=64, keep_objects=keep)]),
                [0],
                sizes=SIZES,
                seed=seed,
                objects=KnownObjects(counts=np.array([1]), boxes=np.array([box])),
            )
        ]
    ]
    assert all(text.endswith("try 5, fallback object") for text in texts[1::2])
    assert {text.rpartition(", ")[2] for text in texts[::2]} >= {"try 1", "try 2"}
    nobody = KnownObjects(counts=np.array([0]), boxes=np.empty((0, 4)))
    made = plan(Recipe(ops=[ops.RandomCrop(size=64, keep_objects=keep)]), [0], sizes=SIZES, objects=nobody)
    assert "try" not in str(made)


def test_a_plan_is_saved_with_its_tries(tmp_path: Any) -> None:
    recipe = Recipe(ops=[ops.RandomCrop(size=64, keep_objects=ops.KeepObjects(classes={"0": 1.0}))])
    made = plan(recipe, [7], sizes=SIZES, objects=BOX)
    made.save(tmp_path / "plan.npz")
    again = Plan.load(tmp_path / "plan.npz")
    assert again.recipe == recipe and again.rows.tobytes() == made.rows.tobytes()
    assert again.rows["drawn"]["random_crop"]["keep_objects"]["kept"].all()


@pytest.mark.parametrize(
    "moving",
    [ops.Rotate(), ops.QuarterTurn(), ops.Perspective(), ops.LensDistortion(), ops.OneOf(ops=[ops.Zoom(), ops.Flip()])],
    ids=lambda op: op.op,
)
def test_a_crop_that_keeps_objects_stands_before_what_moves_them(moving: ops.Op) -> None:
    crop = ops.RandomResizedCrop(size=64, keep_objects=ops.KeepObjects())
    with pytest.raises(ValueError, match=rf"keeps objects and stands behind {moving.op}.*Put random_resized_crop"):
        Recipe(ops=[moving, crop])
    Recipe(ops=[ops.Flip(), crop, moving])
    # of the papers: this crop acts first wherever it is listed
    View(ops=[moving, ops.MultiResolutionCrop(size=64, scales=(64,), keep_objects=ops.KeepObjects())])


def test_a_plan_needs_the_objects() -> None:
    recipe = Recipe(name="keeping", ops=[ops.RandomCrop(size=64, keep_objects=ops.KeepObjects())])
    with pytest.raises(ValueError, match=r"recipe 'keeping' keeps objects \(random_crop\), and no boxes are known"):
        plan(recipe, [0], sizes=SIZES)
    with pytest.raises(ValueError, match="objects has counts of 1 image and 1 boxes, for 2 sample ids"):
        plan(recipe, [0, 1], sizes=SIZES * 2, objects=BOX)
    of_classes = Recipe(ops=[ops.RandomCrop(size=64, keep_objects=ops.KeepObjects(classes={"0": 1.0}))])
    with pytest.raises(ValueError, match="keeps objects of some classes, and the objects have no labels"):
        plan(of_classes, [0], sizes=SIZES, objects=KnownObjects(counts=BOX.counts, boxes=BOX.boxes))
    assert len(plan(recipe, [], sizes=[])) == 0
    # a recipe that does not keep any does not look at them
    plain = Recipe(ops=[ops.RandomCrop(size=64)])
    assert plan(plain, [0], sizes=SIZES, objects=BOX).rows.tobytes() == plan(plain, [0], sizes=SIZES).rows.tobytes()


def test_impossible_boxes_do_not_count() -> None:
    boxes = np.array([[np.nan, 0, 5, 5], [9, 9, 2, 2], [np.inf, 0, np.inf, 3], [300, 300, 310, 310.0]])
    recipe = Recipe(ops=[ops.RandomCrop(size=64, keep_objects=ops.KeepObjects())])
    made = plan(recipe, [0], sizes=SIZES, objects=KnownObjects(counts=np.array([4]), boxes=boxes))
    found = made.rows["drawn"]["random_crop"]["keep_objects"]
    assert found["tries"].tolist() == [0] and found["kept"].all()


SMALL = KnownObjects(counts=np.full(400, 1), boxes=np.tile([[40.0, 30.0, 60.0, 50.0]], (400, 1)))


def kept_of(**fields: Any) -> Any:
    keep = ops.KeepObjects(rule="iou", tries=10, fallback="whole", **fields)
    crop = ops.RandomResizedCrop(size=64, scale=(0.1, 0.6), keep_objects=keep)
    made = plan(Recipe(ops=[crop]), range(400), sizes=SIZES * 400, objects=SMALL)
    return made.rows["drawn"]["random_resized_crop"]


def test_another_share_is_drawn_where_no_try_is_good() -> None:
    """A box of 20x20 pixels has no IoU of 0.9 with crops of a tenth of the image and more."""
    once = kept_of(share=(0.01, 0.9))["keep_objects"]
    again = kept_of(share=(0.01, 0.9), redraws=12)
    assert 0.4 < once["fell_back"].mean() < 0.6 and again["keep_objects"]["fell_back"].mean() < 0.02
    kept = again["keep_objects"]
    assert (kept["share"][~kept["fell_back"]] == 0.01).all() and kept["kept"][~kept["fell_back"]].all()
    assert set((kept["tries"][~kept["fell_back"]] - 1) // 10) >= {0, 1, 2}  # ten tries for each share
    never = kept_of(share=(0.9,), redraws=2)["keep_objects"]
    assert never["fell_back"].all() and (never["tries"] == 30).all()


def test_images_without_objects_stay_whole_where_shares_are_drawn_until_one_is_kept() -> None:
    keep = ops.KeepObjects(rule="iou", share=(0.01, 0.9), redraws=3, fallback="whole")
    crop = ops.RandomResizedCrop(size=64, scale=(0.1, 0.6), keep_objects=keep)
    nothing = KnownObjects(counts=np.zeros(9, np.int64), boxes=np.empty((0, 4)))
    drawn = plan(Recipe(ops=[crop]), range(9), sizes=SIZES * 9, objects=nothing).rows["drawn"]["random_resized_crop"]
    assert (drawn["width"] == 120).all() and drawn["keep_objects"]["fell_back"].all()
    assert (drawn["keep_objects"]["tries"] == 0).all()


def test_a_share_of_1_is_all_of_the_image_at_once() -> None:
    drawn = kept_of(share=(0.01, 0.9, 1.0), redraws=30)
    kept = drawn["keep_objects"]
    whole = kept["fell_back"]
    assert (kept["share"][whole] == 1.0).all() and (drawn["width"][whole] == 120).all()
    assert whole.mean() == pytest.approx(0.5, abs=0.08)  # 0.9 is drawn again: as often as 0.01
    assert (kept["tries"][kept["share"] == 1.0] % 10 == 1).any() and "redraws" not in ops.KeepObjects().model_dump()
    weighed = kept_of(share=(0.9, 0.9, 0.9, 0.9, 0.01, 1.0, 1.0, 1.0), redraws=30)["keep_objects"]
    assert weighed["fell_back"].mean() == pytest.approx(3 / 8 + 1 / 4, abs=0.06)  # of redraws, each share counts once
    assert ops.KeepObjects(share=0.5, rule="iou", redraws=3).text.endswith(
        "50 tries, 3 other shares, then fallback object"
    )


def test_only_shares_are_drawn_again() -> None:
    with pytest.raises(FieldError, match="redraws=2 draws other shares, and rule='whole' has none. Leave redraws out"):
        ops.KeepObjects(rule="whole", redraws=2)
