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

from augpipe.datasets.files.atomic import write_atomically
from augpipe.trainer.checkpoint import Checkpoint, agree_on_newest
from augpipe.trainer.checkpoint.checkpoints_folder import finished, put_back_replaced, remove_unfinished
from augpipe.trainer.config.load import differences, load_config, to_toml
from augpipe.trainer.config.tables import RunConfig
from augpipe.trainer.loop.world import World

_LOCK = ".lock"

logger = logging.getLogger("augpipe.trainer")


def open_folder(config: RunConfig, world: World, held: ExitStack) -> Checkpoint | None:
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
            held.enter_context(_locked(out))
            _look_for_checkpoints(config, out)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            problem = [f"out={config.out!r} cannot be used: {reason}"]
    dist.broadcast_object_list(problem, group=world.control, group_src=0)
    if problem[0] is not None:
        raise ValueError(problem[0])
    path = agree_on_newest(checkpoints_path(out), world.control)
    return None if path is None else Checkpoint(path, world.control)


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


def _look_for_checkpoints(config: RunConfig, out: Path) -> None:
    folder = checkpoints_path(out)
    put_back_replaced(folder)
    if config.checkpoint.resume == "never" and finished(folder):
        raise ValueError(
            f'it holds checkpoints of an earlier run, and checkpoint.resume="never". Choose another out, remove '
            f'{folder}, or set checkpoint.resume="auto" to go on.'
        )
