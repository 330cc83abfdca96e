"""Objects pasted on other images: pixels and targets are what numpy makes of the same epoch unmixed."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import ndimage

from augpipe import Augment, Loader, Recipe, Schedule, TargetOptions, ops, plan
from augpipe.pipeline.host_output import HostOutput
from augpipe.pipeline.target_choice import check_pasting
from tests.augpipe.loader.loader_sources import TEXT
from tests.augpipe.loader.target_sources import (
    BENT,
    CROPPED,
    MOSAIC,
    MOSAIC_OF_NINE,
    LabelMapSource,
    ObjectSource,
    label_map_source,
    object_source,
    targets_by_id,
)
from tests.augpipe.loader.test_mixed_targets import VIEWS, loader_of, mixed, unmixed, views_of

PASTE = (ops.CopyPaste(p=0.8),)
MASKS = TargetOptions(masks=True, drop_empty=False)
NAMES = ("labels", "id", "tag", "iscrowd")


def pasting_loader(source: Any, recipe: Recipe, mixing: Any = PASTE, **options: Any) -> Loader:
    return loader_of(source, mixed(recipe, mixing), **{"targets": MASKS, **options})


def each_image(batches: Any) -> Any:
    """(view, image, targets, plan record, kind of mixing) of all images."""
    for batch in batches:
        for view, (images, targets, rows) in enumerate(views_of(batch)):
            for image, target, row in zip(images, targets, rows, strict=True):
                kind = row["mixing"]["kind"]
                yield view, image, target, row, batch.plan.recipe.mixing[kind - 1] if kind else None


def pasted_of(target: Any, partner: int) -> npt.NDArray[np.bool_]:
    return np.asarray(target["from_sample"] == partner)


def hull(mask: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    return np.array([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1])


@pytest.fixture(scope="module")
def source() -> ObjectSource:
    return object_source(70, maps=True)


@pytest.mark.parametrize(
    "recipe", [CROPPED, VIEWS, BENT, MOSAIC, MOSAIC_OF_NINE], ids=["cropped", "views", "bent", "four", "nine"]
)
@pytest.mark.parametrize("options", [{}, {"rank": 1, "world_size": 2, "batch_size": 7}], ids=str)
def test_objects_of_the_partner_lie_on_the_image(source: ObjectSource, recipe: Recipe, options: Any) -> None:
    plain = unmixed(source, recipe, targets=MASKS)
    num = {"pasted": 0, "cut": 0, "hidden points": 0, "none": 0}
    for view, image, target, row, mix in each_image(pasting_loader(source, recipe, **options)):
        own_image, own = plain[int(row["sample_id"])][view]
        if mix is None:
            np.testing.assert_array_equal(image, own_image)
            num["none"] += 1
            continue
        other_image, other = plain[int(row["mixing"]["partner"])][view]
        is_pasted = np.arange(len(target["labels"])) >= len(own["labels"])  # own ones come first, and all stay
        numbers = np.array([[*other["id"]].index(one) for one in target["id"][is_pasted]], np.int64)
        for targets, of_sample in ((own, row["sample_id"]), (other, row["mixing"]["partner"])):
            targets.setdefault("from_sample", np.full(len(targets["labels"]), of_sample))
        np.testing.assert_array_equal(target["from_sample"][~is_pasted], own["from_sample"])
        np.testing.assert_array_equal(target["from_sample"][is_pasted], other["from_sample"][numbers])
        union = other["masks"][numbers].any(axis=0)
        np.testing.assert_array_equal(image, np.where(union[:, :, None], other_image, own_image))
        np.testing.assert_array_equal(target["mask"], np.where(union, other["mask"], own["mask"]))
        assert row["mixing"]["weight"] == pytest.approx(1.0 - union.mean())
        assert [*row["mixing"]["region"]] == ([*hull(union)] if union.any() else [0, 0, 0, 0])
        for name in (*NAMES, "boxes", "masks", "area", "keypoints"):
            np.testing.assert_array_equal(np.asarray(target[name])[is_pasted], np.asarray(other[name])[numbers])
        assert all(other["masks"][number].any() and not other["iscrowd"][number] for number in numbers)
        assert (target["mix_weight"] == 1.0).all()
        num["pasted"] += len(numbers)
        check_own(target, ~is_pasted, own, union, num)
    assert min(num.values()) >= 3 and num["pasted"] > 15 and num["cut"] > 5, num


def check_own(target: Any, which: Any, own: Any, union: Any, num: dict[str, int]) -> None:
    for name in NAMES:
        np.testing.assert_array_equal(np.asarray(target[name])[which], own[name])
    np.testing.assert_array_equal(target["masks"][which], own["masks"] * ~union)
    for number, mask in enumerate(own["masks"]):
        box, area, before = target["boxes"][which][number], target["area"][which][number], own["boxes"][number]
        left = mask * ~union
        if not mask.any():
            continue  # of boxes only, see below
        if (left == mask).all():
            np.testing.assert_array_equal(box, before)
            assert area == own["area"][number]
            continue
        num["cut"] += 1
        assert area == pytest.approx(own["area"][number] * left.sum() / mask.sum(), rel=1e-5)
        if not left.any():
            assert (box == 0.0).all()
            continue
        stays = hull(left) == hull(mask)
        np.testing.assert_array_equal(box, np.where(stays, before, hull(left)))
    points, known = target["keypoints"][which], own["keypoints"]
    np.testing.assert_array_equal(points[:, :, :2], known[:, :, :2])
    x, y = np.floor(known[:, :, 0]).astype(int), np.floor(known[:, :, 1]).astype(int)
    height, width = union.shape
    is_in = (x >= 0) & (y >= 0) & (x < width) & (y < height)
    is_hidden = is_in & union[np.clip(y, 0, height - 1), np.clip(x, 0, width - 1)]
    np.testing.assert_array_equal(points[:, :, 2], np.where(is_hidden, 0, known[:, :, 2]))
    num["hidden points"] += int((is_hidden & (known[:, :, 2] > 0)).sum())


def test_a_box_without_an_outline_is_cut_as_its_rectangle_is(source: ObjectSource) -> None:
    recipe, num_cut = Recipe(ops=(ops.Resize(size=(48, 60)),)), 0
    plain = unmixed(source, recipe, targets=MASKS)
    for _, _, target, row, _ in each_image(pasting_loader(source, recipe, (ops.CopyPaste(object_p=1.0),))):
        is_pasted, own = pasted_of(target, row["mixing"]["partner"]), plain[int(row["sample_id"])][0][1]
        union = plain[int(row["mixing"]["partner"])][0][1]["masks"][target["object_ids"][is_pasted]].any(axis=0)
        for number, before in enumerate(own["boxes"]):
            y, x = (np.arange(side) + 0.5 for side in union.shape)
            inside = ((x > before[0]) & (x < before[2]))[None] & ((y > before[1]) & (y < before[3]))[:, None]
            if own["masks"][number].any() or not (inside & union).any():
                continue
            left, box = inside & ~union, target["boxes"][~is_pasted][number]
            expected = np.where(hull(left) == hull(inside), before, hull(left)) if left.any() else 0.0
            np.testing.assert_array_equal(box, expected)
            num_cut += bool((box != before).any())
    assert num_cut >= 3


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32"])
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_blurred_edges_are_those_of_scipys_gaussian(source: ObjectSource, dtype: Any, layout: Any) -> None:
    def made(mixing: Any) -> Any:
        recipe = mixed(CROPPED, mixing)
        return Loader(
            source, recipe, batch_size=9, seed=5, framework="numpy", dtype=dtype, layout=layout, targets=MASKS
        )

    plain = {int(i): image for batch in made(()) for i, image in zip(batch.sample_ids, batch.images, strict=True)}
    masks = {int(target["image_id"]): target["masks"] for batch in made(()) for target in batch.targets}
    num_soft = 0
    for batch in made((ops.CopyPaste(blur_px=2.0),)):
        for image, target, row in zip(batch.images, batch.targets, batch.plan.rows, strict=True):
            partner, own = int(row["mixing"]["partner"]), plain[int(row["sample_id"])]
            union = masks[partner][target["object_ids"][pasted_of(target, partner)]].any(axis=0)
            alpha = ndimage.gaussian_filter(union.astype(np.float64), 2.0, mode="nearest", truncate=3.0)
            alpha = alpha[None] if layout == "NCHW" else alpha[:, :, None]
            expected = own + alpha * (plain[partner].astype(np.float64) - own)
            bound = {"uint8": 0.501, "float16": 0.07, "float32": 1e-3}[dtype]
            assert np.abs(image - expected).max() <= bound
            np.testing.assert_array_equal(
                image[np.broadcast_to(alpha == 0.0, image.shape)], own[np.broadcast_to(alpha == 0.0, image.shape)]
            )
            assert row["mixing"]["weight"] == pytest.approx(1.0 - alpha.mean(), abs=1e-6)
            num_soft += int(((alpha > 0.05) & (alpha < 0.95)).any())
    assert num_soft > 20


def test_pairs_that_are_mixed_in_different_ways_take_of_each_other_what_was_there(source: ObjectSource) -> None:
    flat = object_source(70)
    mixing = (ops.CopyPaste(p=0.4, object_p=1.0), ops.CutMix(p=0.3), ops.MixUp(p=0.3, alpha=8.0))
    plain = unmixed(flat, CROPPED, targets=MASKS)
    num: dict[tuple[str, str], int] = {}
    kinds = {}
    images = [*each_image(pasting_loader(flat, CROPPED, mixing, batch_size=64))]
    for _, image, target, row, mix in images:
        sample_id, partner = int(row["sample_id"]), int(row["mixing"]["partner"])
        own, other = plain[sample_id][0][0], plain[partner][0][0]
        if mix.op == "copy_paste":
            numbers = target["object_ids"][pasted_of(target, partner)]
            changed = plain[partner][0][1]["masks"][numbers].any(axis=0)
            np.testing.assert_array_equal(image, np.where(changed[:, :, None], other, own))
        elif mix.op == "cut_mix":
            left, top, right, bottom = row["mixing"]["region"]
            expected = own.copy()
            expected[top:bottom, left:right] = other[top:bottom, left:right]
            np.testing.assert_array_equal(image, expected)
        else:
            weight = float(row["mixing"]["weight"])
            assert np.abs(image - (weight * own.astype(np.float64) + (1.0 - weight) * other)).max() <= 0.51
        kinds[sample_id] = mix.op, partner
    for sample_id, (kind, partner) in kinds.items():
        if kinds[partner][1] == sample_id:
            pair = tuple(sorted((kind, kinds[partner][0])))
            num[pair[0], pair[1]] = num.get((pair[0], pair[1]), 0) + 1
    assert {("copy_paste", "copy_paste"), ("copy_paste", "cut_mix"), ("copy_paste", "mix_up")} <= set(num), num


def test_objects_are_taken_as_often_as_asked(source: ObjectSource) -> None:
    recipe = Recipe(ops=(ops.Resize(size=(40, 44)),))
    plain = unmixed(source, recipe, targets=MASKS)
    for object_p in (0.0, 0.3, 1.0):
        num = total = 0
        for _, _, target, row, _ in each_image(pasting_loader(source, recipe, (ops.CopyPaste(object_p=object_p),))):
            other = plain[int(row["mixing"]["partner"])][0][1]
            num += int(pasted_of(target, row["mixing"]["partner"]).sum())
            total += int((other["masks"].any(axis=(1, 2)) & (other["iscrowd"] == 0)).sum())
        assert total > 80 and abs(num / total - object_p) < (0.12 if object_p == 0.3 else 1e-9)


def test_what_is_covered_is_dropped_by_the_options_and_named(source: ObjectSource) -> None:
    recipe, num = Recipe(ops=(ops.Resize(size=(48, 60)),)), 0
    plain = unmixed(source, recipe, targets=MASKS)
    loader = pasting_loader(source, recipe, (ops.CopyPaste(object_p=1.0),), targets=TargetOptions(min_visibility=0.5))
    for batch in loader:
        for target, row, dropped in zip(batch.targets, batch.plan.rows, batch.dropped, strict=True):
            is_pasted = pasted_of(target, row["mixing"]["partner"])
            other, own = (plain[int(i)][0][1] for i in (row["mixing"]["partner"], row["sample_id"]))
            union = other["masks"][target["object_ids"][is_pasted]].any(axis=0)
            reasons = dict(dropped)
            assert not reasons.keys() & {*target["object_ids"][~is_pasted].tolist()}
            assert len(reasons) + (~is_pasted).sum() == len(own["labels"])
            for number, mask in enumerate(own["masks"]):
                if mask.sum() > 60 and abs((share := (mask & ~union).sum() / mask.sum()) - 0.5) > 0.02:
                    assert (number in reasons) == (share < 0.5)
                    num += share < 0.5
                    if 0.0 < share < 0.5:
                        told, _, rest = reasons[number].partition("%")
                        assert float(told) == pytest.approx(100.0 * share, abs=0.02) and "min_visibility=0.5" in rest
    assert num > 10


def test_a_replaced_partner_brings_its_own_objects() -> None:
    sound = object_source(20)
    damaged = ObjectSource([*sound.contents], [*sound.objects])
    for sample_id in (2, 3, 11):
        damaged.contents[sample_id] = TEXT
    plain = unmixed(sound, CROPPED, targets=MASKS)
    loader = pasting_loader(damaged, CROPPED, on_error="skip", batch_size=3)
    for _, image, target, row, mix in each_image(loader):
        own, other = (plain[int(row["sample_id"])][0][0], plain[int(row["mixing"]["partner"])][0] if mix else None)
        union = np.zeros(image.shape[:2], np.bool_)
        if other is not None:
            union = other[1]["masks"][target["object_ids"][pasted_of(target, row["mixing"]["partner"])]].any(axis=0)
        np.testing.assert_array_equal(image, own if other is None else np.where(union[:, :, None], other[0], own))
    assert {2, 3, 11} <= set(loader.skipped)


def test_of_partners_from_other_batches_the_rest_is_not_decoded(
    source: ObjectSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against one batch of all, whose images are decoded for their own sake; of few objects each, or of none."""
    recipe = Recipe(ops=(ops.RandomResizedCrop(size=(36, 44), scale=(0.5, 1.0)), ops.Flip()))
    mixing, given = (ops.CopyPaste(object_p=0.4, blur_px=0.5),), {"shuffle": False}
    (expected,) = pasting_loader(source, recipe, mixing, batch_size=len(source), **given)
    px, num, fill = {"own": 0, "guests": 0}, {"own": 0, "guests": 0, "not read": 0}, HostOutput.fill

    def noted(self: Any, batch: Any, items: Any, decoder: Any) -> None:
        for item in items:
            whose = "own" if item.position < batch.num_own else "guests"
            left, top, right, bottom = item.region
            is_hidden = batch.hidden is not None and batch.hidden[item.position]
            px[whose] += 0 if is_hidden else (right - left) * (bottom - top)
            num[whose] += 1
            num["not read"] += bool(is_hidden)
        fill(self, batch, items, decoder)

    monkeypatch.setattr(HostOutput, "fill", noted)
    found = [*pasting_loader(source, recipe, mixing, batch_size=1, **given)]
    np.testing.assert_array_equal(np.concatenate([batch.images for batch in found]), expected.images)
    assert targets_by_id(found) == targets_by_id([expected])
    assert num["guests"] > 0.9 * num["own"] and num["not read"] > 0.1 * num["guests"], num
    assert px["guests"] < 0.4 * px["own"], px


def test_a_schedule_ends_it(source: ObjectSource) -> None:
    loader = loader_of(source, Schedule.of({0: mixed(CROPPED, PASTE), 1: CROPPED}), targets=MASKS)
    num = [sum(batch.plan.recipe.pastes_objects for batch in loader) for _ in range(2)]
    assert num == [len(loader), 0]


def test_captions_say_what_was_pasted(source: ObjectSource) -> None:
    texts = [
        dict(batch.plan.captions(position)).get("copy_paste", "")
        for batch in pasting_loader(source, CROPPED)
        for position in range(len(batch))
    ]
    assert any(text.startswith("objects of sample ") and text.endswith("%") for text in texts)
    assert any(text.startswith("no object of sample ") for text in texts) and "" in texts


def test_loaders_without_targets_are_refused(source: ObjectSource) -> None:
    with pytest.raises(ValueError, match="these batches have none"):
        loader_of(source, {0: CROPPED, 1: mixed(CROPPED, PASTE)}, targets="off")


def test_polygons_are_the_outlines_of_what_is_left(source: ObjectSource) -> None:
    cv2 = pytest.importorskip("cv2")
    options, num_holes = TargetOptions(masks=True, polygons=True), 0
    recipe = Recipe(ops=(ops.Resize(size=(48, 60)),))
    for _, _, target, row, _ in each_image(pasting_loader(source, recipe, targets=options)):
        for number in np.flatnonzero(target["from_sample"] == row["sample_id"]):
            rings, mask = target["polygons"][number], target["masks"][number]
            if not all((ring == np.round(ring)).all() for ring in rings):
                continue  # nothing lies on it
            y, x = np.mgrid[:48, :60] + 0.5
            inside = np.zeros(mask.shape, np.bool_)
            for ring in rings:
                crossings = np.zeros(mask.shape, np.int64)
                for (x0, y0), (x1, y1) in zip(ring, np.roll(ring, -1, axis=0), strict=True):
                    crossings += (x0 == x1) & (x < x0) & (y > min(y0, y1)) & (y < max(y0, y1))
                inside |= crossings % 2 == 1
            np.testing.assert_array_equal(inside, mask > 0)
            hierarchy = cv2.findContours(mask, cv2.RETR_CCOMP, cv2.CHAIN_APPROX_SIMPLE)[1]
            num_holes += hierarchy is not None and bool((hierarchy[0, :, 3] >= 0).any())
    assert num_holes >= 1


def test_sources_without_outlines_are_refused() -> None:
    class Boxes(ObjectSource):
        def targets_of(self, sample_ids: Any) -> Any:
            found = super().targets_of(sample_ids)
            return type(found)(counts=found.counts, boxes=found.boxes, labels=found.labels)

    whole = object_source(4)
    maps: LabelMapSource = label_map_source(4)
    for source in (Boxes(whole.contents, whole.objects), maps):
        with pytest.raises(ValueError, match="Give a source with outlines of objects"):
            loader_of(source, mixed(CROPPED, PASTE), targets="list")


def test_who_knows_no_partner_refuses() -> None:
    recipe = mixed(CROPPED, PASTE)
    with pytest.raises(ValueError, match="mixes samples"):
        Augment(recipe)
    with pytest.raises(ValueError, match="knows no outlines of objects"):
        plan(recipe, [1, 2], sizes=[(40, 40)] * 2, partners=[2, 1])
    assert len(plan(recipe, [1, 2], sizes=[(40, 40)] * 2)) == 2


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"object_p": 1.5}, "object_p"),
        ({"blur_px": -1.0}, "blur_px"),
        ({"blur_px": float("nan")}, "blur_px"),
        ({"alpha": 1.0}, "'alpha' is not a field of CopyPaste"),
        ({"object_P": 1.0}, "Did you mean 'object_p'"),
    ],
)
def test_bad_fields_are_refused(fields: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ops.CopyPaste(**fields)


def test_it_reads_and_writes_toml(tmp_path: Path) -> None:
    recipe = mixed(Recipe(ops=(ops.Resize(size=(40, 44)),)), (ops.CopyPaste(p=0.5, object_p=0.25, blur_px=1.5),))
    recipe.dump(tmp_path / "pasted.toml")
    assert Recipe.load(tmp_path / "pasted.toml").mixing == recipe.mixing
    with pytest.raises(ValueError, match="goes into the recipe's mixing"):
        Recipe.model_validate({"ops": [ops.CopyPaste()]})


def test_other_backends_say_that_they_paste_nothing(source: ObjectSource) -> None:
    with pytest.raises(ValueError, match="on the CPU with the native backend only"):
        check_pasting([CROPPED, mixed(CROPPED, PASTE)], source, MASKS, is_native=False)
    check_pasting([CROPPED], source, None, is_native=False)


@pytest.mark.slow
def test_a_loader_that_pastes_is_explained(source: ObjectSource) -> None:
    found = pasting_loader(source, CROPPED).explain(seconds=0.5)
    assert found.rate > 0.0 and "mixing" in str(found)
