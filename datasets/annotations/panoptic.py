"""COCO's panoptic files: JSON that lists segments, and a folder of PNG files whose colours are their ids."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from augpipe.datasets.annotations.annotated_source import AnnotatedSource, Annotations, names_of, shown
from augpipe.datasets.annotations.coco import CocoReader, Object, area_of, edges_of, is_file_name, looked_up, read_json
from augpipe.datasets.annotations.faults import Faults, OnError
from augpipe.datasets.annotations.find_images import find_root
from augpipe.datasets.annotations.label_maps import MapFiles
from augpipe.datasets.annotations.object_list import ObjectList
from augpipe.datasets.annotations.object_table import Floats, Ints
from augpipe.sources.targets import LabelMap
from augpipe.validation.arguments import check_choice

_FIELDS = {"id": np.int64, "iscrowd": np.int64, "area": np.float64}
_MAX_ID = (1 << 24) - 1
"""The colour white."""


@dataclass(frozen=True, kw_only=True)
class _Segments:
    """The segments of N images by their ids, whose first is 0, of no segment."""

    starts: Ints
    """(N + 1,) where those of each image begin."""
    ids: npt.NDArray[np.int32]
    """(M,) those of each image in rising order."""
    labels: npt.NDArray[np.int32]
    """(M,) class numbers, -1 for pixels of no class."""


class PanopticSource(AnnotatedSource):
    """The images of a COCO panoptic file, in the order of their ids, with a label of every pixel, and the segments.

    A PNG file's colours are ids, R + 256 G + 65536 B; 0 means no segment. Segments, of things and of stuff, are the
    objects, with boxes and the fields `id`, `iscrowd` and `area`. Classes are numbered from 0 in the order of the
    file's category ids; `category_ids` has these, and `is_thing` says of which one can count things. Images without an
    annotation are left out. Which pixels count (EXIF) is decided as in `CocoSource`.

    Args:
        path: the JSON file.
        images: the folder in which its images lie; looked for around the file if left out.
        maps: the folder of the PNG files; the file's path without `.json` if left out.
        label_maps: "categories" gives class numbers: uint8 with 255 for no class, or of more than 255 classes uint16
            with 65535. "segments" gives the segments' ids: int32 with 0 for none. `void` has the number for none.
        classes: names of categories: only their segments, numbered in this order.
        on_error: "skip" leaves out segments that cannot be used, and counts them.

    Raises:
        ValueError: the file is not such a file, or an image or segment in it cannot be used; names it.
        OSError: the file cannot be read.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        images: str | os.PathLike[str] | None = None,
        maps: str | os.PathLike[str] | None = None,
        *,
        label_maps: Literal["categories", "segments"] = "categories",
        classes: Sequence[str] | None = None,
        on_error: OnError = "raise",
    ) -> None:
        check_choice("label_maps", label_maps, ("categories", "segments"))
        text = os.fspath(path)
        folder = os.path.splitext(text)[0] if maps is None else os.fspath(maps)
        if not os.path.isdir(folder):
            raise ValueError(
                f"there is no folder {shown(folder)} with the PNG files of {shown(text)}. Put it there, or give "
                "maps=... to PanopticSource."
            )
        content, faults = read_json(text), Faults(on_error)
        reader = CocoReader(text, content, faults, classes)
        self._gives_ids = label_maps == "segments"
        self.void = 0 if self._gives_ids else 255 if len(reader.classes) <= 255 else 65535
        """The label of pixels that belong to no segment, or to none of the classes."""
        self.category_ids: Sequence[int] = reader.category_ids
        """The file's id of each class."""
        by_id = {category["id"]: category for category in content["categories"]}
        self.is_thing = tuple(by_id[own].get("isthing", 1) == 1 for own in reader.category_ids)
        """Of each class, whether its segments are single things; of stuff, such as sky, they are not."""
        root = find_root(text, None if images is None else os.fspath(images), reader.file_names)
        of_image = _annotations_by_image(reader, content["annotations"], faults)
        numbers = sorted(of_image)
        sizes = reader.sizes[numbers]
        objects, self._segments = _read_segments(reader, [of_image[number] for number in numbers], sizes, faults)
        self.image_ids: Sequence[int | str] = [reader.image_ids[number] for number in numbers]
        """The file's id of each sample."""
        maps_of = [of_image[number]["file_name"].replace("\\", "/") for number in numbers]
        paths = [os.path.abspath(os.path.join(folder, name)) for name in maps_of]
        super().__init__(
            root,
            names_of([reader.file_names[number] for number in numbers]),
            Annotations(
                where=shown(text),
                objects=objects,
                maps=MapFiles(names=names_of(paths), encoding="ids"),
                classes=reader.classes,
                sizes=sizes,
                faults=faults,
            ),
        )

    def label_map(self, sample_id: int) -> LabelMap:
        """(H, W) the class, or with `label_maps="segments"` the id, of each pixel of the upright image.

        Raises:
            OSError: a file cannot be read.
            ValueError: the PNG file is missing, cannot be decoded, is of another size than the image, or has an id that
                the JSON file does not list for it; names the file.
        """
        assert self._known.maps is not None
        png = shown(self._known.maps.names[sample_id])
        try:
            ids = super().label_map(sample_id)
        except FileNotFoundError as error:
            if os.path.exists(self.path(sample_id)):
                raise ValueError(f"{png} is missing, and {self._where} names it.") from error
            raise
        own = slice(*self._segments.starts[sample_id : sample_id + 2])
        known, labels = self._segments.ids[own], self._segments.labels[own]
        places = np.minimum(np.searchsorted(known, ids), len(known) - 1)
        is_unknown = known[places] != ids
        if is_unknown.any():
            found = int(ids[is_unknown][0])
            raise ValueError(
                f"{png} has {int((ids == found).sum())} pixels of the segment {found}, which {self._where} does not "
                f"list for it. Add it to its segments_info, or draw them with the id 0."
            )
        if self._gives_ids:
            return np.where(labels >= 0, known, 0).astype(np.int32)[places]
        return np.where(labels >= 0, labels, self.void).astype(np.uint8 if self.void == 255 else np.uint16)[places]

    def segments_info(self, sample_id: int) -> list[dict[str, Any]]:
        """The segments of an image in the order of the file: `id`, `category_id`, `iscrowd`, `area` and `bbox` each.

        `bbox` is left, top, width and height in pixels of the upright image, and ends at its edge. Segments that were
        left out are not there.
        """
        found = self.targets_of(np.array([sample_id]))
        assert found is not None and found.boxes is not None and found.labels is not None
        corner, size = found.boxes[:, :2], found.boxes[:, 2:] - found.boxes[:, :2]
        columns = (*(found.fields[name].tolist() for name in _FIELDS), found.labels.tolist())
        return [
            {"id": own, "category_id": self.category_ids[label], "iscrowd": crowd, "area": area, "bbox": box}
            for own, crowd, area, label, box in zip(*columns, np.hstack([corner, size]).tolist(), strict=True)
        ]

    def image_id(self, sample_id: int) -> int | str:
        """The file's id of an image."""
        return self.image_ids[sample_id]

    def columns_of(self, sample_ids: Ints) -> Mapping[str, Any]:
        """`image_id`: the file's id of each image."""
        return {"image_id": [self.image_ids[sample_id] for sample_id in sample_ids.tolist()]}


def is_panoptic_file(path: str) -> bool:
    """Whether a JSON file is called as COCO's and Cityscapes' panoptic files are, and has a folder of its own name."""
    return "panoptic" in os.path.basename(path) and os.path.isdir(os.path.splitext(path)[0])


def _annotations_by_image(reader: CocoReader, annotations: Sequence[Any], faults: Faults) -> dict[int, Object]:
    """The number of each image that has an annotation -> that."""
    found: dict[int, Object] = {}
    for number, annotation in enumerate(annotations):
        where = f"{reader.path}, annotation {number}"
        try:
            if not isinstance(annotation, dict) or not isinstance(annotation.get("segments_info"), list):
                raise ValueError("it has no list segments_info, as those of panoptic files have")
            image = looked_up(reader.sample_of, annotation, "image_id", "images")
            name = annotation.get("file_name")
            if not is_file_name(name):
                raise ValueError(f"its file_name is {name!r:.80}, and must be the path of its PNG file")
            if image in found:
                raise ValueError(f"its image has another annotation (image_id {annotation['image_id']!r:.40})")
        except ValueError as error:
            faults.refuse(where, str(error), "annotation")
            continue
        found[image] = annotation
    for image, name in enumerate(reader.file_names):
        if image not in found:
            faults.leave_out(shown(name), "without a label map", "image")
    if not found:
        raise ValueError(f"{reader.path} has no annotation of any of its images.")
    return found


def _read_segments(
    reader: CocoReader, annotations: Sequence[Object], sizes: Any, faults: Faults
) -> tuple[Any, _Segments]:
    """The table of all segments as objects, and their ids by image."""
    rows = [(sample, segment) for sample, one in enumerate(annotations) for segment in one["segments_info"]]

    def where(number: int) -> str:
        sample, segment = rows[number]
        found = segment.get("id") if isinstance(segment, dict) else None
        return f"{reader.path}, segment {found!r:.40} of {shown(annotations[sample]['file_name'])}"

    objects = ObjectList(faults, where, fields=_FIELDS)
    label_of: list[dict[int, int]] = [{0: -1} for _ in annotations]
    for number, (sample, segment) in enumerate(rows):
        try:
            _add(reader, objects, number, sample, segment, label_of[sample])
        except ValueError as error:
            faults.refuse(where(number), str(error), "segment")
    limits: Floats = np.where(sizes > 0, sizes, np.inf)[:, ::-1]
    ordered = [(own, labels[own]) for labels in label_of for own in sorted(labels)]
    ids, labels = np.array(ordered, np.int32).T
    starts = np.cumsum([0, *map(len, label_of)])
    return objects.table(len(annotations), limits), _Segments(starts=starts, ids=ids, labels=labels)


def _add(reader: CocoReader, objects: ObjectList, number: int, sample: int, segment: Any, own: dict[int, int]) -> None:
    """Append one segment, and note its label by its id.

    Raises:
        ValueError: the reason alone.
    """
    if not isinstance(segment, dict):
        raise ValueError(f"it is a {type(segment).__name__}, and no object")
    segment_id = segment.get("id")
    if type(segment_id) is not int or not 0 < segment_id <= _MAX_ID:
        raise ValueError(f"its id must be a whole number within 1..{_MAX_ID}, as colours give it")
    if segment_id in own:
        raise ValueError("its id is that of another segment of this image")
    own[segment_id] = -1  # of one that is left out, pixels have no class
    label = looked_up(reader.label_of, segment, "category_id", "categories")
    crowd = segment.get("iscrowd", 0)
    if crowd not in (0, 1):
        raise ValueError(f"iscrowd={crowd!r:.20}, and it is 0 or 1")
    if label < 0:
        return
    try:
        box = edges_of(segment.get("bbox"))
        if box is None:
            raise ValueError("it has no bbox")
        objects.add(sample, number, label, box, fields=(segment_id, crowd, area_of(segment.get("area"), box)))
    except (TypeError, OverflowError):
        raise ValueError("something in it is not a number") from None
    own[segment_id] = label
