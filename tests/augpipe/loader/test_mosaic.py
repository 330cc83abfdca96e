"""Mosaics of four and nine against canvases that are pasted by hand, and what they must not depend on."""

import itertools
from functools import cache
from pathlib import Path
from typing import Any, Literal

import cv2
import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from augpipe import Augment, Batch, Loader, Plan, Recipe, Schedule, TargetOptions, View, ops, plan, recipes, sampling
from augpipe.pipeline import host_output, mosaic_stage
from augpipe.pipeline.mosaic_stage import check_mosaics
from augpipe.pipeline.mosaic_windows import window_of
from augpipe.sampling.epoch_order import mosaic_partners
from augpipe.sampling.epoch_order import partners as mixing_partners
from tests.augpipe.loader.loader_sources import TEXT, MemorySource, jpegs
from tests.augpipe.loader.target_sources import ObjectSource, label_map_source, object_source, targets_by_id
from tests.parity.images import smooth

NUM, SIZE, GRAY = 70, 48, 114
CANVAS = Recipe(mosaic=ops.Mosaic(size=SIZE), ops=(ops.CenterCrop(size=2 * SIZE),))
NINE = Recipe(mosaic=ops.Mosaic(size=SIZE, num_images=9), ops=CANVAS.ops)
MOVED = Recipe(
    mosaic=ops.Mosaic(size=SIZE, centre=(0.3, 0.8)),
    ops=(
        ops.Rotate(max_deg=25, step=None),
        ops.Zoom(factor=(0.7, 1.3)),
        ops.Translate(horizontal=(-9, 9), vertical=(-9, 9), unit="px"),
        ops.CenterCrop(size=SIZE),
        ops.Flip(),
        ops.ColorCast(),
        ops.Erase(p=0.3),
    ),
)
BENT = Recipe(
    mosaic=ops.Mosaic(size=SIZE, centre=(0.5, 0.5)),
    ops=(ops.LensDistortion(), ops.Perspective(), ops.RandomResizedCrop(size=(40, 50), scale=(0.6, 1.0))),
)
VIEWS = Recipe(
    mosaic=ops.Mosaic(size=(SIZE, 60), p=0.7),
    views=(View(ops=(ops.CenterCrop(size=40), ops.Flip()), count=2), View(ops=(ops.RandomResizedCrop(size=24),))),
)
NINE_MOVED = Recipe(mosaic=ops.Mosaic(size=SIZE, num_images=9, centre=(0.3, 0.7)), ops=MOVED.ops)
NINE_BENT = Recipe(mosaic=ops.Mosaic(size=SIZE, num_images=9, centre=(0.5, 0.5)), ops=BENT.ops)
NINE_VIEWS = Recipe(mosaic=ops.Mosaic(size=(SIZE, 60), num_images=9, p=0.7), views=VIEWS.views)
MIXED = MOVED.model_copy(update={"mixing": (ops.CutMix(p=0.5), ops.CopyPaste(p=0.4, object_p=0.8))})
CUT = MOVED.model_copy(update={"mixing": (ops.CutMix(),)})
CUT_NINE = NINE_VIEWS.model_copy(update={"mixing": (ops.CutMix(),)})
PASTED = MOVED.model_copy(update={"mixing": (ops.CopyPaste(object_p=0.2),)})
PASTED_NINE = NINE_VIEWS.model_copy(update={"mixing": (ops.CopyPaste(object_p=0.2),)})
NINE_MIXED = NINE_VIEWS.model_copy(update={"mixing": (ops.CopyPaste(p=0.5), ops.CutMix(p=0.5))})
ALL = TargetOptions(drop_empty=False)


@cache
def source() -> ObjectSource:
    """Smooth photographs, whose pixels survive being resampled twice, with objects and label maps."""
    found = object_source(NUM, maps=True)
    contents = [smooth(*labels.shape[:2], seed=number) for number, labels in enumerate(found.maps)]
    return ObjectSource(contents, found.objects, found.maps)


def loader_of(recipe: Any, objects: Any = None, **options: Any) -> Loader:
    given = {"batch_size": 6, "num_threads": 2, "seed": 5, "framework": "numpy", "layout": "NHWC", **options}
    return Loader(objects or source(), recipe, **{"dtype": "uint8", "targets": ALL, **given})


def places_of(row: Any, sizes: list[tuple[int, int]]) -> list[tuple[int, int, int, int]]:
    """Left, top, width and height in the canvas of the images of a mosaic, of (height, width) `sizes`."""
    x, y = row["mosaic"]["centre"].tolist()
    scaled = [
        (round(width * SIZE / max(height, width)), round(height * SIZE / max(height, width))) for height, width in sizes
    ]
    if len(sizes) == 9:
        return places_around(x - SIZE // 2, y - SIZE // 2, scaled)
    return [
        (x - wide if cell % 2 == 0 else x, y - high if cell < 2 else y, wide, high)
        for cell, (wide, high) in enumerate(scaled)
    ]


def places_around(left: int, top: int, scaled: list[tuple[int, int]]) -> list[tuple[int, int, int, int]]:
    """Those of nine, as each of the four sides is laid: from a corner of the own image, in the middle, clockwise."""
    right, bottom = left + scaled[0][0], top + scaled[0][1]
    placed = [(left, top, *scaled[0])]
    end = left
    for wide, high in scaled[1:3]:  # above, from left to right, standing on the line of the own one's upper edge
        placed.append((end, top - high, wide, high))
        end += wide
    end = top
    for wide, high in scaled[3:5]:  # to the right, downwards
        placed.append((right, end, wide, high))
        end += high
    end = right
    for wide, high in scaled[5:7]:  # below, from right to left
        end -= wide
        placed.append((end, bottom, wide, high))
    end = bottom
    for wide, high in scaled[7:]:  # to the left, upwards
        end -= high
        placed.append((left - wide, end, wide, high))
    return placed


def cells_of(batch: Batch) -> list[tuple[Any, list[int]]]:
    """For each image its plan record, and the samples that it shows."""
    rows = batch.plan.rows
    return [(row, [int(row["sample_id"]), *row["mosaic"]["partners"].tolist()]) for row in rows]


def canvas_of(
    row: Any, ids: list[int], margin: int = 0, rounds: tuple[float, float] = (0.0, 0.0)
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """The canvas and its label map, pasted by hand: Pillow scales images, and labels are looked up.

    `margin` pixels more are pasted on each side, and labels are looked up so many pixels further along x and y.
    """
    side = 2 * SIZE + 2 * margin
    canvas, labels = np.full((side, side, 3), GRAY, np.uint8), np.full((side, side), 255, np.int64)
    y, x = np.mgrid[:side, :side] + 0.5 - margin
    images = [source().contents[number] for number in ids]
    for number, image, (left, top, wide, high) in zip(
        ids, images, places_of(row, [image.shape[:2] for image in images]), strict=True
    ):
        scaled = np.asarray(Image.fromarray(image).resize((wide, high), Image.Resampling.BILINEAR))
        inside = (x > left) & (x < left + wide) & (y > top) & (y < top + high)
        canvas[inside] = scaled[(y - top).astype(int)[inside], (x - left).astype(int)[inside]]
        of_x = np.clip((x - left) * image.shape[1] / wide + rounds[0], 0, image.shape[1] - 1).astype(int)[inside]
        of_y = np.clip((y - top) * image.shape[0] / high + rounds[1], 0, image.shape[0] - 1).astype(int)[inside]
        labels[inside] = source().maps[number][of_y, of_x]
    return canvas, labels


def assert_shows(labels: Any, row: Any, ids: list[int]) -> None:
    """A canvas's label map is the one pasted by hand; what lies between two pixels may show either of them."""
    either = [canvas_of(row, ids, rounds=(x, y))[1] for x in (-1e-4, 1e-4) for y in (-1e-4, 1e-4)]
    assert np.any([labels == one for one in either], axis=0).all()


@pytest.mark.slow
@pytest.mark.parametrize("recipe", [CANVAS, NINE], ids=["four", "nine"])
def test_a_canvas_holds_images_around_its_centre(recipe: Recipe) -> None:
    batches = [*loader_of(recipe)]
    centres, num = [], 0
    for batch in batches:
        for image, target, (row, ids) in zip(batch.images, batch.targets, cells_of(batch), strict=True):
            assert recipe.mosaic is not None and len(ids) == recipe.mosaic.num_images
            assert np.abs(image.astype(int) - canvas_of(row, ids)[0]).max() <= 1
            assert_shows(target["mask"], row, ids)
            centres.append(row["mosaic"]["centre"].tolist())
            num += check_objects(target, row, ids)
    assert num > 200 and len(set(map(tuple, centres))) > NUM - 5
    assert 24 <= np.min(centres) < 30 and 66 < np.max(centres) < 72


def check_objects(target: Any, row: Any, ids: list[int]) -> int:
    """All objects of the images, in their order: boxes and points scaled, moved, and cut at the canvas."""
    sizes = [source().contents[number].shape[:2] for number in ids]
    begin = 0
    for number, (height, width), (left, top, wide, high) in zip(ids, sizes, places_of(row, sizes), strict=True):
        known = source().objects[number]
        end = begin + len(known.labels)
        assert (target["from_sample"][begin:end] == number).all() and target["id"][begin:end].tolist() == known.fields[
            "id"
        ]
        assert target["labels"][begin:end].tolist() == known.labels
        scale, offset = np.array([wide / width, high / height]), np.array([left, top])
        for nth in range(len(known.labels)):
            box = known.boxes[nth].reshape(2, 2) * scale + offset
            box = np.clip(box, 0, 2 * SIZE).reshape(4)
            found = target["boxes"][begin + nth]
            if not known.polygons[nth] and (box[2:] > box[:2]).all():
                np.testing.assert_allclose(found, box, atol=1e-3)
            elif (found[2:] > found[:2]).any():
                assert (found[:2] >= box[:2] - 1e-3).all() and (found[2:] <= box[2:] + 1e-3).all()
            else:  # all of its outline lies outside
                corners = np.concatenate(known.polygons[nth] or [known.boxes[nth].reshape(2, 2)]) * scale + offset
                assert not ((corners > 0.01) & (corners < 2 * SIZE - 0.01)).all(axis=1).any()
            points = known.keypoints[nth, :, :2] * scale + offset
            is_inside = ((points > 0.5) & (points < 2 * SIZE - 0.5)).all(axis=1)
            is_outside = ((points < -1.0) | (points > 2 * SIZE + 1.0)).any(axis=1)
            labelled = known.keypoints[nth, :, 2]
            shown = target["keypoints"][begin + nth]
            np.testing.assert_allclose(
                shown[is_inside & (labelled > 0), :2], points[is_inside & (labelled > 0)], atol=1e-3
            )
            np.testing.assert_array_equal(shown[is_inside, 2], labelled[is_inside])
            assert (shown[is_outside, 2] == 0).all()
        begin = end
    assert len(target["labels"]) == begin and (target["mix_weight"] == 1.0).all()
    return begin


@pytest.mark.slow
@pytest.mark.parametrize(
    "recipe", [MOVED, BENT, NINE_MOVED, NINE_BENT], ids=["moved", "bent", "nine-moved", "nine-bent"]
)
def test_ops_act_on_the_canvas(recipe: Recipe) -> None:
    """As `Augment` acts on the canvas that is pasted by hand; there pixels are looked up twice."""
    plain = Recipe(border="constant", fill=(GRAY,) * 3, ops=recipe.ops)
    augment, num_objects = Augment(plain, seed=5, layout="NHWC", dtype="uint8", num_threads=1), 0
    for batch in loader_of(recipe, targets=TargetOptions(min_area=1.0)):
        for image, target, (row, ids) in zip(batch.images, batch.targets, cells_of(batch), strict=True):
            margin = SIZE if recipe in (MOVED, NINE_MOVED) else 0
            canvas, labels = canvas_of(row, ids, margin)
            boxes, from_sample = boxes_on_canvas(row, ids, margin, are_whole=recipe is NINE_BENT)
            expected = augment(
                image=canvas,
                mask=labels.astype(np.uint8),
                bboxes=boxes,
                bbox_format="pascal_voc",
                owner=from_sample,
                sample_ids=[ids[0]],
                targets=TargetOptions(min_area=1.0),
            )
            # pixels mix across seams and edges of a canvas that is looked up as a whole
            apart = augment(image=canvas, mask=away_from_edges(row, ids, margin), sample_ids=[ids[0]])["mask"] == 1
            missed = np.abs(image.astype(float) - expected["image"]).max(axis=2)[apart]
            # of nine, seams are nearer to all pixels
            most, least = (0.02, 0.15) if recipe is NINE_BENT else (0.01, 0.3)
            assert np.mean(missed > 10) < most and np.median(missed) <= 1 and apart.mean() > least
            assert np.mean((target["mask"] != expected["mask"])[apart]) < 0.06  # labels that are looked up twice
            num_objects += len(target["labels"])
            assert_near(target, expected)
    assert num_objects > 100


@pytest.mark.parametrize("num_images", [4, 9])
def test_no_fill_is_seen_where_images_meet(num_images: Literal[4, 9]) -> None:
    """Also where a canvas is halved, and the middles of pixels lie on the seams."""
    white = label_map_source(12)
    white.contents, white.maps = [np.full((60, 60, 3), 255, np.uint8)] * 12, [np.ones((60, 60), np.int64)] * 12
    halved = Recipe(
        mosaic=ops.Mosaic(size=SIZE, num_images=num_images), ops=(ops.CenterCrop(size=2 * SIZE), ops.Resize(size=SIZE))
    )
    num_on_seams = 0
    for batch in loader_of(halved, white, targets="list", sampler=sampling.Repeated(times=3)):
        for image, labels, row in zip(batch.images, batch.targets, batch.plan.rows, strict=True):
            reach = SIZE if num_images == 4 else 3 * SIZE // 2
            covered = [slice(max(0, place - reach + 1) // 2, (place + reach) // 2) for place in row["mosaic"]["centre"]]
            assert (image[covered[1], covered[0]] == 255).all() and (labels[covered[1], covered[0]] == 1).all()
            num_on_seams += int((row["mosaic"]["centre"] % 2).sum())
    assert num_on_seams > 10


def away_from_edges(row: Any, ids: list[int], margin: int) -> npt.NDArray[np.uint8]:
    """1 where all pixels around one of the canvas are there, and of the same image or of none."""
    side = 2 * SIZE + 2 * margin
    owners = np.zeros((side, side), np.uint8)
    sizes = [source().contents[number].shape[:2] for number in ids]
    for cell, (left, top, wide, high) in enumerate(places_of(row, sizes), start=1):
        first_x, first_y = max(left + margin, 0), max(top + margin, 0)
        owners[first_y : max(top + high + margin, 0), first_x : max(left + wide + margin, 0)] = cell
    square, apart = np.ones((5, 5), np.uint8), np.zeros_like(owners)
    apart[2:-2, 2:-2] = (cv2.dilate(owners, square) == cv2.erode(owners, square))[2:-2, 2:-2]
    return apart


def boxes_on_canvas(row: Any, ids: list[int], margin: int, are_whole: bool) -> tuple[list[Any], list[int]]:
    """Boxes of objects without an outline, cut at the canvas, and whose they are; only uncut ones if they `are_whole`,
    as ops that look beyond the canvas see what is cut off here."""
    boxes: list[Any] = []
    owners: list[int] = []
    sizes = [source().contents[number].shape[:2] for number in ids]
    for number, (height, width), (left, top, wide, high) in zip(ids, sizes, places_of(row, sizes), strict=True):
        known = source().objects[number]
        for box, rings in zip(known.boxes, known.polygons, strict=True):
            moved = box * np.tile([wide / width, high / height], 2) + np.tile([left, top], 2)
            cut = np.clip(moved + margin, 0, 2 * SIZE + 2 * margin)
            if are_whole and (cut != moved + margin).any():
                continue
            if not rings and (cut[2:] > cut[:2] + 1.5).all():
                boxes.append(cut)
                owners.append(number)
    return boxes, owners


def assert_near(target: Any, expected: Any) -> None:
    """Each expected box is there."""
    for box, owner in zip(expected["bboxes"], expected["owner"], strict=True):
        if min(box[2:] - box[:2]) < 3:
            continue
        near = target["boxes"][target["from_sample"] == owner]
        assert len(near) and np.abs(near - box).max(axis=1).min() < 0.1, (box, near)


def test_images_without_a_mosaic_are_letterboxed() -> None:
    recipe = Recipe(mosaic=ops.Mosaic(size=SIZE, p=0.5), ops=(ops.CenterCrop(size=SIZE), ops.Flip()))
    plain = Recipe(ops=(ops.Letterbox(size=SIZE), ops.CenterCrop(size=SIZE), ops.Flip()))
    known = {
        int(number): (image, target)
        for batch in loader_of(plain)
        for number, image, target in zip(batch.sample_ids, batch.images, batch.targets, strict=True)
    }
    num = 0
    for batch in loader_of(recipe, batch_size=9):
        for image, target, row in zip(batch.images, batch.targets, batch.plan.rows, strict=True):
            if not row["mosaic"]["applied"]:
                num += 1
                expected, of_plain = known[int(row["sample_id"])]
                np.testing.assert_array_equal(image, expected)
                np.testing.assert_allclose(target["boxes"], of_plain["boxes"], atol=1e-3)
                np.testing.assert_array_equal(target["mask"], of_plain["mask"])
                assert (row["mosaic"]["partners"] == -1).all()
    assert abs(num - NUM / 2) < 15


def everything(batches: Any) -> dict[int, Any]:
    """Sample id -> bits of its images, targets and partners."""
    found: dict[int, Any] = {}
    for batch in batches:
        views = batch.images if isinstance(batch.images, tuple) else (batch.images,)
        targets = targets_by_id([batch])
        for position, number in enumerate(batch.sample_ids.tolist()):
            pixels = [images[position].tobytes() for images in views]
            found[number] = pixels, targets[number], batch.plan[position : position + 1].rows.tobytes()
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "recipe",
    [MOVED, VIEWS, NINE_MOVED, NINE_VIEWS, MIXED, NINE_MIXED],
    ids=["moved", "views", "nine-moved", "nine-views", "mixed", "nine-mixed"],
)
def test_batch_size_ranks_threads_and_resuming_change_nothing(recipe: Recipe) -> None:
    reference = everything(loader_of(recipe))
    assert sorted(reference) == list(range(NUM))
    assert everything(loader_of(recipe, batch_size=64, num_threads=1, prefetch=1)) == reference
    assert everything(loader_of(recipe, batch_size=1)) == reference
    ranks = [everything(loader_of(recipe, batch_size=5, rank=rank, world_size=3)) for rank in range(3)]
    assert ranks[0] | ranks[1] | ranks[2] == reference
    first = loader_of(recipe, batch_size=9)
    running = iter(first)
    begun = everything([next(running) for _ in range(3)])
    resumed = loader_of(recipe, batch_size=4)
    resumed.load_state_dict(first.state_dict())
    assert begun | everything(resumed) == reference
    next_epoch = everything(resumed)
    assert next_epoch.keys() == reference.keys()
    assert sum(next_epoch[number] == reference[number] for number in reference) < 5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("moved", "canvas"), [(MOVED, CANVAS), (NINE_MOVED, NINE), (MIXED, CANVAS)], ids=["four", "nine", "mixed"]
)
def test_a_cache_and_sticky_ranks_change_no_bit(moved: Recipe, canvas: Recipe) -> None:
    plain, cached = loader_of(moved), loader_of(moved, cache="host")
    assert [everything(cached) for _ in range(2)] == [everything(plain) for _ in range(2)]
    for batch in loader_of(canvas, shuffle="sticky", rank=1, world_size=2):
        for image, (row, ids) in zip(batch.images, cells_of(batch), strict=True):
            assert ids[0] % 2 == 1 and np.abs(image.astype(int) - canvas_of(row, ids)[0]).max() <= 1


@pytest.mark.parametrize("recipe", [MOVED, NINE_MOVED, MIXED], ids=["four", "nine", "mixed"])
def test_one_image_is_replayed_and_cut_out(recipe: Recipe) -> None:
    loader = loader_of(recipe)
    batch = next(iter(loader))
    known = everything([batch])
    for position in range(len(batch)):
        number = int(batch.sample_ids[position])
        assert everything([loader.replay(batch.line(position))]) == {number: known[number]}
        assert everything([batch[position]]) == {number: known[number]}
    assert "mosaic" not in str(batch[0].plan) and "with samples" in str(batch[0].plan)
    assert batch.show().size[0] > 100


def test_numbers_and_layouts_are_those_of_levels() -> None:
    levels = next(iter(loader_of(MOVED)))
    for dtype, layout in (("float32", "NCHW"), ("float16", "NHWC")):
        batch = next(iter(loader_of(MOVED, dtype=dtype, layout=layout)))
        found = np.moveaxis(batch.images, 1, 3) if layout == "NCHW" else batch.images
        # noise leaves 0..255 in numbers that can hold it
        assert np.abs(np.clip(found.astype(float), 0, 255) - levels.images).max() <= 0.51
    gray = next(iter(loader_of(MOVED.model_copy(update={"channels": 1}))))
    assert gray.images.shape == (6, SIZE, SIZE, 1)


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_rendering_what_is_shown_gives_what_whole_outputs_do(monkeypatch: pytest.MonkeyPatch, layout: str) -> None:
    """Also where a fill goes through ops of colour; numbers of pixels are rounded at other places."""
    coloured = (ops.HueSaturationValue(hue=(0.1, 0.2), p=1.0), ops.ColorCast(), ops.Erase(p=0.3))
    geometry = (ops.Rotate(max_deg=25, step=None, p=0.5), ops.Zoom(factor=(0.5, 1.5)), ops.CenterCrop(size=(SIZE, 60)))
    mosaic = ops.Mosaic(size=(SIZE, 60), num_images=9, p=0.9)
    recipe = Recipe(mosaic=mosaic, views=(View(ops=(*geometry, *coloured)), View(ops=geometry)))
    found = [batch.images for batch in loader_of(recipe, layout=layout)]
    windows: list[Any] = []

    def whole(*arguments: Any) -> None:
        windows.append(window_of(*arguments))

    monkeypatch.setattr(host_output, "window_of", whole)
    for batch, views in zip(loader_of(recipe, layout=layout), found, strict=True):
        for expected, images in zip(batch.images, views, strict=True):
            missed = np.abs(images.astype(int) - expected)
            assert missed.max() <= 2 and missed.mean() < 0.05
    px = [(right - left) * (bottom - top) for left, top, right, bottom in filter(None, windows)]
    assert len(px) > 0.6 * len(windows) > 400 and np.mean(px) < 0.5 * SIZE * 60, "little of each is shown"
    assert None in windows, "an erased rectangle lies where it does in the output"


class Counted(ObjectSource):
    """Notes whose label maps are read."""

    def __init__(self) -> None:
        objects = source()
        super().__init__(objects.contents, objects.objects, objects.maps)
        self.read_ids: list[int] = []

    def label_map(self, sample_id: int) -> Any:
        self.read_ids.append(sample_id)
        return super().label_map(sample_id)


@pytest.mark.parametrize(
    ("recipe", "least_share"),
    [(MOVED, 0.01), (NINE_MOVED, 0.2), (NINE_VIEWS, 0.01), (BENT, 0.0)],
    ids=["four", "nine", "views", "bent"],
)
def test_what_nothing_is_seen_of_is_neither_read_nor_decoded(
    recipe: Recipe, least_share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    some, everyone = Counted(), Counted()
    found = everything(loader_of(recipe, some))
    monkeypatch.setattr(mosaic_stage, "_are_beyond", lambda rows, *places: np.zeros(len(rows), np.bool_))
    assert found == everything(loader_of(recipe, everyone))
    assert len(everyone.read_ids) - len(some.read_ids) >= least_share * len(everyone.read_ids)


def test_guests_are_left_out_where_no_pixel_shows_them() -> None:
    rng = np.random.default_rng(0)
    num_empty = num_hidden = 0
    for row in np.split(next(iter(loader_of(NINE_MOVED, batch_size=NUM))).plan.rows, NUM):
        corners = rng.integers(-20, 2 * SIZE + 20, (40, 2))
        places = np.concatenate([corners, corners + rng.integers(4, 60, (40, 2))], axis=1)
        guests = np.repeat(row, len(places))
        guests["mosaic"]["place"] = places
        whole = np.tile([0.0, 0.0, row["out_width"][0], row["out_height"][0]], (len(places), 1))
        hidden = mosaic_stage._are_beyond(np.repeat(row, len(places)), places.astype(np.float64), whole)
        for is_hidden, ((down, across), shown) in zip(hidden, mosaic_stage._shown(row, guests), strict=True):
            is_empty = down.start == down.stop or across.start == across.stop or (shown is not None and not shown.any())
            assert is_empty or not is_hidden
            num_empty, num_hidden = num_empty + is_empty, num_hidden + is_hidden
    assert num_empty > 500 and num_hidden > 0.97 * num_empty, "but for some that lie between pixels"


@pytest.mark.parametrize(
    "recipe", [CUT, CUT_NINE, PASTED, PASTED_NINE], ids=["four", "nine", "objects of four", "objects of nine"]
)
def test_of_mosaics_that_are_pasted_in_part_the_rest_is_not_decoded(
    recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against one batch of all, whose images are each other's partners and decoded whole."""
    files = object_source(NUM, maps=True)
    given = {"targets": TargetOptions(masks=True, drop_empty=False), "shuffle": False}
    expected = everything(loader_of(recipe, files, batch_size=NUM, **given))
    px, num_hidden, fill = {False: 0, True: 0}, {False: 0, True: 0}, host_output.HostOutput.fill

    def noted(self: Any, batch: Any, items: Any, decoder: Any) -> None:
        for item in items:
            is_partner = bool(batch.request.outputs[item.position] >= batch.num_own)
            left, top, right, bottom = item.region
            is_hidden = bool(batch.hidden[item.position])
            num_hidden[is_partner] += is_hidden
            px[is_partner] += 0 if is_hidden else (right - left) * (bottom - top)
        fill(self, batch, items, decoder)

    monkeypatch.setattr(host_output.HostOutput, "fill", noted)
    assert everything(loader_of(recipe, files, batch_size=1, **given)) == expected
    assert px[True] < 0.7 * px[False] and num_hidden[True] > 1.2 * num_hidden[False] + 5


@pytest.mark.parametrize("num_images", [4, 9])
def test_partners_stand_in_the_same_block_of_an_epoch(num_images: int) -> None:
    for num in (1, 2, 3, 5, 9, 10, 64, 65, 66, 70, 72, 128, 131, 137):
        found = mosaic_partners(np.arange(num), num, num_images)
        assert found.shape == (num, num_images - 1) and found.min() >= 0 and found.max() < num
        if num >= num_images:
            shown = np.concatenate([np.arange(num)[:, None], found], axis=1)
            assert all(len(set(row)) == num_images for row in shown.tolist()), num
            assert (np.bincount(shown.reshape(-1)) == num_images).all()
    whole = mosaic_partners(np.arange(200), 200, num_images)
    np.testing.assert_array_equal(mosaic_partners(np.arange(7, 200, 3), 200, num_images), whole[7::3])


@pytest.mark.parametrize("num_images", [4, 9])
def test_mosaics_that_are_mixed_show_different_images(num_images: int) -> None:
    for num in (2 * num_images, 63, 64, 65, 70, 100, 128, 137):
        positions = np.arange(num)
        shown = np.concatenate([positions[:, None], mosaic_partners(positions, num, num_images)], axis=1)
        partners = mixing_partners(positions, num, num_images)
        assert sorted(partners) == positions.tolist() and (partners != positions).all()
        in_blocks = positions < num - num % 64
        assert not any({*shown[own]} & {*shown[other]} for own, other in enumerate(partners) if in_blocks[own]), num


@pytest.mark.parametrize("recipe", [CANVAS, NINE], ids=["four", "nine"])
@pytest.mark.parametrize("num", [1, 2, 3])
def test_an_epoch_of_few_samples_repeats_them(num: int, recipe: Recipe) -> None:
    few = ObjectSource(source().contents[:num], source().objects[:num], source().maps[:num])
    (batch,) = loader_of(recipe, few)
    for image, (row, ids) in zip(batch.images, cells_of(batch), strict=True):
        assert np.abs(image.astype(int) - canvas_of(row, ids)[0]).max() <= 1


@pytest.mark.slow
@pytest.mark.parametrize("recipe", [CANVAS, NINE], ids=["four", "nine"])
def test_a_sampler_draws_each_time_another_mosaic(recipe: Recipe) -> None:
    batches = [*loader_of(recipe, sampler=sampling.Repeated(times=2), batch_size=20)]
    seen: dict[int, set[Any]] = {}
    for batch in batches:
        for image, (row, ids) in zip(batch.images, cells_of(batch), strict=True):
            assert np.abs(image.astype(int) - canvas_of(row, ids)[0]).max() <= 1
            seen.setdefault(ids[0], set()).add(tuple(row["mosaic"]["centre"].tolist()))
    assert all(len(centres) == 2 for centres in seen.values())


@pytest.mark.slow
@pytest.mark.parametrize("recipe", [CANVAS, NINE], ids=["four", "nine"])
def test_damaged_photographs_are_replaced_and_bring_their_own_objects(recipe: Recipe) -> None:
    damaged = ObjectSource([*source().contents], [*source().objects], [*source().maps])
    for number in (3, 4, 30):
        damaged.contents[number] = TEXT
    damaged.maps[13] = OSError("gone")  # found when all is planned; 14 is of another shape, so those around it move
    loader = loader_of(recipe, damaged, on_error="skip", batch_size=7)
    num_replaced = 0
    for batch in loader:
        for image, target, (row, ids) in zip(batch.images, batch.targets, cells_of(batch), strict=True):
            assert not {3, 4, 30, 13} & {*ids}
            assert np.abs(image.astype(int) - canvas_of(row, ids)[0]).max() <= 1
            assert_shows(target["mask"], row, ids)
            check_objects(target, row, ids)
            num_replaced += len({5, 31, 14} & {*ids})
    assert num_replaced > 9 and set(loader.skipped) == {3, 4, 30, 13}
    for moved in (MOVED, MIXED) if recipe is CANVAS else (NINE_MOVED, NINE_MIXED):
        reference = everything(loader_of(moved, damaged, on_error="skip"))
        assert everything(loader_of(moved, damaged, on_error="skip", batch_size=64, num_threads=1)) == reference
        assert everything(loader_of(moved, damaged, on_error="skip", batch_size=1)) == reference


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"sampler": sampling.Repeated(times=2)}, {"shuffle": "sticky"}], ids=str)
@pytest.mark.parametrize("is_damaged", [False, True])
def test_mosaics_are_mixed_as_they_are_without_mixing(is_damaged: bool, options: Any) -> None:
    contents = [*source().contents]
    for number in (3, 4, 30) if is_damaged else ():
        contents[number] = TEXT
    objects = ObjectSource(contents, source().objects, source().maps)
    given = {"on_error": "skip", **options}
    finished = [image for batch in loader_of(MOVED, objects, **given) for image in batch.images]
    partners, place, kinds = mixing_partners(np.arange(len(finished)), len(finished), 4), 0, {0: 0, 1: 0, 2: 0}
    for batch in loader_of(MIXED, objects, **given, batch_size=11):
        for image, row in zip(batch.images, batch.plan.rows["mixing"], strict=True):
            own, other = finished[place], finished[partners[place]]
            left, top, right, bottom = row["region"]
            expected = own.copy()
            part = np.s_[top:bottom, left:right]
            if row["kind"] == 1:
                expected[part] = other[part]
            elif row["kind"] == 2:
                is_either = (image[part] == own[part]).all(axis=2) | (image[part] == other[part]).all(axis=2)
                assert is_either.all()
                expected[part] = image[part]
            np.testing.assert_array_equal(image, expected)
            kinds[int(row["kind"])] += 1
            place += 1
    assert place == len(finished) and min(kinds.values()) > 3


@pytest.mark.slow
@pytest.mark.parametrize("recipe", [MOVED, NINE_MOVED, MIXED], ids=["four", "nine", "mixed"])
def test_a_schedule_closes_the_mosaic(recipe: Recipe) -> None:
    plain = Recipe(ops=(ops.Letterbox(size=SIZE), ops.Flip()))
    loader = loader_of(Schedule.of({0: recipe, 1: plain}))
    assert everything(loader) == everything(loader_of(recipe))
    other = loader_of(plain)
    other.set_epoch(1)
    assert targets_by_id(loader) == targets_by_id(other)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", [CANVAS, NINE], ids=["four", "nine"])
def test_label_maps_alone_are_pasted(recipe: Recipe) -> None:
    maps = label_map_source(NUM)
    maps.contents, maps.maps = source().contents, source().maps
    for batch in loader_of(recipe, maps, targets="list"):
        for target, (row, ids) in zip(batch.targets, cells_of(batch), strict=True):
            assert_shows(target, row, ids)


@pytest.mark.parametrize(
    "recipe", [MOVED, NINE_MOVED, BENT, VIEWS, CUT], ids=["four", "nine", "bent", "views", "mixed"]
)
def test_points_lead_to_the_image_of_the_sample_itself(recipe: Recipe) -> None:
    """To the pixel that label maps of numbered pixels show there; nowhere, where these are another image's."""
    maps = label_map_source(NUM)
    maps.contents = source().contents
    maps.maps = [
        1000 + 10_000 * number + np.arange(each.size, dtype=np.int32).reshape(each.shape)
        for number, each in enumerate(source().maps)
    ]
    num_own = num_other = 0
    # of more samples, the last mosaics and those that they are mixed with show some in common
    for batch in itertools.islice(loader_of(recipe, maps, batch_size=8, targets="list"), 8):
        for view in range(len(batch.plan.views)):
            labels = batch.targets[view] if isinstance(batch.targets, tuple) else batch.targets
            for position, shown in enumerate(labels):
                rows, columns = np.indices(shown.shape).reshape(2, -1)
                found = batch.plan.to_source(np.stack([columns, rows], axis=1) + 0.5, position, view)
                sample_id = int(batch.sample_ids[position])
                expected, width = shown[rows, columns] - 10_000 * sample_id - 1000, maps.maps[sample_id].shape[1]
                is_own = (expected >= 0) & (expected < maps.maps[sample_id].size)
                at = np.stack([expected % width, expected // width], axis=1)[is_own] + 0.5
                assert (np.isnan(found).any(axis=1) == is_own).mean() < 0.002  # at seams, where an edge is rounded
                assert not np.nan_to_num(np.abs(found[is_own] - at)).max(initial=0.0) > 0.51
                num_own, num_other = num_own + is_own.sum(), num_other + (~is_own).sum()
    assert num_own > 10_000 and num_other > 10_000


@pytest.mark.parametrize("recipe", [MOVED, NINE_MOVED], ids=["four", "nine"])
def test_files_are_decoded_in_part_and_give_what_whole_images_do(recipe: Recipe) -> None:
    """JPEG files, of which regions are decoded, against the same pixels in memory."""
    files = object_source(20)
    decoded = [
        cv2.imdecode(np.frombuffer(one, np.uint8), cv2.IMREAD_COLOR)[:, :, ::-1].copy() for one in files.contents
    ]
    in_memory = ObjectSource(decoded, files.objects)
    for one, other in zip(loader_of(recipe, files), loader_of(recipe, in_memory), strict=True):
        assert np.abs(one.images.astype(int) - other.images).mean() < 0.5
        assert targets_by_id([one]) == targets_by_id([other])


def test_a_recipe_with_a_mosaic_is_written_saved_and_made_of_another_size(tmp_path: Path) -> None:
    MOVED.dump(tmp_path / "mosaic.toml")
    assert Recipe.load(tmp_path / "mosaic.toml") == MOVED and "[mosaic]" in MOVED.to_toml()
    assert "mosaic" not in Recipe(ops=MOVED.ops).model_dump() and "mosaic" not in Recipe(ops=MOVED.ops).to_toml()
    batch = next(iter(loader_of(MOVED)))
    batch.plan.save(tmp_path / "plan.npz")
    assert Plan.load(tmp_path / "plan.npz").rows.tobytes() == batch.plan.rows.tobytes()
    smaller = recipes.resized(MOVED, 24)
    assert smaller.mosaic is not None and smaller.mosaic.size == 24 and smaller.all_views[0].out_size == (24, 24)
    evaluation = recipes.evaluation_of(MOVED)
    assert evaluation.ops == (ops.Letterbox(size=SIZE), ops.CenterCrop(size=SIZE)) and not evaluation.mixes_samples


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"ops": (ops.CenterCrop(size=40), ops.GaussianBlur())}, "gaussian_blur looks at a pixel's neighbours"),
        ({"ops": (ops.CenterCrop(size=40), ops.ColorJitter(contrast=0.4, about="mean"))}, "color_jitter looks at"),
        ({"ops": (ops.CenterCrop(size=40), ops.OneOf(ops=(ops.Equalize(), ops.Flip()), p=0.01))}, "equalize looks at"),
        ({"ops": (ops.CenterCrop(size=40), ops.ElasticTransform())}, "elastic_transform moves pixels one by one"),
        ({"ops": (ops.Flip(),)}, "a view without a crop keeps that"),
        ({"ops": (ops.CenterCrop(size=97),)}, "the canvas of the mosaic: the photograph is 96x96 pixels"),
        ({"ops": (ops.CenterCrop(size=40), ops.Pad(px=3))}, "a mosaic shows constant .* and the recipe constant"),
        ({"border": "reflect"}, "a mosaic shows constant .* and the recipe reflect"),
        ({"ops": (ops.RandomCrop(size=40, keep_objects=ops.KeepObjects()),)}, "keep_objects looks at one image"),
        ({"mosaic": {"size": SIZE, "num_images": 5}}, "num_images"),
        (
            {"mosaic": {"size": SIZE, "centre": (0, 2)}},
            r"centre=\(0.0, 2.0\) leaves 0.1..0.9. Choose a range within it",
        ),
        ({"mosaic": {"size": SIZE, "centre": (0.7, 0.3)}}, "its first number is the larger one"),
        ({"mosaic": ops.Mosaic(size=SIZE, p=0.5), "ops": (ops.CenterCrop(size=90),)}, "the photograph is 48x48 pixels"),
    ],
    ids=lambda value: None if isinstance(value, str) else "-".join(value),
)
def test_what_does_not_go_with_a_mosaic_is_refused(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Recipe(**{"mosaic": ops.Mosaic(size=SIZE), "ops": (ops.CenterCrop(size=40),), **fields})


def test_other_backends_say_that_they_make_none() -> None:
    with pytest.raises(ValueError, match="which the native backend makes and DALI does not"):
        check_mosaics([Recipe(ops=CANVAS.ops), MOVED], is_native=False, has_targets=True)
    check_mosaics([Recipe(ops=CANVAS.ops)], is_native=False, has_targets=False)
    pytest.importorskip("nvidia.dali")
    with pytest.raises(ValueError, match="which the native backend makes and DALI does not"):
        loader_of(MOVED, backend="dali")


def test_who_cannot_make_a_mosaic_says_so() -> None:
    with pytest.raises(ValueError, match="whose images have no one label"):
        loader_of(MOVED, targets="off")
    with pytest.raises(ValueError, match="whose images have no one label"):
        loader_of(MOVED, MemorySource(jpegs(3)), targets=None)
    with pytest.raises(ValueError, match="mixes samples"):
        Augment(MOVED)
    with pytest.raises(ValueError, match="mixes samples"):
        plan(MOVED, [0], sizes=[(30, 40)])
    with pytest.raises(ValueError, match="of whose images each is timed as one"):
        loader_of(MOVED).explain()
