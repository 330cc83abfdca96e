"""DOTA's text files, an image a file: rotated boxes by their corners in pixels, with the names of their classes."""

import os
from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from augpipe.datasets.annotations.annotated_source import AnnotatedSource, Annotations, names_of, shown
from augpipe.datasets.annotations.faults import Faults, OnError
from augpipe.datasets.annotations.object_list import ObjectList
from augpipe.datasets.annotations.pairs_of_files import by_stem, files_below, paired, read_lines
from augpipe.datasets.files.image_files import is_image_name
from augpipe.datasets.files.splits import other_splits

_FOLDERS = ("labelTxt", "annfiles", "labels")
_HEAD = ("imagesource", "gsd")
_LINES = 1 << 20
"""More than a file has: numbers of objects count image * this + line."""


class DotaSource(AnnotatedSource):
    """The images of a DOTA data set, sorted by name, with the rotated boxes of their text files.

    A line is `x1 y1 x2 y2 x3 y3 x4 y4 class difficult`, in pixels; the last may be missing. Lines that begin with
    `imagesource` or `gsd` are passed over. Objects have the field `difficult`. The box along the axes is that around
    the corners, cut at the image's edge.

    Args:
        path: the folder with `images` and `labelTxt` (or `annfiles`) in it; or that of the images.
        labels: the folder of the text files, where it is another one.
        classes: the classes and their order; the names found, sorted, if left out, those in the folders of other
            splits too, as `val/labelTxt` next to `train/labelTxt`. Objects of other classes are left out and counted.
        on_error: "skip" leaves out objects that cannot be used, and counts them.

    Raises:
        ValueError: a file or a line cannot be used; names it.
        OSError: a file cannot be read.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        labels: str | os.PathLike[str] | None = None,
        *,
        classes: Sequence[str] | None = None,
        on_error: OnError = "raise",
    ) -> None:
        root = os.fspath(path)
        images = os.path.join(root, "images")
        images = images if os.path.isdir(images) else root
        near = [os.path.join(root, name) for name in _FOLDERS]
        folder = os.fspath(labels) if labels is not None else next(filter(os.path.isdir, near), images)
        faults = Faults(on_error)
        files = by_stem(files_below(images, is_image_name))
        texts = by_stem(_texts_below(folder))
        stems = paired(root, files, texts, None, faults)
        others = [os.path.join(other, name) for other in other_splits(folder) for name in _texts_below(other)]
        known = _read_all([os.path.join(folder, texts[stem]) for stem in stems], others, shown(folder), classes, faults)
        super().__init__(images, names_of([files[stem] for stem in stems]), known)


def are_of_dota(folder: str) -> bool:
    """Whether the first text file with lines, in a folder or below it, is DOTA's.

    Raises:
        ValueError: it is not UTF-8, or is huge; names it.
        OSError: it cannot be read.
    """
    for name in _texts_below(folder):
        lines = read_lines(os.path.join(folder, name))
        if lines:
            words = lines[0].split()
            return lines[0].startswith(_HEAD) or (len(words) > 8 and not _is_number(words[8]))
    return False


def _texts_below(folder: str) -> list[str]:
    return files_below(folder, lambda name: name.lower().endswith(".txt"))


def _read_all(
    paths: Sequence[str], others: Sequence[str], where: str, classes: Sequence[str] | None, faults: Faults
) -> Annotations:
    """The objects of the files; those of other splits' decide with them on classes."""

    def place(number: int) -> str:
        return f"{shown(paths[number // _LINES])}, line {number % _LINES + 1}"

    rows: list[tuple[int, int, list[float], str, int]] = []
    for sample, path in enumerate(paths):
        for number, line in enumerate(read_lines(path), sample * _LINES):
            if line.startswith(_HEAD):
                continue
            try:
                rows.append((sample, number, *_object(line)))
            except ValueError as error:
                faults.refuse(place(number), str(error))
    if classes is None:
        names = sorted({name for *_, name, _ in rows} | _names_of_other_splits(others), key=os.fsencode)
    else:
        names = list(classes)
    labels = {name: label for label, name in enumerate(names)}
    objects = ObjectList(faults, place, fields={"difficult": np.int64})
    for sample, number, corners, name, difficult in rows:
        if name in labels:
            objects.add(sample, number, labels[name], None, [corners], fields=[difficult])
        else:
            faults.leave_out(place(number), "of classes that are not among those given")
    return Annotations(
        where=where,
        objects=objects.table(len(paths), np.full((len(paths), 2), np.inf), rotated=True),
        classes=tuple(names),
        faults=faults,
    )


def _names_of_other_splits(paths: Sequence[str]) -> set[str]:
    """The classes of lines that can be read; what is wrong with the others is told where their split is opened."""
    names = set()
    for path in paths:
        try:
            lines = read_lines(path)
        except (ValueError, OSError):
            continue
        for line in lines:
            with suppress(ValueError):
                names.add(_object(line)[1])
    return names


def _object(line: str) -> tuple[list[float], str, int]:
    """Its corners, class, and how difficult it is, 0 if that is not said.

    Raises:
        ValueError: the reason alone.
    """
    words = line.split()
    try:
        corners = [float(word) for word in words[:8]]
    except ValueError:
        corners = []
    if len(corners) < 8 or len(words) < 9:
        raise ValueError(f"{line.strip()[:60]!r} is not x1 y1 x2 y2 x3 y3 x4 y4 class difficult")
    *name, last = words[8:]
    return (corners, " ".join(name), int(last)) if name and last.isdecimal() else (corners, " ".join(words[8:]), 0)


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True
