"""The most frequent label, and values between pixels: against a dense look at the output, and in any batch."""

from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.ndimage import map_coordinates

from augpipe import Augment, Loader, Plan, Recipe, TargetOptions, ops, plan
from augpipe.planning.targets.masks import MOST_PARTS, mapped_mask, parts_of
from tests.augpipe.loader.target_sources import BENT, LISTED, label_map_source, plain
from tests.parity.dense import dense

SIZE = 120, 150
FILL = 255
MOVED = Recipe(
    ops=(ops.RandomResizedCrop(size=(20, 26), scale=(0.6, 1.0)), ops.Flip(), ops.Rotate(max_deg=40, step=None))
)
CURVED = Recipe(ops=(*MOVED.ops, ops.LensDistortion(), ops.Perspective(p=1.0)), border="constant")
TWICE = Recipe(ops=(ops.Emboss(p=1.0), *MOVED.ops))
"""Its geometry is a pass of its own, behind one that looks up each pixel at its own place."""


def labels_of(seed: int, size: tuple[int, int] = SIZE) -> npt.NDArray[np.uint8]:
    """Patches of five labels, the ignored one among them, and single pixels of others."""
    rng = np.random.default_rng(seed)
    patches = rng.choice([0, 1, 7, 200, FILL], size=(size[0] // 6, size[1] // 6)).astype(np.uint8)
    labels = np.kron(patches, np.ones((6, 6), np.uint8))
    is_other = rng.random(size) < 0.3
    labels[is_other] = rng.integers(0, 4, is_other.sum())
    return labels


def drawn_for(recipe: Recipe, seed: int) -> Plan:
    return plan(recipe, [seed], sizes=[SIZE])


@pytest.mark.parametrize("recipe", [MOVED, CURVED], ids=["moved", "curved"])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_pixel_has_the_label_that_most_of_it_shows(recipe: Recipe, seed: int) -> None:
    drawn, labels = drawn_for(recipe, seed), labels_of(seed)
    parts = parts_of(drawn.rows)
    assert 3 <= parts <= 12
    found = mapped_mask(labels, drawn.rows, by="majority", fill=FILL, fills=True)
    look = dense(drawn, 0, finer=parts)
    columns, rows = np.floor(look.x).astype(int), np.floor(look.y).astype(int)
    seen = labels[np.clip(rows, 0, SIZE[0] - 1), np.clip(columns, 0, SIZE[1] - 1)]
    seen = np.where(look.is_shown, seen, FILL)
    near_edge = (np.abs(look.x - np.rint(look.x)) < 2e-3) | (np.abs(look.y - np.rint(look.y)) < 2e-3)
    height, width = found.shape

    def parts_apart(values: Any) -> Any:
        return values.reshape(height, parts, width, parts).swapaxes(1, 2).reshape(height, width, -1)

    seen, is_sure = parts_apart(seen), ~parts_apart(near_edge)  # float32 may take an edge's other pixel
    votes = np.stack([((seen == label) & is_sure).sum(axis=2) for label in range(256)], axis=2)
    is_decided = is_sure.all(axis=2)
    assert is_decided.mean() > 0.5
    np.testing.assert_array_equal(found[is_decided], votes.argmax(axis=2)[is_decided])  # the least of the most frequent
    own = np.take_along_axis(votes, found[:, :, None].astype(int), axis=2)[:, :, 0]
    assert (own + (~is_sure).sum(axis=2) >= votes.max(axis=2)).all()


def test_whole_blocks_are_counted_exactly_and_ties_go_to_the_least() -> None:
    labels = labels_of(3)[:, :120]
    row = plan(Recipe(ops=[ops.Resize(size=(30, 30))]), [0], sizes=[(120, 120)]).rows
    assert parts_of(row) == 4
    colours = np.stack([labels, labels // 2, labels * 0], axis=2)
    for given in (labels, labels.astype(np.int64) - 3, labels % 2 == 1, colours):
        found = mapped_mask(given, row, by="majority", fill=0, fills=True)
        numbers = given.astype(np.int64) @ [1, 256, 65536] if given.ndim == 3 else given.astype(np.int64)
        expected, num_ties = [], 0
        for cell in numbers.reshape(30, 4, 30, 4).swapaxes(1, 2).reshape(-1, 16):
            values, counts = np.unique(cell, return_counts=True)
            expected.append(values[counts.argmax()])
            num_ties += np.count_nonzero(counts == counts.max()) > 1
        assert num_ties > 10 and found.dtype == given.dtype
        as_numbers = found.astype(np.int64) @ [1, 256, 65536] if given.ndim == 3 else found.astype(np.int64)
        np.testing.assert_array_equal(as_numbers.ravel(), expected)


@pytest.mark.parametrize("recipe", [MOVED, CURVED], ids=["moved", "curved"])
def test_values_between_pixels_are_those_of_scipy(recipe: Recipe) -> None:
    y, x = np.mgrid[: SIZE[0], : SIZE[1]].astype(np.float64)
    values = np.stack([x + 0.5 * y, 50 * np.sin(x / 40) + 20 * np.cos(y / 30)], axis=2)
    for seed in (1, 2):
        drawn = drawn_for(recipe, seed)
        look = dense(drawn, 0)
        found = mapped_mask(values, drawn.rows, by="linear", fill=FILL, fills=True)
        assert found.dtype == np.float64
        near_edge = np.minimum.reduce([np.abs(look.x - edge) for edge in look.limits[::2]]) < 2e-3
        near_edge |= np.minimum.reduce([np.abs(look.y - edge) for edge in look.limits[1::2]]) < 2e-3
        left, top, right, bottom = map(int, look.limits)
        for plane in (0, 1):  # what lies beyond them is not seen, nor interpolated with
            own = values[top:bottom, left:right, plane]
            own = map_coordinates(own, [look.y - 0.5 - top, look.x - 0.5 - left], order=1, mode="nearest")
            expected = np.where(look.is_shown, own, FILL)
            assert np.abs(found[:, :, plane] - expected)[~near_edge].max() < 2e-3


@pytest.mark.parametrize("by", ["majority", "linear"])
@pytest.mark.parametrize("recipe", [BENT, LISTED, TWICE], ids=["bent", "listed", "twice"])
def test_batches_threads_resuming_and_calls_change_no_bit(recipe: Recipe, by: Any) -> None:
    source = label_map_source(7)
    options = TargetOptions(mask_interpolation=by, mask_fill=200)

    def loader(batch_size: int, num_threads: int) -> Loader:
        return Loader(
            source, recipe, batch_size=batch_size, num_threads=num_threads, seed=4, targets=options, dtype="uint8"
        )

    def by_id(batches: Any) -> dict[int, Any]:
        return {
            sample_id: plain(batch.targets[position])
            for batch in batches
            for position, sample_id in enumerate(batch.sample_ids.tolist())
        }

    expected = by_id(loader(7, 1))
    first = loader(2, 2)
    begun = by_id(islice(iter(first), 2))
    rest = loader(3, 2)
    rest.load_state_dict(first.state_dict())
    assert by_id(loader(3, 2)) == expected and begun | by_id(rest) == expected
    (batch,) = loader(7, 2)
    for position, sample_id in enumerate(batch.sample_ids.tolist()):
        called = Augment(recipe)(
            image=source.contents[sample_id],
            mask=source.maps[sample_id],
            plan=batch.plan[position : position + 1],
            targets=options,
        )
        np.testing.assert_array_equal(batch.targets[position].numpy(), called["mask"])


def test_paired_images_move_as_the_image_does() -> None:
    photo = np.full((*SIZE, 3), 90, np.uint8)
    depth = np.tile(np.arange(SIZE[1], dtype=np.float32), (SIZE[0], 1))
    infrared = (depth[:, :, None] + [0, 40]).astype(np.uint8)
    recipe = Recipe(ops=[ops.Resize(size=(60, 75)), ops.Flip(p=1.0), ops.Brightness(factor=(0.5, 0.5), p=1.0)])
    options = TargetOptions(paired={"depth": "linear", "infrared": "nearest"}, mask_fill=0)
    found = Augment(recipe)(
        image=photo, depth=depth, infrared=infrared, labels=[], bboxes=[], bbox_format="coco", targets=options
    )
    np.testing.assert_allclose(found["depth"][7], 148.5 - 2 * np.arange(75) + 0.0, atol=1e-3)
    assert found["infrared"].shape == (60, 75, 2) and found["infrared"].dtype == np.uint8
    assert (found["infrared"][:, :, 1] - found["infrared"][:, :, 0] == 40).all() and "depth" not in found["labels"]
    with pytest.raises(ValueError, match="names arguments of a call, and this one has none"):
        Augment(recipe)({"image": photo, "depth": depth}, targets=options)
    with pytest.raises(ValueError, match=r"depth has the shape \(119, 150\) .* its image is 120x150"):
        Augment(recipe)(image=photo, depth=depth[1:], targets=options)


def test_what_cannot_be_counted_or_averaged_is_refused() -> None:
    row = drawn_for(MOVED, 0).rows
    for wrong in (np.zeros(SIZE, np.float32), np.zeros((*SIZE, 2), np.int64)):
        with pytest.raises(ValueError, match="mask_interpolation='majority' counts labels"):
            mapped_mask(wrong, row, by="majority", fill=0, fills=True)
    with pytest.raises(ValueError, match="the look-up 'linear' is for numbers such as depths"):
        mapped_mask(np.zeros(SIZE, np.bool_), row, by="linear", fill=0, fills=True)
    with pytest.raises(ValueError, match="paired={'depth': 'linear'} of TargetOptions is for calls of Augment"):
        Loader(label_map_source(2), MOVED, batch_size=2, targets=TargetOptions(paired={"depth": "linear"}))
    with pytest.raises(ValueError, match="mask is known already"):
        TargetOptions(paired={"mask": "linear"})
    with pytest.raises(ValueError, match='must give names of arguments "nearest" or "linear"'):
        TargetOptions(paired={"depth": "cubic"})  # type: ignore[dict-item]
    far = plan(Recipe(ops=[ops.Resize(size=2)]), [0], sizes=[(400, 400)]).rows
    assert parts_of(far) == MOST_PARTS


def test_depth_that_is_not_known_stays_where_it_is() -> None:
    photo, depth = np.zeros((9, 12, 3), np.uint8), np.arange(108, dtype=np.float32).reshape(9, 12)
    depth[:3], depth[5, 6], depth.flags.writeable = np.inf, np.nan, False
    options = TargetOptions(paired={"depth": "linear"})
    flipped = Augment(Recipe(ops=[ops.Flip(p=1.0)]))(image=photo, depth=depth, targets=options)["depth"]
    np.testing.assert_array_equal(flipped, depth[:, ::-1])
    halved = Augment(Recipe(ops=[ops.Resize(size=(9, 6))]))(image=photo, depth=depth, targets=options)["depth"]
    np.testing.assert_array_equal(halved, (depth[:, ::2] + depth[:, 1::2]) / 2)


def test_whole_numbers_that_float32_does_not_hold_are_refused() -> None:
    row = drawn_for(MOVED, 0).rows
    for dtype, largest in ((np.int16, 2**15 - 1), (np.uint16, 2**16 - 1), (np.int64, 2**24)):
        found = mapped_mask(np.full(SIZE, largest, dtype), row, by="linear", fill=largest, fills=True)
        assert found.dtype == dtype and (found == largest).all()
    for dtype, wrong in ((np.int32, 2**31 - 1), (np.uint32, 2**24 + 1), (np.int64, -(2**40)), (np.uint64, 2**64 - 1)):
        with pytest.raises(ValueError, match="holds whole numbers up to 16777216"):
            mapped_mask(np.full(SIZE, wrong, dtype), row, by="linear", fill=0, fills=True)
    with pytest.raises(ValueError, match="holds whole numbers up to 16777216"):
        mapped_mask(np.zeros(SIZE, np.int32), row, by="linear", fill=2**31 - 1, fills=True)


def test_where_images_of_a_mosaic_meet_no_label_is_outside() -> None:
    source = label_map_source(6)
    for number, labels in enumerate(source.maps):  # no two labels have half of a pixel
        source.maps[number] = np.random.default_rng(number).integers(1, 9, labels.shape, np.uint8)
    turned = (ops.Rotate(max_deg=30, p=1.0, step=None), ops.CenterCrop(size=24))
    recipe = Recipe(mosaic=ops.Mosaic(size=24, centre=(0.5, 0.5)), ops=turned)
    shown = {}
    for by in ("nearest", "majority"):
        options = TargetOptions(mask_interpolation=by, mask_fill=0)
        (batch,) = Loader(source, recipe, batch_size=6, targets=options, dtype="uint8", framework="numpy")
        shown[by] = batch.targets != 0
    assert shown["nearest"].mean() > 0.8
    np.testing.assert_array_equal(shown["majority"], shown["nearest"])


def test_options_are_hashable_and_names_of_their_own() -> None:
    one, other = {"depth": "linear", "normals": "nearest"}, {"normals": "nearest", "depth": "linear"}
    assert hash(TargetOptions(paired=one)) == hash(TargetOptions(paired=other))  # type: ignore[arg-type]
    assert len({TargetOptions(), TargetOptions(min_area=1), TargetOptions(paired=one)}) == 3  # type: ignore[arg-type]
    for name in ("epoch", "sample_ids", "object_ids", "dropped", "keypoint_ids"):
        with pytest.raises(ValueError, match=f"{name} is known already"):
            TargetOptions(paired={name: "linear"})


def test_an_image_that_paired_does_not_name_is_told_of() -> None:
    photo, depth = np.zeros((9, 12, 3), np.uint8), np.zeros((9, 12), np.float32)
    augment = Augment(Recipe(ops=[ops.Flip()]))
    for given in ({"depth": depth}, {"labels": ["cat"]}, {"keypoints": [[3, 4]], "labels": ["cat"]}):
        with pytest.raises(ValueError, match="no objects are given .* TargetOptions"):
            augment(image=photo, **given)
    with pytest.raises(ValueError, match=r"depth has the shape \(3, 9, 12\) .* channels last"):
        augment(image=photo, depth=np.zeros((3, 9, 12)), targets=TargetOptions(paired={"depth": "linear"}))
