"""Image files with their objects and label maps: what all readers of annotations make."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from augpipe.datasets.annotations.faults import CUT_AT_EDGE, MOST_LISTED, Fault, Faults
from augpipe.datasets.annotations.label_maps import NO_LIMIT, MapFiles
from augpipe.datasets.annotations.object_table import Ints, ObjectTable
from augpipe.datasets.annotations.stored_pixels import stored_size, upright_boxes, upright_points
from augpipe.datasets.files.image_files import FileSource, read_file
from augpipe.datasets.metadata.names import NameTable, printable
from augpipe.decoding import Header, probe
from augpipe.sources.subset import check_id, check_ids
from augpipe.sources.targets import LabelMap, Targets, are_outside
from augpipe.validation.plural import count

_START_BYTES = 1 << 16
"""In which a header is looked for before the whole file is read."""
SUSPECT = 0.1
"""Of all boxes, the share from which on it is told that they seem to be written otherwise than they are read."""
_PNG = b"\x89PNG"
_UNKNOWN = 0
"""Next to EXIF's 1..8: an image whose header was not read yet."""


@dataclass(frozen=True, kw_only=True)
class Annotations:
    """What a reader has found about N images."""

    where: str
    """The file or folder that says it, for messages."""
    objects: ObjectTable | None = None
    maps: MapFiles | None = None
    classes: Sequence[str] = ()
    """Class number -> name."""
    keypoint_names: Sequence[str] = ()
    keypoint_swaps: Sequence[tuple[int, int]] = ()
    sizes: npt.NDArray[np.int32] | None = None
    """(N, 2) heights and widths that the file tells, 0 where it does not; None where it tells none."""
    in_parts: bool = False
    """Whether coordinates are parts of the image's width and height, instead of pixels."""
    notes: Sequence[str] = ()
    """What the reader has taken for granted, for the log line."""
    are_stored: bool = True
    """Whether they count in the pixels as stored, where an orientation of EXIF leaves both ways open."""
    faults: Faults


class AnnotatedSource(FileSource):
    """Image files whose objects or label maps are known: a `TargetSource`.

    An image has no class of its own, so all labels are -1. Targets are in pixels of the upright image. Where a file
    has an orientation (EXIF), the size that the annotations tell shows whether they count in the upright or in the
    stored pixels. Where it fits both, a reader's convention decides; see each reader.

    Args:
        root: what relative names are relative to.
        names: one path a sample.
        known: what the reader found.
    """

    def __init__(self, root: str, names: NameTable, known: Annotations) -> None:
        super().__init__(root, names, np.full(len(names), -1, np.int64), ())
        self._known = known
        self._orientations = np.zeros(len(names), np.int8)
        self._sizes = np.zeros((len(names), 2), np.int32)
        self._where = known.where
        self.faults = known.faults
        """What is wrong with the annotations, as far as it was not raised."""
        self.left_out = known.faults.left_out
        self.notes = [*known.faults.mended, *known.notes]
        self.cautions = list(_cautions_of(known))

    @property
    def has_targets(self) -> bool:
        """True."""
        return True

    @property
    def num_unlabelled(self) -> int:
        """0: what is known of these images are their objects, and not a class."""
        return 0

    @property
    def num_objects(self) -> int:
        """How many objects all images have together."""
        return 0 if self._known.objects is None else len(self._known.objects)

    @property
    def object_classes(self) -> Sequence[str]:
        """Class number -> name."""
        return self._known.classes

    @property
    def keypoint_names(self) -> Sequence[str]:
        """Of each key point of an object; empty where there are none, or they have no names."""
        return self._known.keypoint_names

    @property
    def keypoint_swaps(self) -> Sequence[tuple[int, int]]:
        """Pairs of left and right key points."""
        return self._known.keypoint_swaps

    @property
    def has_label_maps(self) -> bool:
        """Whether there is a file with labels of all pixels for each image."""
        return self._known.maps is not None

    def read(self, sample_id: int) -> bytes:
        """The file's bytes, not yet decoded.

        Raises:
            OSError: the file cannot be read.
            ValueError: its annotations are of an image of another size; names both.
        """
        content = read_file(self.path(sample_id))
        if self._orientations[sample_id] == _UNKNOWN:
            try:
                header = probe(content, max_pixels=NO_LIMIT)
            except ValueError:
                return content  # the loader's decoder says what is wrong with it
            self._note_size(sample_id, header)
        return content

    def targets_of(self, sample_ids: Ints) -> Targets | None:
        """The objects of these images, in this order; None where there are label maps only.

        An image whose file is missing or cannot be read has none: `read` says why.

        Raises:
            ValueError: an image cannot be decoded, or its annotations are of another size; names it.
        """
        check_ids(sample_ids, len(self))
        if self._known.objects is None:
            return None
        is_usable = np.array([self._is_usable(sample_id) for sample_id in sample_ids.tolist()], np.bool_)
        found = self._known.objects.of(sample_ids[is_usable])
        found = self._in_upright_pixels(found, sample_ids[is_usable])
        counts = np.zeros(len(sample_ids), np.int64)
        counts[is_usable] = found.counts
        return replace(found, counts=counts)

    def label_map(self, sample_id: int) -> LabelMap:
        """(H, W) the class of each pixel of the upright image; (H, W, 3) where the files hold colours.

        Raises:
            OSError: a file cannot be read.
            ValueError: it cannot be decoded, or is of another size than the image; names the file.
        """
        check_id(sample_id, len(self))
        if self._known.maps is None:
            raise ValueError(f"{self._where} has no label maps. Ask `has_label_maps` first.")
        orientation, size = self.turned(sample_id)
        return self._known.maps.read(sample_id, size, orientation)

    def label_map_stamp(self, sample_id: int) -> tuple[int, int] | None:
        """Size in bytes and time of writing in ns of the file of a label map, now; None where there are none.

        Raises:
            OSError: it cannot be looked at.
        """
        if self._known.maps is None:
            return None
        status = os.stat(self._known.maps.names[sample_id])
        return status.st_size, status.st_mtime_ns

    def turned(self, sample_id: int) -> tuple[int, tuple[int, int]]:
        """EXIF's orientation by which coordinates of the file are turned (1 for none), and the upright size.

        Raises:
            OSError: the image cannot be read.
            ValueError: its annotations are of another size, or it cannot be decoded.
        """
        self._find_size(sample_id)
        height, width = self._sizes[sample_id].tolist()
        return int(self._orientations[sample_id]), (height, width)

    def __repr__(self) -> str:
        maps = ", label maps" if self.has_label_maps else ""
        objects = f", {count(self.num_objects, 'object')}" if self._known.objects is not None else ""
        classes = f" of {count(len(self.object_classes), 'class')}" if self.object_classes else ""
        return f"{type(self).__name__}({self._where!r}: {count(len(self), 'photograph')}{objects}{maps}{classes})"

    def _is_usable(self, sample_id: int) -> bool:
        """Whether the image's file can be read; its size is known then."""
        try:
            self._find_size(sample_id)
        except OSError:
            return False
        return True

    def _find_size(self, sample_id: int) -> None:
        """Read the image's header, unless that was done before.

        Raises:
            OSError: the image cannot be read.
            ValueError: it cannot be decoded, or its annotations are of another size; names it.
        """
        if self._orientations[sample_id] != _UNKNOWN:
            return
        try:
            header = _header_of(self.path(sample_id))
        except ValueError as error:
            raise ValueError(f"{self.name(sample_id)}: {error}") from error
        self._note_size(sample_id, header)

    def _note_size(self, sample_id: int, header: Header) -> None:
        """Note the image's size, and by which orientation its targets are turned.

        Raises:
            ValueError: the annotations are of an image of another size.
        """
        orientation, upright = header.orientation, (header.height, header.width)
        stored = stored_size(upright, orientation)
        told = (0, 0) if self._known.sizes is None else tuple(self._known.sizes[sample_id].tolist())
        if 0 in told or told == upright == stored:
            is_stored = self._known.are_stored
        elif told in (upright, stored):
            is_stored = told == stored
        else:
            raise ValueError(
                f"{self.name(sample_id)} has {upright[1]}x{upright[0]} pixels, and {self._where} was made for an image "
                f"of {told[1]}x{told[0]}. Give the images that were annotated, or annotations of these."
            )
        self._sizes[sample_id] = upright
        self._orientations[sample_id] = orientation if is_stored else 1  # last: other threads ask for it first

    def _in_upright_pixels(self, found: Targets, sample_ids: Ints) -> Targets:
        orientations = self._orientations[sample_ids]
        boxes, polygons, rotated, keypoints = found.boxes, found.polygons, found.rotated_boxes, found.keypoints
        if not self._known.in_parts and (orientations == 1).all() and rotated is None:
            return found
        assert boxes is not None
        rings = None if polygons is None else [list(rings) for rings in polygons]
        stop = 0
        for position, sample_id in enumerate(sample_ids.tolist()):
            start, stop = stop, stop + int(found.counts[position])
            size = int(self._sizes[sample_id, 0]), int(self._sizes[sample_id, 1])
            turn = int(orientations[position])
            scale = np.array(stored_size(size, turn)[::-1] if self._known.in_parts else (1.0, 1.0))
            boxes[start:stop] = upright_boxes(boxes[start:stop] * np.tile(scale, 2), turn, size)
            if rotated is not None:  # some formats tell no sizes by which boxes were cut
                rotated[start:stop] = upright_points(rotated[start:stop] * scale, turn, size)
                boxes[start:stop] = np.clip(boxes[start:stop], 0.0, np.tile(size[::-1], 2))
            if keypoints is not None:
                keypoints[start:stop, :, :2] = upright_points(keypoints[start:stop, :, :2] * scale, turn, size)
            if rings is not None:
                for own in rings[start:stop]:
                    own[:] = [upright_points(ring * scale, turn, size) for ring in own]
        return replace(found, polygons=rings)


def _cautions_of(known: Annotations) -> Iterator[str]:
    """What lets one think that boxes are written otherwise than they are read."""
    objects = known.objects
    if objects is None or not len(objects):
        return
    num_cut, of_all = known.faults.num_mended(CUT_AT_EDGE), f"of {len(objects):,} boxes"
    if num_cut > SUSPECT * len(objects):
        yield (
            f"{num_cut:,} {of_all} reach outside their images: do they say where their right and lower edges lie, or "
            "their upper left corners, where their format has width and height, or centres?"
        )
    if known.in_parts:
        return
    num_tiny = int((objects.boxes[:, 2:] - objects.boxes[:, :2] < 1.0).all(axis=1).sum())
    if num_tiny > SUSPECT * len(objects):
        yield f"{num_tiny:,} {of_all} are smaller than a pixel: are they in parts of the image, where pixels are read?"


def _header_of(path: str) -> Header:
    """What the file's header says, whatever the number of pixels: the loader has a limit of its own.

    Raises:
        OSError: the file cannot be read.
        ValueError: the reason, without the file's name.
    """
    with open(path, "rb") as file:
        content = file.read(_START_BYTES)
        if content.startswith(_PNG) and not (b"eXIf" in content or b"IEND" in content):
            content += file.read()  # an orientation may stand behind the pixels
        try:
            return probe(content, max_pixels=NO_LIMIT)
        except ValueError:
            return probe(content + file.read(), max_pixels=NO_LIMIT)


def names_of(paths: Sequence[str]) -> NameTable:
    """File names as sources keep them."""
    names = NameTable()
    names.extend([os.fsencode(path) for path in paths])
    return names


def shown(path: str | os.PathLike[str]) -> str:
    """A path, printable."""
    return printable(os.fspath(path))


def check_annotations(source: AnnotatedSource, progress: Callable[[int], None] = lambda done: None) -> list[Fault]:
    """The faults that were found as the source was opened, and those of its files; `MOST_LISTED` of each at most.

    Every image is read and its size compared, but not decoded; label maps are decoded.

    Args:
        source: opened with `on_error="skip"`, so that all faults are known.
        progress: called with the number of images that are checked.
    """
    found: list[Fault] = []
    first: tuple[str, str] | None = None
    for sample_id in range(len(source)):
        try:
            source.read(sample_id)
            source.turned(sample_id)
            if source.has_label_maps:
                holds = "numbers" if source.label_map(sample_id).ndim == 2 else "colours"
                first = first or (source.name(sample_id), holds)
                if holds != first[1]:
                    raise ValueError(f"its label map holds {holds}, and that of {first[0]} holds {first[1]}")
            objects = source.targets_of(np.array([sample_id]))
            for number in () if objects is None else np.flatnonzero(are_outside(objects)).tolist():
                if len(found) < MOST_LISTED:
                    found.append(Fault(source.name(sample_id), f"object {number} lies outside the image"))
        except (OSError, ValueError) as error:
            if len(found) < MOST_LISTED:
                name = source.name(sample_id)
                reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
                found.append(Fault(name, reason.removeprefix(name).lstrip(": ")))
        progress(sample_id + 1)
    return [*source.faults.listed, *found]
