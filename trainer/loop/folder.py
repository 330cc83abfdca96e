"""The folder of a run: made, checked, and marked with the config that it is of."""

import errno
import fcntl
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import torch.distributed as dist

from augpipe.datasets.shards.atomic import write_atomically
from augpipe.trainer.checkpoint import Checkpoint, agree_on_newest
from augpipe.trainer.checkpoint.folder import finished, remove_unfinished
from augpipe.trainer.config.load import differences, load_config, to_toml
from augpipe.trainer.config.run import RunConfig
from augpipe.trainer.loop.world import World

_LOCK = ".lock"

logger = logging.getLogger("augpipe.trainer")


def open_folder(config: RunConfig, world: World, held: ExitStack) -> Checkpoint | None:
    """Make the run's folder; returns the checkpoint to go on from, None where the run begins.

    Rank 0 keeps other runs out of it until `held` is closed.

    Raises:
        ValueError: on every rank: the folder cannot be used.
    """
    out = Path(config.out)
    problem: list[str | None] = [None]
    if world.is_first:
        try:
            held.enter_context(_locked(out))
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


@contextmanager
def _locked(out: Path) -> Iterator[None]:
    """Be the only run in the folder; the lock ends with the process, however that ends.

    Raises:
        ValueError: another run is at work there.
        OSError: the folder cannot be made.
    """
    out.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(out / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        _take(descriptor, out)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _take(descriptor: int, out: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            who = os.pread(descriptor, 200, 0).decode(errors="replace") or "another process"
            raise ValueError(f"a run is at work there ({who}). Wait for its end, or choose another out.") from error
        if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
            raise
        logger.warning("%s is on a file system without locks (%s): start no other run in it", out, error.strerror)


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
