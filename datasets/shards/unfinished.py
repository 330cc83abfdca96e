"""Shards without a manifest: a run of `augpipe prepare` that was stopped or is still at work, or a copy of a part."""

import os
import re
from collections.abc import Iterable

from augpipe.datasets.metadata.names import printable
from augpipe.datasets.shards.index import MAGIC, index_path
from augpipe.datasets.shards.manifest import MANIFEST_NAME, SHARD_NAME, is_scale_name

WORK_FOLDER = ".prepare"
"""In OUT, until the data set is finished."""


def refuse_unfinished(folder: str) -> None:
    """Refuse a folder without a manifest that is the OUT of an unfinished run, or a scale in it.

    Raises:
        ValueError: it is; says how to finish it.
    """
    path = os.path.join(os.getcwd(), folder)
    above, name = os.path.split(path.rstrip(os.sep))
    for out in (path, above) if is_scale_name(name) else (path,):
        is_made = os.path.isfile(os.path.join(out, MANIFEST_NAME))
        if os.path.isdir(os.path.join(out, WORK_FOLDER)) and not is_made:
            raise ValueError(
                f"{printable(out.rstrip(os.sep))} is an unfinished data set of augpipe prepare, so only a part of its "
                "photographs is there. Stopped, finish it with the same command and --resume, or wait for the run "
                "that is at work there."
            )


def refuse_without_manifest(folder: str, files: Iterable[str], folders: Iterable[str]) -> None:
    """Refuse a folder of shards with indexes, or of scales with such, that has lost its manifest.

    Args:
        folder: its path.
        files: the names of the files in it.
        folders: the names of the folders in it.

    Raises:
        ValueError: it is such a folder.
    """
    indices = [os.path.join(folder, name) for name in indices_beside_shards(files)[:1]]
    indices += [os.path.join(folder, name, f"{0:06}.idx") for name in folders if is_scale_name(name)]
    for path in indices:
        if os.path.isfile(path):
            with open(path, "rb") as file:
                if file.read(len(MAGIC)) == MAGIC:
                    raise without_manifest(printable(folder))


def indices_beside_shards(files: Iterable[str]) -> list[str]:
    """The indexes of shards among the names of a folder's files; what is in them tells whether they are ours."""
    there = set(files)
    return [index for name in there if re.match(SHARD_NAME, name) and (index := index_path(name)) in there]


def without_manifest(folder: str) -> ValueError:
    """The error for a folder of such, as messages name it."""
    return ValueError(
        f"{folder} holds shards of augpipe prepare without their {MANIFEST_NAME}, which has the classes and says "
        "whether all shards are there. Copy it from where the data set was made (it lies above the scales' folders), "
        "or prepare the data set again; or give the tar files by a pattern, to read them as any WebDataset."
    )
