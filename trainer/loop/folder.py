"""The folder of a run: made, checked, and marked with the config that it is of."""

import logging
from pathlib import Path

import torch.distributed as dist

from augpipe.datasets.shards.atomic import write_atomically
from augpipe.trainer.checkpoint import Checkpoint, agree_on_newest
from augpipe.trainer.checkpoint.folder import finished, remove_unfinished
from augpipe.trainer.config.load import differences, load_config, to_toml
from augpipe.trainer.config.run import RunConfig
from augpipe.trainer.loop.world import World

logger = logging.getLogger("augpipe.trainer")


def open_folder(config: RunConfig, world: World) -> Checkpoint | None:
    """Make the run's folder; returns the checkpoint to go on from, None where the run begins.

    Raises:
        ValueError: on every rank: the folder cannot be used.
    """
    out = Path(config.out)
    problem: list[str | None] = [None]
    if world.is_first:
        try:
            _prepare(config, out)
        except (OSError, ValueError) as error:
            problem = [f"out={config.out!r} cannot be used: {error}"]
    dist.broadcast_object_list(problem, group=world.control, group_src=0)
    if problem[0] is not None:
        raise ValueError(problem[0])
    path = agree_on_newest(checkpoints_path(out), world.control)
    if world.is_first:
        _write_config(config, out, resumes=path is not None)
    return None if path is None else Checkpoint(path, world.control)


def checkpoints_path(out: Path) -> Path:
    """Where a run's checkpoints are."""
    return out / "checkpoints"


def _prepare(config: RunConfig, out: Path) -> None:
    folder = checkpoints_path(out)
    if config.checkpoint.resume == "never" and finished(folder):
        raise ValueError(
            f'it holds checkpoints of an earlier run, and checkpoint.resume="never". Choose another out, remove '
            f'{folder}, or set checkpoint.resume="auto" to go on.'
        )
    folder.mkdir(parents=True, exist_ok=True)
    remove_unfinished(folder)


def _write_config(config: RunConfig, out: Path, *, resumes: bool) -> None:
    path = out / "config.toml"
    if resumes and path.exists():
        for line in differences(load_config(path), config):
            logger.info("changed since this run began: %s", line)
    write_atomically(str(path), to_toml(config).encode())
