"""What is said of a folder of images that is opened alone, and whose annotations lie next to it."""

import json
import mmap
import os
import re
from collections.abc import Iterator, Sequence
from functools import partial

from augpipe.datasets.annotations.annotated_source import shown

SIDE_BY_SIDE = (
    *(("images", other) for other in ("masks", "annotations", "labels", "labelTxt", "annfiles", "mask")),
    ("image", "mask"),
    ("img_dir", "ann_dir"),
)
"""Folders of images and of label maps or text files that lie side by side."""
_OTHERS = (
    *SIDE_BY_SIDE,
    ("JPEGImages", "Annotations"),
    ("JPEGImages", "SegmentationClass"),
    ("imgs", "masks"),
    ("img", "mask"),
    ("image", "label"),
)
_BEHIND = ("_masks", "_mask", "_labels", "_annotations", "annot")
"""What may stand behind the name of a folder of images in that of its annotations."""
_ENDINGS = (".txt", ".xml", *(mask + end for end in (".png", ".gif", ".bmp", ".tif") for mask in ("", "_mask")))
"""What the names of an image's annotations end with."""
_LINE = re.compile(rb"[ \t]*\d+([ \t]+(0?\.\d+|[01](\.0*)?|\d(\.\d*)?e-\d+)){4}([ \t\r\n]|$)")
"""Of YOLO, a class and at least four parts of the image; captions have the image's name, too."""
_COCO_START = re.compile(rb'\s*\{\s*"(info|images|annotations|categories|licenses|type)"\s*:')
_LABELME = re.compile(rb'\s*\{\s*"version".*"shapes"\s*:', re.DOTALL)
_START_BYTES = 4096
_NUM_LEVELS = 3
"""How many of the last folders of a path may have another one next to them."""
NUM_LOOKED_AT = 100
"""How many of the first images are looked at."""
_NUM_NAMES = 10
"""A JSON file is searched for the names of so many images."""
_NAMES_BYTES = 64 << 20
"""A JSON file is searched for names and objects up to here."""
_NUM_FILES = 20
"""At most so many JSON files of a folder are opened."""


def caution_of_annotations(root: str, images: Sequence[str]) -> list[str]:
    """What is said where annotations of images lie next to them.

    Args:
        root: the folder that was opened.
        images: paths of its first images, in it or below it.
    """
    stems = [os.path.splitext(os.path.relpath(image, root))[0] for image in images]
    try:
        found = _annotations(root, stems, [os.path.basename(image) for image in images])
        unread = None if found else next(filter(partial(_is_of_labelme, root), stems), None)
    except OSError:  # what cannot be read is not what was opened
        return []
    if unread is not None:
        file = shown(f"{unread}.json")
        return [f"LabelMe's files of its images, as {file!r}, are not read: write them as one JSON file of COCO"]
    if found is None:
        return []
    how = f"open_source({shown(root)!r}, annotations={shown(found)!r})"
    return [f"its annotations, which lie next to it, are not read: {how} reads them"]


def _annotations(root: str, stems: Sequence[str], names: Sequence[str]) -> str | None:
    """The folder or the file of annotations; None where there are none."""
    for folder in filter(os.path.isdir, _folders_next_to(root)):
        if any(os.path.isfile(os.path.join(folder, stem + end)) for stem in stems for end in _ENDINGS):
            return folder
    if any(_begins(os.path.join(root, f"{stem}.txt"), _LINE) for stem in stems):
        return root
    files = _coco_files_next_to(root)
    return next((file for file in files if _has_objects_of(file, names[:_NUM_NAMES])), None)


def _is_of_labelme(root: str, stem: str) -> bool:
    return _begins(os.path.join(root, f"{stem}.json"), _LABELME)


def _folders_next_to(root: str) -> Iterator[str]:
    """Where annotations of the images in a folder may lie; as it is written, and from the top."""
    for path in dict.fromkeys((os.path.normpath(root), os.path.abspath(root))):
        before, inner = path, ""
        for _ in range(_NUM_LEVELS):
            before, name = os.path.split(before)
            for other in (*(other for images, other in _OTHERS if images == name), *(name + end for end in _BEHIND)):
                yield os.path.join(before, other, inner).rstrip(os.sep)
            inner = os.path.join(name, inner)


def _coco_files_next_to(root: str) -> Iterator[str]:
    """Those in the folder above, and in the folders `annotations` there and one further up: first the folder's own by
    name, and those of instances."""
    path = root if os.path.dirname(os.path.normpath(root)) else os.path.abspath(root)
    above, own = os.path.split(os.path.normpath(path))
    further = os.path.dirname(above)
    folders = [os.path.join(above, "annotations"), above, os.path.join(further, "annotations")]
    if os.path.basename(above) == "images":
        folders.append(further)
    for folder in filter(os.path.isdir, folders):
        names = [name for name in os.listdir(folder) if name.lower().endswith(".json")]
        names.sort(key=lambda name: (own not in name, not name.startswith("instances"), name))
        for name in names[:_NUM_FILES]:
            if is_coco_file(os.path.join(folder, name)):
                yield os.path.join(folder, name)


def is_coco_file(path: str) -> bool:
    """Whether a JSON file begins as COCO's do."""
    return _begins(path, _COCO_START)


def _begins(path: str, pattern: re.Pattern[bytes]) -> bool:
    """Whether there is such a file, and how it begins."""
    if not os.path.isfile(path):
        return False
    with open(path, "rb") as file:
        return pattern.match(file.read(_START_BYTES)) is not None


def _has_objects_of(path: str, names: Sequence[str]) -> bool:
    """Whether a JSON file of COCO begins with objects and the names of any of these images among others."""
    ends = {json.dumps(name, ensure_ascii=is_ascii)[1:].encode() for name in names for is_ascii in (True, False)}
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        if content.find(b'"bbox"', 0, _NAMES_BYTES) < 0 and content.find(b'"segmentation"', 0, _NAMES_BYTES) < 0:
            return False
        return any(content.find(before + end, 0, _NAMES_BYTES) >= 0 for end in ends for before in (b'"', b"/"))
