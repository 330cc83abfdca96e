"""Crops that know their objects keep what their rule says, on ragged random boxes, and change nothing else."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from augpipe import Recipe, View, ops
from augpipe.ops.keep_objects import RULES, KnownObjects
from augpipe.planning.plan import Plan, plan

Float = npt.NDArray[np.float64]

CLASSES = ("cat", "dog", "owl", "bat")
CROPS = (
    ops.RandomResizedCrop(size=24, scale=(0.02, 0.4)),
    ops.RandomResizedCrop(size=(20, 30), scale=(0.1, 1.0), step=None, p=0.8),
    ops.RandomResizedCrop(size=(33, 20), height_px=(15, 80), ratio=(0.6, 1.4), p=0.9),
    ops.RandomCrop(size=(40, 56), padding=6),
    ops.RandomCrop(size=90, pad_if_needed=True, p=0.9),
    ops.MultiResolutionCrop(size=48, scales=(48, 80, 131)),
    ops.MultiResolutionCrop(size=30, scales=(40,), step=None, p=0.7),
)
BEFORE: tuple[tuple[Any, ...], ...] = (
    (),
    (ops.Flip(), ops.Flip(direction="vertical")),
    (ops.ResizeShortest(size=97), ops.Flip()),
    (ops.CenterCrop(size=70, scale=80), ops.Flip(), ops.Pad(px=(3, 10, 7, 1))),
    (ops.Flip(), ops.ZoomOut(factor=(1.0, 1.6), p=0.7)),
    (ops.RandomResize(size=(130, 200)), ops.Flip(), ops.CenterCrop(size=(110, 120))),
)
KEEPS = st.builds(
    ops.KeepObjects,
    rule=st.sampled_from(sorted(RULES)),
    classes=st.sampled_from(({}, {"dog": 1.0}, {"cat": 1.0, "2": 3.0, "bat": 0.0})),
    tries=st.sampled_from((1, 2, 9, 40)),
    fallback=st.sampled_from(("object", "last")),
)


def objects_of(seed: int, num: int) -> tuple[KnownObjects, npt.NDArray[np.int64]]:
    """Ragged boxes, some without area, and (num, 2) heights and widths."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(60, 300, (num, 2))
    counts = rng.integers(0, 6, num)
    image = np.repeat(np.arange(num), counts)
    wide_high = sizes[image][:, ::-1]
    ends = np.sort(rng.uniform(0, 1, (len(image), 2, 2)) * wide_high[:, None], axis=1)
    middle = ends.mean(axis=1)
    shrink = rng.choice([0.0, 0.05, 0.3, 1.0], (len(image), 1))
    boxes = np.concatenate([middle + shrink * (ends[:, 0] - middle), middle + shrink * (ends[:, 1] - middle)], axis=1)
    labels = rng.integers(0, len(CLASSES), len(image))
    return KnownObjects(counts=counts, boxes=boxes, labels=labels, classes=CLASSES), sizes


def place_of(before: tuple[Any, ...], made: Plan, position: int) -> tuple[Float, Float, Float]:
    """What `before` shows: source pixels -> pixels of its frame as (scale, offset) along x and y, and its sides."""
    row = made.rows[position]
    # two corners of the frame, followed by the plan's own way back
    sides = np.array([row["out_width"], row["out_height"]], np.float64)
    near, far = made.to_source([[0.0, 0.0], sides.tolist()], position)
    scale = sides / (far - near)
    return scale, -near * scale, sides


def good(rule: str, crop: Float, boxes: Float, share: float) -> bool:
    """Whether a crop is good, a box at a time."""
    found, cut, missing = False, False, False
    for left, top, right, bottom in boxes:
        wide = max(min(right, crop[2]) - max(left, crop[0]), 0.0)
        high = max(min(bottom, crop[3]) - max(top, crop[1]), 0.0)
        area, inside = (right - left) * (bottom - top), wide * high
        x, y = (left + right) / 2, (top + bottom) / 2
        has_centre = crop[0] - 1e-6 <= x <= crop[2] + 1e-6 and crop[1] - 1e-6 <= y <= crop[3] + 1e-6
        whole = (
            left >= crop[0] - 1e-6 and top >= crop[1] - 1e-6 and right <= crop[2] + 1e-6 and bottom <= crop[3] + 1e-6
        )
        cut = cut or (not whole and wide > 1e-6 and high > 1e-6)
        missing = missing or not whole
        of = {"visible": area, "iou": area + (crop[2] - crop[0]) * (crop[3] - crop[1]) - inside}.get(rule, 0.0)
        by_share = inside >= share * of - 1e-6 if of > 0.0 else has_centre
        found = found or {"center": has_centre, "visible": by_share, "iou": by_share}.get(rule, whole)
    return not missing if rule == "all" else found and not (rule == "uncut" and cut)


@settings(deadline=None, max_examples=120)
@given(
    seed=st.integers(0, 2**31),
    keep=KEEPS,
    crop=st.sampled_from(CROPS),
    before=st.sampled_from(BEFORE),
)
def test_a_crop_is_as_good_as_its_plan_says(seed: int, keep: Any, crop: Any, before: tuple[Any, ...]) -> None:
    num = 12
    objects, sizes = objects_of(seed, num)
    cropping = crop.model_copy(update={"keep_objects": keep})
    ids = np.arange(num) + seed
    made = plan(Recipe(ops=[*before, cropping]), ids, sizes=sizes, objects=objects, seed=seed)
    # with a MultiResolutionCrop flips act behind it; else their draws are those of the whole recipe
    listed = [op for op in before if op.is_crop or not crop.acts_first]
    frames = plan(Recipe(ops=listed), ids, sizes=sizes, seed=seed)
    starts = np.cumsum(objects.counts) - objects.counts
    for position in range(num):
        found = made.rows["drawn"][crop.op][position]["keep_objects"]
        scale, offset, sides = place_of(before, frames, position)
        own = slice(starts[position], starts[position] + objects.counts[position])
        assert objects.labels is not None
        boxes, labels = objects.boxes[own], objects.labels[own]
        limits = frames.rows[position]["crop"]  # without padding
        is_thin = (boxes[:, :2] == boxes[:, 2:]).any(axis=1)
        is_near = (boxes[:, 2:] >= limits[:2]).all(axis=1) & (boxes[:, :2] <= limits[2:]).all(axis=1)
        boxes, labels, is_thin = boxes[is_near], labels[is_near], is_thin[is_near]
        boxes = np.clip(boxes, np.tile(limits[:2], 2), np.tile(limits[2:], 2))
        ends = np.stack([boxes[:, :2] * scale + offset, boxes[:, 2:] * scale + offset])
        placed = np.concatenate([ends.min(axis=0), ends.max(axis=0)], axis=1)
        cut = np.clip(placed, 0.0, np.tile(sides, 2))
        is_shown = (cut[:, 2:] - cut[:, :2] > 0).all(axis=1) | (np.isclose(cut, placed).all(axis=1) & is_thin)
        shown, labels = cut[is_shown], labels[is_shown]
        weights = {1: 1.0} if keep.classes == (("dog", 1.0),) else {0: 1.0, 2: 3.0} if keep.classes else None
        if weights is not None:
            there = set(labels.tolist()) & set(weights)
            assert found["label"] == -1 if not there else found["label"] in there
            shown = shown[labels == found["label"]]
        if not len(shown):
            assert found["tries"] == 0 and found["kept"] and not found["fell_back"]
            continue
        near, far = made.to_source([[0.0, 0.0], list(made.recipe.all_views[0].out_size or ())[::-1]], position)
        corners = np.stack([near * scale + offset, far * scale + offset])
        seen = np.concatenate([corners.min(axis=0), corners.max(axis=0)])
        assert good(keep.rule, seen, shown, float(found["share"])) == found["kept"]
        assert found["share"] in (keep.shares if keep.rule in ("visible", "iou") else (1.0,))
        assert 0 <= found["tries"] <= keep.tries
        if found["tries"]:
            assert found["kept"] or found["fell_back"]
            assert not found["fell_back"] or found["tries"] == keep.tries
        if found["fell_back"] and keep.fallback == "object" and keep.rule == "center":
            assert found["kept"]


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 2**31), keep=KEEPS, crop=st.sampled_from(CROPS), data=st.data())
def test_a_sample_s_tries_do_not_depend_on_who_is_planned_with_it(seed: int, keep: Any, crop: Any, data: Any) -> None:
    num = 20
    objects, sizes = objects_of(seed, num)
    recipe = Recipe(ops=[ops.Flip(), crop.model_copy(update={"keep_objects": keep}), ops.Rotate()])
    whole = plan(recipe, range(num), sizes=sizes, objects=objects, epoch=3).rows
    chosen = data.draw(st.lists(st.integers(0, num - 1), min_size=1, unique=True))
    starts = np.cumsum(objects.counts) - objects.counts
    picked = np.concatenate([np.arange(starts[i], starts[i] + objects.counts[i]) for i in chosen]).astype(int)
    assert objects.labels is not None
    some = KnownObjects(
        counts=objects.counts[chosen], boxes=objects.boxes[picked], labels=objects.labels[picked], classes=CLASSES
    )
    assert plan(recipe, chosen, sizes=sizes[chosen], objects=some, epoch=3).rows.tobytes() == whole[chosen].tobytes()


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 2**31), keep=KEEPS, crop=st.sampled_from(CROPS))
def test_nothing_else_changes_and_a_good_first_try_stays(seed: int, keep: Any, crop: Any) -> None:
    num = 20
    objects, sizes = objects_of(seed, num)
    others = (ops.Rotate(), ops.ColorCast(), ops.Erase())
    views = [View(ops=[crop.model_copy(update={"keep_objects": keep}), *others]), View(ops=[crop, *others])]
    keeping = plan(Recipe(views=views), range(num), sizes=sizes, objects=objects, seed=seed)
    plain = plan(Recipe(views=[View(ops=[crop, *others], count=2)]), range(num), sizes=sizes, seed=seed)
    assert keeping.views[1].tobytes() == plain.views[1].tobytes()
    before, after = plain.views[0], keeping.views[0]
    for op in others:
        assert before["drawn"][op.op].tobytes() == after["drawn"][op.op].tobytes()
    found = after["drawn"][crop.op]["keep_objects"]
    first = (found["tries"] <= 1) & ~found["fell_back"]
    for name in before["drawn"][crop.op].dtype.names:
        assert (before["drawn"][crop.op][name] == after["drawn"][crop.op][name])[first].all()
    assert (before["crop"] == after["crop"])[first].all()


def one_box(num: int, box: tuple[float, float, float, float]) -> KnownObjects:
    return KnownObjects(counts=np.ones(num, np.int64), boxes=np.tile(box, (num, 1)), labels=np.zeros(num, np.int64))


def test_how_often_a_rule_holds_by_chance_says_how_many_tries_are_made() -> None:
    """Tries follow a geometric distribution with the share of crops that are good without `keep_objects`."""
    num = 6000
    objects, sizes = one_box(num, (30.0, 40.0, 60.0, 62.0)), np.full((num, 2), 200)
    crop = ops.RandomCrop(size=64)
    plain = plan(Recipe(ops=[crop]), range(num), sizes=sizes).rows["drawn"]["random_crop"]
    is_good = (plain["x"] <= 45) & (plain["x"] + 64 >= 45) & (plain["y"] <= 51) & (plain["y"] + 64 >= 51)
    chance = 46 / 137 * 52 / 137
    assert abs(is_good.mean() - chance) < 0.02
    keeping = crop.model_copy(update={"keep_objects": ops.KeepObjects(tries=500)})
    found = plan(Recipe(ops=[keeping]), range(num), sizes=sizes, objects=objects).rows["drawn"]["random_crop"]
    tries = found["keep_objects"]["tries"]
    assert found["keep_objects"]["kept"].all() and not found["keep_objects"]["fell_back"].any()
    assert abs(tries.mean() * chance - 1.0) < 4.0 / np.sqrt(num)
    assert abs((tries == 1).mean() - chance) < 0.02
    # crops are evenly distributed over those that are good, and not drawn towards the object
    assert abs(found["x"].mean() - 45 / 2) < 1.0 and abs(found["y"].mean() - 51 / 2) < 1.0


def test_p_says_once_for_all_tries_whether_the_place_is_drawn() -> None:
    num = 400
    objects, sizes = objects_of(5, num)
    keep = ops.KeepObjects(rule="whole", tries=20)
    for crop in CROPS:
        drawn = []
        for p in (0.5, 1.0):
            recipe = Recipe(ops=[crop.model_copy(update={"keep_objects": keep, "p": p})])
            drawn.append(plan(recipe, range(num), sizes=sizes, objects=objects).rows["drawn"][crop.op])
        some, every = drawn
        has_objects = every["keep_objects"]["tries"] > 0
        is_drawn = some["keep_objects"]["tries"] > 0
        assert abs(is_drawn[has_objects].mean() - 0.5) < 0.1 and not is_drawn[~has_objects].any()
        assert (some[is_drawn] == every[is_drawn]).all() and (every["keep_objects"]["tries"] > 1)[is_drawn].any()


def test_where_no_crop_can_be_good_the_fallback_is_taken() -> None:
    num = 50
    objects, sizes = one_box(num, (10.0, 20.0, 190.0, 150.0)), np.full((num, 2), 200)
    for fallback in ("object", "last"):
        keep = ops.KeepObjects(rule="whole", tries=7, fallback=fallback)
        recipe = Recipe(ops=[ops.RandomCrop(size=64, keep_objects=keep)])
        drawn = plan(recipe, range(num), sizes=sizes, objects=objects).rows["drawn"]["random_crop"]
        found = drawn["keep_objects"]
        assert (found["tries"] == 7).all() and found["fell_back"].all() and not found["kept"].any()
        is_in_the_middle = (drawn["x"] == 68) & (drawn["y"] == 53)
        assert is_in_the_middle.all() if fallback == "object" else not is_in_the_middle.any()
    keep = ops.KeepObjects(rule="all", tries=3, fallback="whole")
    recipe = Recipe(ops=[ops.RandomResizedCrop(size=64, scale=(0.01, 0.1), keep_objects=keep)])
    rows = plan(recipe, range(num), sizes=sizes, objects=objects).rows
    found = rows["drawn"]["random_resized_crop"]["keep_objects"]
    assert found["fell_back"].all() and found["kept"].all() and (rows["crop"] == (0, 0, 200, 200)).all()


def test_classes_are_drawn_by_their_weights_among_those_of_the_image() -> None:
    num = 8000
    boxes = np.array([[5, 5, 15, 15], [100, 5, 110, 15], [5, 100, 15, 110], [100, 100, 110, 110]], np.float64)
    objects = KnownObjects(
        counts=np.full(num, 4), boxes=np.tile(boxes, (num, 1)), labels=np.tile([0, 1, 1, 3], num), classes=CLASSES
    )
    keep = ops.KeepObjects(rule="center", classes={"cat": 3.0, "dog": 1.0, "owl": 9.0, "bat": 0.0}, tries=200)
    recipe = Recipe(ops=[ops.RandomCrop(size=40, keep_objects=keep)])
    found = plan(recipe, range(num), sizes=np.full((num, 2), 120), objects=objects).rows["drawn"]["random_crop"]
    labels = found["keep_objects"]["label"]
    assert set(labels.tolist()) == {0, 1} and abs((labels == 0).mean() - 0.75) < 0.02
    shows_cat = (found["x"] <= 10) & (found["y"] <= 10)
    assert found["keep_objects"]["kept"].all() and shows_cat[labels == 0].all() and not shows_cat[labels == 1].any()


@pytest.mark.parametrize("share", [(0.3,), (0.2, 0.9)])
def test_each_share_is_drawn_as_often(share: tuple[float, ...]) -> None:
    num = 4000
    objects, sizes = one_box(num, (30.0, 40.0, 90.0, 100.0)), np.full((num, 2), 120)
    keep = ops.KeepObjects(rule="visible", share=share, tries=300)
    recipe = Recipe(ops=[ops.RandomCrop(size=64, keep_objects=keep)])
    found = plan(recipe, range(num), sizes=sizes, objects=objects).rows["drawn"]["random_crop"]
    drawn, counts = np.unique(found["keep_objects"]["share"], return_counts=True)
    assert drawn.tolist() == sorted(share) and (abs(counts / num - 1 / len(share)) < 0.03).all()
    wide = np.minimum(90, found["x"] + 64) - np.maximum(30, found["x"])
    high = np.minimum(100, found["y"] + 64) - np.maximum(40, found["y"])
    visible = np.maximum(wide, 0) * np.maximum(high, 0) / 3600
    assert (visible >= found["keep_objects"]["share"] - 1e-9).all() and visible.min() < min(share) + 0.1
