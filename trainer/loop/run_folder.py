"""The folder of a run: made, checked, and marked with the config that it is of."""

import logging
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

from augpipe.datasets.files.atomic import write_atomically
from augpipe.datasets.files.lock import lock_file
from augpipe.sources.protocol import Source
from augpipe.trainer.checkpoint import agree_on_newest
from augpipe.trainer.checkpoint.checkpoints_folder import finished, put_back_replaced, remove_unfinished
from augpipe.trainer.checkpoint.manifest import read_manifest
from augpipe.trainer.config.load import differences, load_config, to_toml
from augpipe.trainer.config.tables import RunConfig
from augpipe.trainer.exchange.objects import broadcast_json
from augpipe.trainer.loop.run_data import RunData, read_data
from augpipe.trainer.loop.world import World

Found = TypeVar("Found")
_LOCK = ".lock"
_WITHOUT_EFFECT = ("out:", "report.", "data.source:", "data.recipe:")
"""Settings that change no weight, or whose content is compared instead of their name: see `check_data`."""

logger = logging.getLogger("augpipe.trainer")


def open_folder(config: RunConfig, world: World, held: ExitStack) -> Path | None:
    """Look into the run's folder; returns the checkpoint to go on from, None where the run begins.

    Rank 0 makes the folder and keeps other runs out of it until `held` is closed. What it holds stays as it is until
    `begin_folder`.

    Raises:
        ValueError: on every rank: the folder cannot be used.
    """
    out = Path(config.out)

    def look() -> None:
        try:
            out.mkdir(parents=True, exist_ok=True)
            held.enter_context(lock_file(str(out / _LOCK), _in_use))
            _look_for_checkpoints(config, out)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise ValueError(f"out={config.out!r} cannot be used: {reason}") from error

    _by_first_rank(world, look)
    path = agree_on_newest(checkpoints_path(out), world.control)
    if path is not None and (is_of_servers := "servers" in read_manifest(path)) != (config.servers.mode != "off"):
        theirs, ours = ("with parameter servers", "without") if is_of_servers else ("without parameter servers", "with")
        raise ValueError(
            f"{path} is of a run {theirs}, and this config trains {ours}. Set servers.mode as it was, or choose "
            "another out."
        )
    return path


def check_data(config: RunConfig, source: Source, held_out: Source | None, world: World, *, resumes: bool) -> RunData:
    """What rank 0 sees of the run's data, and the run is to keep; where it `resumes`, compared with what it kept.

    Raises:
        ValueError: on every rank: it would not go on with the images and the recipe that it was trained on.
    """
    out = Path(config.out)

    def compare() -> dict[str, Any]:
        data = RunData.of(config, source, held_out)
        before = read_data(out) if resumes else None
        if before is not None:
            for line in before.check_goes_on(data, config.out, config):
                logger.warning("%s", line)
        elif resumes:
            logger.warning(
                "%s has no record of its training data, as an older augpipe made it: data.source and data.recipe may "
                "have changed since",
                out,
            )
        if data.trained_on_text:
            logger.warning("%s", data.trained_on_text)
        return data.as_json()

    return RunData.from_json(_by_first_rank(world, compare))


def check_settings(config: RunConfig, world: World) -> list[str]:
    """What of the settings is not what it was when the run last began, where that matters and is known.

    Raises:
        ValueError: on every rank: the optimizer would have other groups of weights than its state.
    """
    out = Path(config.out)

    def compare() -> list[str]:
        try:
            before = load_config(out / "config.toml")
        except (OSError, ValueError):  # `begin_folder` says so
            return []
        changed = differences(before, config)
        if _has_decay_groups(before) != _has_decay_groups(config):
            fields = [line for line in changed if line.startswith(("optim.decay_1d", "optim.weight_decay"))]
            which = "" if before.optim.decay_1d != config.optim.decay_1d else ", with optim.decay_1d=false"
            raise ValueError(
                f"{'; '.join(fields)}{which}: the optimizer's state in {config.out} is of other groups of weights. Set "
                "it back, or choose another out."
            )
        return [line for line in changed if not line.startswith(_WITHOUT_EFFECT)]

    return _by_first_rank(world, compare)


def _has_decay_groups(config: RunConfig) -> bool:
    """Whether 1-D tensors are a group of their own."""
    return not config.optim.decay_1d and config.optim.weight_decay > 0


def begin_folder(config: RunConfig, data: RunData, held_out: Source | None, *, resumes: bool) -> None:
    """On rank 0, once the run is known to fit: remove what an earlier one left half written, note config and data.

    Args:
        config: of the run that begins.
        data: what it keeps of its data; see `check_data`.
        held_out: what is evaluated.
        resumes: whether it goes on from a checkpoint: what changed since the last start is said then.
    """
    out = Path(config.out)
    checkpoints_path(out).mkdir(exist_ok=True)
    remove_unfinished(checkpoints_path(out))
    path = out / "config.toml"
    if resumes and path.exists():
        try:
            changed = differences(load_config(path), config)
        except (OSError, ValueError) as error:
            changed = []
            logger.warning("what changed since the last start is not known: %s", " ".join(str(error).split()))
        for line in changed:
            logger.info("changed since the last start: %s", line)
    data.write(out, held_out)
    write_atomically(str(path), to_toml(config).encode())


def checkpoints_path(out: Path) -> Path:
    """Where a run's checkpoints are."""
    return out / "checkpoints"


def _look_for_checkpoints(config: RunConfig, out: Path) -> None:
    folder = checkpoints_path(out)
    put_back_replaced(folder)
    if config.checkpoint.resume == "never" and finished(folder):
        raise ValueError(
            f'it holds checkpoints of an earlier run, and checkpoint.resume="never". Choose another out, remove '
            f'{folder}, or set checkpoint.resume="auto" to go on.'
        )


def _by_first_rank(world: World, check: Callable[[], Found]) -> Found:
    """What `check` gives on rank 0, as JSON has it, on every rank; a ValueError of it is raised on all."""
    told: list[Any] = [None, None]
    if world.is_first:
        try:
            told = [check(), None]
        except ValueError as error:
            told = [None, str(error)]
    found, problem = broadcast_json(told, world.control)
    if problem is not None:
        raise ValueError(problem)
    checked: Found = found
    return checked


def _in_use(holder: str) -> str:
    return f"a run is at work there{holder}. Wait for its end, or choose another out."
