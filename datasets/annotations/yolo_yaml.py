"""The YAML file of a YOLO data set: class names, splits, key points."""

import os
import reprlib  # lists in YAML may be huge by their aliases
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from augpipe.datasets.annotations.annotated_source import shown
from augpipe.datasets.annotations.pairs_of_files import files_below, read_lines, read_small
from augpipe.datasets.files.image_files import is_image_name
from augpipe.datasets.metadata.names import listed

INSTALL = 'pip install "augpipe[yolo]"'
_SPLITS = ("train", "val", "test")
_LEVELS = 4
"""How many folders above the images a YAML file is looked for in."""
_MOST_CLASSES = 100_000


@dataclass(frozen=True, kw_only=True)
class YoloSettings:
    """What the YAML file says."""

    path: str = ""
    names: tuple[str, ...] = ()
    """Class number -> name; empty where there is no YAML file."""
    splits: Mapping[str, Sequence[str]]
    """Split -> folders or lists of images."""
    keypoint_shape: tuple[int, int] = (0, 0)
    """Points of an object, and numbers of each: 2 or 3."""
    swaps: tuple[tuple[int, int], ...] = ()
    rotated: bool = False
    """Whether the task is `obb`: lines are rotated boxes."""

    def images(self, split: str | None) -> list[str]:
        """Paths of a split's images.

        Raises:
            ValueError: there is no such split, or several and none is named; a list names no image.
            OSError: a folder or a list cannot be read.
        """
        split = {"valid": "val", "validation": "val"}.get(split or "", split)
        if split is None and len(self.splits) == 1:
            split = next(iter(self.splits))
        if split is None or split not in self.splits:
            given = "" if split is None else f", and no {split!r}"
            raise ValueError(
                f"{shown(self.path)} has the splits {listed(self.splits)}{given}. Open one of them, as by "
                f'split="{next(iter(self.splits), "train")}".'
            )
        found: list[str] = []
        for place in self.splits[split]:
            if not os.path.exists(place):
                raise ValueError(f"{shown(self.path)}: {split} leads to {shown(place)!r}, which does not exist.")
            if place.lower().endswith(".txt"):
                base = os.path.dirname(place)
                found += [os.path.join(base, line.strip()) for line in read_lines(place)]
            else:
                found += [os.path.join(place, name) for name in files_below(place, is_image_name)]
        return found


def read_settings(path: str) -> YoloSettings:
    """Read a YAML file.

    Raises:
        ImportError: PyYAML is not installed.
        ValueError: it is not such a file; names it.
        OSError: it cannot be read.
    """
    try:
        import yaml
    except ImportError:
        raise ImportError(f"{shown(path)} is YAML, which PyYAML reads: {INSTALL}") from None
    raw = read_small(path)
    try:
        content = yaml.safe_load(raw)
    except (yaml.YAMLError, ValueError, RecursionError, TypeError, AttributeError) as error:
        first = " ".join(str(error).split())[:200]
        raise ValueError(f"{shown(path)} is not YAML: {first}.") from None
    if not isinstance(content, dict) or not {"names", "nc"} & content.keys():
        raise ValueError(f"{shown(path)} has no names, as the YAML file of a YOLO data set has.")
    names = _names(path, content["names"]) if "names" in content else _numbered(path, content["nc"])
    shape, swaps = _keypoints(path, content)
    return YoloSettings(
        path=path,
        names=names,
        splits=_places(path, content),
        keypoint_shape=shape,
        swaps=swaps,
        rotated=content.get("task") == "obb",
    )


def settings_above(folder: str) -> YoloSettings:
    """Those of the YAML file in a folder of images or above it; empty ones where there is none, or no PyYAML."""
    here = os.path.abspath(folder)
    for _ in range(_LEVELS):
        for name in ("data.yaml", "dataset.yaml"):
            if os.path.isfile(os.path.join(here, name)):
                return read_settings(os.path.join(here, name))
        here = os.path.dirname(here)
    return YoloSettings(splits={})


def _names(path: str, names: Any) -> tuple[str, ...]:
    if isinstance(names, list):
        names = dict(enumerate(names))
    is_table = isinstance(names, dict) and all(type(number) is int for number in names)
    is_table = is_table and all(isinstance(name, str | int | float) for name in names.values())
    if not is_table or not names or sorted(names) != list(range(len(names))) or len(names) > _MOST_CLASSES:
        raise ValueError(f"{shown(path)}: names must list the classes, or number them from 0: {{0: cat, 1: dog}}.")
    return tuple(str(names[number])[:200] for number in range(len(names)))


def _numbered(path: str, num: Any) -> tuple[str, ...]:
    """Names of classes that are only counted, as Ultralytics calls them."""
    if type(num) is not int or not 1 <= num <= _MOST_CLASSES:
        raise ValueError(f"{shown(path)}: nc is {reprlib.repr(num)}. Write how many classes there are, or their names.")
    return tuple(f"class_{number}" for number in range(num))


def _keypoints(path: str, content: Mapping[str, Any]) -> tuple[tuple[int, int], tuple[tuple[int, int], ...]]:
    shape, order = content.get("kpt_shape"), content.get("flip_idx")
    if shape is None:
        return (0, 0), ()
    is_shape = isinstance(shape, list) and len(shape) == 2 and all(type(side) is int for side in shape)
    if not is_shape or not 1 <= shape[0] <= 10_000 or shape[1] not in (2, 3):
        raise ValueError(f"{shown(path)}: kpt_shape is {reprlib.repr(shape)}. Write [number of points, 2 or 3].")
    if order is None:
        return (shape[0], shape[1]), ()
    if not isinstance(order, list) or any(type(place) is not int for place in order):
        raise ValueError(f"{shown(path)}: flip_idx is {reprlib.repr(order)}, and must list the points' numbers.")
    if sorted(order) != list(range(shape[0])) or any(order[other] != one for one, other in enumerate(order)):
        raise ValueError(f"{shown(path)}: flip_idx is {listed(map(str, order))}, and must pair {shape[0]} points.")
    return (shape[0], shape[1]), tuple((one, other) for one, other in enumerate(order) if one < other)


def _places(path: str, content: Mapping[str, Any]) -> dict[str, list[str]]:
    """Split -> where its images are."""
    here = os.path.dirname(os.path.abspath(path))
    root = content.get("path")
    base = os.path.join(here, root) if isinstance(root, str) and os.path.isdir(os.path.join(here, root)) else here
    found: dict[str, list[str]] = {}
    for split in _SPLITS:
        places = content.get(split) or content.get("valid" if split == "val" else split)
        if places is None:
            continue
        places = places if isinstance(places, list) else [places]
        if not all(isinstance(place, str) and "\0" not in place for place in places):
            raise ValueError(f"{shown(path)}: {split} must be a folder or a list of images, or several.")
        found[split] = [_resolved(base, place) for place in places]
    return found


def _resolved(base: str, place: str) -> str:
    """A folder or list as written; Roboflow writes ../train/images for train/images."""
    there = os.path.join(base, place)
    if not os.path.exists(there) and place.startswith("../"):
        there = os.path.join(base, place[3:])
    return there
