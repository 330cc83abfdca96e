"""YOLO: where labels lie, what a line may hold, and YAML files as people have them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from augpipe.datasets.annotations.coco import CocoSource
from augpipe.datasets.annotations.yolo import YoloSource
from augpipe.datasets.open import open_source
from tests.datasets.annotations.annotated_sets import SIZES, everything, put_image, put_images
from tests.datasets.annotations.conversions import as_yolo
from tests.datasets.formats.source_checks import assert_keeps_the_protocol

LINE = "1 0.5 0.25 0.5 0.5"


def put_labels(root: Path, lines: dict[str, str], yaml: str | None = None) -> Path:
    """`images` and `labels`, and data.yaml where there is a text for it."""
    put_images(root / "images")
    (root / "labels").mkdir(exist_ok=True)
    for name, text in lines.items():
        (root / "labels" / f"{name}.txt").write_text(text)
    if yaml is not None:
        (root / "data.yaml").write_text(yaml)
    return root


def test_boxes_are_parts_of_the_image(tmp_path: Path) -> None:
    source = open_source(put_labels(tmp_path, {"a": f"{LINE}\n\n0 0.5 0.5 1 1\n", "b": ""}))
    assert isinstance(source, YoloSource) and source.object_classes == ("0", "1")
    contents = [(tmp_path / f"images/{name}.jpg").read_bytes() for name in "abc"]
    assert_keeps_the_protocol(source, contents, [-1] * 3)
    found = everything(source)
    assert found.counts.tolist() == [2, 0, 0] and found.boxes is not None and found.labels is not None
    assert found.labels.tolist() == [1, 0] and found.boxes.tolist() == [[16, 0, 48, 24], [0, 0, 64, 48]]
    assert source.notes == ["1 image without a file of labels, so without objects"] and source.cautions == []
    named = YoloSource(tmp_path / "images", classes=["cat", "dog", "bird"])
    assert named.object_classes == ("cat", "dog", "bird")
    with pytest.raises(ValueError, match="1 is none of the 1 classes"):
        YoloSource(tmp_path / "images", classes=["cat"])


def test_classes_are_chosen_by_the_names_of_a_yaml_file(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    lines = {"a": "0 0.5 0.5 0.5 0.5\n1 0.5 0.5 0.5 0.5\n2 0.5 0.5 0.5 0.5"}
    put_labels(tmp_path, lines, "train: images\nnames: [cat, dog, bird]\n")
    for path in ("data.yaml", "images"):
        source = YoloSource(tmp_path / path, classes=["bird", "cat"])
        labels = everything(source).labels
        assert source.object_classes == ("bird", "cat") and labels is not None and labels.tolist() == [1, 0]
    with pytest.raises(ValueError, match=r"classes names 'cow', and .*data.yaml has no class of this name \('cat', "):
        YoloSource(tmp_path / "data.yaml", classes=["cow"])


def test_outlines_and_boxes_in_one_file(tmp_path: Path) -> None:
    found = everything(
        open_source(put_labels(tmp_path, {"a": f"{LINE}\n0 0 0 0.5 0 0.5 0.5\n1 .1 .1 .2 .1 .2 .2 .1 .2"}))
    )
    assert found.polygons is not None and found.boxes is not None
    assert [len(rings) for rings in found.polygons] == [0, 1, 1]
    assert found.polygons[1][0].tolist() == [[0, 0], [32, 0], [32, 24]]
    assert found.boxes[1].tolist() == [0, 0, 32, 24]


@pytest.mark.parametrize("dimensions", [2, 3])
def test_key_points(tmp_path: Path, dimensions: int) -> None:
    pytest.importorskip("yaml")
    points = ["0.25 0.5 2", "0.5 0.5 1", "0 0 0"] if dimensions == 3 else ["0.25 0.5", "0.5 0.5", "0 0"]
    yaml = f"train: images\nnames: [x, y]\nkpt_shape: [3, {dimensions}]\nflip_idx: [1, 0, 2]\n"
    source = open_source(put_labels(tmp_path, {"a": f"{LINE} {' '.join(points)}\n{LINE}"}, yaml))
    found = everything(source)
    assert isinstance(source, YoloSource) and source.keypoint_swaps == ((0, 1),) and found.keypoints is not None
    assert found.keypoints[0].tolist() == [[16, 24, 2], [32, 24, 1 if dimensions == 3 else 2], [0, 0, 0]]
    assert not found.keypoints[1].any()
    (tmp_path / "data.yaml").write_text(yaml.replace("flip_idx: [1, 0, 2]\n", ""))
    assert open_source(tmp_path).keypoint_swaps == ()


def test_coordinates_are_of_the_upright_image(tmp_path: Path) -> None:
    put_labels(tmp_path, {"a": "0 0.25 0.25 0.5 0.5"})
    put_image(tmp_path / "images/a.jpg", SIZES["a"], orientation=6)
    found = everything(open_source(tmp_path))
    assert found.boxes is not None and found.boxes.tolist() == [[0, 0, 24, 32]]


def test_what_reaches_outside_is_cut_and_counted(tmp_path: Path) -> None:
    lines = "0 0.9 0.5 0.4 0.5\n0 0.5 0.5 1.01 1\n0 1.3 0.5 0.2 0.2\n0 0.5 0.5 0 0.5\n0 0.5 0 1.25 0 1.25 0.5"
    source = open_source(put_labels(tmp_path, {"a": lines}))
    found = everything(source)
    assert isinstance(source, YoloSource) and found.boxes is not None and found.polygons is not None
    np.testing.assert_allclose(found.boxes[:, [0, 2]], [[0.7 * 64, 64], [0, 64], [32, 64]], atol=1e-4)
    np.testing.assert_allclose(found.polygons[2][0].max(axis=0), [64, 16], atol=1e-4)
    assert [phrase.partition(" (")[0] for phrase in source.left_out] == [
        "1 object without a size",
        "1 object outside the image",
    ]
    assert source.notes[0].startswith("2 objects reaching outside the image, cut at its edge")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("dog 0.5 0.5 0.1 0.1", "'dog 0.5 0.5 0.1 0.1' is not a line of numbers"),
        ("1 0.5 0.5 0.1", "it holds 4 numbers, and must hold 5"),
        ("1 0.5 0.5 0.1 0.1 0.9", "it holds 6 numbers"),
        ("1 0.5 0.5 0.1 0.1 0.9 0.9 0.9", "it holds 8 numbers"),
        ("1", "it holds 1 numbers"),
        ("1.5 0.5 0.5 0.1 0.1", "1.5 is none of classes"),
        ("-1 0.5 0.5 0.1 0.1", "-1 is none of classes"),
        ("nan 0.5 0.5 0.1 0.1", "nan is none of classes"),
        ("1e9 0.5 0.5 0.1 0.1", r"1e\+09 is none of classes"),
        ("1 320 240 64 48", "coordinates are parts of the image's width and height"),
        ("1 nan 0.5 0.1 0.1", "coordinates are parts"),
        ("1 0.5 0.5 -0.1 0.1", "its box has a negative size"),
    ],
)
def test_wrong_lines_are_refused_by_name_or_left_out(tmp_path: Path, line: str, reason: str) -> None:
    put_labels(tmp_path, {"a": f"{LINE}\n{line}\n"})
    with pytest.raises(ValueError, match=rf"labels/a.txt, line 2: {reason}"):
        open_source(tmp_path)
    source = YoloSource(tmp_path / "images", on_error="skip")
    assert everything(source).counts.tolist() == [1, 0, 0]
    assert source.left_out[0].startswith("1 object that cannot be used")


@pytest.mark.parametrize("content", [b"\xff\xfe1", b"1 0.5 0.5 0.5 0.5\0", b"1" * (17 << 20)])
def test_files_that_are_no_labels_are_refused(tmp_path: Path, content: bytes) -> None:
    put_labels(tmp_path, {})
    (tmp_path / "labels/b.txt").write_bytes(content)
    with pytest.raises(ValueError, match="b.txt (is not UTF-8|holds a byte 0|has more than 16 MB)"):
        YoloSource(tmp_path / "images")


def test_images_without_any_labels_are_refused(tmp_path: Path) -> None:
    put_labels(tmp_path, {})
    (tmp_path / "labels/b.txt").mkdir()
    with pytest.raises(ValueError, match="b.txt is not a plain file"):
        YoloSource(tmp_path / "images")
    (tmp_path / "labels/b.txt").rmdir()
    with pytest.raises(ValueError, match="split='val' is for a YAML file, and .*images is a folder"):
        YoloSource(tmp_path / "images", split="val")
    with pytest.raises(ValueError, match="no photograph in .*labels. Give the folder of the images"):
        YoloSource(tmp_path / "labels")
    with pytest.raises(ValueError, match=r"none of the images \(.*\) has labels; looked for .*labels/a.txt"):
        YoloSource(tmp_path / "images")


def test_a_line_that_stands_twice_is_one_object(tmp_path: Path) -> None:
    other = "1 0.5 0.25 0.5 0.25"
    put_labels(tmp_path, {"a": f"{LINE}\n{other}\n1  0.50 0.25 0.5 0.5\n{LINE}\n", "b": LINE})
    source = YoloSource(tmp_path / "images")
    assert everything(source).counts.tolist() == [2, 1, 0]
    (left_out,) = source.left_out
    assert left_out.startswith("2 objects repeating an earlier line (the first: ")
    assert "a.txt, line 3" in left_out


# --- YAML


def test_splits_of_a_yaml_file(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    for split in ("train", "valid"):  # as Roboflow writes it: ../train for a folder next to the file
        put_labels(tmp_path / split, {"a": LINE})
    yaml = "train: ../train/images\nval: ../valid/images\ntest: ../test/images\nnc: 2\nnames: ['cat', 'dog']\n"
    (tmp_path / "data.yaml").write_text(yaml)
    with pytest.raises(
        ValueError, match=r"has the splits 'train', 'val', 'test'. Open one of them, as by split=\"train\""
    ):
        open_source(tmp_path)
    source = open_source(tmp_path, split="valid")
    assert Path(source.name(0)) == tmp_path / "valid/images/a.jpg"
    assert isinstance(source, YoloSource) and source.object_classes == ("cat", "dog")
    put_labels(tmp_path / "sets", {"b": LINE}, "train: ../train/images\nnames: [cat, dog]\n")  # as it says: it is there
    put_images(tmp_path / "sets/train/images")
    assert Path(open_source(tmp_path / "sets/data.yaml").name(0)) == tmp_path / "train/images/a.jpg"
    alone = open_source(tmp_path / "train/images", annotations=tmp_path / "train/labels")
    assert isinstance(alone, YoloSource) and alone.object_classes == ("cat", "dog")  # of the file above
    with pytest.raises(ValueError, match="data.yaml: test leads to .*test/images.*which does not exist"):
        open_source(tmp_path / "data.yaml", split="test")


@pytest.mark.parametrize("split", ["train", "valid"])
def test_a_yaml_file_may_count_the_classes_only(tmp_path: Path, split: str) -> None:
    pytest.importorskip("yaml")
    for folder in ("train", "valid"):
        put_labels(tmp_path / folder, {"a": LINE})
    (tmp_path / "data.yaml").write_text("train: ../train/images\nval: ../valid/images\nnc: 3\n")
    source = open_source(tmp_path, split=split)
    assert isinstance(source, YoloSource) and source.object_classes == ("class_0", "class_1", "class_2")
    assert split in source.name(0)


def test_lists_of_images(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    put_labels(tmp_path, {"a": LINE}, "path: .\ntrain: [train.txt]\nnames: {0: cat, 1: dog}\n")
    (tmp_path / "train.txt").write_text("./images/b.jpg\nimages/a.jpg\n")
    assert everything(open_source(tmp_path)).counts.tolist() == [0, 1]


ALIASES = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{','.join([f'*{chr(97 + i)}'] * 9)}]\n" for i in range(9)
)


@pytest.mark.parametrize(
    ("yaml", "reason"),
    [
        ("train: images\n", "has no names"),
        ("- 1\n", "has no names"),
        ("train: images\nnc: many", "nc is 'many'. Write how many classes there are"),
        ("train: images\nnc: 0", "nc is 0. Write how many classes there are"),
        ("names: [\n", "is not YAML"),
        ("names: !!python/object/apply:os.system [ls]\n", "is not YAML"),
        ("names: {1: cat}\ntrain: images", "names must list the classes, or number them from 0"),
        ("names: cat\ntrain: images", "names must list the classes"),
        ("names: [cat]\ntrain: 3", "train must be a folder or a list"),
        ("names: [cat]", "has the splits nothing|has the splits "),
        ("names: [cat]\ntrain: images\nkpt_shape: [3, 4]", r"kpt_shape is \[3, 4\]"),
        ("names: [cat]\ntrain: images\nkpt_shape: [3, 3]\nflip_idx: [0, 1]", "flip_idx is '0', '1', and must pair 3"),
        ("names: [cat]\ntrain: images\nkpt_shape: [3, 3]\nflip_idx: [1, 2, 0]", "must pair 3 points"),
        ("names: [cat]\ntrain: images\nkpt_shape: [3, 3]\nflip_idx: x", "flip_idx is 'x'"),
        (f"{ALIASES}names: *j\ntrain: images", "names must list the classes"),
        ("#" * (17 << 20), "has more than 16 MB"),
    ],
    ids=range(16),
)
def test_wrong_yaml_files_are_refused(tmp_path: Path, yaml: str, reason: str) -> None:
    pytest.importorskip("yaml")
    put_labels(tmp_path, {"a": "9 0.5 0.5 0.5 0.5"}, yaml)
    with pytest.raises(ValueError, match=reason):
        open_source(tmp_path)


def test_yaml_without_its_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "yaml", None)
    put_labels(tmp_path, {"a": LINE}, "train: images\nnames: [cat, dog]\n")
    with pytest.raises(ImportError, match=r'data.yaml is YAML, which PyYAML reads: pip install "augpipe\[yolo\]"'):
        open_source(tmp_path)


# --- real annotations


@pytest.mark.parametrize("kind", ["boxes", "segments", "pose"])
def test_real_annotations(coco80: Path, tmp_path: Path, kind: str) -> None:
    pytest.importorskip("yaml")
    file = coco80 / f"annotations/{'person_keypoints' if kind == 'pose' else 'instances'}.json"
    as_yolo(file, coco80 / "images", tmp_path / "yolo", kind)
    source, known = open_source(tmp_path / "yolo", split="val"), CocoSource(file)
    assert isinstance(source, YoloSource) and source.object_classes == known.object_classes
    names = [Path(known.name(i)).name for i in range(80)]
    order = np.array([names.index(Path(source.name(i)).name) for i in range(80)])
    found, expected = everything(source), known.targets_of(order)
    assert expected is not None and found.counts.tolist() == expected.counts.tolist()
    assert found.labels is not None and expected.labels is not None and found.boxes is not None
    assert found.labels.tolist() == expected.labels.tolist()
    assert source.keypoint_swaps == (known.keypoint_swaps if kind == "pose" else ())
    if kind == "boxes":
        np.testing.assert_allclose(found.boxes, expected.boxes, atol=1e-4)
    elif kind == "pose":
        np.testing.assert_allclose(found.boxes, expected.boxes, atol=1e-4)
        assert_close(found.keypoints, expected.keypoints)
    else:
        assert found.polygons is not None and expected.polygons is not None
        for rings, of_coco, is_crowd in zip(found.polygons, expected.polygons, expected.fields["iscrowd"], strict=True):
            if not is_crowd:
                assert_close(rings[0], of_coco[0])


def assert_close(found: Any, expected: Any) -> None:
    """Within a thousandth of a pixel."""
    np.testing.assert_allclose(found, expected, atol=1e-3)
