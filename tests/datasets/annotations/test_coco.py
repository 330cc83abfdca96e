"""COCO's files: what of them reaches the targets, in which order, and what is refused or counted."""

import json
import logging
import pickle
import struct
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image

from augpipe.datasets.annotations.coco import CocoSource, swaps_by_name
from augpipe.datasets.open import open_source
from tests.datasets.annotations.annotated_sets import (
    ORIENTATION,
    coco_content,
    everything,
    filled,
    put_coco,
    put_image,
    put_images,
)
from tests.datasets.formats.source_checks import assert_keeps_the_protocol


def test_samples_are_the_images_by_their_ids(tmp_path: Path) -> None:
    source = CocoSource(put_coco(tmp_path, [{}, {"image_id": 20, "category_id": 3}, {"image_id": 20}]))
    assert [Path(source.name(i)).name for i in range(3)] == ["c.jpg", "b.jpg", "a.jpg"]
    assert source.image_ids == [10, 20, 30] and source.category_ids == [3, 7]
    assert source.columns_of(np.array([2, 0]))["image_id"].tolist() == [30, 10]
    assert source.object_classes == ("cat", "dog") and source.has_targets and not source.has_label_maps
    found = everything(source)
    assert found.counts.tolist() == [0, 2, 1] and found.labels is not None and found.boxes is not None
    assert found.labels.tolist() == [0, 1, 1] and found.fields["id"].tolist() == [101, 102, 100]
    assert found.boxes.tolist() == [[4, 6, 24, 16]] * 3
    other = source.targets_of(np.array([2, 0, 1, 1]))
    assert other is not None and other.counts.tolist() == [1, 0, 2, 2]
    assert other.fields["id"].tolist() == [100, 101, 102, 101, 102]
    nothing = source.targets_of(np.empty(0, np.int64))
    assert nothing is not None and nothing.counts.shape == (0,)
    contents = [(tmp_path / f"{name}.jpg").read_bytes() for name in "cba"]
    assert_keeps_the_protocol(source, contents, [-1, -1, -1])
    with pytest.raises(IndexError, match="sample_id=3 is out of range"):
        source.targets_of(np.array([0, 3]))


def test_outlines_masks_and_crowds(tmp_path: Path) -> None:
    ring = [4, 6, 24, 6, 24, 16]
    annotations = [
        {"segmentation": [ring, [30, 6, 34.25, 6, 30, 10.5]], "area": 17.5},
        {"segmentation": {"size": [48, 64], "counts": [10, 38, 48 * 63]}, "iscrowd": 1, "bbox": [0, 10, 1, 38]},
        {"segmentation": [], "area": float("nan")},
        {"segmentation": [ring], "bbox": None},
    ]
    found = everything(CocoSource(put_coco(tmp_path, annotations)))
    assert found.polygons is not None and found.boxes is not None
    assert [[one.tolist() for one in rings] for rings in found.polygons] == [
        [[[4, 6], [24, 6], [24, 16]], [[30, 6], [34.25, 6], [30, 10.5]]],
        [[[0, 10], [1, 10], [1, 48], [0, 48]]],
        [],
        [[[4, 6], [24, 6], [24, 16]]],
    ]
    assert found.fields["iscrowd"].tolist() == [0, 1, 0, 0]
    assert found.fields["area"].tolist() == [17.5, 38, 200, 100]  # of the file; else of the outline, or the box
    assert found.boxes[3].tolist() == [4, 6, 24, 16]  # around its outline


def test_crowds_may_be_left_out(tmp_path: Path) -> None:
    path = put_coco(tmp_path, [{"iscrowd": 1}, {"iscrowd": 0}, {}])
    assert everything(CocoSource(path)).fields["id"].tolist() == [100, 101, 102]
    without = CocoSource(path, crowds=False)
    assert everything(without).fields["id"].tolist() == [101, 102] and not without.left_out
    with pytest.raises(ValueError, match="id is that of another annotation"):
        CocoSource(put_coco(tmp_path, [{"iscrowd": 1, "id": 5}, {"id": 5}]), crowds=False)


def test_key_points_and_their_swaps(tmp_path: Path) -> None:
    names = ["nose", "left_eye", "right_eye"]
    categories = [{"id": 3, "name": "cat"}, {"id": 7, "name": "dog", "keypoints": names, "skeleton": [[1, 2]]}]
    points = [5, 7, 2, 6, 8, 1, 0, 0, 0]
    path = put_coco(tmp_path, [{"keypoints": points}, {"category_id": 3}], categories=categories)
    source = CocoSource(path)
    found = everything(source)
    assert found.keypoints is not None and found.keypoints.shape == (2, 3, 3)
    assert found.keypoints[0].ravel().tolist() == points and not found.keypoints[1].any()
    assert source.keypoint_names == tuple(names) and source.keypoint_swaps == ((1, 2),)


@pytest.mark.parametrize(
    ("names", "swaps"),
    [
        (["L_hip", "R_hip", "neck"], [(0, 1)]),
        (["LeftEye", "RightEye"], [(0, 1)]),
        (["eye left", "tail", "eye right"], [(0, 2)]),
        (["left_wrist", "right_ankle"], []),
        (["cleft", "bright", "all"], []),
        (["nose", "lefteye", "righteye"], [(1, 2)]),
        (["LEye", "REye", "LShoulder", "RShoulder"], [(0, 1), (2, 3)]),
        (["leftover", "lear", "rear"], []),
        (["eye.l", "eye.r", "left_front_paw", "right_front_paw"], [(0, 1), (2, 3)]),
    ],
)
def test_left_and_right_are_found_in_names(names: list[str], swaps: list[tuple[int, int]]) -> None:
    assert swaps_by_name(names) == tuple(swaps)


def test_sides_without_a_pair_are_told(tmp_path: Path) -> None:
    def notes(*names: str) -> list[str]:
        categories = [{"id": 7, "name": "dog", "keypoints": names}]
        return list(CocoSource(put_coco(tmp_path, [{}], categories=categories)).notes)

    expected = "no key points trade places in a mirrored image, though some are of one side ('left_wrist')"
    assert notes("nose", "left_wrist") == [expected]
    assert notes("left_wrist", "right_wrist") == notes("nose", "tail") == []


def test_ids_of_images_may_be_texts(tmp_path: Path) -> None:
    images = [{"id": name, "file_name": f"{name}.jpg"} for name in ("b", "a")]
    source = CocoSource(put_coco(tmp_path, [{"image_id": "b"}], images=images))
    assert source.image_ids == ["a", "b"] and everything(source).counts.tolist() == [0, 1]
    assert source.columns_of(np.array([1, 0])) == {"image_id": ["b", "a"]}


def test_classes_choose_and_order(tmp_path: Path) -> None:
    path = put_coco(tmp_path, [{}, {"category_id": 3}])
    source = CocoSource(path, classes=["dog"])
    assert (source.object_classes, source.category_ids) == (("dog",), [7])
    assert everything(source).fields["id"].tolist() == [100]
    both = everything(CocoSource(path, classes=["dog", "cat"]))
    assert both.labels is not None and both.labels.tolist() == [0, 1]
    with pytest.raises(ValueError, match=r"classes names 'bird', and .*coco.json has no category of this name"):
        CocoSource(path, classes=["bird"])


def test_lvis_names_images_by_their_url(tmp_path: Path) -> None:
    put_image(tmp_path / "val2017/000000000139.jpg", (20, 20))
    url = "http://images.cocodataset.org/val2017/000000000139.jpg"
    images = [{"id": 139, "coco_url": url, "height": 20, "width": 20, "neg_category_ids": [3]}]
    content = coco_content([{"image_id": 139, "bbox": [1, 2, 3, 4]}], images=images)
    (tmp_path / "lvis").mkdir()
    path = tmp_path / "lvis/lvis_v1_val.json"
    path.write_text(json.dumps(content))
    assert CocoSource(path).read(0) == (tmp_path / "val2017/000000000139.jpg").read_bytes()


# --- what real data sets have, and what none should


def test_what_cannot_be_used_is_left_out_and_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    annotations = [
        {"bbox": [4, 6, 0, 10]},
        {"bbox": [4, 6, 10, 0]},
        {"bbox": [70, 6, 10, 10]},
        {"bbox": [60, -3, 10, 10]},
        {"bbox": [54.2, 6, 10, 10]},
        {"segmentation": [[4, 6, 24, 6], [4, 6, 24, 6, 24, 16]]},
        {"segmentation": [[50, 6, 90, 6, 90, 16, 50, 16]], "bbox": [50, 6, 40, 10]},
        {"segmentation": [[80, 6, 90, 6, 90, 16]]},
    ]
    path = put_coco(tmp_path, annotations)
    caplog.set_level(logging.INFO, "augpipe")
    source = open_source(path)
    found = everything(source)
    assert found.fields["id"].tolist() == [103, 104, 105, 106, 107] and found.boxes is not None
    assert found.boxes[:2].tolist() == [[60, 0, 64, 7], [54.2, 6, 64, 16]] and found.polygons is not None
    assert len(found.polygons[2]) == 1 and not found.polygons[4]
    np.testing.assert_allclose(
        filled(found.polygons[3], (48, 64)), filled([np.array([[50, 6], [64, 6], [64, 16], [50, 16]])], (48, 64))
    )
    assert found.polygons[3][0].max() == 64
    (line,) = [record for record in caplog.records if "coco.json" in record.getMessage()]
    text = line.getMessage()
    assert line.levelno == logging.WARNING and "3 photographs, 5 objects of 2 classes" in text
    assert "2 objects without a size (the first: " in text and "annotation 0 (id 100))" in text
    assert "1 object outside the image" in text and "1 outline of fewer than three corners" in text
    assert "2 objects reaching outside the image, cut at its edge" in text


BAD = [
    ({"id": 100}, {"id": 100}, "its id is that of another annotation"),
    ({}, {"id": "x"}, "its id is not a whole number"),
    ({}, {"image_id": 5}, "its image_id is 5, which is none of the images"),
    ({}, {"image_id": [30]}, r"its image_id is \[30\], which is none of the images"),
    ({}, {"category_id": 1}, "its category_id is 1, which is none of the categories"),
    ({}, {"iscrowd": 2}, "iscrowd=2, and it is 0 or 1"),
    ({}, {"bbox": [1, 2, 3]}, r"its bbox is \[1, 2, 3\], and takes left, top, width and height"),
    ({}, {"bbox": ["1", 2, 3, 4]}, "something in it is not a number"),
    ({}, {"bbox": [1, None, 3, 4]}, "something in it is not a number"),
    ({}, {"bbox": [1, 2, float("nan"), 4]}, "its box is not finite, or is huge"),
    ({}, {"bbox": [1, 2, 1e30, 4]}, "its box is not finite, or is huge"),
    ({}, {"bbox": [float("inf"), 2, float("inf"), 4]}, "its box is not finite, or is huge"),
    ({}, {"bbox": [1e308, 2, -1e308, 4]}, "its box is not finite, or is huge"),
    ({}, {"bbox": [1, 2, -3, 4]}, "its box has a negative size"),
    ({}, {"bbox": None}, "it has neither a bbox nor a segmentation"),
    ({}, {"segmentation": "x"}, "its segmentation is neither a list of polygons nor a run-length mask"),
    ({}, {"segmentation": [1, 2, 3, 4, 5, 6]}, "a polygon of it is not a list of x and y in turn"),
    ({}, {"segmentation": [[1, 2, 3, 4, 5, 6, 7]]}, "a polygon of it is not a list of x and y in turn"),
    ({}, {"segmentation": [[1, 2, 3, 4, 5, "6"]]}, "something in it is not a number"),
    ({}, {"segmentation": [[1, 2, 3, 4, 5, float("inf")]]}, "a corner of its outline is not finite, or is huge"),
    ({}, {"segmentation": {"size": [48, 64], "counts": [5]}}, "the runs of its mask have 5 pixels together"),
    ({}, {"segmentation": {"size": [64, 48], "counts": [3072]}}, "its mask is 48x64 pixels, and its image 64x48"),
    ({"keypoints": [1, 2, 2]}, {"keypoints": [1, 2]}, "its keypoints are 2 numbers, and x, y and visibility of 1"),
    ({"keypoints": [1, 2, 2]}, {"keypoints": [1, 2, 3]}, r"the visibility of a key point is not 0 \(not labelled\)"),
    ({"keypoints": [1, 2, 2]}, {"keypoints": [1, float("nan"), 2]}, "a key point is not finite, or is huge"),
]


@pytest.mark.parametrize(("good", "bad", "reason"), BAD)
def test_wrong_objects_are_refused_by_name_or_left_out(
    tmp_path: Path, good: dict[str, Any], bad: dict[str, Any], reason: str
) -> None:
    path = put_coco(tmp_path, [good, bad])
    with pytest.raises(ValueError, match=rf"coco.json, annotation 1.*{reason}"):
        CocoSource(path)
    source = CocoSource(path, on_error="skip")
    assert everything(source).fields["id"].tolist() == [100]
    (phrase,) = source.left_out
    assert phrase.startswith("1 object that cannot be used (the first: ")
    assert "annotation 1" in source.faults.listed[0].where


@pytest.mark.parametrize(
    ("others", "reason"),
    [
        ({"images": None}, "has no list 'images', as COCO's files of instances have"),
        ({"annotations": {}}, "has no list 'annotations'"),
        ({"images": []}, "lists no image"),
        ({"images": [3]}, "image 0: its id is None"),
        ({"images": [{"id": 1.5}]}, "image 0: its id is 1.5"),
        ({"images": [{"id": 1}]}, "image 1 has the file_name None"),
        ({"images": [{"id": 1, "file_name": "a\0b"}]}, "image 1 has the file_name"),
        ({"images": [{"id": 1, "file_name": "\ud800"}]}, "image 1 has the file_name"),
        ({"images": [{"id": 1, "file_name": "a.jpg", "height": "48"}]}, "has the height and width"),
        ({"images": [{"id": 1, "file_name": "a.jpg"}, {"id": 1, "file_name": "b.jpg"}]}, "two images have the id 1"),
        ({"images": [{"id": 1, "file_name": "z.jpg"}]}, "none of the first 1 is there; looked in"),
        ({"categories": [{"id": 1}]}, "category 0: it needs an id, a whole number, and a name"),
        ({"categories": [{"id": 1, "name": "a"}, {"id": 1, "name": "b"}]}, "two categories have the id 1"),
        ({"categories": [{"id": 1, "name": "a", "keypoints": 3}]}, "keypoints that are not a list of names"),
        (
            {"categories": [{"id": 1, "name": "a", "keypoints": ["x"]}, {"id": 2, "name": "b", "keypoints": ["y"]}]},
            "has categories with different key points",
        ),
    ],
)
def test_wrong_files_are_refused(tmp_path: Path, others: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=rf"coco.json.*{reason}"):
        CocoSource(put_coco(tmp_path / "set", **{"annotations": [], **others}), on_error="skip")


@pytest.mark.parametrize(
    "text", ["", "[" * 100_000, "{", "[1]", '{"images": [', "\xff\xfe", '{"a": 1' + "0" * 5000 + "}"]
)
def test_what_is_no_json_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "coco.json").write_text(text, encoding="latin-1")
    with pytest.raises(ValueError, match="coco.json (is not JSON|holds a JSON list|has no list 'annotations')"):
        CocoSource(tmp_path / "coco.json")


def test_an_image_of_another_size_is_a_damaged_sample(tmp_path: Path) -> None:
    path = put_coco(tmp_path, [{}, {"image_id": 20}])
    put_image(tmp_path / "a.jpg", (24, 32))
    source = CocoSource(path)
    assert source.targets_of(np.array([0, 1])).fields["id"].tolist() == [101]
    with pytest.raises(ValueError, match=r"a.jpg has 32x24 pixels"):
        everything(source)
    for _ in range(2):
        with pytest.raises(ValueError, match=r"a.jpg has 32x24 pixels, and .*coco.json was made for an image of 64x48"):
            source.read(2)


def test_an_image_of_any_number_of_pixels_has_its_objects(tmp_path: Path) -> None:
    images = [{"id": 30, "file_name": "a.jpg", "height": 9_500, "width": 10_000}]
    path = put_coco(tmp_path, [{"bbox": [4_000, 4_000, 2_000, 2_000]}], images=images)
    content = bytearray((tmp_path / "a.jpg").read_bytes())
    frame = content.index(b"\xff\xc0")
    content[frame + 5 : frame + 9] = struct.pack(">HH", 9_500, 10_000)
    (tmp_path / "a.jpg").write_bytes(content)
    found = everything(CocoSource(path))
    assert found.boxes is not None and found.boxes.tolist() == [[4_000, 4_000, 6_000, 6_000]]


def test_an_image_that_is_gone_has_no_objects_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    source = CocoSource(put_coco(tmp_path, [{}, {"image_id": 20}]))
    (tmp_path / "a.jpg").unlink()
    (tmp_path / "b.jpg").write_bytes(b"no image")
    assert source.targets_of(np.array([0, 2])).counts.tolist() == [0, 0]
    with pytest.raises(ValueError, match="b.jpg: not a picture"):
        everything(source)
    with pytest.raises(FileNotFoundError):
        source.read(2)
    assert source.read(1) == b"no image"  # the loader's decoder says what is wrong with it


# --- EXIF


def test_orientation_behind_the_pixels_of_a_png(tmp_path: Path) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (200, 300, 3), np.uint8)
    exif = Image.Exif()
    exif[ORIENTATION] = 6
    Image.fromarray(pixels).save(tmp_path / "a.png", exif=exif)
    content = (tmp_path / "a.png").read_bytes()
    start = content.index(b"eXIf") - 4
    stop = start + 12 + int.from_bytes(content[start : start + 4], "big")
    (tmp_path / "a.png").write_bytes(content[:start] + content[stop:-12] + content[start:stop] + content[-12:])
    images = [{"id": 30, "file_name": "a.png", "height": 200, "width": 300}]
    path = put_coco(tmp_path, [{"bbox": [10, 20, 30, 40]}], images=images)
    found = everything(CocoSource(path))
    assert found.boxes is not None and found.boxes.tolist() == [[200 - 60, 10, 200 - 20, 40]]


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("is_stored", [True, False])
def test_orientation_is_told_by_the_size(tmp_path: Path, orientation: int, is_stored: bool) -> None:
    stored = (48, 64)
    put_images(tmp_path)
    put_image(tmp_path / "a.jpg", stored, orientation)
    pixels = np.zeros(stored, np.uint8)
    pixels[6:16, 4:24] = 1
    pixels[6:9, 4:6] = 2  # a corner
    turned = {
        1: pixels,
        2: pixels[:, ::-1],
        3: pixels[::-1, ::-1],
        4: pixels[::-1],
        5: pixels.T,
        6: np.rot90(pixels, -1),
        7: np.rot90(pixels, 2).T,
        8: np.rot90(pixels),
    }[orientation]
    told = stored if is_stored or orientation < 5 else stored[::-1]
    images = [{"id": 30, "file_name": "a.jpg", "height": told[0], "width": told[1]}]
    ring = [4, 6, 6, 6, 6, 9, 4, 9]
    content = coco_content([{"segmentation": [ring], "keypoints": [5, 7.5, 2]}], images=images)
    (tmp_path / "coco.json").write_text(json.dumps(content))
    found = everything(CocoSource(tmp_path / "coco.json"))
    assert found.boxes is not None and found.polygons is not None and found.keypoints is not None
    expected = turned if told == stored else pixels
    rows, columns = np.nonzero(expected)
    assert found.boxes[0].tolist() == [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
    corner = filled(found.polygons[0], expected.shape)
    np.testing.assert_array_equal(corner, expected == 2)
    rows, columns = np.nonzero(corner)
    assert found.keypoints[0, 0].tolist() == [columns.mean() + 0.5, rows.mean() + 0.5, 2]


# --- real annotations


@pytest.mark.slow
def test_real_annotations_against_opencv(coco80: Path) -> None:
    source = open_source(coco80)
    assert isinstance(source, CocoSource)
    content = json.loads((coco80 / "annotations/instances.json").read_text())
    known = {one["id"]: one for one in content["annotations"]}
    found = everything(source)
    assert len(source) == 80 and found.fields["iscrowd"].sum() == 8 and len(found.fields["id"]) == len(known) == 739
    assert found.labels is not None and found.boxes is not None and found.polygons is not None
    samples = np.repeat(np.arange(80), found.counts)
    for row, own_id in enumerate(found.fields["id"].tolist()):
        one = known[own_id]
        assert source.image_ids[samples[row]] == one["image_id"]
        assert source.category_ids[found.labels[row]] == one["category_id"]
        left, top, width, height = one["bbox"]
        np.testing.assert_allclose(found.boxes[row], [left, top, left + width, top + height], atol=0.51)
        area = sum(cv2.contourArea(ring.astype(np.float32)) for ring in found.polygons[row])
        if one["iscrowd"]:
            assert area == pytest.approx(sum(one["segmentation"]["counts"][1::2]))
        elif len(found.polygons[row]) == 1:
            assert area == pytest.approx(one["area"], rel=0.02, abs=2)
    crowd = next(row for row, is_crowd in enumerate(found.fields["iscrowd"]) if is_crowd)
    mask = known[int(found.fields["id"][crowd])]["segmentation"]
    size = tuple(mask["size"])
    pixels = np.zeros(size[0] * size[1], np.bool_)
    edges = np.cumsum(mask["counts"])
    for begin, end in zip(edges[0::2], edges[1::2], strict=False):
        pixels[begin:end] = True
    np.testing.assert_array_equal(filled(found.polygons[crowd], size), pixels.reshape(size[::-1]).T)


def test_real_key_points(coco80: Path) -> None:
    source = open_source(coco80 / "images", annotations=coco80 / "annotations/person_keypoints.json")
    content = json.loads((coco80 / "annotations/person_keypoints.json").read_text())
    known = {one["id"]: one["keypoints"] for one in content["annotations"]}
    found = everything(source)
    assert isinstance(source, CocoSource) and source.keypoint_swaps == tuple((i, i + 1) for i in range(1, 17, 2))
    assert found.keypoints is not None and found.keypoints.shape == (172, 17, 3)
    for points, own_id in zip(found.keypoints, found.fields["id"].tolist(), strict=True):
        assert points.ravel().tolist() == known[own_id]
    again = everything(pickle.loads(pickle.dumps(source)))
    assert again.keypoints is not None and (again.keypoints == found.keypoints).all()


@pytest.mark.parametrize(
    ("box", "text"),
    [
        (
            [30, 20, 62, 46],
            "4 of 4 boxes reach outside their images: do they say where their right and lower edges lie",
        ),
        ([0.4, 0.4, 0.2, 0.3], "4 of 4 boxes are smaller than a pixel: are they in parts of the image"),
        ([4, 6, 20, 10], None),
    ],
)
def test_boxes_that_seem_to_be_written_otherwise_are_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, box: list[float], text: str | None
) -> None:
    """As corners, where COCO has a corner, width and height; or in parts of width and height."""
    path = put_coco(tmp_path, [{"bbox": box}] * 4)
    caplog.set_level(logging.INFO, "augpipe")
    open_source(path)
    (line,) = [record for record in caplog.records if "coco.json" in record.getMessage()]
    assert line.levelno == (logging.INFO if text is None else logging.WARNING)
    assert text is None or text in line.getMessage()
