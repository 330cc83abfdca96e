"""Detections in upright pixels become rows of COCO's results, in the file's own ids and pixels."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from augpipe import Loader, Recipe
from augpipe.datasets.annotations.coco import CocoSource
from augpipe.datasets.annotations.results import coco_results
from augpipe.datasets.open import open_source
from augpipe.datasets.prepare.prepare import prepare
from augpipe.datasets.prepare.settings import PrepareSettings
from augpipe.datasets.shards.shard_source import ShardSource
from augpipe.datasets.shards.verify import verify
from augpipe.sources import Subset
from tests.datasets.annotations.annotated_sets import coco_content, decoded, everything, put_coco, put_image
from tests.datasets.annotations.test_run_lengths import read_counts


def test_ids_are_those_of_the_file(tmp_path: Path) -> None:
    source = CocoSource(put_coco(tmp_path, [{}]))
    found = {"boxes": [[1, 2, 4, 8], [0, 0, 1.5, 1]], "scores": [0.75, 0.5], "labels": [1, 0]}
    expected = [
        {"image_id": 20, "category_id": 7, "bbox": [1, 2, 3, 6], "score": 0.75},
        {"image_id": 20, "category_id": 3, "bbox": [0, 0, 1.5, 1], "score": 0.5},
    ]
    nothing = {"boxes": np.empty((0, 4)), "scores": [], "labels": []}
    assert coco_results(source, [1, 0], [found, nothing]) == expected
    assert coco_results(Subset(Subset(source, [2, 1]), [1]), np.array([0]), [found]) == expected
    assert json.loads(json.dumps(expected)) == expected


def test_tensors_masks_and_key_points(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    source = CocoSource(put_coco(tmp_path, [{}]))
    mask = torch.zeros(1, 1, 20, 20)
    mask[0, 0, 3:9, 4:5] = 0.7
    (row,) = coco_results(
        source,
        torch.tensor([0]),
        [
            {
                "boxes": torch.tensor([[4.0, 3.0, 5.0, 9.0]], requires_grad=True),
                "scores": torch.tensor([0.5]),
                "labels": torch.tensor([0]),
                "masks": mask,
                "keypoints": torch.tensor([[[4.5, 3.25, 2.0]]]),
            }
        ],
    )
    assert row["segmentation"]["size"] == [20, 20] and row["keypoints"] == [4.5, 3.25, 2]
    runs, _ = read_counts(row["segmentation"], (20, 20))
    np.testing.assert_array_equal(decoded(runs.tolist(), (20, 20)), mask[0, 0].numpy() > 0)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_objects_of_a_turned_image_come_back(tmp_path: Path, orientation: int) -> None:
    put_image(tmp_path / "a.jpg", (48, 64), orientation)
    images = [{"id": 30, "file_name": "a.jpg", "height": 48, "width": 64}]
    mask = np.zeros((48, 64), np.bool_)
    mask[6:16, 4:24] = True
    points = [5, 7.5, 2, 9, 11, 1]
    content = coco_content([{"keypoints": points}], images=images)
    (tmp_path / "coco.json").write_text(json.dumps(content))
    source = CocoSource(tmp_path / "coco.json")
    found = everything(source)
    assert found.boxes is not None
    left, top, right, bottom = found.boxes[0].astype(int)
    _, size = source.turned(0)
    upright = np.zeros((1, *size))
    upright[0, top:bottom, left:right] = 1
    (row,) = coco_results(
        source,
        [0],
        [
            {
                "boxes": found.boxes,
                "labels": found.labels,
                "scores": [1.0],
                "masks": upright,
                "keypoints": found.keypoints,
            }
        ],
    )
    assert row["bbox"] == [4, 6, 20, 10] and row["category_id"] == 7 and row["keypoints"] == points
    runs, _ = read_counts(row["segmentation"], (48, 64))
    np.testing.assert_array_equal(decoded(runs.tolist(), (48, 64)), mask)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"scores": None}, "its detections have no scores"),
        ({"labels": [2]}, r"c.jpg: label 2 is not a number of object_classes \(0..1\)"),
        ({"labels": [-1]}, "label -1 is not a number of object_classes"),
        ({"boxes": [[0, 0, 1, 1]] * 2}, "c.jpg: 1 score, and boxes of length 2"),
        ({"boxes": [[1, np.nan, 4, 8]]}, r"c.jpg: boxes\[0\] is \[1.0, nan, 4.0, 8.0\], and must be finite"),
        ({"scores": [np.inf]}, r"c.jpg: scores\[0\] is \[inf\], and must be finite"),
        ({"boxes": [[5, 2, 4, 8]]}, r"c.jpg: boxes\[0\] is \[5, 2, 4, 8\], and must be left, top, right, bottom"),
        ({"masks": np.zeros((1, 5, 20))}, r"a mask has the shape \(5, 20\), and the photograph \(20, 20\)"),
    ],
)
def test_wrong_detections_are_refused(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    source = CocoSource(put_coco(tmp_path, [{}]))
    found = {"boxes": [[1, 2, 4, 8]], "scores": [0.75], "labels": [1]} | change
    with pytest.raises(ValueError, match=reason):
        coco_results(source, [0], [{key: value for key, value in found.items() if value is not None}])


def test_wrong_sources_are_refused(tmp_path: Path) -> None:
    source = CocoSource(put_coco(tmp_path, [{}]))
    with pytest.raises(ValueError, match="2 sample ids and detections of 1 image are given"):
        coco_results(source, [0, 1], [{}])
    with pytest.raises(IndexError, match="sample_id=-1 is out of range"):
        coco_results(Subset(source, [2, 1]), [-1], [{}])
    (tmp_path / "coco.json").unlink()
    with pytest.raises(
        ValueError, match="source is a FolderSource, and only a CocoSource, and shards made of one, know the ids"
    ):
        coco_results(open_source(tmp_path), [0], [{}])  # type: ignore[arg-type]


def test_real_annotations_come_back(coco80: Path) -> None:
    source = open_source(coco80)
    assert isinstance(source, CocoSource)
    content = json.loads((coco80 / "annotations/instances.json").read_text())
    known = {one["id"]: one for one in content["annotations"]}
    for sample in range(80):
        found = source.targets_of(np.array([sample]))
        assert found is not None and found.boxes is not None and found.labels is not None
        detections = {"boxes": found.boxes, "labels": found.labels, "scores": np.ones(len(found.boxes))}
        rows = coco_results(source, [sample], [detections])
        for row, own_id in zip(rows, found.fields["id"].tolist(), strict=True):
            one = known[own_id]
            assert (row["image_id"], row["category_id"]) == (one["image_id"], one["category_id"])
            np.testing.assert_allclose(row["bbox"], one["bbox"], atol=0.51)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["instances", "person_keypoints"])
def test_real_annotations_come_back_from_shards_by_a_loader(coco80: Path, tmp_path: Path, name: str) -> None:
    source = open_source(coco80 / f"annotations/{name}.json")
    assert isinstance(source, CocoSource)
    prepare(source, tmp_path / "set", PrepareSettings(scales=("96", "full"), originals="always"))
    assert verify(tmp_path / "set") == []
    expected = coco_results(source, range(80), _from_loader(source))
    assert len(expected) == sum(everything(source).counts) > 100
    for scale in ("96", "full"):
        shards = ShardSource(tmp_path / "set", scale)
        assert everything(shards).fields["iscrowd"].tolist() == everything(source).fields["iscrowd"].tolist()
        found = coco_results(shards, range(80), _from_loader(shards))
        for one, other in zip(found, expected, strict=True):
            assert (one["image_id"], one["category_id"]) == (other["image_id"], other["category_id"])
            np.testing.assert_allclose(one["bbox"], other["bbox"], atol=2e-3)
            np.testing.assert_allclose(one.get("keypoints", 0), other.get("keypoints", 0), atol=2e-3)


def _from_loader(source: CocoSource | ShardSource) -> list[dict[str, Any]]:
    """What a loader that changes nothing gives of each image, as detections."""
    found = []
    for batch in Loader(source, Recipe(), batch_size=1, shuffle=False, framework="numpy", dtype="uint8"):
        (target,) = batch.targets
        taken = {key: target[key].astype(np.float64) for key in ("boxes", "labels", "keypoints") if key in target}
        found.append({**taken, "scores": np.ones(len(target["labels"]))})
    return found
