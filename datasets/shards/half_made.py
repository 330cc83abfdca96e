"""Folders of our shards without a manifest: `augpipe prepare` has not finished them, or their manifest is lost.

Their tar files are whole, so they would open as a smaller data set whose classes are numbers.
"""

import os
import re
from collections.abc import Iterable

from augpipe.datasets.files.image_files import is_image_name
from augpipe.datasets.metadata.names import printable
from augpipe.datasets.remote.blocks import BlockStore
from augpipe.datasets.remote.urls import join, name_of, parent, shown
from augpipe.datasets.shards.index import MAGIC, index_path
from augpipe.datasets.shards.manifest import MANIFEST_NAME, SHARD_NAME, locate

WORK_FOLDER = ".prepare"
"""In OUT, until the data set is finished."""
PLAN_NAME = "plan.json"
"""In that: what a run is to do."""


def refuse_unfinished(folder: str) -> None:
    """Refuse OUT, or a folder in it, while `augpipe prepare` has not finished it.

    Raises:
        ValueError: it has not; has the remedy.
    """
    folder = folder.rstrip(os.sep) or folder
    for out in (folder, os.path.dirname(folder) or os.curdir):
        if os.path.lexists(os.path.join(out, WORK_FOLDER, PLAN_NAME)) and locate(folder) is None:
            raise ValueError(
                f"{printable(out)} is a data set that augpipe prepare has not finished: it was stopped, or is still at "
                "work. Wait for it, or finish it with the same command and --resume."
            )


def refuse_lost_manifest(folder: str) -> None:
    """Refuse a folder of our shards, or one that holds such a folder, without their manifest.

    Raises:
        ValueError: it is one; has the remedy.
        OSError: it cannot be read.
    """
    folder = folder.rstrip(os.sep) or folder
    for place in (folder, *_scales_in(folder)):
        first = _first_shard(_shards_and_indices(place))
        if first is not None:
            with open(os.path.join(place, index_path(first)), "rb") as file:
                start = file.read(len(MAGIC))
            if start == MAGIC:
                raise _lost(printable(place), printable(os.path.dirname(place) or os.curdir))
        elif place != folder and any(re.match(SHARD_NAME, name) for name in _shards_and_indices(place)):
            raise ValueError(
                f"{printable(place)} holds tar files that are called as shards of augpipe prepare are, without their "
                f"{MANIFEST_NAME} and indices. Copy those there, or prepare the data set again; as tar files like any "
                f"others they are read by a pattern, '{printable(place)}/*.tar'."
            )


def refuse_lost_manifest_at(url: str, files: Iterable[str], store: BlockStore) -> None:
    """The same for the folder at a URL, which holds these files.

    Raises:
        ValueError: it is one; has the remedy.
        RemoteError, FileNotFoundError: no usable answer came.
    """
    first = _first_shard([name_of(file) for file in files])
    if first is not None and store.files.part(join(url, index_path(first)), 0, len(MAGIC)).data == MAGIC:
        raise _lost(shown(url), shown(parent(url)[0]))


def _scales_in(folder: str) -> list[str]:
    """The folders in it whose names are scales; none where photographs lie next to them, which may be many."""
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if is_image_name(entry.name):
                return []
            if (entry.name == "full" or entry.name.isdecimal()) and entry.is_dir():
                found.append(entry.path)
    return sorted(found)


def _shards_and_indices(folder: str) -> list[str]:
    """The files of a folder that may be one of ours; none as soon as another shows."""
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.startswith("."):
                if not entry.name.endswith((".tar", ".idx", ".targets")):
                    return []
                found.append(entry.name)
    return found


def _first_shard(names: Iterable[str]) -> str | None:
    """A tar file with a name like ours and an index next to it."""
    there = set(names)
    return min((name for name in there if re.match(SHARD_NAME, name) and index_path(name) in there), default=None)


def _lost(folder: str, above: str) -> ValueError:
    return ValueError(
        f"{folder} holds shards of augpipe prepare, and their {MANIFEST_NAME} is not in {above}: without it classes "
        "have no names, and shards may be missing. Copy it there, or prepare the data set again; as tar files like any "
        "others they are read by a pattern, *.tar."
    )
