"""What a source of one's own may say of objects, and what of it is refused; boxes that a crop leaves behind."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from augpipe import Augment, Loader, Recipe, SampleError, TargetOptions, ops
from augpipe.sources import Concat
from augpipe.sources.targets import Targets
from tests.augpipe.loader.loader_sources import MemorySource, arrays

TURNED = Recipe(ops=[ops.CenterCrop(size=60), ops.Rotate(max_deg=15)], border="reflect")
WHOLE = Recipe(ops=[ops.Resize(size=(100, 100)), ops.Rotate(max_deg=15)])


class OwnSource(MemorySource):
    """Images of 100x100 with an object each."""

    has_targets, has_label_maps = True, False
    object_classes: Sequence[str] = ("cat", "dog")
    keypoint_swaps: Sequence[tuple[int, int]] = ()

    def __init__(self, num: int = 2, box: Any = (10.0, 20.0, 50.0, 55.0), **columns: Any) -> None:
        super().__init__(arrays(num, 100, 100), labels=[-1] * num)
        self.columns = {"boxes": np.array([box]), "labels": np.array([1])} | columns

    def targets_of(self, sample_ids: Any) -> Targets:
        num = len(sample_ids)
        made: dict[str, Any] = {}
        for name, values in self.columns.items():
            repeated = values.repeat(num, axis=0) if isinstance(values, np.ndarray) else list(values) * num
            made[name] = repeated
        known = {name: made.pop(name, None) for name in ("boxes", "labels", "polygons", "keypoints")}
        return Targets(counts=np.ones(num, np.int64), fields=made, **known)


def epochs(source: Any, recipe: Recipe, num: int, **options: Any) -> list[Any]:
    loader = Loader(source, recipe, batch_size=1, framework="numpy", dtype="uint8", targets=TargetOptions(**options))
    found = []
    for epoch in range(num):
        loader.set_epoch(epoch)
        found.append(next(iter(loader)))
    return found


OUTSIDE = (85.0, 20.0, 95.0, 45.0), (120.0, 20.0, 140.0, 60.0)
"""A box outside the crop of `TURNED`, and one outside the image."""


@pytest.mark.parametrize(
    ("recipe", "box", "boxes"),
    # the box around turned corners of the first may reach into the frame, as in the libraries that make it so
    [(TURNED, OUTSIDE[0], "tight"), (WHOLE, OUTSIDE[1], "tight"), (WHOLE, OUTSIDE[1], "corners")],
)
def test_a_box_outside_what_is_shown_leaves_no_line_of_itself(recipe: Recipe, box: Any, boxes: Any) -> None:
    for batch in epochs(OwnSource(1, box), recipe, 20, clip=True, boxes=boxes):
        assert len(batch.targets[0]["boxes"]) == 0
        assert batch.dropped == [[(0, "nothing of it is shown")]]


def test_what_is_cut_off_at_the_image_is_not_part_of_what_may_be_visible() -> None:
    padded = Recipe(ops=[ops.Pad(px=50, border="edge")])
    (batch,) = epochs(OwnSource(1, (80.0, -9.0, 140.0, 60.0)), padded, 1, clip=True, min_visibility=0.9)
    assert batch.targets[0]["boxes"].tolist() == [[130, 50, 150, 110]]


def test_a_call_leaves_it_out_as_well() -> None:
    augment = Augment(TURNED, seed=1)
    for epoch in range(20):
        pixels = np.zeros((100, 100, 3), np.uint8)
        found = augment(image=pixels, bboxes=[[85, 20, 10, 25]], bbox_format="coco", epoch=epoch)
        assert len(found["bboxes"]) == 0


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"labels": np.array([1.7])}, r"labels has shape \(1,\) and dtype float64. .* \(N\), of whole numbers"),
        ({"boxes": np.zeros((1, 5))}, r"boxes has shape \(1, 5\) .* Give an array of shape \(N, 4\)\."),
        ({"keypoints": np.zeros((1, 3))}, r"keypoints has shape \(1, 3\) .* \(N, N, 3\)"),
        ({"masks": [0]}, "a field is called masks, as what a batch holds itself. Give it another name."),
        ({"tag": [0, 1]}, "1 object by their counts, and tag is of length 2"),
    ],
)
def test_columns_that_are_not_what_they_should_be(columns: Any, message: str) -> None:
    source = OwnSource(1, **columns)
    with pytest.raises(ValueError, match=message):
        source.targets_of(np.array([0]))


@pytest.mark.parametrize("counts", [np.array([1.0]), np.array([-1]), np.array([[1]])])
def test_counts_are_whole_numbers(counts: Any) -> None:
    with pytest.raises(ValueError, match=r"must be \(B,\) whole numbers"):
        Targets(counts=counts)


@pytest.mark.parametrize(("label", "message"), [(-1, "its label -1 is negative"), (2, "its label 2 is not one of")])
def test_a_label_without_a_class_is_an_error(label: int, message: str) -> None:
    with pytest.raises(SampleError, match=message):
        epochs(OwnSource(labels=np.array([label])), WHOLE, 1)


def test_pairs_of_swapped_points_are_apart_and_there() -> None:
    with pytest.raises(ValueError, match=r"\[\[0, 1\], \[1, 2\]\]: point 1 is in it twice"):
        TargetOptions(keypoint_swaps=((0, 1), (1, 2)))
    points = np.array([[[20.0, 30.0, 2.0], [40.0, 30.0, 2.0]]])
    with pytest.raises(ValueError, match=r"names point 5, and objects have the 2 points 0\.\.1"):
        epochs(OwnSource(keypoints=points), WHOLE, 1, keypoint_swaps=((0, 5),))


def test_each_batch_of_joined_sources_has_what_any_of_them_knows() -> None:
    ring = np.array([[10.0, 20.0], [50.0, 20.0], [50.0, 55.0]])
    outlined = OwnSource(polygons=[[ring]], iscrowd=np.array([1]), tag=["a"])
    for sources in ([outlined, OwnSource()], [OwnSource(), outlined]):
        recipe = Recipe(ops=[ops.Resize(size=(100, 100))])
        loader = Loader(
            Concat(sources), recipe, batch_size=1, shuffle=False, framework="numpy", targets=TargetOptions(masks=True)
        )
        rows = [batch.targets[0] for batch in loader]
        assert len(rows) == 4
        for row, source in zip(rows, [sources[0]] * 2 + [sources[1]] * 2, strict=True):
            is_outlined = source is outlined
            assert row["masks"].any() == is_outlined and row["iscrowd"].tolist() == [int(is_outlined)]
            assert row["tag"] == ["a" if is_outlined else None]


class Joining(OwnSource):
    """It joins what it knows of each image, which fails where it is asked for no image."""

    def targets_of(self, sample_ids: Any) -> Targets:
        known = [super(Joining, self).targets_of(np.array([sample_id])) for sample_id in sample_ids]
        boxes, labels = (np.concatenate([getattr(one, name) for one in known]) for name in ("boxes", "labels"))
        rings = [ring for one in known for ring in one.polygons or ()]
        return Targets(counts=np.ones(len(known), np.int64), boxes=boxes, labels=labels, polygons=rings)


def test_a_source_is_not_asked_for_the_targets_of_no_image() -> None:
    crop = ops.RandomResizedCrop(size=32, keep_objects=ops.KeepObjects(classes={"dog": 1.0}))
    ring = np.array([[10.0, 20.0], [50.0, 20.0], [50.0, 55.0]])
    source = Concat([Joining(2, polygons=[[ring]]), Joining(2, polygons=[[ring]])])
    for batch in epochs(source, Recipe(ops=[crop]), 1, masks=True):
        assert batch.targets[0]["masks"].any()


class Forgetful(MemorySource):
    """Its `targets_of` would never be asked."""

    targets_of = OwnSource.targets_of


def test_what_a_source_forgets_to_say_is_asked_for() -> None:
    forgetful = Forgetful(arrays(2, 100, 100))
    with pytest.raises(
        ValueError, match='has targets_of and no has_targets, .* Add has_targets = True.* targets="off"'
    ):
        Loader(forgetful, WHOLE, batch_size=2)
    assert len(Loader(forgetful, WHOLE, batch_size=2, targets="off")) == 1
    source = OwnSource()
    source.targets_of = lambda sample_ids: None  # type: ignore[assignment, return-value, method-assign]
    with pytest.raises(ValueError, match="has_targets is True, has_label_maps False, and targets_of gives None"):
        epochs(source, WHOLE, 1)
