"""Pascal VOC's XML, an image a file, as LabelImg, CVAT and Roboflow write it too."""

import os
from collections.abc import Mapping, Sequence
from typing import Literal
from xml.etree import ElementTree

import numpy as np

from augpipe.datasets.annotations.annotated_source import AnnotatedSource, Annotations, names_of, shown
from augpipe.datasets.annotations.faults import Faults, OnError
from augpipe.datasets.annotations.label_maps import MapFiles
from augpipe.datasets.annotations.object_list import ObjectList
from augpipe.datasets.annotations.pairs_of_files import by_stem, files_below, paired, read_lines, read_small
from augpipe.datasets.files.image_files import is_image_name
from augpipe.datasets.files.splits import chosen, other_splits, remedy
from augpipe.datasets.metadata.names import listed, printable

_FLAGS = ("difficult", "truncated", "occluded")
NOT_AN_OUTLINE = "with a <polygon> that has no x and y of three corners, read without it"
_OBJECTS = 1 << 20
"""More than one image has: numbers of objects count image * this + place."""


class VocSource(AnnotatedSource):
    """The images of a Pascal VOC data set, sorted by name.

    Three layouts are read: VOC's own folders (`JPEGImages`, `Annotations`, `ImageSets`), a folder of images with the
    XML files next to them, and two folders, `VocSource(images, annotations)`. Objects have the fields `difficult`,
    `truncated` and `occluded`. VOC counts pixels from 1, and `xmax` is the last pixel inside, so the left edge is
    `xmin - 1` and the right one `xmax`. If any coordinate of the set is 0, it counts from 0, and `xmin` and `xmax` are
    the edges themselves. `notes` and the log line say which was found; `first_pixel` decides. An object's `<polygon>`,
    as Roboflow and LabelMe write it, is its outline: a corner is the middle of its pixel where pixels count from 1.

    Where an image has an orientation (EXIF), the file's `size` says whether coordinates count in the stored or the
    upright pixels; where it fits both, in the stored ones.

    Splits number the classes alike, and count pixels alike: by the XML files of all of them.

    Args:
        path: the data set's folder, or that of the images.
        annotations: the folder of the XML files, where it is another one.
        split: a list in `ImageSets`: "train", "val", ...; needed where there are several.
        classes: the classes and their order; the names found in any split, sorted, if left out. Objects of other
            classes are left out and counted.
        label_maps: whether to read `SegmentationClass` instead of boxes; the lists are those of segmentation.
        first_pixel: 1 or 0, the number of the first pixel; found by the coordinates if left out.
        on_error: "skip" leaves out objects that cannot be used, and counts them.

    Raises:
        ValueError: a file or an object in it cannot be used; names it.
        OSError: a file cannot be read.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        annotations: str | os.PathLike[str] | None = None,
        *,
        split: str | None = None,
        classes: Sequence[str] | None = None,
        label_maps: bool = False,
        first_pixel: Literal[0, 1] | None = None,
        on_error: OnError = "raise",
    ) -> None:
        if first_pixel not in (0, 1, None):
            raise ValueError(f"first_pixel={first_pixel!r:.40}, and pixels count from 0 or from 1. Choose one.")
        root = os.fspath(path)
        images = os.path.join(root, "JPEGImages")
        images = images if os.path.isdir(images) else root
        folder = os.fspath(annotations) if annotations is not None else os.path.join(root, "Annotations")
        folder = folder if os.path.isdir(folder) else images
        faults = Faults(on_error)
        files = by_stem(files_below(images, is_image_name))
        listed_names = _listed(root, "Segmentation" if label_maps else "Main", split, files)
        if label_maps:
            maps = by_stem(files_below(os.path.join(root, "SegmentationClass"), is_image_name))
            stems = paired(root, files, maps, listed_names, faults)
            labels = names_of([os.path.join(root, "SegmentationClass", maps[stem]) for stem in stems])
            known = Annotations(
                where=shown(root), maps=MapFiles(names=labels), classes=tuple(classes or ()), faults=faults
            )
        else:
            xml = by_stem(_xml_below(folder))
            stems = paired(root, files, xml, listed_names, faults)
            others = [] if listed_names is None else [xml[stem] for stem in sorted(set(xml).difference(stems))]
            others += [os.path.join(other, name) for other in other_splits(folder) for name in _xml_below(other)]
            known = _read_all(folder, [xml[stem] for stem in stems], others, classes, first_pixel, faults)
        super().__init__(images, names_of([files[stem] for stem in stems]), known)


def _xml_below(folder: str) -> list[str]:
    return files_below(folder, lambda name: name.lower().endswith(".xml"))


def _listed(root: str, kind: str, split: str | None, files: Mapping[str, str]) -> list[str] | None:
    """The names in `files` of the images of a split, as `ImageSets` lists them; None where there is no such folder."""
    folder = os.path.join(root, "ImageSets", kind)
    if not os.path.isdir(folder):
        if split is not None:
            raise ValueError(f"split={split!r} needs lists in {shown(folder)}, and there is no such folder.")
        return None
    splits = [name[:-4] for name in sorted(os.listdir(folder)) if name.endswith(".txt") and "_" not in name]
    if split is None and len(splits) > 1:
        raise ValueError(f"{shown(root)} has {len(splits)} splits ({listed(splits)}). Open one: {remedy(splits)}.")
    if not splits:
        return None
    name = splits[0] if split is None else split if split in splits else chosen(folder, splits, split)
    names = [line.split()[0] for line in read_lines(os.path.join(folder, f"{name}.txt"))]
    whole = {file: stem for stem, file in files.items()}  # some lists name files with their ends
    return [name if name in files else whole.get(name, name) for name in names]


def _read_all(
    folder: str,
    files: Sequence[str],
    others: Sequence[str],
    classes: Sequence[str] | None,
    first_pixel: Literal[0, 1] | None,
    faults: Faults,
) -> Annotations:
    """The objects of the files; those of the other splits' decide with them on classes and on the first pixel."""
    paths = [os.path.join(folder, file) for file in files]
    sizes = np.zeros((len(paths), 2), np.int32)
    rows: list[tuple[int, int, str, list[float], list[int], list[float]]] = []
    for sample, path in enumerate(paths):
        root = _parsed(path)
        sizes[sample] = _size(root)
        for place, element in enumerate(root.findall("object")):
            number = sample * _OBJECTS + place
            ring = _ring(element)
            if ring is None:
                faults.mend(_where(paths, number), NOT_AN_OUTLINE)
            try:
                rows.append((sample, number, *_object(element), ring or []))
            except ValueError as error:
                faults.refuse(_where(paths, number), str(error))
    counted = [(name, box, _where(paths, number)) for _, number, name, box, _, _ in rows]
    if classes is None or first_pixel is None:
        counted += _of_other_splits([os.path.join(folder, file) for file in others])
    names = sorted({name for name, _, _ in counted}, key=os.fsencode) if classes is None else list(classes)
    labels = {name: label for label, name in enumerate(names)}
    notes = []
    first = first_pixel
    if first is None:
        zero = next((where for _, box, where in counted if min(box) == 0), None)
        first = 1 if zero is None else 0
        why = "no coordinate is 0" if zero is None else f"a coordinate is 0: {zero}"
        notes = [f"boxes count pixels from {first} ({why})"] if rows else []
    objects = ObjectList(faults, lambda number: _where(paths, number), fields=dict.fromkeys(_FLAGS, np.int64))
    for sample, number, name, (left, top, right, bottom), flags, ring in rows:
        if name in labels:
            rings = [[at - first / 2 for at in ring]] if ring else []
            objects.add(sample, number, labels[name], (left - first, top - first, right, bottom), rings, fields=flags)
        else:
            faults.leave_out(_where(paths, number), "of classes that are not among those given")
    limits = np.where(sizes > 0, sizes, np.inf)[:, ::-1]
    return Annotations(
        where=shown(folder),
        objects=objects.table(len(paths), limits),
        classes=tuple(names),
        sizes=sizes,
        notes=notes,
        faults=faults,
    )


def _of_other_splits(paths: Sequence[str]) -> list[tuple[str, list[float], str]]:
    """Class, box and place of the objects that can be read; what is wrong with the others is told where their split
    is opened."""
    found = []
    for sample, path in enumerate(paths):
        try:
            elements = _parsed(path).findall("object")
        except (ValueError, OSError):
            continue
        for place, element in enumerate(elements):
            try:
                name, box, _ = _object(element)
            except ValueError:
                continue
            found.append((name, box, _where(paths, sample * _OBJECTS + place)))
    return found


def _where(paths: Sequence[str], number: int) -> str:
    return f"{shown(paths[number // _OBJECTS])}, object {number % _OBJECTS}"


def _parsed(path: str) -> ElementTree.Element:
    """The root of a file that declares no types and entities: those can blow up a small file.

    Raises:
        ValueError: it is not such a file; names it.
    """
    raw = read_small(path)
    if b"<!DOCTYPE" in raw or b"<!ENTITY" in raw or b"\0" in raw:  # with a 0 byte it is UTF-16, and may hide them
        raise ValueError(f"{shown(path)} declares a document type, or is not UTF-8. Write it without, as VOC does.")
    try:
        root = ElementTree.fromstring(raw)
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise ValueError(f"{shown(path)} is not XML: {error}. Is the file whole?") from None
    if root.tag != "annotation":
        raise ValueError(f"{shown(path)} begins with <{printable(root.tag):.40}>, and VOC's files with <annotation>.")
    return root


def _size(root: ElementTree.Element) -> tuple[int, int]:
    """Height and width; 0 where the file tells none."""
    try:
        height, width = (float(root.findtext(f"size/{side}") or 0) for side in ("height", "width"))
    except ValueError:
        return 0, 0
    is_size = all(1 <= side < 1 << 31 for side in (height, width))
    return (int(height), int(width)) if is_size else (0, 0)


def _ring(element: ElementTree.Element) -> list[float] | None:
    """x and y in turn of its outline's corners; none of an object without one, and None where they cannot be one."""
    outline = element.find("polygon")
    if outline is None:
        return []
    points = outline.findall("pt")
    if points:
        texts = [point.findtext(axis) for point in points for axis in "xy"]
    else:
        by_name = {child.tag: child.text for child in outline}
        texts = [by_name.get(f"{axis}{nth}") for nth in range(1, 1 + (len(by_name) + 1) // 2) for axis in "xy"]
    try:
        ring = [float(text or "") for text in texts]
    except ValueError:
        return None
    return ring if len(ring) >= 6 else None


def _object(element: ElementTree.Element) -> tuple[str, list[float], list[int]]:
    """Its class, xmin, ymin, xmax, ymax, and flags.

    Raises:
        ValueError: the reason alone.
    """
    name = (element.findtext("name") or "").strip()
    if not name:
        raise ValueError("it has no name")
    texts = [element.findtext(f"bndbox/{edge}") for edge in ("xmin", "ymin", "xmax", "ymax")]
    try:
        box = [float(text or "") for text in texts]
    except ValueError:
        raise ValueError(f"its bndbox is {texts!r:.100}, and takes xmin, ymin, xmax and ymax") from None
    return name, box, [int((element.findtext(flag) or "").strip() in ("1", "true", "True")) for flag in _FLAGS]
