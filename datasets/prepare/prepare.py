"""From a source to a data set in shards: plan, chunks by an engine, and the manifest at the end."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from augpipe.datasets.metadata.names import printable
from augpipe.datasets.prepare.chunk import ChunkTask
from augpipe.datasets.prepare.engine_protocol import Engine, Watcher
from augpipe.datasets.prepare.finish import finish
from augpipe.datasets.prepare.journal import read_entry
from augpipe.datasets.prepare.local_engine import LocalEngine
from augpipe.datasets.prepare.output_folder import (
    check_output,
    is_finished,
    locked,
    make_scale_folders,
    read_plan,
    remove_work_folder,
    save_plan,
    sweep,
)
from augpipe.datasets.prepare.rendition import NOTHING_TO_KEEP
from augpipe.datasets.prepare.run_plan import (
    RunPlan,
    SourceIdentity,
    differences,
    identify,
    make_plan,
)
from augpipe.datasets.prepare.settings import PrepareSettings
from augpipe.datasets.remote.urls import as_url, shown
from augpipe.datasets.shards.half_made import WORK_FOLDER
from augpipe.datasets.shards.manifest import Manifest
from augpipe.native.workers import num_usable_cores
from augpipe.sources.protocol import Source, is_source


def prepare(
    source: Source,
    out: str | os.PathLike[str],
    settings: PrepareSettings | None = None,
    *,
    source_path: str = "",
    source_name: str | None = None,
    engine: Engine | None = None,
    resume: bool = False,
    on_error: str = "raise",
    watcher: Watcher | None = None,
) -> Manifest:
    """Write a source's images as shards.

    What is written depends on the source and the settings alone, to the byte: not on engine, workers, nor on how often
    it was killed and resumed. Memory does not grow with the number of images, beyond what the source itself
    takes (in each worker too).

    Args:
        source: where the images come from; picklable.
        out: a new or an empty folder; with `resume`, one that an earlier run of the same source and settings left.
        settings: what to make of them; `PrepareSettings()` if left out.
        source_path: where the source lies, which is left out of the names that are noted.
        source_name: what people call it, for the report; the last part of `source_path` if left out.
        engine: what does the work; one process a core if left out.
        resume: finish what an earlier run began; a finished data set is left as it is.
        on_error: "raise" ends at the first image that cannot be used, "skip" lists them in rejects.csv.
        watcher: told how it goes.

    Raises:
        ValueError: an argument is wrong, `out` holds something else, other settings or another source were used there,
            another run is at work there, or no image can be used.
        SampleError: an image cannot be used, and `on_error` is "raise".
        OSError: something cannot be read or written, e.g. the disk is full. What is done stays; resume finishes it.
        WorkerDiedError: workers die over one shard again and again.
    """
    if on_error not in ("skip", "raise"):
        raise ValueError(f"on_error={on_error!r} is neither 'skip' nor 'raise'.")
    if not is_source(source):
        raise ValueError(
            f"source is a {type(source).__name__}. Give a source: augpipe.datasets.open.open_source(path) makes one."
        )
    settings = PrepareSettings() if settings is None else settings
    if not isinstance(settings, PrepareSettings):
        raise ValueError(f"settings is a {type(settings).__name__}. Give PrepareSettings(scales=['512'], ...).")
    watcher = watcher or Watcher()
    folder = os.fspath(out)
    if (url := as_url(source_path)) is not None:
        source_path = shown(url)  # as in the samples' names, and without a signature
    _check_outside(source_path, folder)
    check_output(folder, resume=resume)
    if len(source) == 0:
        raise ValueError("the source holds no photograph. Give one that does.")
    if settings.keep:
        _check_holds_files(source)
    prefix = name_prefix(source, source_path)
    identity = identify(source, prefix)
    if is_finished(folder) and not os.path.isdir(os.path.join(folder, WORK_FOLDER)):
        return _finished(folder, settings, identity)
    with locked(folder):
        check_output(folder, resume=resume)  # another run may have come and gone
        if is_finished(folder):
            manifest = _finished(folder, settings, identity)
            remove_work_folder(folder, None)  # that run was killed when all except this was done
            return manifest
        plan = read_plan(folder)
        if plan is None:
            if source_name is None:
                source_name = os.path.basename(os.path.abspath(source_path)) if source_path else ""
            plan = make_plan(source, settings, identity, source_name, prefix)
            save_plan(folder, plan)
        else:
            _check_same(folder, differences(plan.noted(), plan.versions, settings, identity))
        make_scale_folders(folder, plan)
        sweep(folder, plan)
        todo, num_done = _todo(folder, plan)
        watcher.planned(plan, num_done)
        tasks = _tasks(todo, plan, folder, prefix, raises=on_error == "raise")
        with _swept(folder, plan):
            (engine or LocalEngine(num_usable_cores())).run(source, tasks, watcher)
        manifest = finish(folder, plan, source)
        remove_work_folder(folder, plan.num_shards)
    return manifest


def name_prefix(source: Source, path: str) -> str:
    """What the names of a source's images begin with: the folder that it is, or that it lies in; or nothing."""
    first = printable(source.name(0))
    for place in (path.rstrip("/"), os.path.dirname(path)):
        prefix = f"{printable(place)}/"
        if place and first.startswith(prefix):
            return prefix
    return ""


def _check_holds_files(source: Source) -> None:
    """Arrays have no bytes to keep: better told before the first is rejected than after the last."""
    try:
        content = source.read(0)
    except (ValueError, OSError):
        return  # rejected later, with the reason
    if isinstance(content, np.ndarray):
        raise ValueError(f"{printable(source.name(0))}: {NOTHING_TO_KEEP}.")


def _check_outside(source_path: str, folder: str) -> None:
    """OUT within SOURCE would be listed with it when the run is resumed."""
    if not source_path or not os.path.isdir(source_path):
        return
    outer, inner = os.path.realpath(source_path), os.path.realpath(folder)
    if os.path.commonpath([outer, inner]) == outer:
        raise ValueError(
            f"OUT {printable(folder)} lies in the source {printable(source_path)}: a later run would take the shards "
            "for a part of it. Name a folder elsewhere."
        )


def _check_same(folder: str, differing: Sequence[str]) -> None:
    if differing:
        raise ValueError(
            f"{printable(folder)} was begun with another source or other settings: {'; '.join(differing)}. Ask for the "
            "same, name another folder, or remove it."
        )


def _finished(folder: str, settings: PrepareSettings, identity: SourceIdentity) -> Manifest:
    """The manifest that is there, once it is known to be what is asked for."""
    manifest = Manifest.load(folder)
    _check_same(folder, differences(manifest.settings, manifest.versions, settings, identity))
    return manifest


def _todo(folder: str, plan: RunPlan) -> tuple[list[int], int]:
    """The numbers of the shards that are not there, and how many images the others were made of."""
    todo, num_done = [], 0
    for number in range(plan.num_shards):
        start, stop = plan.bounds(number)
        if read_entry(folder, number, (start, stop)) is None:
            todo.append(number)
        else:
            num_done += stop - start
    return todo, num_done


def _tasks(numbers: Sequence[int], plan: RunPlan, folder: str, prefix: str, *, raises: bool) -> Iterator[ChunkTask]:
    for number in numbers:
        start, stop = plan.bounds(number)
        yield ChunkTask(
            number=number,
            start=start,
            stop=stop,
            folder=os.path.abspath(folder),
            prefix=prefix,
            settings=plan.settings,
            raises=raises,
        )


@contextmanager
def _swept(folder: str, plan: RunPlan) -> Iterator[None]:
    """Remove what workers left that died, or were killed at the end."""
    try:
        yield
    finally:
        sweep(folder, plan)
