"""A folder of class folders, or a flat folder of images."""

import os
from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np

from augpipe.datasets.files.descriptors import absolute
from augpipe.datasets.files.image_files import EXTENSIONS, FileSource, is_hidden, is_image_name
from augpipe.datasets.files.splits import chosen, split_of
from augpipe.datasets.formats.class_folders import (
    Unread,
    caution_of_maps,
    caution_of_maps_among,
    caution_of_numbers,
    left_beside,
    refuse_mixture,
    refuse_splits,
)
from augpipe.datasets.formats.file_list import refuse_unread_lists
from augpipe.datasets.formats.folder_index import FolderIndex
from augpipe.datasets.formats.list_columns import column_names
from augpipe.datasets.metadata.names import NameTable, listed, printable
from augpipe.sources.subset import check_id
from augpipe.validation.plural import count


class FolderSource(FileSource):
    """The images below `root`, as `root/CLASS/.../photo.jpg` or as `root/photo.jpg`.

    Class folders, sorted by name, are the labels 0, 1, ...; files are found at any depth inside each and sorted by
    their path. Both sorts compare bytes, so that every machine gives the same ids whatever its locale. Without class
    folders the images that lie in `root` itself are taken, all with label -1.

    Files are taken by their extension (`files.EXTENSIONS`, in any case). The first line of the log counts those next to
    them that look like photographs of other kinds, such as .heic. What starts with a dot is ignored. Links are
    followed, except those that lead back to a folder that they lie in.

    The index that `augpipe index` has written into the folder is made use of.

    Args:
        root: the folder.
        classes: the classes and their order, instead of the folders found: give a validation set the training
            set's `classes`, and labels agree even where it lacks some of them. Photographs next to the class folders
            are left out then, which is said.
        split: which folder in `root` to open instead, where it holds those of several splits: its name, or "train",
            "val", "test" for the one that stands for it.
        columns: ["path"] hands each file's path below the folder on as `Batch.columns`.

    Raises:
        ValueError: there is no such folder, no image in it, photographs next to class folders, a class without any, a
            folder not in `classes`, folders of several splits, or a list of labels in a folder without class folders;
            or there is no such split.
        OSError: a folder cannot be listed.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        classes: Sequence[str] | None = None,
        split: str | None = None,
        columns: Sequence[str] = (),
    ) -> None:
        path = os.fspath(root)
        _check_is_folder(path)
        further_names = column_names(columns)
        for name in further_names:
            if name != "path":
                raise ValueError(
                    f"{printable(path)}: columns={list(further_names)!r} names {name!r}, and a folder has only 'path'. "
                    "For others give a list with a header instead, as path,label,caption."
                )
        if split is not None:
            path = os.path.join(path, chosen(path, _look_into(path)[1], split))
        self._index: FolderIndex | None = None
        loose, folders, others = _look_into(path)
        names, unread = NameTable(), Unread()
        further = dict.fromkeys(further_names, names)
        found = {folder: files for folder in folders if (files := sorted(_walk(path, folder, unread)))}
        if len(found) < 2:
            refuse_unread_lists(path, others)
        if not found and loose:
            unread.add_all(others)
            names.extend(sorted(map(os.fsencode, loose)))
            super().__init__(path, names, np.full(len(names), -1, dtype=np.int64), classes or (), further)
            self.left_out = unread.in_words()
            self.cautions = caution_of_maps_among(path, sorted(map(os.fsencode, loose)))
            self._open_index()
            return
        if not found:
            unread.add_all(others)
            raise ValueError(_nothing_found(path, folders, others, unread))
        unread.add_all(name for name in others if os.path.splitext(name)[1])
        refuse_splits(path, list(found), classes)
        refuse_mixture(path, loose, list(found), classes)
        order = _class_order(path, folders, found.keys(), classes, unread)
        for name in order:
            names.extend(found.get(name, ()))
        labels = np.repeat(np.arange(len(order)), [len(found.get(name, ())) for name in order])
        super().__init__(path, names, labels, [printable(name) for name in order], further)
        self.left_out = [*left_beside(loose), *unread.in_words()]
        self.cautions = [*caution_of_numbers(order), *caution_of_maps_among(path, chain.from_iterable(found.values()))]
        if classes is None:
            self.cautions += [*_other_classes(path, order), *caution_of_maps(path, found)]
        elif missing := [name for name in order if name not in found]:
            self.notes = [f"classes given that have no photograph: {listed(missing)}"]
        self._open_index()

    @property
    def knows_sizes(self) -> bool:
        """Whether there is an index."""
        return self._index is not None

    def size(self, sample_id: int) -> tuple[int, int]:
        """Height and width of a JPEG, as the index has them; 0 where it has none."""
        assert self._index is not None
        check_id(sample_id, len(self))
        return self._index.size(sample_id)

    def row_index(self, sample_id: int) -> bytes | memoryview:
        """Where rows begin in a JPEG's codes; see `decoding.row_index`. Empty where that is not known."""
        check_id(sample_id, len(self))
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
            if is_hidden(entry.name):
                continue
            if entry.is_dir():
                folders.append(entry.name)
            elif _is_image(entry):
                loose.append(entry.name)
            else:
                others.append(entry.name)
    return loose, sorted(folders, key=os.fsencode), sorted(others)


def _walk(root: str, folder: str, unread: Unread) -> Iterator[bytes]:
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
                if is_hidden(entry.name):
                    continue
                if entry.is_dir():
                    pending.append((f"{below}/{entry.name}", above))
                elif _is_image(entry):
                    yield os.fsencode(f"{below}/{entry.name}")
                else:
                    unread.add(f"{below}/{entry.name}")


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _is_image(entry: os.DirEntry[str]) -> bool:
    # a link that leads nowhere counts: reading it fails and names it, where leaving it out would hide the loss;
    # a pipe does not: opening it would wait for ever
    return is_image_name(entry.name) and (entry.is_file() or entry.is_symlink())


def _other_classes(path: str, order: Sequence[str]) -> list[str]:
    """What is said of a split whose classes are not those of the training set next to it."""
    above, name = os.path.split(absolute(path).rstrip(os.sep))
    own = split_of(name)
    if own is None or own[0] == "train":
        return []
    trained = [folder for folder in _look_into(above)[1] if split_of(folder) == ("train", own[1])]
    if len(trained) != 1:
        return []
    train = os.path.join(above, trained[0])
    theirs = _look_into(train)[1]
    if not theirs or list(order) == theirs:
        return []
    differing = [
        f"{where} {listed(names)} too"
        for where, names in (
            ("there", [name for name in theirs if name not in order]),
            ("here", [name for name in order if name not in theirs]),
        )
        if names
    ]
    return [
        f"its labels are not those of {printable(train)!r} next to it, which has {count(len(theirs), 'class')}: "
        f"{', '.join(differing)}; pass classes=[...] of the training set"
    ]


def _class_order(
    path: str, folders: Sequence[str], with_files: Collection[str], classes: Sequence[str] | None, unread: Unread
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
            f"{printable(path)} holds class folders without a photograph: {listed(empty)}{_not_read(unread)}. Remove "
            "them, or fill them; to keep them as classes without samples, pass classes=[...] with all names in Python."
        )
    return folders


def _not_read(unread: Unread) -> str:
    found = unread.in_words()
    return f" (not read: {', '.join(found)})" if found else ""


def _nothing_found(path: str, folders: Sequence[str], others: Sequence[str], unread: Unread) -> str:
    found = []
    if folders:
        found.append(f"{count(len(folders), 'folder')} without a photograph ({listed(folders)})")
    if others:
        found.append(f"{count(len(others), 'other file')} ({listed(others)})")
    return (
        f"no photograph in {printable(path)}: looked for files that end with {', '.join(EXTENSIONS)}, in it and at any "
        f"depth in its folders; found {' and '.join(found) or 'nothing at all'}{_not_read(unread)}. "
        "Give a folder of photographs, or of class folders that hold them."
    )
