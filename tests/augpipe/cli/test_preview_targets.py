"""Targets on contact sheets: those of the loader, drawn where they lie."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from augpipe import Loader, Recipe, TargetOptions, View, ops
from augpipe.preview import by_op, by_step, draw_sheet, over_epochs
from augpipe.preview.draw_targets import FILL, LINE, TINT, UNLABELLED, colour_of, with_targets
from augpipe.preview.show import of_batch
from augpipe.preview.shown_targets import ShownTargets
from tests.augpipe.loader.loader_sources import MemorySource, arrays
from tests.augpipe.loader.target_sources import CLASSES, CROPPED, label_map_source, object_source
from tests.augpipe.loader.test_rotated_boxes import Rotated

GREY = np.array([128.0] * 3)


def shown(**known: Any) -> ShownTargets:
    num = len(known.get("classes", ()))
    empty: dict[str, Any] = {"classes": (), "boxes": None, "keypoints": None, "label_map": None}
    return ShownTargets(**{**empty, "names": [""] * num, "polygons": [()] * num, **known})


def drawn(targets: ShownTargets, size: tuple[int, int] = (60, 80), scale: int = 2) -> npt.NDArray[np.float64]:
    """On a grey image that is shown larger than it is."""
    image = Image.new("RGB", (scale * size[1], scale * size[0]), (128, 128, 128))
    return np.asarray(with_targets(image, targets, size), np.float64)


def over(colour: Any, weight: float) -> Any:
    return pytest.approx((1.0 - weight) * GREY + weight * np.array(colour), abs=2.0)


def test_a_box_is_a_line_of_its_class_s_colour_along_its_edges() -> None:
    pixels = drawn(shown(classes=[1], boxes=np.array([[10.0, 20.0, 40.0, 50.0]])))
    for y, x in ((40, 50), (41, 50), (99, 50), (70, 20), (70, 79)):
        assert pixels[y, x] == over(colour_of(1), LINE)
    is_touched = (pixels != 128).any(axis=2)
    rows, columns = np.nonzero(is_touched)
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (40, 99, 20, 79)
    assert not is_touched[42:98, 22:78].any()


def test_of_rotated_boxes_those_along_the_axes_are_not_drawn() -> None:
    tilted = np.array([[30.0, 10.0], [50.0, 30.0], [40.0, 40.0], [20.0, 20.0]])
    known = {"classes": [1], "boxes": np.array([[20.0, 10.0, 50.0, 40.0]]), "polygons": [[tilted]]}
    pixels = drawn(shown(**known, are_rotated=True))
    assert pixels[50, 70] == over(colour_of(1), FILL) and pixels[40, 80] == over(colour_of(1), LINE)
    corner = np.s_[20:26, 40:46]
    assert (pixels[corner] == 128).all() and (drawn(shown(**known))[corner] != 128).any()


def test_outlines_are_filled_and_points_are_dots() -> None:
    square = np.array([[10.0, 10.0], [30.0, 10.0], [30.0, 30.0], [10.0, 30.0]])
    points = np.array([[[60.0, 20.0, 2.0], [60.0, 40.0, 1.0], [70.0, 50.0, 0.0]]])
    pixels = drawn(shown(classes=[2], polygons=[[square]], keypoints=points))
    assert pixels[40, 40] == over(colour_of(2), FILL)
    assert pixels[40, 120] == over(colour_of(2), LINE)  # a visible point
    assert pixels[80, 120] == pytest.approx(GREY) and pixels[80, 123] != pytest.approx(GREY)  # a hidden one is a ring
    assert pixels[100, 140] == pytest.approx(GREY) and pixels[70, 40] == pytest.approx(GREY)


def test_names_stand_in_boxes_that_hold_them() -> None:
    box = np.array([[5.0, 5.0, 60.0, 50.0], [62.0, 5.0, 70.0, 50.0]])
    plain, named = (
        drawn(shown(classes=[0, 0], names=[name] * 2, boxes=box)) for name in ("", "a dog of a long kind of name")
    )
    changed = np.argwhere((plain != named).any(axis=2))
    assert len(changed) and (changed.min(axis=0) >= 10).all() and changed[:, 1].max() < 120
    assert (named[11, 14] == colour_of(0)).all()


def test_label_maps_are_a_tint_and_the_label_0_is_none() -> None:
    labels = np.zeros((60, 80), np.int64)
    labels[:30, 40:], labels[30:, :40] = 7, 255
    pixels = drawn(shown(label_map=labels))
    assert pixels[10, 10] == pytest.approx(GREY)
    assert pixels[10, 100] == over(colour_of(7), TINT) and pixels[100, 10] == over(UNLABELLED, TINT)
    colours = np.zeros((60, 80, 3), np.uint8)
    colours[:30] = 10, 200, 90
    assert drawn(shown(label_map=colours))[10, 10] == over((10, 200, 90), TINT)
    depth = np.linspace(0.0, 9.0, 60 * 80).reshape(60, 80)
    pixels = drawn(shown(label_map=depth))
    assert pixels[-1, -1] == over((255, 255, 255), TINT) and pixels[0, 0] == over((0, 0, 0), TINT)


def test_cells_hold_the_loader_s_targets() -> None:
    source = object_source(5, maps=True)
    contents = over_epochs(source, CROPPED, rows=5, cols=2, seed=4)
    for column in range(2):
        loader = Loader(source, CROPPED, batch_size=1, seed=4, framework="numpy", targets=TargetOptions(polygons=True))
        loader.set_epoch(column)
        expected = {int(batch.sample_ids[0]): batch.targets[0] for batch in loader}
        for row in contents.rows:
            found, target = row.cells[column].targets, expected[row.sample_id]
            assert found is not None and found.boxes is not None and found.label_map is not None
            np.testing.assert_array_equal(found.boxes, target["boxes"])
            np.testing.assert_array_equal(found.label_map, target["mask"])
            assert [CLASSES.index(name) for name in found.names] == found.classes == target["labels"].tolist()
            assert len(found.polygons) == len(target["polygons"])
    for row in contents.rows:
        assert row.targets is not None and row.targets.boxes is not None
        np.testing.assert_array_equal(row.targets.boxes, source.objects[row.sample_id].boxes)
    assert draw_sheet(contents).size[0] > 100


@pytest.mark.slow
def test_every_kind_of_sheet_shows_them() -> None:
    views = Recipe(views=(View(ops=(ops.CenterCrop(size=30),)), View(ops=(ops.RandomResizedCrop(size=20),))))
    for source in (object_source(3), label_map_source(3)):
        for contents in (
            over_epochs(source, views, rows=2, cols=4),
            by_op(source, CROPPED, rows=2),
            by_op(source, views, rows=2),
        ):
            assert all(cell.targets is not None for row in contents.rows for cell in row.cells)
            with_them, without = draw_sheet(contents), draw_sheet(over_epochs(MemorySource(source.contents), views))
            assert with_them.size[0] > 100 and without.size[0] > 100


def test_batches_with_outlines_are_shown() -> None:
    loader = Loader(object_source(8), CROPPED, batch_size=8, framework="numpy", targets=TargetOptions(polygons=True))
    batch = next(iter(loader))
    (cell,) = of_batch(batch[1], 1, 1).rows[0].cells
    assert cell.targets is not None and cell.targets.boxes is not None
    np.testing.assert_array_equal(cell.targets.boxes, batch.targets[1]["boxes"])
    assert cell.targets.polygons == batch.targets[1]["polygons"] and any(cell.targets.polygons)
    assert batch.show(rows=2, cols=4).size[0] > 100


def test_rotated_boxes_are_shown_of_originals_sheets_and_batches() -> None:
    source, recipe = Rotated(2), Recipe(ops=[ops.CenterCrop(size=50)])
    row = over_epochs(source, recipe, rows=1, cols=1).rows[0]
    batch = next(iter(Loader(source, recipe, batch_size=2, shuffle=False, framework="numpy", dtype="uint8")))
    (of_one,) = of_batch(batch, 1, 1).rows[0].cells
    for targets, num in ((row.targets, 2), (row.cells[0].targets, 1), (of_one.targets, 1)):
        assert targets is not None and targets.are_rotated
        assert [np.shape(rings) for rings in targets.polygons] == [(1, 4, 2)] * num
    assert of_one.targets is not None
    np.testing.assert_array_equal(of_one.targets.polygons[0][0], batch.targets[0]["rotated_boxes"][0])


def test_captions_tell_how_often_a_crop_was_drawn_for_its_objects() -> None:
    keep = ops.KeepObjects(tries=3)
    recipe = Recipe(name="near", ops=(ops.RandomResizedCrop(size=30, scale=(0.02, 0.2), keep_objects=keep),))
    contents = over_epochs(object_source(8), recipe, rows=8, cols=2)
    captions = [cell.captions[0] for row in contents.rows for cell in row.cells]
    assert any("try 1" in text for text in captions) and any("try 3, fallback object" in text for text in captions)
    with pytest.raises(ValueError, match="random_resized_crop of recipe 'near' keeps objects, and the source has no"):
        over_epochs(MemorySource(arrays(2), labels=[-1, -1]), recipe, rows=1)


@pytest.mark.slow
def test_a_crop_for_objects_is_the_same_by_itself_and_behind_a_flip() -> None:
    keep = ops.KeepObjects(rule="visible", share=0.8)
    crop = ops.RandomResizedCrop(size=30, scale=(0.02, 0.2), keep_objects=keep)
    recipe = Recipe(ops=(ops.Flip(p=0.9), crop, ops.ColorCast()))
    source = object_source(6)
    for sheet in (by_op, by_step):
        for row, whole in zip(
            sheet(source, recipe, rows=6).rows, over_epochs(source, recipe, rows=6).rows, strict=True
        ):
            texts = [text for cell in row.cells for text in cell.captions if text.startswith("crop")]
            assert texts and set(texts) == {text for text in whole.cells[0].captions if text.startswith("crop")}


def test_what_targets_do_not_follow_is_shown_without_them_and_said() -> None:
    recipe = Recipe(ops=(ops.RandomResizedCrop(size=30), ops.GridShuffle(p=1.0), ops.Flip()))
    mixed = Recipe(ops=(ops.RandomResizedCrop(size=30),), mixing=(ops.MixUp(),))
    source = object_source(4, maps=True)
    contents = by_op(source, recipe, rows=1)
    has_targets = [cell.targets is not None for cell in contents.rows[0].cells]
    assert has_targets == [True, False, True, False]
    assert contents.note.endswith("targets do not follow grid_shuffle")
    contents = over_epochs(source, mixed, rows=1, cols=2)
    assert contents.note.endswith("targets do not follow mix_up") and contents.rows[0].cells[0].targets is None
    plain = over_epochs(MemorySource(arrays(2), labels=[-1, -1]), mixed, rows=1)
    assert "targets" not in plain.note and plain.rows[0].targets is None
