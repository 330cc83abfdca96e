"""YOLO's text files: a line an object, in parts of the image; boxes, outlines, rotated boxes and key points."""

import os
from collections.abc import Sequence

import numpy as np

from augpipe.datasets.annotations.annotated_source import AnnotatedSource, Annotations, names_of, shown
from augpipe.datasets.annotations.faults import Faults, OnError
from augpipe.datasets.annotations.object_list import ObjectList
from augpipe.datasets.annotations.pairs_of_files import files_below, read_lines
from augpipe.datasets.annotations.yolo_yaml import YoloSettings, read_settings, settings_above
from augpipe.datasets.files.image_files import is_image_name
from augpipe.datasets.metadata.names import listed
from augpipe.validation.plural import count

_TOLERANCE = 0.01
"""How far a box may reach outside, in parts of its image, without being counted; as Ultralytics allows it."""
_MOST = 1.5
"""The largest part of an image that a coordinate may be: more are pixels."""
_LINES = 1 << 20
"""More than a file of labels has: numbers of objects count image * this + line."""


class YoloSource(AnnotatedSource):
    """The images of a YOLO data set, sorted by path, with the objects of `labels/.../NAME.txt`.

    A line is `class cx cy w h` (a box), `class x y x y x y ...` (an outline), or with `kpt_shape` in the YAML file
    `class cx cy w h` and the key points. Oriented boxes (OBB), `class x1 y1 x2 y2 x3 y3 x4 y4`, look like outlines of
    four corners: `rotated` tells them apart. An image without a file of labels has no objects. A line that repeats an
    earlier one of its file is left out and counted. Coordinates are parts of the upright image, as Ultralytics reads
    them. The images' sizes are read from their headers, once each.

    Args:
        path: the YAML file (data.yaml), which needs PyYAML; or a folder of images, whose path has a part `images` that
            is `labels` in the path of its labels, or which is given with `labels`.
        labels: the folder of the text files, where it is another one.
        split: "train", "val" or "test" of the YAML file; needed where it has several.
        classes: names of the YAML file's: only their objects, numbered in this order. Without a YAML file, the names
            by number.
        rotated: whether all lines are rotated boxes; None: if the YAML file says `task: obb`.
        on_error: "skip" leaves out objects that cannot be used, and counts them.

    Raises:
        ImportError: a YAML file is read, and PyYAML is not installed.
        ValueError: a file or a line cannot be used; names it.
        OSError: a file cannot be read.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        labels: str | os.PathLike[str] | None = None,
        *,
        split: str | None = None,
        classes: Sequence[str] | None = None,
        rotated: bool | None = None,
        on_error: OnError = "raise",
    ) -> None:
        text = os.fspath(path)
        if text.lower().endswith((".yaml", ".yml")):
            settings = read_settings(text)
            images = settings.images(split)
        else:
            if split is not None:
                raise ValueError(f"split={split!r} is for a YAML file, and {shown(text)} is a folder. Leave it out.")
            settings = settings_above(text)
            images = [os.path.join(text, name) for name in files_below(text, is_image_name)]
        if not images:
            raise ValueError(f"no photograph in {shown(text)}. Give the folder of the images, or the YAML file.")
        files = [_labels_of(image, text, labels) for image in images]
        faults = Faults(on_error)
        label_of = _labels(settings, classes)
        rotated = settings.rotated if rotated is None else rotated
        reader = _Lines(files, settings, label_of, faults, rotated=rotated)
        names = tuple(classes) if classes is not None else settings.names or reader.numbers()
        known = Annotations(
            where=shown(text),
            objects=reader.objects.table(len(images), np.ones((len(images), 2)), _TOLERANCE, rotated=rotated),
            classes=names,
            keypoint_swaps=settings.swaps,
            in_parts=True,
            are_stored=False,
            faults=faults,
        )
        super().__init__("", names_of([os.path.abspath(image) for image in images]), known)
        if reader.num_files == 0:
            raise ValueError(f"none of the images ({listed(images)}) has labels; looked for {shown(files[0])}.")
        if missing := len(images) - reader.num_files:
            self.notes = [*self.notes, f"{count(missing, 'image')} without a file of labels, so without objects"]


def _labels(settings: YoloSettings, classes: Sequence[str] | None) -> Sequence[int]:
    """For each class number of the files its label, -1 where it is left out; empty where any number is taken.

    Raises:
        ValueError: a name is not one of the YAML file's.
    """
    if classes is None or not settings.names:
        return range(len(classes if classes is not None else settings.names))
    for name in classes:
        if settings.names.count(name) != 1:
            how = "no class" if name not in settings.names else "several classes"
            raise ValueError(
                f"classes names {name!r}, and {shown(settings.path)} has {how} of this name ({listed(settings.names)})."
            )
    return [classes.index(name) if name in classes else -1 for name in settings.names]


def _labels_of(image: str, folder: str, labels: str | os.PathLike[str] | None) -> str:
    """The file of labels of an image: in the folder given, else the last part `images` of its path is `labels`."""
    stem = os.path.splitext(image)[0] + ".txt"
    if labels is not None:
        return os.path.join(os.fspath(labels), os.path.relpath(stem, folder))
    before, middle, after = os.path.abspath(stem).rpartition(f"{os.sep}images{os.sep}")
    return f"{before}{os.sep}labels{os.sep}{after}" if middle else stem


class _Lines:
    """Reads all files of labels into `objects`."""

    def __init__(
        self, files: Sequence[str], settings: YoloSettings, labels: Sequence[int], faults: Faults, *, rotated: bool
    ) -> None:
        self._files, self._faults = files, faults
        self._rotated = rotated
        self._labels = labels
        self._keypoints, self._dimensions = settings.keypoint_shape
        self._largest = -1
        self.num_files = 0
        """How many images have one."""
        self.objects = ObjectList(faults, self._where, num_keypoints=self._keypoints)
        for sample, file in enumerate(files):
            try:
                lines = read_lines(file)
            except FileNotFoundError:
                continue
            self.num_files += 1
            seen: set[tuple[float, ...]] = set()
            for number, line in enumerate(lines):
                try:
                    self._add(sample, sample * _LINES + number, line, seen)
                except ValueError as error:
                    self._faults.refuse(self._where(sample * _LINES + number), str(error))

    def numbers(self) -> tuple[str, ...]:
        """ "0", "1", ...: names of classes that have none."""
        return tuple(str(number) for number in range(self._largest + 1))

    def _where(self, number: int) -> str:
        return f"{shown(self._files[number // _LINES])}, line {number % _LINES + 1}"

    def _add(self, sample: int, number: int, line: str, seen: set[tuple[float, ...]]) -> None:
        number_of_class, values = self._numbers(line)
        if (numbers := (number_of_class, *values)) in seen:
            self._faults.leave_out(self._where(number), "repeating an earlier line")
            return
        seen.add(numbers)
        label = self._labels[number_of_class] if self._labels else number_of_class
        if label < 0:
            return
        if self._rotated:
            if len(values) != 8:
                raise ValueError(f"it holds {1 + len(values)} numbers, and a rotated box has 9: its class, 4 corners")
            self.objects.add(sample, number, label, None, [values])
            return
        size = self._keypoints * self._dimensions
        if self._keypoints and len(values) == 4 + size:
            points = np.array(values[4:]).reshape(self._keypoints, self._dimensions)
            if self._dimensions == 2:  # where both are 0 the point is not labelled
                points = np.concatenate([points, 2.0 * (points > 0).any(axis=1, keepdims=True)], axis=1)
            self.objects.add(sample, number, label, _edges(values), keypoints=points.ravel().tolist())
        elif len(values) == 4:
            self.objects.add(sample, number, label, _edges(values))
        elif len(values) >= 6 and len(values) % 2 == 0 and not self._keypoints:
            self.objects.add(sample, number, label, None, [values])
        else:
            wanted = f"5 or {5 + size}" if self._keypoints else "5 (a box), or 7, 9, ... (an outline)"
            raise ValueError(f"it holds {1 + len(values)} numbers, and must hold {wanted}")

    def _numbers(self, line: str) -> tuple[int, list[float]]:
        try:
            first, *values = map(float, line.split())
        except ValueError:
            raise ValueError(f"{line.strip()[:60]!r} is not a line of numbers") from None
        if not (first >= 0 and first % 1 == 0) or first >= (len(self._labels) or 1 << 20):
            known = f"the {len(self._labels)} classes" if self._labels else "classes, which are 0, 1, ..."
            raise ValueError(f"{first:g} is none of {known}")
        self._largest = max(self._largest, int(first))
        if not all(-_MOST < value < _MOST + 1 for value in values):
            raise ValueError("coordinates are parts of the image's width and height, from 0 to 1, and these are not")
        return int(first), values


def _edges(values: Sequence[float]) -> tuple[float, float, float, float]:
    x, y, width, height = values[:4]
    return x - width / 2, y - height / 2, x + width / 2, y + height / 2
