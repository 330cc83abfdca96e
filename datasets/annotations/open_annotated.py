"""Which reader takes the annotations that are given, or that lie in a folder."""

import os
import re
from collections.abc import Callable, Sequence

from augpipe.datasets.annotations.annotated_source import AnnotatedSource, shown
from augpipe.datasets.annotations.coco import CocoSource
from augpipe.datasets.annotations.dota import DotaSource, are_of_dota
from augpipe.datasets.annotations.label_map_source import LabelMapSource
from augpipe.datasets.annotations.next_to import SIDE_BY_SIDE, is_coco_file
from augpipe.datasets.annotations.pairs_of_files import walk
from augpipe.datasets.annotations.panoptic import PanopticSource, is_panoptic_file
from augpipe.datasets.annotations.voc import VocSource
from augpipe.datasets.annotations.yolo import YoloSource
from augpipe.datasets.detect import Options, made
from augpipe.datasets.files.image_files import is_image_name
from augpipe.datasets.files.splits import chosen, remedy, split_of, splits_among
from augpipe.datasets.metadata.names import listed
from augpipe.sources.protocol import Source

YAML_EXTENSIONS = (".yaml", ".yml")
_ARRAY_ENDING = ".npy"
_ARRAYS_AS_MAPS = """\
import pathlib, numpy, PIL.Image
for path in pathlib.Path({folder!r}).rglob("*{ending}"):
    labels = numpy.load(path)
    assert (labels == labels.astype("uint16")).all(), f"{{path}} does not hold labels of 0 to 65535"
    PIL.Image.fromarray(labels.astype("uint16")).save(path.with_suffix(".png"))"""
_NAMES = re.compile(rb"^['\"]?(names|nc)['\"]?\s*:", re.MULTILINE)
_YAML_BYTES = 1 << 20


def open_with_annotations(images: str, annotations: str, options: Options) -> Source:
    """The source of images and annotations that are given one by one.

    Raises:
        ValueError: the annotations are of no kind that is read; or what the source raises.
        OSError: a file cannot be read.
    """
    if not os.path.exists(annotations):
        raise ValueError(f"annotations={shown(annotations)!r} does not exist. Check the spelling.")
    if os.path.isfile(annotations):
        if annotations.lower().endswith(".json"):
            return open_coco(annotations, options, images)
        raise ValueError(
            f"annotations={shown(annotations)!r} is neither a JSON file of COCO nor a folder. A YAML file of YOLO is "
            "given by itself: open_source(path)."
        )
    source = _open_pair(images, annotations, options)
    if source is not None:
        return source
    raise ValueError(
        f"annotations={shown(annotations)!r} holds no annotations: looked for .xml (Pascal VOC), .txt (YOLO, DOTA) and "
        "images (label maps) in it and in its folders."
    )


def open_coco(path: str, options: Options, images: str | None = None) -> Source:
    """The source of a JSON file of instances, or of panoptic segments.

    Raises:
        ValueError: what the source raises.
        OSError: the file cannot be read.
    """
    return made(PanopticSource if is_panoptic_file(path) else CocoSource, path, options=options, images=images)


def open_annotated_folder(path: str, options: Options) -> Source | None:
    """The source of a folder in which annotations lie next to or below the images; None where there are none.

    Raises:
        ImportError: PyYAML is needed and not installed.
        ValueError: there are several, and it is not plain which are meant; or what the source raises.
        OSError: it cannot be read.
    """
    names = set(os.listdir(path))
    for name in ("data.yaml", "dataset.yaml"):
        if name in names and _may_be_yolo(path, name):
            return made(YoloSource, os.path.join(path, name), options=options)
    if {"JPEGImages", "Annotations"} <= names:
        return made(VocSource, path, options=options)
    if {"JPEGImages", "SegmentationClass"} <= names:
        return made(VocSource, path, options=options, label_maps=True)
    found = _coco_files(path, sorted(names))
    if found:
        return open_coco(_one_of(path, found, options["split"]), {**options, "split": None}, path)
    if {"leftImg8bit", "gtFine"} <= names:
        return _open_cityscapes(path, options)
    for images, maps in SIDE_BY_SIDE:
        if {images, maps} <= names:
            source = _open_side_by_side(path, images, maps, options)
            if source is not None:
                return source
    described = {name[:-4] for name in names if name.lower().endswith(".xml")}
    if described and any(is_image_name(name) and os.path.splitext(name)[0] in described for name in names):
        return made(VocSource, path, options=options)
    split = options["split"]
    folders = [] if split is None else [name for name in names if os.path.isdir(os.path.join(path, name))]
    if split is None or not splits_among(folders):
        return None
    return open_annotated_folder(os.path.join(path, chosen(path, sorted(folders), split)), {**options, "split": None})


def open_to_check(path: str, split: str | None = None) -> AnnotatedSource | None:
    """The source of a path with annotations, or of a split of it; None where there are none.

    Its faults are counted instead of raised.

    Raises:
        ValueError: a file as a whole cannot be used; or several are meant.
        OSError: it cannot be read.
    """
    options = {"classes": None, "split": split, "columns": None, "label": None, "on_error": "skip"}
    if path.lower().endswith(".json"):
        if split is not None:
            raise ValueError(
                f"{shown(path)} is one split's file, and split={split!r} chooses in a folder. Leave it out."
            )
        return (PanopticSource if is_panoptic_file(path) else CocoSource)(path, on_error="skip")
    if path.lower().endswith(YAML_EXTENSIONS):
        return YoloSource(path, split=split, on_error="skip")
    source = open_annotated_folder(path, options) if os.path.isdir(path) else None
    return source if isinstance(source, AnnotatedSource) else None


def _may_be_yolo(path: str, name: str) -> bool:
    """Whether a YAML file names classes, and the images below it, if there are any, have files of labels.

    Settings of one's own have the name too, and class folders may come with a YAML file for YOLO's classification.
    """
    with open(os.path.join(path, name), "rb") as file:
        if _NAMES.search(file.read(_YAML_BYTES)) is None:
            return False
    stems: dict[bool, set[str]] = {True: set(), False: set()}
    for file_name in map(os.path.basename, walk(path)):
        stem, extension = os.path.splitext(file_name)
        if is_image_name(file_name) or extension.lower() == ".txt":
            stems[is_image_name(file_name)].add(stem)
    return not stems[True] or not stems[True].isdisjoint(stems[False])


def _coco_files(path: str, names: Sequence[str]) -> list[str]:
    """Those of COCO in a folder or its folder `annotations`."""
    inner = os.path.join(path, "annotations")
    files = [name for name in names if name.lower().endswith(".json")]
    if os.path.isdir(inner):
        files += [f"annotations/{name}" for name in sorted(os.listdir(inner)) if name.lower().endswith(".json")]
    return [file for file in files if is_coco_file(os.path.join(path, file))]


def _one_of(path: str, files: Sequence[str], split: str | None) -> str:
    """The file of a split; of several that of instances."""
    plain = [file for file in files if os.path.basename(file).startswith("instances")] or list(files)
    of_name = {os.path.splitext(os.path.basename(file))[0]: file for file in plain}
    if split is not None:
        return os.path.join(path, of_name[chosen(path, list(of_name), split)])
    if len(plain) == 1:
        return os.path.join(path, plain[0])
    splits = [name for name in of_name if split_of(name) is not None]
    how = f" With {remedy(splits)} one of them is opened." if len(splits) > 1 else ""
    raise ValueError(
        f"{shown(path)} holds several files of annotations ({listed(files)}). Give one: "
        f"open_source({shown(path)!r}, annotations={shown(os.path.join(path, plain[0]))!r}).{how}"
    )


def _open_cityscapes(path: str, options: Options) -> Source:
    images, maps = os.path.join(path, "leftImg8bit"), os.path.join(path, "gtFine")
    split = _chosen_folder(path, images, sorted(os.listdir(images)), options["split"])
    return made(
        LabelMapSource,
        os.path.join(images, split),
        os.path.join(maps, split),
        options={**options, "split": None, "on_error": None},
        image_suffix="_leftImg8bit",
        map_suffix="_gtFine_labelIds",
    )


def _chosen_folder(path: str, images: str, splits: Sequence[str], asked: str | None) -> str:
    """The folder of a split in that of the images; the only one where none is asked for."""
    if asked is None and len(splits) > 1:
        raise ValueError(f"{shown(path)} holds {len(splits)} splits ({listed(splits)}). Open one: {remedy(splits)}.")
    return splits[0] if asked is None else chosen(images, splits, asked)


def _open_side_by_side(path: str, images: str, maps: str, options: Options) -> Source | None:
    """A folder of images and one of label maps, or of text files, where those have the images' names."""
    image_folder, map_folder = os.path.join(path, images), os.path.join(path, maps)
    if not (os.path.isdir(image_folder) and os.path.isdir(map_folder)):
        return None
    splits = [name for name in sorted(os.listdir(image_folder)) if split_of(name) is not None]
    if splits and all(os.path.isdir(os.path.join(map_folder, name)) for name in splits):
        split = _chosen_folder(path, image_folder, splits, options["split"])
        image_folder, map_folder = os.path.join(image_folder, split), os.path.join(map_folder, split)
        options = {**options, "split": None}
    return _open_pair(image_folder, map_folder, options)


def _open_pair(images: str, annotations: str, options: Options) -> Source | None:
    """A folder of images and one of VOC's XML files, of label maps, or of text files of YOLO or DOTA."""
    if _has(annotations, lambda name: name.lower().endswith(".xml")):
        return made(VocSource, images, annotations, options=options)
    has_texts = _has(annotations, lambda name: name.lower().endswith(".txt"))
    is_among_images = has_texts and os.path.samefile(images, annotations)
    if not is_among_images and _has(annotations, is_image_name):
        return made(LabelMapSource, images, annotations, options={**options, "on_error": None})
    if has_texts:
        kind = DotaSource if are_of_dota(annotations) else YoloSource
        return made(kind, images, annotations, options=options)
    arrays = [name for name in walk(annotations) if name.endswith(_ARRAY_ENDING)]
    if arrays:
        raise ValueError(
            f"{shown(annotations)} holds arrays ({listed(sorted(arrays))}), and label maps are read from PNG files. "
            f"Write each as one:\n{_ARRAYS_AS_MAPS.format(folder=shown(annotations), ending=_ARRAY_ENDING)}"
        )
    return None


def _has(folder: str, is_one: Callable[[str], bool]) -> bool:
    """Whether a file of this name lies in a folder or below it."""
    return any(map(is_one, walk(folder)))
