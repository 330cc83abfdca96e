"""Annotation files with some bytes or values changed: they are read, or refused by name, within bounds."""

import copy
import json
import random
import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import pytest

from augpipe.datasets.annotations.annotated_source import AnnotatedSource
from augpipe.datasets.annotations.coco import CocoSource
from augpipe.datasets.annotations.faults import OnError
from augpipe.datasets.annotations.voc import VocSource
from augpipe.datasets.annotations.yolo import YoloSource
from augpipe.sources.targets import Targets
from tests.datasets.annotations.annotated_sets import coco_content, everything, put_images

NUM_QUICK, NUM_DEEP = 60, 2_500
"""Changed files of each of four kinds: some on every run, 10,000 in all when the deep tests run."""
MOST_BYTES, MOST_SECONDS = 50_000_000, 5.0
"""What one of these files, of a few kB, may take."""

NUMBERS = [-1, 0, 1e-320, 1e7, 1e308, -1e308, float("nan"), float("inf"), -float("inf")]
STRANGE = [None, True, -1, 0, 0.5, 1e308, -1e308, float("nan"), float("inf"), 2**31, 2**63, -(2**70), "", "x", "\ud800"]
STRANGE += [
    [],
    {},
    [[]],
    [1],
    ["x"],
    {"size": [4, 4], "counts": "0"},
    {"size": [2**40, 2**40], "counts": [2**80]},
    [[1] * 7],
]
RING = [4, 6, 24, 6, 24, 16, 10, 12]
VOC = (
    "<annotation><filename>a.jpg</filename><size><width>64</width><height>48</height></size><object><name>dog</name>"
    "<difficult>0</difficult><bndbox><xmin>1</xmin><ymin>2</ymin><xmax>20</xmax><ymax>30</ymax></bndbox></object>"
    "<object><name>cat</name><bndbox><xmin>4.5</xmin><ymin>2</ymin><xmax>64</xmax><ymax>48</ymax></bndbox></object>"
    "</annotation>"
)
YOLO = "0 0.5 0.5 0.25 0.5\n1 0.1 0.1 0.2 0.1 0.2 0.3\n\n1 0.25 0.75 0.5 0.5\n"
YAML = "path: .\ntrain: images\nnames:\n  0: cat\n  1: dog\nkpt_shape: [2, 3]\nflip_idx: [1, 0]\n"


def a_coco_file() -> dict[str, Any]:
    names = ["left_eye", "right_eye"]
    return coco_content(
        [
            {"segmentation": [RING], "area": 3.5, "iscrowd": 0, "keypoints": [5, 7, 2, 6, 8, 1]},
            {"segmentation": {"size": [48, 64], "counts": [10, 38, 48 * 63]}, "iscrowd": 1},
            {"segmentation": {"size": [20, 20], "counts": "02PU`0"}, "image_id": 10, "category_id": 3},
        ],
        categories=[{"id": 7, "name": "dog", "keypoints": names}, {"id": 3, "name": "cat"}],
    )


def with_changed_values(content: Any, draw: random.Random) -> Any:
    """One to three values anywhere in a JSON document replaced, repeated or taken away."""
    for _ in range(draw.randint(1, 3)):
        places: list[tuple[Any, Any]] = []
        pending = [content]
        while pending:
            one = pending.pop()
            keys = list(one) if isinstance(one, dict) else range(len(one)) if isinstance(one, list) else ()
            places += [(one, key) for key in keys]
            pending += [one[key] for key in keys]
        parent, key = draw.choice(places)
        match draw.randint(0, 4):
            case 0:
                del parent[key]
            case 1 if isinstance(parent, list):
                parent.append(copy.deepcopy(parent[key]))
            case 2:
                other, place = draw.choice(places)
                parent[key] = (
                    copy.deepcopy(other[place])
                    if place in other or (isinstance(other, list) and place < len(other))
                    else 0
                )
            case 3 if isinstance(parent[key], int | float):
                parent[key] = draw.choice(NUMBERS)
            case _:
                parent[key] = copy.deepcopy(draw.choice(STRANGE))
        if not places:
            break
    return content


def with_changed_bytes(content: bytes, draw: random.Random) -> bytes:
    """Bytes replaced, doubled or cut off."""
    changed = bytearray(content)
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(changed))
        match draw.randint(0, 3):
            case 0:
                changed[at] = draw.randrange(256)
            case 1:
                changed[at : at + draw.randint(1, 20)] = b""
            case 2:
                changed[at:at] = draw.choice(
                    [b"9" * 400, b"-", b"e9", b"nan", b"[", b"<", b"&a;", b"<!DOCTYPE", b"\0", b"\n"]
                )
            case _:
                other = draw.randrange(len(changed))
                changed[at:at] = changed[other : other + draw.randint(1, 60)]
        if not changed:
            return b""
    return bytes(changed)


ON_ERROR: tuple[OnError, ...] = ("raise", "skip")


def coco_values(folder: Path, draw: random.Random) -> Callable[[], AnnotatedSource]:
    (folder / "coco.json").write_text(json.dumps(with_changed_values(a_coco_file(), draw)))
    return lambda: CocoSource(folder / "coco.json", on_error=draw.choice(ON_ERROR))


def coco_bytes(folder: Path, draw: random.Random) -> Callable[[], AnnotatedSource]:
    (folder / "coco.json").write_bytes(with_changed_bytes(json.dumps(a_coco_file()).encode(), draw))
    return lambda: CocoSource(folder / "coco.json", on_error=draw.choice(ON_ERROR))


def voc_bytes(folder: Path, draw: random.Random) -> Callable[[], AnnotatedSource]:
    (folder / "a.xml").write_bytes(with_changed_bytes(VOC.encode(), draw))
    return lambda: VocSource(folder, on_error=draw.choice(ON_ERROR))


def yolo_bytes(folder: Path, draw: random.Random) -> Callable[[], AnnotatedSource]:
    put = (folder / "labels", folder / "images")
    for path in put:
        path.mkdir(exist_ok=True)
    if not (put[1] / "a.jpg").exists():
        put_images(put[1])
    is_yaml = draw.random() < 0.4
    (put[0] / "a.txt").write_bytes(YOLO.encode() if is_yaml else with_changed_bytes(YOLO.encode(), draw))
    if not is_yaml:
        (folder / "data.yaml").unlink(missing_ok=True)
        return lambda: YoloSource(put[1], on_error=draw.choice(ON_ERROR))
    pytest.importorskip("yaml")
    (folder / "data.yaml").write_bytes(with_changed_bytes(YAML.encode(), draw))
    return lambda: YoloSource(folder / "data.yaml", on_error=draw.choice(ON_ERROR))


def check(found: Targets | None, source: AnnotatedSource) -> None:
    """Whatever was read is finite, within its image, and of a class."""
    assert found is not None and found.boxes is not None and found.labels is not None
    assert np.isfinite(found.boxes).all() and (found.boxes[:, 2:] > found.boxes[:, :2]).all()
    assert (found.boxes >= 0).all() and (found.boxes[:, 2:] < 1e7 + 1).all()
    assert ((found.labels >= 0) & (found.labels < len(source.object_classes))).all()
    for rings in found.polygons or ():
        assert all(len(ring) >= 3 and np.isfinite(ring).all() for ring in rings)
    if found.keypoints is not None:
        assert np.isfinite(found.keypoints).all() and np.isin(found.keypoints[..., 2], (0, 1, 2)).all()


KINDS = [coco_values, coco_bytes, voc_bytes, yolo_bytes]


def run(folder: Path, kind: Any, num: int) -> None:
    put_images(folder)
    (folder / "coco.json").write_text(json.dumps(coco_content([{"segmentation": [[4, 6, 99, 6, 99, 16]]}])))
    everything(CocoSource(folder / "coco.json"))  # loads, and compiles, what is loaded at the first call
    (folder / "coco.json").unlink()
    files = r"coco\.json|\.xml|\.txt|data\.yaml|\.jpg|images|labels"
    num_read = 0
    for number in range(num):
        draw = random.Random(f"{kind.__name__} {number}")
        make = kind(folder, draw)
        tracemalloc.start()
        began = monotonic()
        refused = ""
        try:
            source = make()
            check(source.targets_of(np.arange(len(source))), source)
            num_read += 1
        except (ValueError, OSError) as error:
            refused = str(error)
        finally:
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
        assert not refused or (re.search(files, refused) and len(refused) < 2_000), (number, refused)
        assert monotonic() - began < MOST_SECONDS and peak < MOST_BYTES, (number, peak)
    assert 0 < num_read < num


@pytest.mark.parametrize("kind", KINDS)
def test_changed_files(tmp_path: Path, kind: Any) -> None:
    run(tmp_path, kind, NUM_QUICK)


@pytest.mark.deep
@pytest.mark.parametrize("kind", KINDS)
def test_ten_thousand_changed_files(tmp_path: Path, kind: Any) -> None:
    run(tmp_path, kind, NUM_DEEP)
