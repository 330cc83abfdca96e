"""A folder of class folders, or a flat folder of images."""

import os
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from augpipe.checks.plural import count
from augpipe.datasets.files.image_files import EXTENSIONS, FileSource, is_image_name
from augpipe.datasets.files.patterns import SPLITS
from augpipe.datasets.formats.file_list import refuse_unread_lists
from augpipe.datasets.formats.folder_index import FolderIndex
from augpipe.datasets.metadata.labelled_source import check_sample_id
from augpipe.datasets.metadata.names import NameTable, listed, printable


class FolderSource(FileSource):
    """The images below `root`, as `root/CLASS/.../photo.jpg` or as `root/photo.jpg`.

    Class folders, sorted by name, are the labels 0, 1, ...; files are found at any depth inside each and sorted by
    their path. Both sorts compare bytes, so that every machine gives the same ids whatever its locale. Without class
    folders the images that lie in `root` itself are taken, all with label -1. Where there are both, the class
    folders win and a warning names the images left out.

    Files are taken by their extension (`files.EXTENSIONS`, in any case). What starts with a dot is ignored. Links are
    followed, except those that lead back to a folder that they lie in.

    The index that `augpipe index` has written into the folder is made use of.

    Args:
        root: the folder.
        classes: the classes and their order, instead of the folders found: give a validation set the training
            set's `classes`, and labels agree even where it lacks some of them.

    Raises:
        ValueError: there is no such folder, no image in it, a class without any, a folder not in `classes`, class
            folders within train, val or test, or a list of labels in a folder without class folders.
        OSError: a folder cannot be listed.
    """

    def __init__(self, root: str | os.PathLike[str], *, classes: Sequence[str] | None = None) -> None:
        path = os.fspath(root)
        _check_is_folder(path)
        self._index: FolderIndex | None = None
        loose, folders, others = _look_into(path)
        names = NameTable()
        found = {folder: files for folder in folders if (files := sorted(_walk(path, folder)))}
        if len(found) < 2:
            refuse_unread_lists(path, others)
        if not found and loose:
            names.extend(sorted(map(os.fsencode, loose)))
            super().__init__(path, names, np.full(len(names), -1, dtype=np.int64), classes or ())
            self._open_index()
            return
        if not found:
            raise ValueError(_nothing_found(path, folders, others))
        if classes is None:
            _refuse_splits(path, found)
        if loose:
            warnings.warn(
                f"{printable(path)} holds class folders, and {count(len(loose), 'photograph')} beside them, left out: "
                f"{listed(sorted(loose))}. Move them into a class folder, or away.",
                stacklevel=2,
            )
        order = _class_order(path, folders, found.keys(), classes)
        for name in order:
            names.extend(found.get(name, ()))
        labels = np.repeat(np.arange(len(order)), [len(found.get(name, ())) for name in order])
        super().__init__(path, names, labels, [printable(name) for name in order])
        self._open_index()

    @property
    def knows_sizes(self) -> bool:
        """Whether there is an index."""
        return self._index is not None

    def size(self, sample_id: int) -> tuple[int, int]:
        """Height and width of a JPEG, as the index has them; 0 where it has none."""
        assert self._index is not None
        check_sample_id(sample_id, len(self))
        return self._index.size(sample_id)

    def row_index(self, sample_id: int) -> bytes | memoryview:
        """Where rows begin in a JPEG's codes; see `decoding.row_index`. Empty where that is not known."""
        check_sample_id(sample_id, len(self))
        return self._index.row_index(sample_id) if self._index is not None else b""

    def _open_index(self) -> None:
        self._index = FolderIndex.open(self._root)
        if self._index is not None:
            self._index.match(self.names)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_index": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open_index()


def _check_is_folder(path: str) -> None:
    if os.path.isdir(path):
        return
    if os.path.exists(path):
        raise ValueError(
            f"{printable(path)} is a file, and FolderSource takes a folder of photographs. "
            "Give the folder that it lies in, or use augpipe.datasets.open.open_source, which also takes files."
        )
    raise ValueError(
        f"{printable(path)} does not exist; FolderSource takes a folder of photographs. "
        f"Check the spelling (the current folder is {printable(os.getcwd())})."
    )


def _look_into(path: str) -> tuple[list[str], list[str], list[str]]:
    """The images, the folders (in byte order) and the other things that lie in a folder, without the hidden."""
    loose, folders, others = [], [], []
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir():
                folders.append(entry.name)
            elif _is_image(entry):
                loose.append(entry.name)
            else:
                others.append(entry.name)
    return loose, sorted(folders, key=os.fsencode), sorted(others)


def _walk(root: str, folder: str) -> Iterator[bytes]:
    """The images at any depth below `root/folder`, as encoded paths relative to `root`, with "/" between."""
    pending: list[tuple[str, tuple[tuple[int, int], ...]]] = [(folder, (_identity(os.stat(root)),))]
    while pending:
        below, above = pending.pop()
        here = os.path.join(root, below)
        above = (*above, _identity(os.stat(here)))
        if above[-1] in above[:-1]:  # a link to a folder that it lies in: all that is there is listed already
            continue
        with os.scandir(here) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.is_dir():
                    pending.append((f"{below}/{entry.name}", above))
                elif _is_image(entry):
                    yield os.fsencode(f"{below}/{entry.name}")


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _is_image(entry: os.DirEntry[str]) -> bool:
    # a link that leads nowhere counts: reading it fails and names it, where leaving it out would hide the loss;
    # a pipe does not: opening it would wait for ever
    return is_image_name(entry.name) and (entry.is_file() or entry.is_symlink())


def _refuse_splits(path: str, found: Mapping[str, Sequence[bytes]]) -> None:
    """Refuse `train/CLASS/...` beside `test/CLASS/...`, which would be two classes called train and test."""
    splits = [name for name in found if name.lower() in SPLITS]
    if len(splits) < 2 or len(splits) < len(found):
        return
    if all(file.count(b"/") >= 2 for files in found.values() for file in files):
        raise ValueError(
            f"{printable(path)} holds {len(splits)} splits, {', '.join(map(printable, splits))}, each with class "
            f"folders of its own. Give one of them, as {printable(os.path.join(path, splits[0]))!r}."
        )


def _class_order(
    path: str, folders: Sequence[str], with_files: Collection[str], classes: Sequence[str] | None
) -> Sequence[str]:
    """The class folders, label by label."""
    if classes is not None:
        unknown = [folder for folder in folders if folder not in classes]
        if unknown:
            raise ValueError(
                f"{printable(path)} holds folders that are not among the {count(len(classes), 'class')} given: "
                f"{listed(unknown)}. Move them away, or add them to classes."
            )
        return classes
    empty = [folder for folder in folders if folder not in with_files]
    if empty:
        raise ValueError(
            f"{printable(path)} holds class folders without a photograph: {listed(empty)}. Remove them, or fill them; "
            "to keep them as classes without samples, pass classes=[...] with all names."
        )
    return folders


def _nothing_found(path: str, folders: Sequence[str], others: Sequence[str]) -> str:
    found = []
    if folders:
        found.append(f"{count(len(folders), 'folder')} without a photograph ({listed(folders)})")
    if others:
        found.append(f"{count(len(others), 'other file')} ({listed(others)})")
    return (
        f"no photograph in {printable(path)}: looked for files that end with {', '.join(EXTENSIONS)}, in it and at any "
        f"depth in its folders; found {' and '.join(found) or 'nothing at all'}. "
        "Give a folder of photographs, or of class folders that hold them."
    )
