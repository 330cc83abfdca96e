"""COCO's and LVIS' JSON: instances with outlines, run-length masks and key points."""

import gc
import json
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeGuard

import numpy as np

from augpipe.datasets.annotations.annotated_source import AnnotatedSource, Annotations, names_of, shown
from augpipe.datasets.annotations.faults import Faults, OnError
from augpipe.datasets.annotations.find_images import find_root
from augpipe.datasets.annotations.object_list import ObjectList
from augpipe.datasets.annotations.object_table import Floats, Ints
from augpipe.datasets.annotations.run_lengths import read_counts
from augpipe.datasets.metadata.names import listed
from augpipe.planning.targets.mask_rings import rings_of
from augpipe.sources.targets import Targets

Object = Mapping[str, Any]
_FIELDS = {"id": np.int64, "iscrowd": np.int64, "area": np.float64}
_MAX_ID = 1 << 62
_SIDE = re.compile(r"(?<![a-z])(left|right|[lr](?![a-z]))")
_OTHER_SIDE = {"left": "right", "right": "left", "l": "r", "r": "l"}


class CocoSource(AnnotatedSource):
    """The images of a COCO or LVIS file, in the order of their ids, as torchvision's CocoDetection has them.

    All images that the file lists are samples, those without objects too. Classes are numbered from 0 in the order of
    the file's category ids; `category_ids` has these. Objects keep the file's order, and have the fields `id`,
    `iscrowd` and `area`. Run-length masks, of crowds too, become polygons along the pixels' edges. Where an outline has
    fewer than three corners, it is left out, and the object has its box.

    Coordinates count in the pixels as stored, as in pycocotools and torchvision, unless the file's width and height are
    those of the upright image.

    Args:
        path: the JSON file.
        images: the folder in which its images lie; looked for around the file if left out.
        classes: names of categories: only their objects, numbered in this order.
        crowds: whether objects with `iscrowd` 1 are read; torchvision's and Ultralytics' training leave them out.
        on_error: "skip" leaves out objects that cannot be used, and counts them.

    Raises:
        ValueError: the file is not such a file, or an image or object in it cannot be used; names it.
        OSError: the file cannot be read.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        images: str | os.PathLike[str] | None = None,
        *,
        classes: Sequence[str] | None = None,
        crowds: bool = True,
        on_error: OnError = "raise",
    ) -> None:
        text = os.fspath(path)
        content = read_json(text)
        faults = Faults(on_error)
        reader = CocoReader(text, content, faults, classes, crowds=crowds)
        self.image_ids: Sequence[int | str] = reader.image_ids
        """The file's id of each sample."""
        self._has_numbers = all(isinstance(own, int) and abs(own) <= _MAX_ID for own in self.image_ids)
        self.category_ids: Sequence[int] = reader.category_ids
        """The file's id of each class."""
        root = find_root(text, None if images is None else os.fspath(images), reader.file_names)
        objects = reader.objects()
        super().__init__(
            root,
            names_of(reader.file_names),
            Annotations(
                where=shown(text),
                objects=objects,
                classes=reader.classes,
                keypoint_names=reader.keypoint_names,
                keypoint_swaps=swaps_by_name(reader.keypoint_names),
                notes=_lost_sides(reader.keypoint_names),
                sizes=reader.sizes,
                faults=faults,
            ),
        )

    def targets_of(self, sample_ids: Ints) -> Targets:
        """The objects of these images, in this order; see `AnnotatedSource`."""
        found = super().targets_of(sample_ids)
        assert found is not None
        return found

    def image_id(self, sample_id: int) -> int | str:
        """The file's id of an image."""
        return self.image_ids[sample_id]

    def columns_of(self, sample_ids: Ints) -> Mapping[str, Any]:
        """`image_id`: the file's id of each image."""
        ids = [self.image_ids[sample_id] for sample_id in sample_ids.tolist()]
        return {"image_id": np.array(ids, np.int64) if self._has_numbers else ids}


def read_json(path: str) -> Mapping[str, Any]:
    """A file's one JSON object.

    Raises:
        ValueError: it holds something else; names the file.
        OSError: it cannot be read.
    """
    with open(path, "rb") as file:
        raw = file.read()
    was_enabled = gc.isenabled()
    gc.disable()  # it would look through millions of new lists again and again: four times the time
    try:
        content = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{shown(path)} is not JSON: {error}. Is the file whole?") from None
    finally:
        if was_enabled:
            gc.enable()
    if not isinstance(content, dict):
        raise ValueError(f"{shown(path)} holds a JSON {type(content).__name__}, and COCO's files are one object.")
    return content


class CocoReader:
    """Checks one file's content, list by list."""

    def __init__(
        self,
        path: str,
        content: Mapping[str, Any],
        faults: Faults,
        classes: Sequence[str] | None,
        *,
        crowds: bool = True,
    ) -> None:
        self._crowds = crowds
        self.path, self._content, self._faults = shown(path), content, faults
        self._annotations = self._list("annotations")
        images = self._images()
        self.image_ids = [image["id"] for image in images]
        self.file_names = [self._file_name(image) for image in images]
        self.sizes = np.array([self._size(image) for image in images], np.int32).reshape(-1, 2)
        self.sample_of = {image_id: number for number, image_id in enumerate(self.image_ids)}
        categories = self.categories_by_id()
        names = [category["name"] for category in categories]
        chosen = list(range(len(names))) if classes is None else self._chosen(names, classes)
        self.classes = tuple(names[number] for number in chosen)
        self.category_ids = [categories[number]["id"] for number in chosen]
        self.label_of = {category["id"]: -1 for category in categories}
        self.label_of.update({category_id: label for label, category_id in enumerate(self.category_ids)})
        self.keypoint_names, self._num_keypoints = self._keypoints([categories[number] for number in chosen])

    def objects(self) -> Any:
        """The table of all objects."""
        objects = ObjectList(self._faults, self._where, num_keypoints=self._num_keypoints, fields=_FIELDS)
        seen: set[int] = set()
        for number, annotation in enumerate(self._annotations):
            try:
                self._add(objects, number, annotation, seen)
            except ValueError as error:
                self._faults.refuse(self._where(number), str(error))
        height_width: Floats = self.sizes.astype(np.float64)
        limits = np.where(height_width > 0, height_width, np.inf)[:, ::-1]
        self._content = {}
        return objects.table(len(self.image_ids), limits)

    def _where(self, number: int) -> str:
        annotation = self._annotations[number]
        found = annotation.get("id") if isinstance(annotation, dict) else None
        return f"{self.path}, annotation {number}" + ("" if found is None else f" (id {found!r:.40})")

    def _add(self, objects: ObjectList, number: int, annotation: Any, seen: set[int]) -> None:
        """Append one annotation.

        Raises:
            ValueError: the reason alone.
        """
        if not isinstance(annotation, dict):
            raise ValueError(f"it is a {type(annotation).__name__}, and no object")
        if "segments_info" in annotation:
            raise ValueError(
                "it is of a panoptic file. Put its PNG files into a folder of the file's name, such as panoptic_val, "
                "next to it, or make a PanopticSource"
            )
        own_id = annotation.get("id", number)
        if type(own_id) is not int or abs(own_id) > _MAX_ID:
            raise ValueError("its id is not a whole number")
        if own_id in seen:
            raise ValueError("its id is that of another annotation")
        sample = looked_up(self.sample_of, annotation, "image_id", "images")
        label = looked_up(self.label_of, annotation, "category_id", "categories")
        if label < 0:
            return
        crowd = annotation.get("iscrowd", 0)
        if crowd not in (0, 1):
            raise ValueError(f"iscrowd={crowd!r:.20}, and it is 0 or 1")
        if crowd and not self._crowds:
            seen.add(own_id)
            return
        rings = self._rings(annotation.get("segmentation"), number, sample)
        try:
            box = edges_of(annotation.get("bbox"))
            if box is None and not rings:
                raise ValueError("it has neither a bbox nor a segmentation")
            area = area_of(annotation.get("area"), box, rings)
            points = self._points_of(annotation)
            objects.add(sample, number, label, box, rings, points, (own_id, int(crowd), area))
        except (TypeError, OverflowError):
            raise ValueError("something in it is not a number") from None
        seen.add(own_id)

    def _rings(self, segmentation: Any, number: int, sample: int) -> list[Any]:
        if segmentation is None or segmentation == []:
            return []
        if isinstance(segmentation, dict):
            height, width = self.sizes[sample].tolist()
            return list(rings_of(*read_counts(segmentation, (height, width) if height and width else None)))
        if not isinstance(segmentation, list):
            raise ValueError("its segmentation is neither a list of polygons nor a run-length mask")
        rings = []
        for ring in segmentation:
            if not isinstance(ring, list) or len(ring) % 2:
                raise ValueError("a polygon of it is not a list of x and y in turn")
            if len(ring) < 6:
                reason = "of fewer than three corners (the object keeps its box)"
                self._faults.leave_out(self._where(number), reason, "outline")
            else:
                rings.append(ring)
        return rings

    def _points_of(self, annotation: Object) -> Sequence[float] | None:
        points = annotation.get("keypoints")
        if not self._num_keypoints or points is None or points == []:
            return None
        if not isinstance(points, list) or len(points) > 3 * self._num_keypoints or len(points) % 3:
            found = f"{len(points)} numbers" if isinstance(points, list) else type(points).__name__
            raise ValueError(f"its keypoints are {found}, and x, y and visibility of {self._num_keypoints} are needed")
        return points + [0] * (3 * self._num_keypoints - len(points))

    def _list(self, name: str) -> list[Any]:
        values = self._content.get(name)
        if not isinstance(values, list):
            keys = listed(map(str, self._content), most=6) or "nothing"
            raise ValueError(f"{self.path} has no list {name!r}, as COCO's files of instances have; it has {keys}.")
        return values

    def _images(self) -> list[Object]:
        """Those of the file by their ids."""
        images = self._list("images")
        for number, image in enumerate(images):
            where = f"{self.path}, image {number}"
            image_id = image.get("id") if isinstance(image, dict) else None
            if type(image_id) not in (int, str):
                raise ValueError(f"{where}: its id is {image_id!r:.40}, and must be a number or a text.")
        ordered = sorted(images, key=lambda image: (isinstance(image["id"], str), image["id"]))
        for one, other in pairwise(ordered):
            if one["id"] == other["id"]:
                raise ValueError(f"{self.path}: two images have the id {one['id']!r:.40}. Give each its own.")
        if not ordered:
            raise ValueError(f"{self.path} lists no image.")
        return ordered

    def _file_name(self, image: Object) -> str:
        name = image.get("file_name")
        if name is None and isinstance(image.get("coco_url"), str):  # LVIS: .../train2017/000000391895.jpg
            name = "/".join(image["coco_url"].split("/")[-2:])
        if not is_file_name(name):
            raise ValueError(f"{self.path}: image {image['id']!r:.40} has the file_name {name!r:.80}. Write its path.")
        return name.replace("\\", "/")

    def _size(self, image: Object) -> tuple[int, int]:
        sides = image.get("height") or 0, image.get("width") or 0
        if not all(type(side) in (int, float) and 0 <= side < 1 << 31 and side % 1 == 0 for side in sides):
            raise ValueError(f"{self.path}: image {image['id']!r:.40} has the height and width {sides!r:.60}.")
        return int(sides[0]), int(sides[1])

    def categories_by_id(self) -> list[Object]:
        categories = self._list("categories")
        for number, category in enumerate(categories):
            found = category if isinstance(category, dict) else {}
            if type(found.get("id")) is not int or not isinstance(found.get("name"), str):
                raise ValueError(f"{self.path}, category {number}: it needs an id, a whole number, and a name.")
        ordered = sorted(categories, key=lambda category: category["id"])
        for one, other in pairwise(ordered):
            if one["id"] == other["id"]:
                raise ValueError(f"{self.path}: two categories have the id {one['id']}. Give each its own.")
        return ordered

    def _chosen(self, names: Sequence[str], classes: Sequence[str]) -> list[int]:
        for name in classes:
            if names.count(name) != 1:
                how = "no category" if name not in names else "several categories"
                raise ValueError(f"classes names {name!r}, and {self.path} has {how} of this name ({listed(names)}).")
        return [names.index(name) for name in classes]

    def _keypoints(self, categories: Iterable[Object]) -> tuple[tuple[str, ...], int]:
        """The names of the category that has most of them, and how many there are."""
        names: tuple[str, ...] = ()
        for category in categories:
            found: Any = category.get("keypoints") or ()
            if not isinstance(found, list | tuple) or not all(isinstance(name, str) for name in found):
                raise ValueError(f"{self.path}: category {category['id']} has keypoints that are not a list of names.")
            shorter, longer = sorted((names, tuple(found)), key=len)
            if longer[: len(shorter)] != shorter:
                raise ValueError(
                    f"{self.path} has categories with different key points ({listed(found)}; {listed(names)}). "
                    "Read them one at a time: classes=[...]."
                )
            names = longer
        if names:
            return names, len(names)
        for annotation in self._annotations:  # no names: the first object says how many
            points = annotation.get("keypoints") if isinstance(annotation, dict) else None
            if isinstance(points, list) and points:
                return (), len(points) // 3
        return (), 0


def is_file_name(name: Any) -> TypeGuard[str]:
    """Whether it can be the path of a file: a text without NUL and halves of letters."""
    return isinstance(name, str) and name != "" and not any(c == "\0" or "\ud800" <= c <= "\udfff" for c in name)


def looked_up(known: Mapping[Any, int], annotation: Object, name: str, where: str) -> int:
    """What is known of an id that an annotation gives by its name.

    Raises:
        ValueError: there is none; the reason alone.
    """
    wanted = annotation.get(name)
    if type(wanted) not in (int, str) or wanted not in known:
        raise ValueError(f"its {name} is {wanted!r:.40}, which is none of the {where}")
    return known[wanted]


def edges_of(box: Any) -> tuple[float, float, float, float] | None:
    """Left, top, right, bottom of left, top, width, height."""
    if box is None or box == []:
        return None
    if not isinstance(box, list) or len(box) != 4:
        raise ValueError(f"its bbox is {box!r:.60}, and takes left, top, width and height")
    left, top, width, height = box
    return left, top, left + width, top + height


def area_of(told: Any, box: Sequence[float] | None, rings: Sequence[Any] = ()) -> float:
    """The area that the file tells, or else of the outline or the box."""
    if isinstance(told, int | float) and math.isfinite(told):
        return float(told)
    if not rings:
        assert box is not None
        return (box[2] - box[0]) * (box[3] - box[1])
    total = 0.0
    for ring in rings:
        corners = np.asarray(ring, np.float64).reshape(-1, 2)
        with np.errstate(all="ignore"):  # corners that are not finite are refused later
            x, y = (corners - corners[0]).T
            total += 0.5 * abs(float(x @ np.roll(y, -1) - y @ np.roll(x, -1)))
    return total


def swaps_by_name(names: Sequence[str]) -> tuple[tuple[int, int], ...]:
    """Pairs of key points that trade places in a mirrored image, such as left_eye and right_eye, by their numbers.

    Words may be joined: lefteye and righteye, or LEye and REye, are a pair too.
    """
    place = {_plain(name): number for number, name in enumerate(names)}
    pairs = set()
    for name, number in place.items():
        other = place.get(_SIDE.sub(lambda found: _OTHER_SIDE[found[1]], name), number)
        if other != number:
            pairs.add((min(number, other), max(number, other)))
    return tuple(sorted(pairs))


def _lost_sides(names: Sequence[str]) -> list[str]:
    """A note where names tell left from right, and none of them make a pair."""
    sided = [name for name in names if _SIDE.search(_plain(name))]
    if not sided or swaps_by_name(names):
        return []
    return [f"no key points trade places in a mirrored image, though some are of one side ({listed(sided)})"]


def _plain(name: str) -> str:
    """In small letters, and words apart: LeftEye and left-eye are `left_eye`, and LEye is `l_eye`."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    return re.sub(r"[^a-z0-9]+", "_", words.lower())
