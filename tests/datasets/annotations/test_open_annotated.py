"""Which annotations `open_source` finds in a folder, and what the commands say of them."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from augpipe import Loader, Recipe, ops
from augpipe.cli.app import app
from augpipe.cli.prepare import open_jobs
from augpipe.datasets.annotations.coco import CocoSource
from augpipe.datasets.annotations.voc import VocSource
from augpipe.datasets.annotations.yolo import YoloSource
from augpipe.datasets.formats.folder import FolderSource
from augpipe.datasets.open import open_source
from augpipe.datasets.stats.objects import object_statistics
from tests.datasets.annotations.annotated_sets import coco_content, everything, put_coco, put_image, put_images
from tests.messages import note


def put_json(path: Path, annotations: list[dict[str, Any]], **others: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(coco_content(annotations, **others)))


def run(*words: Any) -> tuple[int, str]:
    """A command's exit code, and what it prints."""
    done = CliRunner().invoke(app, [str(word) for word in words])
    return done.exit_code, done.output


@pytest.mark.parametrize("images", ["val2017", "images/val2017", "images"])
@pytest.mark.parametrize("annotations", ["annotations/instances_val2017.json", "instances_val2017.json"])
def test_images_are_found_around_the_file(tmp_path: Path, images: str, annotations: str) -> None:
    put_images(tmp_path / images)
    put_json(tmp_path / annotations, [{}])
    for path in (tmp_path, tmp_path / annotations):
        source = open_source(path)
        assert isinstance(source, CocoSource) and source.read(0) == (tmp_path / images / "c.jpg").read_bytes()


def test_files_of_several_splits_and_kinds(tmp_path: Path) -> None:
    for split in ("train2017", "val2017"):
        put_images(tmp_path / split)
        for kind in ("instances", "person_keypoints", "captions"):
            put_json(tmp_path / f"annotations/{kind}_{split}.json", [{}] * (2 if split == "val2017" else 1))
    with pytest.raises(ValueError, match=r'several files of annotations .* With split="train" one of them is opened'):
        open_source(tmp_path)
    for split, num in (("train", 1), ("val", 2), ("val2017", 2)):
        if split != "val2017":
            source = open_source(tmp_path, split=split)
            assert isinstance(source, CocoSource) and source.num_objects == num
            assert f"instances_{split}2017.json" in repr(source)
    source = open_source(tmp_path / "val2017", annotations=tmp_path / "annotations/person_keypoints_val2017.json")
    assert "person_keypoints_val2017.json" in repr(source)


def test_a_file_next_to_the_images(tmp_path: Path) -> None:
    path = put_coco(tmp_path, [{}])
    path.rename(tmp_path / "_annotations.coco.json")
    assert isinstance(open_source(tmp_path), CocoSource)
    (tmp_path / "_annotations.coco.json").write_text('{"version": 1}')
    assert isinstance(open_source(tmp_path), FolderSource)


def test_class_folders_stay_class_folders(tmp_path: Path) -> None:
    for name in ("images", "masks", "cats"):
        put_image(tmp_path / "one" / name / "a.jpg", (20, 20))
    put_image(tmp_path / "two/cat/a.jpg", (20, 20))
    (tmp_path / "two/cat/a.txt").write_text("0 0.5 0.5 0.1 0.1")
    (tmp_path / "two/notes.json").write_text("[]")
    assert isinstance(open_source(tmp_path / "two"), FolderSource)
    shutil.rmtree(tmp_path / "one/masks")
    assert open_source(tmp_path / "one").classes == ("cats", "images")


def test_annotations_that_are_given(tmp_path: Path) -> None:
    put_images(tmp_path / "photos")
    (tmp_path / "boxes").mkdir()
    with pytest.raises(ValueError, match="holds no annotations: looked for .xml"):
        open_source(tmp_path / "photos", annotations=tmp_path / "boxes")
    (tmp_path / "boxes/a.txt").write_text("0 0.5 0.5 0.5 0.5\n9 0.5 0.5 0.5 nan")
    with pytest.raises(ValueError, match="a.txt, line 2"):
        open_source(tmp_path / "photos", annotations=tmp_path / "boxes")
    source = open_source(tmp_path / "photos", annotations=tmp_path / "boxes", on_error="skip", classes=["cat"])
    assert isinstance(source, YoloSource) and source.num_objects == 1 and source.object_classes == ("cat",)
    (tmp_path / "boxes/a.xml").write_text("<annotation></annotation>")
    assert isinstance(open_source(tmp_path / "photos", annotations=tmp_path / "boxes"), VocSource)
    for images, annotations, reason in (
        (tmp_path / "photos", tmp_path / "nowhere", "nowhere' does not exist. Check the spelling"),
        (tmp_path / "photos", tmp_path / "boxes/a.xml", "is neither a JSON file of COCO nor a folder"),
        (
            tmp_path / "photos/a.jpg",
            tmp_path / "boxes",
            "annotations=... takes a folder of images, and .*a.jpg.* is none",
        ),
        ([(b"", 1)], tmp_path / "boxes", "annotations=... takes a folder of images"),
    ):
        with pytest.raises(ValueError, match=reason):
            open_source(images, annotations=annotations)
    with pytest.raises(ValueError, match="a FolderSource takes no on_error=.... Leave it out"):
        open_source(tmp_path / "photos", on_error="skip")
    with pytest.raises(ValueError, match="on_error='never'"):
        open_source(tmp_path / "photos", annotations=tmp_path / "boxes", on_error="never")  # type: ignore[arg-type]


def test_a_random_split_keeps_annotations(tmp_path: Path) -> None:
    put_coco(tmp_path, [{}])
    held = open_source(tmp_path, split="val", holdout=0.4)
    rest = open_source(tmp_path, split="train", holdout=0.4)
    assert (len(held), len(rest)) == (1, 2)


def test_a_loader_reads_the_images(tmp_path: Path) -> None:
    source = CocoSource(put_coco(tmp_path, [{}]))
    loader = Loader(source, Recipe(ops=[ops.RandomResizedCrop(size=16)]), batch_size=3, framework="numpy", seed=1)
    (batch,) = loader
    assert batch.images.shape == (3, 3, 16, 16)


# --- commands


@pytest.mark.slow
def test_prepare_keeps_objects(tmp_path: Path) -> None:
    put_coco(tmp_path / "set", [{}])
    code, text = run("prepare", tmp_path / "set", tmp_path / "out", "--scales", "16", "--workers", "1")
    assert code == 0, text
    source = open_source(tmp_path / "out")
    assert len(everything(source).labels or ()) == 1 and run("verify", tmp_path / "out")[0] == 0


FAULTY = [
    {},
    {"iscrowd": 1, "segmentation": {"size": [48, 64], "counts": [10, 38, 48 * 63]}, "bbox": [0, 10, 1, 38]},
    {"bbox": [4, 6, 0, 10]},
    {"bbox": [50, 6, 40, 10]},
    {"image_id": 20, "bbox": [0, 0, 30, 40]},
]


def test_stats_count_objects(tmp_path: Path) -> None:
    put_coco(tmp_path, FAULTY)
    found = object_statistics(open_source(tmp_path))
    assert found is not None
    assert (found.num, found.num_images, found.most, found.num_crowds, found.num_outlines) == (4, 2, 3, 1, 1)
    assert found.class_sizes == {"cat": 0, "dog": 4} and found.box_sizes == {"small": 3, "medium": 1, "large": 0}
    code, text = run("stats", tmp_path, "--json")
    objects = json.loads(text)["objects"]
    assert code == 0 and objects["num"] == 4 and objects["box_sizes"] == found.box_sizes
    assert json.loads(text)["left_out"][0].startswith("1 object without a size (the first: ")
    assert objects["mended"][0].startswith("1 object reaching outside the image, cut at its edge")
    code, text = run("stats", tmp_path)
    assert code == 0 and "4 objects, counted below" in text and "images with objects" in text
    assert object_statistics(open_source(put_images(tmp_path / "plain"))) is None


def test_verify_names_what_is_wrong(tmp_path: Path) -> None:
    path = put_coco(tmp_path, FAULTY)
    put_image(tmp_path / "b.jpg", (9, 9))
    (tmp_path / "c.jpg").write_bytes(b"no image")
    for given in (tmp_path, path):
        code, text = run("verify", given)
        note("augpipe verify", text)
        assert code == 1 and text.count("\n") == 5 and text.rstrip().endswith("2 classes): 4 faults")
    code, text = run("verify", path, "--json")
    faults = json.loads(text)["faults"]
    assert code == 1 and [Path(fault["where"].partition(",")[0]).name for fault in faults] == [
        "coco.json",
        "coco.json",
        "c.jpg",
        "b.jpg",
    ]
    put_coco(tmp_path, [{}])
    assert run("verify", path) == (0, f"CocoSource('{path}': 3 photographs, 1 object of 2 classes): all is well\n")
    np.testing.assert_array_equal(everything(open_source(path)).counts, [0, 0, 1])


def test_verify_reads_label_maps_and_other_kinds(tmp_path: Path) -> None:
    put_images(tmp_path / "set/images")
    for name, size in (("a", (48, 64)), ("b", (3, 3)), ("c", (20, 20))):
        put_image(tmp_path / f"set/masks/{name}.png", size)
    code, text = run("verify", tmp_path / "set")
    assert code == 1 and "b.png: it has 3x3 pixels, and its image 30x40" in text and text.endswith(": 1 fault\n")
    put_images(tmp_path / "yolo/images")
    (tmp_path / "yolo/labels").mkdir()
    (tmp_path / "yolo/labels/a.txt").write_text("0 0.5 0.5 0.5 0.5\nx")
    code, text = run("verify", tmp_path / "yolo")
    assert code == 1 and "a.txt, line 2: 'x' is not a line of numbers" in text
    (tmp_path / "yolo/labels/a.txt").write_text("0 0.5 0.5 0.5 0.5\n3 0.5 0.5 0.5 0.5")
    (tmp_path / "yolo.yaml").write_text("path: yolo\ntrain: images\nnames: [cat]\n")
    code, text = run("verify", tmp_path / "yolo.yaml")
    assert code == 1 and "a.txt, line 2: 3 is none of the 1 classes" in text
    code, text = run("verify", put_coco(tmp_path / "coco", [{}]), "--split", "val")
    assert code != 0 and "is one split's file, and --split val chooses in a folder" in text
    code, text = run("verify", put_images(tmp_path / "plain"))
    assert code != 0 and "manifest" in text


@pytest.mark.parametrize("text", ["lr: 0.1\n", "path: .\ntrain: train\nnames: [cat, dog]\n"], ids=["own", "yolo"])
def test_a_yaml_file_alone_does_not_make_class_folders_a_yolo_set(tmp_path: Path, text: str) -> None:
    # settings of one's own, and the layout of YOLO's classification: neither has a file of labels
    for place in ("cat", "dog"):
        put_image(tmp_path / place / "0.jpg", (20, 30))
    (tmp_path / "data.yaml").write_text(text)
    (tmp_path / "requirements.txt").write_text("torch\n")
    source = open_source(tmp_path)
    assert isinstance(source, FolderSource) and source.classes == ("cat", "dog")


def test_a_yaml_file_may_name_images_elsewhere(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    put_images(tmp_path / "data/images")
    (tmp_path / "data/labels").mkdir()
    (tmp_path / "data/labels/a.txt").write_text("0 0.5 0.5 1 1")
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs/data.yaml").write_text("path: ../data\ntrain: images\nnames: [cat]\n")
    source = open_source(tmp_path / "configs")
    assert isinstance(source, YoloSource) and source.num_objects == 1


def test_commands_open_a_split(tmp_path: Path) -> None:
    for split, num in (("train", 2), ("val", 1)):
        put_images(tmp_path / "yolo/images" / split)
        for name in ("a", "b", "c")[:num]:
            file = tmp_path / f"yolo/labels/{split}/{name}.txt"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("0 0.5 0.5 0.25 0.25\n")
    sheet = ["--out", tmp_path / "sheet.png"]
    further = {"preview": sheet, "prepare": [tmp_path / "out"], "replay": ["epoch 0, sample 0", *sheet]}
    for command in ("stats", "verify", "preview", "prepare", "bench", "explain", "replay"):
        out = further.get(command, [])
        code, text = run(command, tmp_path / "yolo", *out)
        assert code == 2 and "Open one: --split train." in " ".join(text.split())
    assert json.loads(run("stats", tmp_path / "yolo", "--split", "train", "--json")[1])["objects"]["num"] == 2
    code, text = run("verify", tmp_path / "yolo", "--split", "val", "--json")
    assert code == 0 and json.loads(text)["objects"] == 1
    val = [tmp_path / "yolo", "--split", "val"]
    assert run("preview", *val, "--rows", "1", "--cols", "1", "--recipe", "none", "--out", tmp_path / "a.png")[0] == 0
    (job,) = open_jobs(tmp_path / "yolo", tmp_path / "out", None, ["val"], resume=False)
    assert isinstance(job.source, YoloSource) and job.source.num_objects == 1
    assert run("replay", tmp_path / "yolo", "sample 0", "--split", "val", "--out", tmp_path / "b.png")[0] == 0
    code, text = run("replay", tmp_path / "yolo", "sample 0", "--split", "none", "--out", tmp_path / "b.png")
    assert code == 2 and "holds no split 'none'" in " ".join(text.split())
    quick = ["--size", "8", "--scale", "10", "--threads", "1", "--batch-size", "2", "--json"]
    assert run("bench", *val, *quick, "--seconds", "0.2")[0] == 0
    assert run("explain", *val, *quick, "--seconds", "0.5")[0] == 0
    code, text = run("verify", put_images(tmp_path / "plain"), "--split", "val")
    assert code == 2 and "--split val is for annotations, and" in " ".join(text.split())


def test_a_split_that_the_only_file_is_not_of_is_refused(tmp_path: Path) -> None:
    put_coco(tmp_path, [{}]).rename(tmp_path / "instances_train2017.json")
    assert len(open_source(tmp_path, split="train")) == len(open_source(tmp_path)) > 0
    with pytest.raises(ValueError, match=r"holds no split 'val', but 'instances_train2017'"):
        open_source(tmp_path, split="val")
