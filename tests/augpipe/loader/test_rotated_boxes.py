"""Rotated boxes in a loader's batches: the forms, passes, mosaics, and what must not change them."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from augpipe import Augment, Loader, Recipe, SampleError, TargetOptions, ops
from augpipe.planning.targets.rotated_boxes import as_xywhr
from augpipe.sources import Concat
from augpipe.sources.targets import Targets
from tests.augpipe.loader.loader_sources import MemorySource, arrays
from tests.augpipe.loader.target_sources import BENT, LISTED, targets_by_id

BOX = np.array([[20.0, 30.0], [60.0, 50.0], [55.0, 60.0], [15.0, 40.0]])
"""In an image of 100x100: clockwise, the long side first."""
FLIP = Recipe(ops=[ops.Flip(p=1.0)])
FLIPPED = (BOX * (-1, 1) + (100, 0))[[1, 0, 3, 2]]


class Rotated(MemorySource):
    """Images of 100x100 with two objects each; of the second, nothing is inside the image."""

    has_targets, has_label_maps, object_classes, keypoint_swaps = True, False, ("ship", "plane"), ()

    def __init__(self, num: int = 4, box: npt.NDArray[np.float64] = BOX) -> None:
        super().__init__(arrays(num, 100, 100), labels=[-1] * num)
        self.box = box

    def targets_of(self, sample_ids: Any) -> Targets:
        num = len(sample_ids)
        first = self.box + 0.5 * np.array(sample_ids)[:, None, None] * (1, 0)
        boxes = np.stack([first, np.broadcast_to(BOX + 200, first.shape)], axis=1).reshape(-1, 4, 2)
        return Targets(counts=np.full(num, 2), labels=np.tile([1, 0], num), rotated_boxes=boxes)


def targets(form: Any, recipe: Recipe = FLIP, **options: Any) -> Any:
    options = TargetOptions(form=form, **options)
    loader = Loader(Rotated(), recipe, batch_size=4, framework="numpy", dtype="uint8", targets=options, shuffle=False)
    return next(iter(loader))


def test_all_forms_hold_the_same() -> None:
    batch = targets("list")
    assert batch.dropped[0] == [(1, "nothing of it is shown")]
    (first, second, *_), padded, flat = batch.targets, targets("padded").targets, targets("flat").targets
    np.testing.assert_allclose(first["rotated_boxes"], [FLIPPED], atol=1e-4)
    np.testing.assert_allclose(second["rotated_boxes"], [FLIPPED - (0.5, 0)], atol=1e-4)
    np.testing.assert_array_equal(first["xywhr"], as_xywhr(first["rotated_boxes"]))
    np.testing.assert_allclose(first["boxes"], [[40, 30, 85, 60]], atol=1e-4)  # along the axes
    assert first["area"] == pytest.approx([500.0]) and first["labels"].tolist() == [1]
    assert first["rotated_boxes"].dtype == first["xywhr"].dtype == np.float32
    np.testing.assert_array_equal(padded["rotated_boxes"][1], second["rotated_boxes"])
    np.testing.assert_array_equal(padded["xywhr"][1], second["xywhr"])
    np.testing.assert_allclose(flat["bboxes"][1] * (100, 100, 100, 100, 1), second["xywhr"][0], rtol=1e-6)
    np.testing.assert_allclose(flat["rotated_boxes"][1] * 100, second["rotated_boxes"][0], rtol=1e-6)
    assert flat["batch_idx"].tolist() == [0, 1, 2, 3] and "boxes" not in flat and "xywhr" not in flat


def test_the_frame_cuts_them_or_does_not() -> None:
    crop = Recipe(ops=[ops.CenterCrop(size=50)])  # from 25 to 75 along both
    np.testing.assert_allclose(
        targets("list", crop, rotated_boxes="whole").targets[0]["rotated_boxes"], [BOX - 25], atol=1e-4
    )
    (tight,) = targets("list", crop).targets[0]["rotated_boxes"]
    # its left end is cut by the frame's left edge, from (0, 7.5) to (0, 20)
    np.testing.assert_allclose(tight, [[0, 7.5], [35, 25], [30, 35], [-5, 17.5]], atol=1e-4)
    batch = targets("list", crop, min_visibility=0.9)
    assert not len(batch.targets[0]["rotated_boxes"]) and "below min_visibility=0.9" in batch.dropped[0][0][1]


MOSAIC = Recipe(mosaic=ops.Mosaic(size=60), ops=(ops.Rotate(max_deg=25, step=None), ops.CenterCrop(size=60)))


@pytest.mark.parametrize("recipe", [BENT, LISTED, MOSAIC], ids=lambda recipe: recipe.name or "mosaic")
@pytest.mark.parametrize("rule", ["tight", "whole"])
def test_batches_and_threads_change_no_bit(recipe: Recipe, rule: Any) -> None:
    found = []
    for batch_size, num_threads in ((5, 1), (2, 2)):
        loader = Loader(
            Rotated(6),
            recipe,
            batch_size=batch_size,
            num_threads=num_threads,
            dtype="uint8",
            targets=TargetOptions(rotated_boxes=rule),
            drop_last=False,
        )
        found.append(targets_by_id(loader))
    assert found[0] == found[1] and len(found[0]) == 6


def test_passes_map_them_as_one_map_does() -> None:
    """Where nothing is cut, a step that parts the recipe changes no place."""
    turn = [ops.Rotate(max_deg=10, step=None), ops.Resize(size=(150, 150))]
    one, two = Recipe(ops=turn), Recipe(ops=[turn[0], ops.Solarize(p=1.0), turn[1]])
    assert (one.num_passes, two.num_passes) == (1, 2)
    for rule in ("tight", "whole"):
        first, second = (
            Augment(recipe)(
                image=np.zeros((100, 100, 3), np.uint8),
                rotated_boxes=[BOX],
                sample_ids=[5],
                targets=TargetOptions(rotated_boxes=rule),
            )["rotated_boxes"]
            for recipe in (one, two)
        )
        np.testing.assert_allclose(first, second, atol=1e-3)


CROSSED = BOX[[0, 1, 3, 2]]


@pytest.mark.parametrize(
    ("box", "reason"),
    [
        (CROSSED, "sides of its rotated box cross"),
        (np.full((4, 2), np.nan), "a corner of its rotated box is not finite"),
        (BOX * (np.inf, 1.0), "a corner of its rotated box is not finite"),
    ],
    ids=["crossed", "nan", "inf"],
)
def test_wrong_boxes_are_named(box: Any, reason: str) -> None:
    with pytest.raises(SampleError, match=f"object 0: {reason}"):
        next(iter(Loader(Rotated(1, box), FLIP, batch_size=1)))
    with pytest.raises(ValueError, match=f"object 1: .*{reason.split()[-1]}"):
        Augment(FLIP)(image=np.zeros((9, 9, 3), np.uint8), rotated_boxes=[BOX, box])


def test_what_a_call_refuses() -> None:
    image = np.zeros((100, 100, 3), np.uint8)
    for given, reason in (
        ({"rotated_boxes": [[1, 2, 3, 4]]}, r"rotated_boxes has shape \(1, 4\). Give \(N, 4, 2\) corners"),
        ({"rotated_boxes": [BOX], "polygons": [[BOX]]}, "polygons and rotated_boxes are given"),
        ({"rotated_boxes": [BOX], "labels": ["a", "b"]}, "labels is of length 2, and rotated_boxes of 1"),
    ):
        with pytest.raises(ValueError, match=reason):
            Augment(FLIP)(image=image, **given)
    with pytest.raises(ValueError, match="targets have polygons and rotated_boxes"):
        Targets(counts=np.ones(1, np.int64), polygons=[[BOX]], rotated_boxes=BOX[None])
    empty = Augment(FLIP)(image=image, rotated_boxes=[])["rotated_boxes"]
    assert empty.shape == (0, 4, 2)
    flat = Augment(FLIP)(image=image, rotated_boxes=BOX.reshape(1, 8), labels=["ship"])
    np.testing.assert_allclose(flat["rotated_boxes"], [FLIPPED], atol=1e-4)


def test_joined_sources_know_the_same() -> None:
    both = Concat([Rotated(2), Rotated(1)])
    assert both.targets_of(np.array([0, 2])).rotated_boxes.shape == (4, 4, 2)

    class Boxes(Rotated):
        def targets_of(self, sample_ids: Any) -> Targets:
            num = len(sample_ids)
            return Targets(counts=np.ones(num, np.int64), labels=np.zeros(num, np.int64), boxes=np.ones((num, 4)))

    with pytest.raises(ValueError, match="differ in their targets: what is known of objects"):
        Concat([Rotated(2), Boxes(1)])
