"""Targets of mixed images, against those of the same epoch unmixed, which are pasted by hand."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from augpipe import Batch, Loader, Recipe, Schedule, TargetOptions, View, ops, sampling
from augpipe.planning.targets.inverse_map import InverseMap
from tests.augpipe.loader.loader_sources import TEXT
from tests.augpipe.loader.target_sources import (
    CROPPED,
    MOSAIC,
    MOSAIC_OF_NINE,
    ObjectSource,
    label_map_source,
    object_source,
    targets_by_id,
)

CUT = (ops.CutMix(p=0.8),)
BOTH = (ops.CutMix(p=0.5), ops.MixUp(p=0.4, alpha=8.0))
VIEWS = Recipe(
    views=(
        View(ops=(ops.RandomResizedCrop(size=(36, 44), scale=(0.3, 1.0)), ops.Flip(), ops.LensDistortion(p=0.5))),
        View(ops=(ops.Resize(size=(40, 30)), ops.Flip(direction="vertical"), ops.QuarterTurn()), count=2),
    ),
)
ALL = TargetOptions(masks=True, polygons=True, drop_empty=False)
PLAIN_NAMES = ("labels", "id", "tag", "iscrowd", "object_ids")


def mixed(recipe: Recipe, mixing: Any = BOTH) -> Recipe:
    return recipe.model_copy(update={"mixing": mixing})


def loader_of(source: Any, recipe: Any, **options: Any) -> Loader:
    given = {"batch_size": 6, "num_threads": 2, "seed": 5, "framework": "numpy", "targets": ALL, **options}
    return Loader(source, recipe, dtype="uint8", layout="NHWC", **given)


def views_of(batch: Batch) -> list[tuple[Any, Any, Any]]:
    """For each view its images, targets and plan records."""
    if isinstance(batch.images, tuple):
        return [*zip(batch.images, batch.targets, batch.plan.views, strict=True)]
    return [(batch.images, batch.targets, batch.plan.rows)]


def unmixed(source: Any, recipe: Recipe, **options: Any) -> dict[int, list[tuple[Any, Any]]]:
    """Sample id -> for each view the image and its targets, of an epoch in which nothing is mixed."""
    found: dict[int, list[tuple[Any, Any]]] = {}
    for batch in loader_of(source, recipe, **options):
        for position, sample_id in enumerate(batch.sample_ids.tolist()):
            found[sample_id] = [(images[position], targets[position]) for images, targets, _ in views_of(batch)]
    return found


def covered(mix: Any, size: tuple[int, int]) -> npt.NDArray[np.bool_]:
    """(H, W) where the partner is pasted."""
    mask = np.zeros(size, np.bool_)
    left, top, right, bottom = mix["region"]
    mask[top:bottom, left:right] = True
    return mask


def check(batches: Iterable[Batch], plain: dict[int, list[tuple[Any, Any]]]) -> dict[str, int]:
    """Compare each image with what is pasted by hand; how many were of each kind, and how many objects were cut."""
    num = {"none": 0, "cut_mix": 0, "mix_up": 0, "cut": 0}
    for batch in batches:
        for view, (images, targets, rows) in enumerate(views_of(batch)):
            for position, (image, target, row) in enumerate(zip(images, targets, rows, strict=True)):
                own_image, own = plain[int(row["sample_id"])][view]
                mix = row["mixing"]
                kind = batch.plan.recipe.mixing[mix["kind"] - 1].op if mix["kind"] else "none"
                num[kind] += 1
                assert target["image_id"] == row["sample_id"] == batch.sample_ids[position]
                parts = [(own, np.ones(image.shape[:2], np.bool_), 1.0, int(row["sample_id"]))]
                if kind != "none":
                    other_image, other = plain[int(mix["partner"])][view]
                    parts.append((other, np.ones(image.shape[:2], np.bool_), 1.0, int(mix["partner"])))
                if kind == "cut_mix":
                    pasted = covered(mix, image.shape[:2])
                    np.testing.assert_array_equal(image, np.where(pasted[:, :, None], other_image, own_image))
                    parts = [(*parts[0][:1], ~pasted, *parts[0][2:]), (*parts[1][:1], pasted, *parts[1][2:])]
                elif kind == "mix_up":
                    weight = float(mix["weight"])
                    sums = weight * own_image.astype(np.float64) + (1.0 - weight) * other_image
                    assert np.abs(image - sums).max() <= 0.51
                    parts = [(*parts[0][:2], weight, parts[0][3]), (*parts[1][:2], 1.0 - weight, parts[1][3])]
                num["cut"] += check_objects(target, parts)
    return num


def check_objects(target: Any, parts: list[tuple[Any, npt.NDArray[np.bool_], float, int]]) -> int:
    """Objects of (targets, where they are seen, weight, sample), one behind the other; how many were cut."""
    assert len(target["labels"]) == sum(len(part["labels"]) for part, *_ in parts)
    begin = num_cut = 0
    for part, seen, weight, sample_id in parts:
        of_part = slice(begin, begin + len(part["labels"]))
        begin = of_part.stop
        for name in PLAIN_NAMES:
            assert [*target[name][of_part]] == [*part[name]], name
        assert (target["from_sample"][of_part] == part.get("from_sample", sample_id)).all()
        np.testing.assert_allclose(target["mix_weight"][of_part], weight, rtol=1e-6)
        expected = part["masks"] * seen
        np.testing.assert_array_equal(target["masks"][of_part], expected)
        for number, mask in enumerate(expected):
            whole, box = part["boxes"][number], target["boxes"][of_part][number]
            if not mask.any():
                has_outline = bool(part["polygons"][number])
                assert not has_outline or np.prod(np.maximum(box[2:] - box[:2], 0)) < 40
                continue
            rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
            hull = np.array([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1])
            # the outline may reach between the centres of pixels, in a sliver even further; never past what it was
            assert (box[:2] <= hull[:2] + 1).all() and (box[2:] >= hull[2:] - 1).all()
            assert (box[:2] >= whole[:2] - 1e-3).all() and (box[2:] <= whole[2:] + 1e-3).all()
            if (mask != part["masks"][number]).any():
                num_cut += 1
            else:  # at most a sliver between the centres of pixels is cut off
                lost = part["area"][number] - target["area"][of_part][number]
                assert -1e-3 < lost < 1.5 and (lost > 0.05 or np.abs(box - whole).max() < 1.01)
        known = part["keypoints"]
        points = target["keypoints"][of_part]
        np.testing.assert_array_equal(points[:, :, :2], known[:, :, :2])
        is_shown = known[:, :, 2] > 0
        column, row = (np.floor(known[:, :, axis]).astype(int) for axis in (0, 1))
        height, width = seen.shape
        inside = is_shown & (column < width) & (row < height) & (column >= 0) & (row >= 0)
        expected_visibility = np.where(inside, seen[np.clip(row, 0, height - 1), np.clip(column, 0, width - 1)], 1)
        np.testing.assert_array_equal(points[:, :, 2], known[:, :, 2] * expected_visibility)
    return num_cut


@pytest.fixture(scope="module")
def source() -> ObjectSource:
    return object_source(70)


@pytest.mark.parametrize("recipe", [CROPPED, VIEWS, MOSAIC, MOSAIC_OF_NINE], ids=["cropped", "views", "four", "nine"])
@pytest.mark.parametrize("options", [{}, {"batch_size": 64}, {"rank": 1, "world_size": 2, "batch_size": 7}], ids=str)
def test_objects_are_those_of_both_images(source: ObjectSource, recipe: Recipe, options: Any) -> None:
    plain = unmixed(source, recipe)
    num = check(loader_of(source, mixed(recipe), **options), plain)
    assert min(num.values()) >= 3 and num["cut"] > 10, num


def test_boxes_without_outlines_are_cut_as_outlines_of_four_corners_are(source: ObjectSource) -> None:
    boxed, outlined = (ObjectSource(source.contents, objects_as(source, as_outlines)) for as_outlines in (False, True))
    recipe = mixed(Recipe(ops=CROPPED.ops))
    options: dict[str, Any] = {"targets": TargetOptions(drop_empty=False, min_visibility=0.3)}
    num_dropped = 0
    for one, other in zip(loader_of(boxed, recipe, **options), loader_of(outlined, recipe, **options), strict=True):
        for target, expected in zip(one.targets, other.targets, strict=True):
            np.testing.assert_array_equal(target["id"], expected["id"])
            np.testing.assert_allclose(target["boxes"], expected["boxes"], atol=1e-4)
        assert [[one_id for one_id, _ in each] for each in one.dropped] == [
            [one_id for one_id, _ in each] for each in other.dropped
        ]
        num_dropped += sum(map(len, one.dropped))
    assert num_dropped > 20


def objects_as(source: ObjectSource, as_outlines: bool) -> Any:
    """The objects with their boxes alone, or with these as outlines."""
    made = []
    for one in source.objects:
        outlines = [[box[[0, 1, 2, 1, 2, 3, 0, 3]].reshape(4, 2)] if as_outlines else [] for box in one.boxes]
        made.append(type(one)(**{**vars(one), "polygons": outlines}))
    return made


@pytest.mark.slow
def test_boxes_of_corners_are_cut_at_what_is_pasted(source: ObjectSource) -> None:
    whole, cut = (TargetOptions(boxes="corners", drop_empty=False) for _ in range(2))
    plain = {
        int(target["image_id"]): target["boxes"]
        for batch in loader_of(source, CROPPED, targets=whole)
        for target in batch.targets
    }
    num_cut = 0
    for batch in loader_of(source, mixed(CROPPED, CUT), targets=cut):
        for target, row in zip(batch.targets, batch.plan.rows, strict=True):
            if not row["mixing"]["kind"]:
                continue
            region = row["mixing"]["region"].astype(np.float64)
            num_own = len(plain[int(row["sample_id"])])
            for box, expected in zip(target["boxes"][num_own:], plain[int(row["mixing"]["partner"])], strict=True):
                inside = np.clip(expected, np.tile(region[:2], 2), np.tile(region[2:], 2))
                is_seen = (inside[2:] > inside[:2]).all()
                assert not is_seen or np.allclose(box, inside, atol=1e-4)
                num_cut += is_seen
            for box, expected in zip(target["boxes"][:num_own], plain[int(row["sample_id"])], strict=True):
                sides = (np.arange(0, 4400) + 0.5) / 100.0
                x, y = (sides[(sides >= expected[n]) & (sides <= expected[2 + n])] for n in (0, 1))
                is_free = ~(((x > region[0]) & (x < region[2]))[None] & ((y > region[1]) & (y < region[3]))[:, None])
                if len(x) > 10 and len(y) > 10 and is_free.any():
                    rows, columns = np.flatnonzero(is_free.any(axis=1)), np.flatnonzero(is_free.any(axis=0))
                    hull = np.array([x[columns[0]], y[rows[0]], x[columns[-1]], y[rows[-1]]])
                    assert np.abs(box - hull).max() < 0.03
    assert num_cut > 10


def test_what_is_covered_is_dropped_by_the_options_and_named(source: ObjectSource) -> None:
    recipe = mixed(Recipe(ops=(ops.Resize(size=(48, 60)),)), CUT)
    plain = unmixed(source, Recipe(ops=recipe.ops))
    options = TargetOptions(masks=True, min_visibility=0.5, min_area=30.0)
    seen_reasons = set()
    for batch in loader_of(source, recipe, targets=options):
        for target, row, dropped in zip(batch.targets, batch.plan.rows, batch.dropped, strict=True):
            if not row["mixing"]["kind"]:
                continue
            kept = {*zip(target["from_sample"].tolist(), target["object_ids"].tolist(), strict=True)}
            pasted = covered(row["mixing"], (48, 60))
            for sample_id, seen in ((row["sample_id"], ~pasted), (row["mixing"]["partner"], pasted)):
                for nth, mask in enumerate(plain[int(sample_id)][0][1]["masks"]):
                    if mask.sum() < 60:
                        continue
                    share = (mask * seen).sum() / mask.sum()
                    if abs(share - 0.5) > 0.1:
                        assert ((int(sample_id), nth) in kept) == (share > 0.5), (share, target, dropped)
            texts = [reason for _, reason in dropped]
            seen_reasons |= {text.partition(": ")[0] for text in texts if text.startswith("of sample")}
            assert all(f"of sample {row['mixing']['partner']}: " in text for text in texts if "sample" in text)
            assert len(dropped) + len(target["labels"]) == sum(
                len(plain[int(sample_id)][0][1]["labels"]) for sample_id in (row["sample_id"], row["mixing"]["partner"])
            )
    assert len(seen_reasons) > 5


@pytest.mark.slow
def test_label_maps_are_pasted() -> None:
    for source in (label_map_source(70), object_source(70, maps=True)):
        for recipe in (CROPPED, VIEWS, MOSAIC, MOSAIC_OF_NINE):
            plain = unmixed(source, recipe, targets="list")
            num = 0
            for batch in loader_of(source, mixed(recipe, CUT), batch_size=9, targets="list"):
                for view, (_, targets, rows) in enumerate(views_of(batch)):
                    for target, row in zip(targets, rows, strict=True):
                        own, other = (
                            plain[int(sample_id)][view][1]
                            if row["mixing"]["kind"]
                            else plain[row["sample_id"]][view][1]
                            for sample_id in (row["sample_id"], row["mixing"]["partner"])
                        )
                        own, other, found = (
                            one["mask"] if isinstance(one, dict) else one for one in (own, other, target)
                        )
                        np.testing.assert_array_equal(found, np.where(covered(row["mixing"], own.shape), other, own))
                        num += int(row["mixing"]["kind"] > 0)
            assert num > 30


def test_mix_up_of_label_maps_is_refused_by_name() -> None:
    for source in (label_map_source(4), object_source(4, maps=True)):
        with pytest.raises(ValueError, match=r"shows two images at once \(mix_up\)") as problem:
            loader_of(source, {0: CROPPED, 1: mixed(CROPPED)}, targets="list")
        assert "Use CutMix" in str(problem.value) and 'targets="off"' in str(problem.value)
        assert len(loader_of(source, mixed(CROPPED), targets="off")) == 1


@pytest.mark.parametrize("cuts_maps", [False, True])
def test_a_replaced_partner_brings_its_own_targets(cuts_maps: bool) -> None:
    sound = object_source(20, maps=cuts_maps)
    damaged = ObjectSource([*sound.contents], [*sound.objects], sound.maps)
    for sample_id in (2, 3, 11):
        damaged.contents[sample_id] = TEXT
    damaged.objects[7].boxes = damaged.objects[7].boxes + 1000.0
    plain = unmixed(sound, CROPPED) | unmixed(damaged, CROPPED, on_error="skip")
    loader = loader_of(damaged, mixed(CROPPED, CUT), on_error="skip", batch_size=3)
    num = check(loader, plain)
    assert num["cut_mix"] > 8 and {2, 3, 11} <= set(loader.skipped)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["list", "padded", "flat"])
def test_forms_and_frameworks_hold_the_same(source: ObjectSource, form: Any) -> None:
    torch = pytest.importorskip("torch")
    options = TargetOptions(form=form)
    arrays, lists = (loader_of(source, mixed(VIEWS), targets=one) for one in (options, TargetOptions()))
    tensors = Loader(source, mixed(VIEWS), batch_size=6, seed=5, targets=options, dtype="uint8")
    for batch, listed, other in zip(arrays, lists, tensors, strict=True):
        for view, (target, wanted, tensor) in enumerate(zip(batch.targets, listed.targets, other.targets, strict=True)):
            if form == "list":
                ids = np.concatenate([one["from_sample"] for one in target])
                of_tensor = torch.cat([one["from_sample"] for one in tensor])
                weights = np.concatenate([one["mix_weight"] for one in target])
            elif form == "flat":
                ids, of_tensor, weights = target["from_sample"], tensor["from_sample"], target["mix_weight"]
                counts = [len(one["labels"]) for one in wanted]
                assert target["batch_idx"].tolist() == np.repeat(range(len(counts)), counts).tolist()
            else:
                is_there = np.arange(target["labels"].shape[1]) < target["lengths"][:, None]
                ids, weights = target["from_sample"][is_there], target["mix_weight"][is_there]
                of_tensor = tensor["from_sample"][torch.from_numpy(is_there)]
                assert (target["labels"][~is_there] == -1).all()
            expected = np.concatenate([one["from_sample"] for one in wanted])
            assert ids.tolist() == expected.tolist() == of_tensor.tolist(), view
            assert weights.dtype == np.float32 and ((weights > 0.0) & (weights <= 1.0)).all()


def test_one_image_of_a_batch_is_replayed_and_cut_out_with_the_same_targets(source: ObjectSource) -> None:
    loader = loader_of(source, mixed(CROPPED))
    batches = [*loader]
    loader.set_epoch(0)
    expected = targets_by_id(batches)
    num_mixed = 0
    for batch in batches[:4]:
        for position in range(len(batch)):
            again = loader.replay(batch.line(position))
            assert targets_by_id([again]) == {int(batch.sample_ids[position]): expected[batch.sample_ids[position]]}
            np.testing.assert_array_equal(again.images[0], batch.images[position])
            assert again.plan.rows["mixing"] == batch.plan.rows["mixing"][position]
            one = batch[position]
            assert targets_by_id([one]) == targets_by_id([again])
            num_mixed += int(one.plan.rows["mixing"]["kind"][0] > 0)
    assert num_mixed > 5


@pytest.mark.slow
def test_a_resumed_and_a_scheduled_run_go_on(source: ObjectSource) -> None:
    ends = Schedule.of({0: mixed(CROPPED), 1: CROPPED})
    loader, plain = loader_of(source, ends), loader_of(source, CROPPED)
    running = iter(loader)
    first = [next(running) for _ in range(5)]
    state = loader.state_dict()
    resumed = loader_of(source, ends, batch_size=4)
    resumed.load_state_dict(state)
    whole = targets_by_id(loader_of(source, mixed(CROPPED), batch_size=70))
    assert targets_by_id(first) | targets_by_id(resumed) == whole
    plain.set_epoch(1)
    batches = [*resumed]
    assert targets_by_id(batches) == targets_by_id(plain)
    assert "from_sample" not in batches[0].targets[0]


def test_a_sampler_that_draws_a_sample_twice_mixes_by_position() -> None:
    source = object_source(9)
    recipe = Recipe(ops=(ops.Resize(size=(40, 44)),), mixing=(ops.CutMix(),))
    plain = unmixed(source, Recipe(ops=recipe.ops))
    sampler = sampling.Repeated(times=9)
    num = check(loader_of(source, recipe, sampler=sampler, batch_size=10), plain)
    assert num["cut_mix"] == 81 - num["none"] and num["cut"] > 20


def test_places_that_show_another_image_are_in_no_photograph(source: ObjectSource) -> None:
    recipe = Recipe(ops=(ops.Resize(size=(40, 44)), ops.Flip()), mixing=BOTH)
    batch = next(iter(loader_of(source, recipe, batch_size=32)))
    rng, kinds = np.random.default_rng(0), set()
    for position, row in enumerate(batch.plan.rows):
        points = rng.uniform((0, 0), (44, 40), (50, 2))
        found, expected = batch.plan.to_source(points, position), points.copy()
        if row["drawn"]["flip"]["flipped"]:
            expected[:, 0] = 44 - points[:, 0]
        expected *= row["width"] / 44, row["height"] / 40
        is_cut = row["mixing"]["kind"] == 1
        pasted = covered(row["mixing"], (40, 44))[points[:, 1].astype(int), points[:, 0].astype(int)] & is_cut
        np.testing.assert_array_equal(np.isnan(found).all(axis=1), pasted)
        np.testing.assert_allclose(found[~pasted], expected[~pasted], atol=1e-6)
        kinds.add(int(row["mixing"]["kind"]))
    assert kinds == {0, 1, 2}


@pytest.mark.parametrize(("margin_px", "outside"), [(0.0, 1e-9), (0.5, 0.51), (-0.5, -0.49)])
def test_edges_of_what_lies_on_top_are_part_of_it(margin_px: float, outside: float) -> None:
    edges, middle = np.array([[10.0, 20.0, 14.0, 26.0]]), np.array([12.0, 23.0])
    ways = np.array([[-1, 0], [1, 0], [0, -1], [0, 1]])
    for beyond_px, is_within in ((margin_px, True), (outside, False)):
        points = middle + ways * (np.array([2.0, 3.0]) + beyond_px)
        assert InverseMap._is_within(edges, points, margin_px).tolist() == [is_within] * 4
