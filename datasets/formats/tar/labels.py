"""Which labels the samples of tar files have where no member says it: class folders, or what looks like labels."""

from collections.abc import Iterable, Sequence

from augpipe.datasets.files.splits import splits_among
from augpipe.datasets.formats.tar.index import TarIndexer
from augpipe.datasets.metadata.label_names import label_like
from augpipe.datasets.metadata.labels import LabelColumn
from augpipe.datasets.metadata.names import NameTable, listed
from augpipe.validation.plural import count

FOLDER = "folder"
"""What `TarSource(label=)` is where the folders that images lie in are the classes."""
_NO_LABEL = "no label, by a member .cls or a field 'label' of .json"
_OR_NONE = "or pass label=False to TarSource to read none"


def folder_labels(names: NameTable) -> LabelColumn:
    """The class folder of each image: the first below what all have in common; none of one that lies above.

    Raises:
        ValueError: the folders are splits; the reason alone.
    """
    labels, num_common = LabelColumn(), _num_common(names)
    for number in range(len(names)):
        folders = _folders(names[number])[num_common:]
        labels.append(folders[0] if folders else None)
    _refuse_splits(_class_folders(names))
    return labels


def refuse_unread_labels(indexer: TarIndexer, label: str | None) -> None:
    """Refuse to take samples as unlabelled where something looks like their labels.

    Raises:
        ValueError: something does; the reason alone.
    """
    if label is not None:
        raise ValueError(
            f"label={label!r} names a member or a field of .json that no sample has. Found are {_found(indexer)}"
        )
    if indexer.fields:
        (field, *_) = label_like(sorted(indexer.fields))
        raise ValueError(f"{_NO_LABEL}, and {field!r} in its .json looks like one. Pass label={field!r}, {_OR_NONE}")
    if members := label_like(sorted(indexer.extensions)):
        raise ValueError(
            f"{_NO_LABEL}, and its member .{members[0]} looks like one. Pass label={members[0]!r}, {_OR_NONE}"
        )
    if indexer.lists:
        raise ValueError(
            f"{_NO_LABEL}, and it holds {indexer.lists[0]!r}, which is not "
            f"read. Unpack it, and give that list, {_OR_NONE}"
        )
    folders = _class_folders(indexer.names)
    _refuse_splits(folders)
    if len(folders) > 1:
        raise ValueError(
            f"{_NO_LABEL}, and the photographs lie in folders "
            f"({listed(folders)}). Pass label={FOLDER!r} if those are the classes, {_OR_NONE}"
        )


def left_out(indexer: TarIndexer) -> tuple[str, ...]:
    """What is said of samples that hold no image."""
    if not indexer.num_without_image:
        return ()
    shown = ", ".join(sorted(indexer.found_extensions))
    return (f"{count(indexer.num_without_image, 'sample')} without an image ({shown})",)


def _refuse_splits(folders: Sequence[str]) -> None:
    splits = splits_among(folders)
    if splits:
        raise ValueError(f"folders {listed(splits)} are splits, and no classes. Pack each into a tar file of its own")


def _found(indexer: TarIndexer) -> str:
    return listed(sorted(indexer.extensions)) if indexer.extensions else "images alone"


def _class_folders(names: NameTable) -> Sequence[str]:
    num_common = _num_common(names)
    found = {folders[num_common] for folders in _each_folders(names) if len(folders) > num_common}
    return sorted(found, key=str.encode)


def _num_common(names: NameTable) -> int:
    """How many folders all images have in common."""
    common: list[str] | None = None
    for folders in _each_folders(names):
        if common is None:
            common = folders
        while common != folders[: len(common)]:
            common = common[:-1]
    return len(common or ())


def _each_folders(names: NameTable) -> Iterable[list[str]]:
    return (_folders(names[number]) for number in range(len(names)))


def _folders(name: str) -> list[str]:
    return [part for part in name.split("/")[:-1] if part not in ("", ".")]
