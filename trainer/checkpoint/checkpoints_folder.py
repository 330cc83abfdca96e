"""The folder that holds a run's checkpoints: their names, which of them are whole, which may go."""

import logging
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from augpipe.datasets.files.atomic import sync_folder
from augpipe.trainer.checkpoint.manifest import verify, write_manifest
from augpipe.trainer.tensors.tensor_file import DamagedError

logger = logging.getLogger("augpipe.trainer")

_FINISHED = re.compile(r"step-(\d{9})")
_UNFINISHED = ".tmp"
_REPLACED = ".old"


def finished_path(folder: Path, step: int) -> Path:
    """Where the checkpoint after `step` steps stands once it is whole."""
    return folder / f"step-{step:09}"


def unfinished_path(folder: Path, step: int) -> Path:
    """Where it is written."""
    return folder / f"step-{step:09}{_UNFINISHED}"


def replaced_path(folder: Path, step: int) -> Path:
    """Where the one that it takes the place of waits meanwhile."""
    return folder / f"step-{step:09}{_REPLACED}"


def finished(folder: Path) -> list[Path]:
    """The checkpoints that were finished, newest first."""
    if not folder.is_dir():
        return []
    found = [path for path in folder.iterdir() if _FINISHED.fullmatch(path.name) and path.is_dir()]
    return sorted(found, reverse=True)


def newest_whole(folder: Path, tell: Callable[[str], None] = logger.warning) -> Path | None:
    """The newest checkpoint whose files are all as they were written; `tell` hears of each that is refused.

    Raises:
        DamagedError: there are checkpoints, and every one is damaged.
    """
    refused: list[str] = []
    paths = finished(folder)
    for path in paths:
        try:
            step = verify(path)["step"]
            if path != finished_path(folder, step):
                raise DamagedError(f"{path} holds the state after step {step}: it was given another name")
        except (DamagedError, OSError) as error:
            refused.append(str(error))
            is_last = len(refused) == len(paths)
            tell(f"checkpoint {path.name} is refused: {error}" + ("" if is_last else ". The one before it is tried."))
            continue
        return path
    if refused:
        raise DamagedError(
            f"none of the {len(refused)} checkpoints in {folder} is whole: {'; '.join(refused)}. "
            "Move the folder away to begin again."
        )
    return None


def put_back_replaced(folder: Path) -> None:
    """Give a checkpoint its name back that a run was about to replace when it died; no run may be writing."""
    for path in _left(folder, _REPLACED):
        final = path.with_name(path.name.removesuffix(_REPLACED))
        if not final.exists():
            path.rename(final)


def remove_unfinished(folder: Path) -> None:
    """Remove what a run that died left half written, and what it had replaced; no run may be writing. What is not
    named as a run names its own is somebody else's, and stays."""
    put_back_replaced(folder)
    for path in _left(folder, _UNFINISHED) + _left(folder, _REPLACED):
        _remove(path)


def _left(folder: Path, suffix: str) -> list[Path]:
    if not folder.is_dir():
        return []
    named = re.compile(rf"step-\d{{9}}{re.escape(suffix)}")
    return [path for path in folder.iterdir() if named.fullmatch(path.name) and path.is_dir()]


def finish_checkpoint(
    folder: Path, step: int, about: dict[str, Any], keep: int, files: dict[str, Any] | None = None
) -> Path:
    """List the files of the checkpoint that is written, give it its name, and let older ones than `keep` go.

    `files` are their lengths and sums, where these are known.

    Raises:
        OSError: it cannot be finished; the ones before it stay.
    """
    temporary, final, replaced = (path(folder, step) for path in (unfinished_path, finished_path, replaced_path))
    write_manifest(temporary, about, files)
    sync_folder(str(temporary))
    if final.exists():  # the end of an epoch is saved after the step was, and a resumed run comes by a damaged one
        os.rename(final, replaced)
    os.rename(temporary, final)
    sync_folder(str(folder))
    try:
        if replaced.exists():
            _remove(replaced)
        remove_older(folder, keep, final)
    except OSError as error:
        logger.warning("an old checkpoint could not be removed: %s", error)
    return final


def remove_older(folder: Path, keep: int, newest: Path) -> None:
    """Keep `newest` and the `keep` - 1 before it; those that go are renamed first, so that none is half there under its
    name. Later ones, which a run has refused and gone behind, count for nothing, and stay until it comes by them."""
    for path in [path for path in finished(folder) if path.name <= newest.name][keep:]:
        going = path.with_name(f"{path.name}{_UNFINISHED}")
        path.rename(going)
        _remove(going)


def _remove(path: Path) -> None:
    """Remove a folder, or a link to one that lies elsewhere."""
    if path.is_symlink():
        path.unlink()
    else:
        shutil.rmtree(path)
