"""OUT: who may write there, what lies there already, and what is asked of it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import ValidationError

from augpipe.datasets.files.atomic import remove_leftovers, sync_folder, write_atomically
from augpipe.datasets.files.lock import lock_file
from augpipe.datasets.metadata.names import listed, printable
from augpipe.datasets.prepare.journal import entry_path
from augpipe.datasets.prepare.run_plan import RunPlan
from augpipe.datasets.shards.half_made import PLAN_NAME, WORK_FOLDER
from augpipe.datasets.shards.manifest import MANIFEST_NAME, locate

_LOCK = "lock"


def check_output(folder: str, *, resume: bool) -> None:
    """Refuse a folder that a run would spoil.

    Raises:
        ValueError: it is a file, holds something else, or a data set while `resume` is False; says what to do.
        OSError: it cannot be listed.
    """
    shown = printable(folder)
    if not os.path.lexists(folder):
        return
    if not os.path.isdir(folder):
        raise ValueError(f"{shown} is a file, and shards go to a folder. Name another one.")
    there = sorted(os.listdir(folder))
    if MANIFEST_NAME in there and locate(folder) is not None:
        if not resume:
            raise ValueError(
                f"{shown} holds a finished data set. Name another folder, or remove it; with --resume, what is asked "
                "for is compared with it and nothing is done again."
            )
        return
    if read_plan(folder) is not None:
        if not resume:
            raise ValueError(
                f"{shown} holds an unfinished data set. Pass --resume to finish it, or remove it to start again."
            )
        return
    if set(there) - {WORK_FOLDER}:
        raise ValueError(
            f"{shown} is not empty and holds no data set of ours ({listed(there)}). Name a new or an empty folder."
        )


def is_finished(folder: str) -> bool:
    """Whether a manifest of ours lies there."""
    return os.path.isfile(os.path.join(folder, MANIFEST_NAME)) and locate(folder) is not None


@contextmanager
def locked(folder: str) -> Iterator[None]:
    """Make the folder and be the only run there; the lock ends with the process, however that ends.

    Raises:
        ValueError: another run is at work there.
        OSError: it cannot be made.
    """
    work = os.path.join(folder, WORK_FOLDER)
    os.makedirs(work, exist_ok=True)
    with lock_file(
        os.path.join(work, _LOCK),
        lambda holder: (
            f"another augpipe prepare{holder} is at work in {printable(folder)}. Wait for it, or name another folder."
        ),
    ):
        yield


def read_plan(folder: str) -> RunPlan | None:
    """The plan of an unfinished data set; None where there is none.

    Raises:
        ValueError: it cannot be used.
        OSError: it cannot be read.
    """
    path = os.path.join(folder, WORK_FOLDER, PLAN_NAME)
    try:
        with open(path, "rb") as file:
            text = file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        return RunPlan.model_validate_json(text)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        raise ValueError(
            f"{printable(path)} cannot be used ({'.'.join(map(str, problem['loc']))}: {problem['msg']}): it was "
            f"changed, or written by another version of augpipe. Remove {printable(folder)}, and start again."
        ) from error


def save_plan(folder: str, plan: RunPlan) -> None:
    """Begin a data set: from now on the folder is one that can be resumed, so nothing of it is made before.

    Raises:
        OSError: it cannot be written.
    """
    write_atomically(os.path.join(folder, WORK_FOLDER, PLAN_NAME), plan.model_dump_json(indent=2).encode() + b"\n")


def make_scale_folders(folder: str, plan: RunPlan) -> None:
    """A folder for each scale; those that are there stay.

    Raises:
        OSError: one cannot be made.
    """
    for scale in plan.settings.scales:
        os.makedirs(os.path.join(folder, scale), exist_ok=True)
    sync_folder(folder)


def sweep(folder: str, plan: RunPlan) -> None:
    """Remove what killed writers left; for the one run that holds the lock, with no worker at work.

    Raises:
        OSError: something cannot be removed.
    """
    for name in (*plan.settings.scales, WORK_FOLDER, ""):
        place = os.path.join(folder, name)
        if os.path.isdir(place):
            remove_leftovers(place)


def remove_work_folder(folder: str, num_shards: int | None) -> None:
    """Remove plan, journal and lock of a finished data set.

    Args:
        folder: OUT.
        num_shards: as the plan has it; None where that is not known any more.

    Raises:
        OSError: something cannot be removed.
    """
    work = os.path.join(folder, WORK_FOLDER)
    names = os.listdir(work) if num_shards is None else [os.path.basename(entry_path("", n)) for n in range(num_shards)]
    for name in (*(name for name in names if name != _LOCK), PLAN_NAME, _LOCK):
        if os.path.lexists(path := os.path.join(work, name)):
            os.unlink(path)
    os.rmdir(work)
    sync_folder(folder)
