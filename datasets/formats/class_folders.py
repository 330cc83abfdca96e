"""What is refused and said of class folders, wherever they lie: splits, loose files, files that are not read."""

import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from augpipe.datasets.files.splits import remedy, splits_among
from augpipe.datasets.metadata.names import listed, printable
from augpipe.validation.plural import count

_UNREAD = frozenset(
    ".heic .heif .avif .jxl .jp2 .j2k .dng .cr2 .cr3 .nef .arw .raf .orf .rw2 .psd .exr .ppm .pgm .pbm .tga".split()
)
_MAPS = re.compile("mask|annot|label|segm", re.IGNORECASE)
"""What names of folders of label maps have in them."""
_DOCUMENTS = frozenset(("readme", "license", "licence", "copying", "authors", "changelog", "version", "makefile"))


class Unread:
    """Counts files that look like photographs, by their names, and are not read."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[int, str]] = {}
        """Suffix -> how many, and the first of them."""

    def add(self, name: str) -> None:
        """Count a file, if it is one of these; its name may have folders before it."""
        stem, suffix = os.path.splitext(os.path.basename(name))
        suffix = suffix.lower()
        if suffix in _UNREAD or (not suffix and stem.lower() not in _DOCUMENTS):
            num, first = self._found.get(suffix, (0, name))
            self._found[suffix] = num + 1, first

    def add_all(self, names: Iterable[str]) -> None:
        """Count several."""
        for name in names:
            self.add(name)

    def in_words(self) -> list[str]:
        """`3 files of .heic ('cat/1.heic')`, for each kind."""
        return [
            f"{count(num, 'file')} {f'of {suffix}' if suffix else 'without a suffix'} ({printable(first)!r})"
            for suffix, (num, first) in sorted(self._found.items())
        ]


def refuse_splits(where: str, folders: Sequence[str], classes: Sequence[str] | None) -> None:
    """Refuse folders of photographs that are splits by their names, unless they are among the classes given.

    Raises:
        ValueError: they are; says how one is opened.
    """
    splits = sorted(splits_among(folders))
    if not splits or set(splits) <= set(classes or ()):
        return
    num = "one split" if len(splits) == 1 else f"{len(splits)} splits"
    raise ValueError(
        f"{printable(where)} holds {num}, {listed(splits)}, and splits are not classes. Open one: {remedy(splits)} (of "
        f"Loader and open_source), or one of their folders, as {printable(os.path.join(where, splits[-1]))!r}."
    )


def refuse_mixture(where: str, loose: Sequence[str], folders: Sequence[str], classes: Sequence[str] | None) -> None:
    """Refuse photographs next to folders of photographs, unless the classes are given: which are meant is not plain.

    Raises:
        ValueError: there are both; has the remedy for either.
    """
    if loose and classes is None:
        beside = "next to it" if len(loose) == 1 else "next to them"
        raise ValueError(
            f"{printable(where)} holds {count(len(loose), 'photograph')} ({listed(sorted(loose))}) and {beside} "
            f"{count(len(folders), 'folder')} of photographs ({listed(folders)}). For class folders, move the "
            "photographs into them or away, or pass classes=[...], which leaves them out; for a flat folder, move its "
            "folders away."
        )


def left_beside(loose: Sequence[str]) -> list[str]:
    """What is said of photographs next to class folders."""
    return [f"{count(len(loose), 'photograph')} next to the class folders ({listed(sorted(loose))})"] if loose else []


def caution_of_numbers(order: Sequence[str]) -> list[str]:
    """What is said of class folders called 0, 1, ..., 10, where a label is another number than its folder's name."""
    if not all(name.isdecimal() and name.isascii() for name in order):
        return []
    by_number = sorted(order, key=int)
    for label, (name, expected) in enumerate(zip(order, by_number, strict=True)):
        if name != expected:
            return [
                f"numbered class folders are sorted as text, as in torchvision: label {label} is {name!r}; pass "
                "classes=[...] for another order"
            ]
    return []


def caution_of_maps(where: str, found: Mapping[str, Sequence[bytes]]) -> list[str]:
    """What is said where a class folder may hold the label maps of another one, by its name and those of its files.

    Args:
        where: the folder that holds them.
        found: class folder -> its files, below `where`.
    """
    photographs = {name: {_stem(file) for file in files} for name, files in found.items() if not _MAPS.search(name)}
    for folder in filter(_MAPS.search, found):
        files = found[folder]
        some = [_stem(files[place]) for place in (0, len(files) // 2, -1)]
        named = [other for other, stems in photographs.items() if all(_is_named_for(one, stems) for one in some)]
        if len(named) == 1:  # files of all classes may be numbered alike
            images, maps = (printable(os.path.join(where, name)) for name in (named[0], folder))
            return [
                f"files of the class {printable(folder)!r} are named like those of {printable(named[0])!r}; if they "
                f"are its label maps, give open_source({images!r}, annotations={maps!r})"
            ]
    return []


def caution_of_maps_among(where: str, names: Iterable[bytes]) -> list[str]:
    """What is said of files that may be label maps of others next to them, as `1_mask.png` of `1.jpg`, or in the
    folder next to theirs, as `cat/masks/1.png` of `cat/images/1.jpg`.

    Args:
        where: the folder that holds them.
        names: of the files, below `where`.
    """
    names = list(names)
    return [*_caution_of_folders(where, names), *_caution_of_endings(names)]


def _caution_of_folders(where: str, names: Sequence[bytes]) -> list[str]:
    maps = [name for name in names if b"/mask" in name]
    stems = {os.path.splitext(name)[0] for name in names if b"/image" in name} if maps else set()
    pairs = []
    for name in maps:
        folder, file = os.path.split(name)
        above, inner = os.path.split(folder)
        images = {b"mask": b"image", b"masks": b"images"}.get(inner)
        if images and os.path.join(above, images, os.path.splitext(file)[0]) in stems:
            pairs.append((name, os.path.join(above, images), folder))
    if not pairs:
        return []
    first, *pair = (printable(os.fsdecode(one)) for one in pairs[0])
    paths = [os.path.join(printable(where), one) for one in pair]
    return [
        f"{count(len(pairs), 'file')} in folders of label maps next to those of images: read as photographs, as "
        f"{first!r}; if they are label maps, give open_source({paths[0]!r}, annotations={paths[1]!r}), of each class "
        "by itself"
    ]


def _caution_of_endings(names: Sequence[bytes]) -> list[str]:
    maps = [name for name in names if b"_mask" in name]
    stems = {os.path.splitext(name)[0] for name in names} if maps else set()
    maps = [name for name in maps if name.rpartition(b"_mask")[0] in stems]
    if not maps:
        return []
    first = printable(os.fsdecode(maps[0]))
    return [
        f"{count(len(maps), 'file')} named like a photograph with _mask behind it: read as photographs, as {first!r}; "
        "if they are label maps, move them away"
    ]


def _stem(path: bytes) -> str:
    return os.path.splitext(os.path.basename(os.fsdecode(path)))[0]


def _is_named_for(name: str, images: Collection[str]) -> bool:
    """Whether it is an image's name, or begins with one that ends there."""
    ends = (end for end in range(len(name), 0, -1) if not name[end : end + 1].isalnum())
    return any(name[:end] in images for end in ends)
