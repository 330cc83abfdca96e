"""The order of samples: a keyed permutation cut by global position, so that nobody needs a list."""

import numpy as np
import numpy.typing as npt

from augpipe.gpu_ops.permutation import permute

Int = npt.NDArray[np.int64]


def rank_positions(first: int, num_samples: int, batch_size: int, rank: int, world_size: int) -> Int:
    """The positions of the epoch's order that fall to `rank` in the global batch that starts at position `first`.

    A global batch is `batch_size` * `world_size` positions, fewer at the epoch's end; a rank takes every
    `world_size`-th of them. Together the ranks take each position once.
    """
    last = min(first + batch_size * world_size, num_samples)
    return np.arange(first + rank, last, world_size, dtype=np.int64)


def sample_ids(positions: Int, num_samples: int, seed: int, epoch: int, shuffle: bool) -> Int:
    """Which samples stand at these positions of the epoch's order."""
    return permute(positions, num_samples, seed, epoch) if shuffle else positions


def num_batches(num_samples: int, batch_size: int, world_size: int, drop_last: bool) -> int:
    """Global batches in `num_samples` positions, the last one cut short unless dropped."""
    per_batch = batch_size * world_size
    return num_samples // per_batch if drop_last else -(-num_samples // per_batch)
