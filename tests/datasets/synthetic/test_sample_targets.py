"""The sample dataset's COCO file: the objects are where they were drawn, and the images stay what they were."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from augpipe.datasets.annotations.coco import CocoSource
from augpipe.datasets.open import open_source
from augpipe.datasets.synthetic import generate as generate_module
from augpipe.datasets.synthetic.generate import generate
from augpipe.datasets.synthetic.scene import draw_scene, draw_scene_with_objects
from augpipe.datasets.synthetic.sprites import Placed
from augpipe.datasets.synthetic.targets import KEYPOINTS, describe
from tests.datasets.annotations.annotated_sets import everything, filled
from tests.datasets.synthetic.test_sample_dataset import digests


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """12 images of 4 classes with their objects."""
    root = tmp_path_factory.mktemp("sample") / "out"
    generate(root, num=12, classes=4, seed=5, targets=True, workers=1)
    return root


@pytest.mark.slow
def test_it_opens_as_coco(sample: Path) -> None:
    source = open_source(sample)
    assert isinstance(source, CocoSource) and len(source) == 12 and not source.left_out and not source.notes
    assert list(source.object_classes) == json.loads((sample / "sample.json").read_text())["class_names"]
    found = everything(source)
    assert found.counts.min() >= 1 and found.keypoints is not None and found.labels is not None
    assert found.polygons is not None and found.boxes is not None
    assert source.keypoint_names == KEYPOINTS and source.keypoint_swaps == ()
    samples = np.repeat(np.arange(12), found.counts)
    for row, sample_id in enumerate(samples.tolist()):
        path = Path(source.name(sample_id))
        assert source.object_classes[found.labels[row]] == path.parent.name
        rings = np.concatenate(found.polygons[row])
        assert found.boxes[row].tolist() == [*rings.min(axis=0), *rings.max(axis=0)]
        height, width = source.turned(sample_id)[1]
        mask = filled(found.polygons[row], (height, width))
        assert mask.sum() == found.fields["area"][row]
        left, top, right, bottom = found.boxes[row]
        for x, y, visibility in found.keypoints[row]:  # ends of what was drawn, three times as large, within its box
            assert visibility == 0 or (left - 2 <= x <= right + 2 and top - 2 <= y <= bottom + 2)


def test_objects_differ_from_the_same_scene_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    image, objects = draw_scene_with_objects(5, 0, "fish")
    assert np.array_equal(np.asarray(image), np.asarray(draw_scene(5, 0, "fish")))
    other, _ = draw_scene_with_objects(5, 0, "star")  # the same places, another shape and colour
    change = np.abs(np.asarray(image, np.int64) - np.asarray(other)).sum(axis=2)
    (own,) = describe(image, objects[:1])["objects"]
    left, top, width, height = own["bbox"]
    inside = change[top : top + height, left : left + width]
    assert inside.mean() > 4 * np.median(change)


def test_images_do_not_depend_on_targets_nor_the_file_on_workers(sample: Path, tmp_path: Path) -> None:
    generate(tmp_path / "plain", num=12, classes=4, seed=5, workers=1)
    generate(tmp_path / "two", num=12, classes=4, seed=5, targets=True, workers=2)
    plain, own = digests(tmp_path / "plain"), digests(sample)
    assert digests(tmp_path / "two") == own
    assert own.keys() - plain.keys() == {"annotations.json"}
    assert {name for name in plain if plain[name] != own[name]} == {"sample.json"}
    with pytest.raises(ValueError, match="targets None there, True asked for"):
        generate(tmp_path / "plain", num=12, classes=4, seed=5, targets=True, workers=1)


@pytest.mark.slow
def test_a_run_that_was_stopped_is_completed(sample: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "out"

    def stop(done: int, num: int) -> None:
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        generate(root, num=12, classes=4, seed=5, targets=True, workers=1, progress=stop)
    assert not (root / "annotations.json").exists()
    generate(root, num=12, classes=4, seed=5, targets=True, workers=1)
    assert digests(root) == digests(sample)
    (root / "annotations.json").unlink()  # what it was made of is gone: all are drawn again
    generate(root, num=12, classes=4, seed=5, targets=True, workers=1)
    assert digests(root) == digests(sample)
    shutil.rmtree(root / "fish", ignore_errors=True)
    generate(root, num=12, classes=4, seed=5, targets=True, workers=1)
    assert digests(root) == digests(sample)
    monkeypatch.setattr(generate_module, "draw_scene_with_objects", None)
    generate(root, num=12, classes=4, seed=5, targets=True, workers=1)  # nothing is drawn


def test_what_is_out_of_sight_is_left_out() -> None:
    image = Image.new("RGB", (40, 30))
    ends = np.array([[5.0, 5.0], [-3.0, 5.0]])
    seen = Placed(left=2, top=3, coverage=np.full((4, 6), 255, np.uint8), ends=ends)
    faint = Placed(left=2, top=3, coverage=np.full((4, 6), 100, np.uint8), ends=ends)
    (own,) = describe(image, [faint, seen])["objects"]
    assert own["bbox"] == [2, 3, 6, 4] and own["area"] == 24
    assert own["keypoints"] == [5, 5, 2, 0, 0, 0] and own["num_keypoints"] == 1
