"""The folder of a run: made, checked, and marked with the config that it is of."""

import logging
from contextlib import ExitStack
from pathlib import Path

import torch.distributed as dist

from augpipe.datasets.files.atomic import write_atomically
from augpipe.datasets.files.lock import lock_file
from augpipe.trainer.checkpoint import agree_on_newest
from augpipe.trainer.checkpoint.checkpoints_folder import finished, put_back_replaced, remove_unfinished
from augpipe.trainer.checkpoint.manifest import read_manifest
from augpipe.trainer.config.load import differences, load_config, to_toml
from augpipe.trainer.config.tables import RunConfig
from augpipe.trainer.loop.world import World

_LOCK = ".lock"

logger = logging.getLogger("augpipe.trainer")


def open_folder(config: RunConfig, world: World, held: ExitStack) -> Path | None:
    """Look into the run's folder; returns the checkpoint to go on from, None where the run begins.

    Rank 0 makes the folder and keeps other runs out of it until `held` is closed. What it holds stays as it is until
    `begin_folder`.

    Raises:
        ValueError: on every rank: the folder cannot be used.
    """
    out = Path(config.out)
    problem: list[str | None] = [None]
    if world.is_first:
        try:
            out.mkdir(parents=True, exist_ok=True)
            held.enter_context(lock_file(str(out / _LOCK), _in_use))
            _look_for_checkpoints(config, out)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            problem = [f"out={config.out!r} cannot be used: {reason}"]
    dist.broadcast_object_list(problem, group=world.control, group_src=0)
    if problem[0] is not None:
        raise ValueError(problem[0])
    path = agree_on_newest(checkpoints_path(out), world.control)
    if path is not None and (is_of_servers := "servers" in read_manifest(path)) != (config.servers.mode != "off"):
        theirs, ours = ("with parameter servers", "without") if is_of_servers else ("without parameter servers", "with")
        raise ValueError(
            f"{path} is of a run {theirs}, and this config trains {ours}. Set servers.mode as it was, or choose "
            "another out."
        )
    return path


def begin_folder(config: RunConfig, *, resumes: bool) -> None:
    """On rank 0, once the run is known to fit: remove what an earlier one left half written, and write the config down.

    Args:
        config: of the run that begins.
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


def _in_use(holder: str) -> str:
    return f"a run is at work there{holder}. Wait for its end, or choose another out."
