"""DOTA: which lines are objects, how folders are told from YOLO's, and what is wrong with real files."""

from pathlib import Path

import numpy as np
import pytest

from augpipe import Loader, Recipe, ops
from augpipe.datasets.annotations.annotated_source import check_annotations
from augpipe.datasets.annotations.dota import DotaSource
from augpipe.datasets.annotations.open_annotated import open_to_check
from augpipe.datasets.annotations.yolo import YoloSource
from augpipe.datasets.open import open_source
from augpipe.datasets.stats.objects import object_statistics
from tests.datasets.annotations.annotated_sets import SIZES, everything, put_image, put_images

HEAD = "imagesource:GoogleEarth\ngsd:0.146343590398\n"
SHIP = "10 4 30.5 14 26 22 6 12 ship 1"
CORNERS = [[10, 4], [30.5, 14], [26, 22], [6, 12]]


def put_dota(root: Path, lines: dict[str, str], folder: str = "labelTxt") -> Path:
    put_images(root / "images")
    (root / folder).mkdir()
    for name in SIZES:
        (root / folder / f"{name}.txt").write_text(lines.get(name, HEAD))
    return root


@pytest.mark.parametrize("folder", ["labelTxt", "annfiles", "labels"])
def test_lines_are_corners_a_class_and_how_difficult_it_is(tmp_path: Path, folder: str) -> None:
    lines = {"a": f"{HEAD}{SHIP}\n\n0 0 9 0 9 9 0 9 large vehicle\n", "b": "-3 5 35 5 35 9 -3 9 large vehicle 0"}
    source = open_source(put_dota(tmp_path, lines, folder))
    assert isinstance(source, DotaSource) and source.object_classes == ("large vehicle", "ship")
    found = everything(source)
    assert found.counts.tolist() == [2, 1, 0] and found.polygons is None
    assert found.rotated_boxes is not None and found.boxes is not None and found.labels is not None
    assert found.rotated_boxes[0].tolist() == CORNERS and found.rotated_boxes[2][0].tolist() == [-3, 5]
    assert found.labels.tolist() == [1, 0, 0] and found.fields["difficult"].tolist() == [1, 0, 0]
    assert found.boxes.tolist() == [[6, 4, 30.5, 22], [0, 0, 9, 9], [0, 5, 30, 9]]  # the last is cut
    chosen = DotaSource(tmp_path, classes=["ship"])
    assert everything(chosen).counts.tolist() == [1, 0, 0]
    assert chosen.left_out[0].startswith("2 objects of classes that are not among those given")
    recipe = Recipe(ops=[ops.Resize(size=(48, 64))])
    batch = next(iter(Loader(source, recipe, batch_size=3, shuffle=False, framework="numpy", dtype="uint8")))
    np.testing.assert_allclose(batch.targets[0]["rotated_boxes"][1], [[0, 0], [9, 0], [9, 9], [0, 9]], atol=1e-5)
    assert batch.targets[0]["difficult"].tolist() == [1, 0]


def test_places_are_those_of_the_upright_image(tmp_path: Path) -> None:
    put_dota(tmp_path, {"a": SHIP})
    put_image(tmp_path / "images/a.jpg", SIZES["a"], orientation=6)  # shown turned clockwise by a quarter
    found = everything(open_source(tmp_path))
    assert found.rotated_boxes is not None
    assert found.rotated_boxes[0].tolist() == [[48 - y, x] for x, y in CORNERS]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("1 2 3 4 5 6 7 8", "'1 2 3 4 5 6 7 8' is not x1 y1 x2 y2 x3 y3 x4 y4 class difficult"),
        ("1 2 3 4 5 6 7 ship 0", "is not x1 y1"),
        ("1 2 x 4 5 6 7 8 ship 0", "is not x1 y1"),
        ("nan 2 9 2 9 8 1 8 ship 0", "its box is not finite"),
        ("inf 2 9 2 9 8 1 inf ship 0", "its box is not finite"),
        ("1 2 9 2 1 8 9 8 ship 0", "sides of its rotated box cross"),
    ],
)
def test_wrong_lines_are_refused_by_name_or_left_out(tmp_path: Path, line: str, reason: str) -> None:
    put_dota(tmp_path, {"a": SHIP, "b": f"{HEAD}{SHIP}\n{line}\n"})
    with pytest.raises(ValueError, match=rf"labelTxt/b.txt, line 4: .*{reason}"):
        open_source(tmp_path)
    checked = open_to_check(str(tmp_path))
    assert isinstance(checked, DotaSource) and everything(checked).counts.tolist() == [1, 1, 0]
    (fault,) = check_annotations(checked)
    assert fault.where.endswith("b.txt, line 4") and reason in fault.reason


@pytest.mark.parametrize("line", ["0 0.1 0.1 0.5 0.1 0.5 0.5 0.1 0.5", ""], ids=["numbers alone", "no line"])
def test_files_are_yolos_unless_a_line_is_dotas(tmp_path: Path, line: str) -> None:
    put_dota(tmp_path, dict.fromkeys(SIZES, line), "labels")
    source = open_source(tmp_path)
    assert isinstance(source, YoloSource) and source.num_objects == (3 if line else 0)


def test_lines_without_an_area_are_left_out(tmp_path: Path) -> None:
    source = open_source(put_dota(tmp_path, {"a": f"{SHIP}\n1 1 5 5 9 9 5 5 ship 0\n3 3 3 3 3 3 3 3 ship 0"}))
    assert isinstance(source, DotaSource) and everything(source).counts.tolist() == [1, 0, 0]
    assert source.left_out[0].startswith("2 objects without a size")


OUTSIDE = ["100 5 120 5 120 9 100 9 ship 0", "-30 5 -3 5 -3 9 -30 9 ship 0"]
"""Right and left of image b, which is 30 pixels wide."""


def test_boxes_outside_the_image_are_listed_and_dropped_on_either_side(tmp_path: Path) -> None:
    put_dota(tmp_path, {"a": SHIP, "b": "\n".join([SHIP.replace("30.5", "40"), *OUTSIDE])})
    source = open_source(tmp_path)
    assert isinstance(source, DotaSource) and source.left_out == [] == source.notes
    recipe = Recipe(ops=[ops.Resize(size=(40, 30))])
    batch = next(iter(Loader(source, recipe, batch_size=3, shuffle=False, framework="numpy", dtype="uint8")))
    assert len(batch.targets[1]["boxes"]) == 1
    assert batch.dropped[1] == [(1, "nothing of it is shown"), (2, "nothing of it is shown")]
    # corners outside are usual in DOTA: only what lies outside as a whole is a fault
    faults = check_annotations(open_to_check(str(tmp_path)))
    assert [fault.reason for fault in faults] == [f"object {number} lies outside the image" for number in (1, 2)]
    assert all(fault.where.endswith("b.jpg") for fault in faults)
    found = object_statistics(source)
    assert found is not None and found.box_sizes == {"small": 2, "medium": 0, "large": 0}
    assert found.mended == ("2 objects outside the image, which batches drop",)


def test_crops_do_not_keep_boxes_outside_the_image(tmp_path: Path) -> None:
    lines = {"a": SHIP, "b": f"{OUTSIDE[0]}\n2 20 5 20 5 23 2 23 ship 0", "c": OUTSIDE[0]}
    crop = ops.RandomCrop(size=8, keep_objects=ops.KeepObjects(tries=1))
    loader = Loader(
        open_source(put_dota(tmp_path, lines)), Recipe(ops=[crop]), batch_size=3, framework="numpy", dtype="uint8"
    )
    for epoch in range(8):
        loader.set_epoch(epoch)
        (batch,) = loader
        position = batch.plan.sample_ids.tolist().index(1)
        assert batch.targets[position]["object_ids"].tolist() == [1]
        tries = batch.plan.rows["drawn"]["random_crop"]["keep_objects"]["tries"]
        assert tries[batch.plan.sample_ids.tolist().index(2)] == 0  # nothing to keep


# --- YOLO's


def put_obb(root: Path, lines: str, yaml: str | None = None) -> Path:
    put_images(root / "images")
    (root / "labels").mkdir()
    (root / "labels/a.txt").write_text(lines)
    if yaml is not None:
        (root / "data.yaml").write_text(f"train: images\nnames: [ship, plane]\n{yaml}")
    return root


OBB = "1 0.25 0.25 0.75 0.5 0.6875 0.75 0.1875 0.5"
TWISTED = "1 0.25 0.25 0.75 0.25 0.25 0.75 0.75 0.75"


def test_four_corners_are_an_outline_or_a_rotated_box(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    source = open_source(put_obb(tmp_path, OBB, "task: obb\n"))
    images, wanted = tmp_path / "images", [[16, 12], [48, 24], [44, 36], [12, 24]]
    for rotated in (source, YoloSource(images, rotated=True), YoloSource(images)):
        found = everything(rotated)
        assert found.rotated_boxes is not None and found.boxes is not None and found.polygons is None
        assert found.rotated_boxes.tolist() == [wanted] and found.boxes.tolist() == [[12, 12, 48, 36]]
    outlines = everything(YoloSource(images, rotated=False))
    assert outlines.rotated_boxes is None and outlines.polygons is not None
    assert outlines.polygons[0][0].tolist() == wanted


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("1 0.5 0.5 0.1 0.1", "it holds 5 numbers, and a rotated box has 9: its class, 4 corners"),
        ("1 0 0 0.5 0 0.5 0.5", "it holds 7 numbers"),
        (TWISTED, "sides of its rotated box cross"),
    ],
)
def test_lines_that_are_no_rotated_boxes_are_refused(tmp_path: Path, line: str, reason: str) -> None:
    put_obb(tmp_path, f"{OBB}\n{line}\n")
    with pytest.raises(ValueError, match=rf"labels/a.txt, line 2: {reason}"):
        YoloSource(tmp_path / "images", rotated=True)
    source = YoloSource(tmp_path / "images", rotated=True, on_error="skip")
    assert everything(source).counts.tolist() == [1, 0, 0]
    assert source.left_out[0].startswith("1 object that cannot be used")


def test_corners_outside_stay_and_are_counted(tmp_path: Path) -> None:
    put_obb(tmp_path, "0 -0.25 0.25 0.5 0.25 0.5 0.5 -0.25 0.5")
    source = YoloSource(tmp_path / "images", rotated=True)
    assert check_annotations(source) == []  # nothing is wrong with them
    found = everything(source)
    assert found.rotated_boxes is not None and found.boxes is not None
    assert found.rotated_boxes[0][0].tolist() == [-16, 12] and found.boxes.tolist() == [[0, 12, 32, 24]]
    assert source.notes[0].startswith("1 object reaching outside the image, staying there")
