"""Files that belong together by their names, in two folders or in one."""

import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence

from augpipe.datasets.annotations.annotated_source import shown
from augpipe.datasets.annotations.faults import Faults
from augpipe.datasets.files.image_files import is_hidden, read_file
from augpipe.validation.plural import count

_MAX_BYTES = 16 << 20
"""Of an XML file, a file of labels or a list."""


def files_below(folder: str, is_wanted: Callable[[str], bool]) -> list[str]:
    """Paths below a folder, at any depth, of files whose name is wanted, sorted by bytes.

    Raises:
        ValueError: there is no such folder.
        OSError: it cannot be listed.
    """
    if not os.path.isdir(folder):
        raise ValueError(f"there is no folder {shown(folder)}.")
    return sorted(filter(is_wanted, walk(folder)), key=os.fsencode)


def walk(folder: str) -> Iterator[str]:
    """Paths below a folder, at any depth, of the files that are not hidden; links are followed, but not in circles."""
    pending: list[tuple[str, tuple[tuple[int, int], ...]]] = [("", ())]
    while pending:
        below, above = pending.pop()
        status = os.stat(os.path.join(folder, below))
        identity = status.st_dev, status.st_ino
        if identity in above:
            continue
        with os.scandir(os.path.join(folder, below)) as entries:
            for entry in entries:
                if is_hidden(entry.name):
                    continue
                path = os.path.join(below, entry.name)
                if entry.is_dir():
                    pending.append((path, (*above, identity)))
                elif entry.is_file() or entry.is_symlink():  # no pipe: opening one would wait for ever
                    yield path


def by_stem(paths: Sequence[str], suffix: str = "") -> dict[str, str]:
    """Path without its extension, and without a suffix before that -> path.

    Raises:
        ValueError: two files have the same.
    """
    found: dict[str, str] = {}
    for path in paths:
        stem = os.path.splitext(path)[0]
        if not stem.endswith(suffix):
            continue
        other = found.setdefault(stem[: len(stem) - len(suffix)], path)
        if other != path:
            raise ValueError(f"{shown(other)} and {shown(path)} have the same name except for its end. Move one away.")
    return found


def paired(
    root: str, files: Mapping[str, str], others: Mapping[str, str], wanted: Sequence[str] | None, faults: Faults
) -> list[str]:
    """The names of the images that have an annotation, sorted; those that a list names must be there."""
    if wanted is not None:
        for name in wanted:
            if name not in files or name not in others:
                what = "image" if name not in files else "annotation"
                faults.refuse(shown(root), f"the split's list names {name!r}, which has no {what}", "image")
        return sorted({name for name in wanted if name in files and name in others}, key=os.fsencode)
    for name in sorted(files.keys() - others.keys()):
        faults.leave_out(shown(os.path.join(root, files[name])), "without an annotation", "image")
    for name in sorted(others.keys() - files.keys()):
        faults.leave_out(shown(os.path.join(root, others[name])), "without an image", "annotation")
    found = sorted(files.keys() & others.keys(), key=os.fsencode)
    if not found:
        raise ValueError(
            f"{shown(root)} holds {count(len(files), 'image')} and {count(len(others), 'annotation')}, and none have "
            "the same name. Give both folders: open_source(images, annotations=...)."
        )
    return found


def read_small(path: str) -> bytes:
    """A file that describes an image or a data set.

    Raises:
        ValueError: it is huge, or no plain file; names it.
        OSError: it cannot be read.
    """
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        raise ValueError(f"{shown(path)} is not a plain file.")
    if status.st_size > _MAX_BYTES:
        raise ValueError(f"{shown(path)} has more than {_MAX_BYTES >> 20} MB. Is it a file of annotations?")
    return read_file(path)


def read_lines(path: str) -> list[str]:
    """The lines of a text file that are not blank.

    Raises:
        ValueError: it is not UTF-8, or is huge; names it.
        OSError: it cannot be read.
    """
    try:
        text = read_small(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"{shown(path)} is not UTF-8.") from None
    if "\0" in text:
        raise ValueError(f"{shown(path)} holds a byte 0, and is not text.")
    return [line for line in text.splitlines() if line.strip()]
