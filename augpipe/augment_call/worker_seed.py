"""A seed of its own for each worker process, so that copies of one transform do not draw alike."""

import hashlib
import multiprocessing
import os

from augpipe.validation.torch_worker import torch_worker_seed


def worker_seed(seed: int, is_forked: bool) -> int:
    """The seed that images without sample ids are drawn by in this process, 0..2^64 - 1.

    In a worker of torch's DataLoader it is made of `seed` and of the worker's own seed, which torch draws again for
    each epoch from its generator, so that a run with a seeded torch repeats. In another process of multiprocessing it
    is made of `seed` and the process's name, as `ForkPoolWorker-1`. In the main process it is `seed`.

    Args:
        seed: the transform's.
        is_forked: whether the transform was made before this process was forked from another one. By `os.fork`
            alone, where processes have no names, it is then drawn by the process's number, which no run repeats.
    """
    by_torch = torch_worker_seed()
    if by_torch is not None:
        return _mixed(seed, f"torch {by_torch}")
    if multiprocessing.parent_process() is not None:
        return _mixed(seed, f"process {multiprocessing.current_process().name}")
    return _mixed(seed, f"fork {os.getpid()}") if is_forked else seed


def _mixed(seed: int, worker: str) -> int:
    return int.from_bytes(hashlib.blake2b(f"{seed} {worker}".encode(), digest_size=8).digest(), "little")
