"""The order of samples: a keyed permutation cut by global position, so that nobody needs a list."""

import zlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from augpipe.gpu_ops.random.permutation import permute
from augpipe.gpu_ops.random.philox import draws
from augpipe.validation.arguments import as_count, as_epoch, as_whole

Int = npt.NDArray[np.int64]

STICKY_STREAM = zlib.crc32(b"augpipe.order.sticky")
"""The Philox op id under which the ranks' seeds are drawn, with the rank in the sample id's place, in epoch 0."""

PARTNER_BLOCK = 64
"""Positions that find their partners for mixing among themselves."""

MIXING_PARTNERS = {1: 32, 4: 8, 9: 2}
"""By which bit the partner of a position in mixing differs from it, by the images that each shows."""

MOSAIC_PARTNERS = np.array([32, 16, 48, 8, 40, 24, 56, 4])
"""By which bits the partners of a position in a mosaic differ from it."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a batch lies among the epochs, for `Loader.batches`; its samples stand at `rank_positions`.

    Raises:
        ValueError: a number is out of range.
    """

    epoch: int
    """0..2^32 - 1."""
    first: int
    """The position in the epoch's order at which the global batch begins, from 0."""
    rank: int = 0
    """Whose part of the global batch it is, 0..world_size - 1."""
    world_size: int = 1
    """Ranks that share the global batch, which is `batch_size` * `world_size` positions, fewer at the epoch's end."""

    def __post_init__(self) -> None:
        epoch, world_size = as_epoch(self.epoch), as_count("world_size", self.world_size)
        first, rank = as_whole("first", self.first), as_whole("rank", self.rank)
        for name, value in (("epoch", epoch), ("first", first), ("rank", rank), ("world_size", world_size)):
            object.__setattr__(self, name, value)  # numpy's small integers would overflow
        if first < 0:
            raise ValueError(f"first={first} must be at least 0, where an epoch begins.")
        if not 0 <= rank < world_size:
            raise ValueError(
                f"rank={rank} must lie in 0..world_size - 1, which is 0..{world_size - 1}. Number the ranks "
                "from 0, or raise world_size."
            )


def rank_positions(first: int, num_samples: int, batch_size: int, rank: int, world_size: int) -> Int:
    """The positions of the epoch's order that fall to `rank` in the global batch that starts at position `first`.

    A global batch is `batch_size` * `world_size` positions, fewer at the epoch's end; a rank takes every
    `world_size`-th of them. Together the ranks take each position once.
    """
    last = min(first + batch_size * world_size, num_samples)
    return np.arange(first + rank, last, world_size, dtype=np.int64)


def partners(positions: Int, num_positions: int, num_images: int = 1) -> Int:
    """The positions whose samples are mixed with those at these: another one each, and each for one alone.

    Within whole blocks of 64 that is the position XOR 32, so that two are each other's partner, on the same rank and in
    the same batch for the usual sizes of both; where mosaics of `num_images` are mixed it is the position XOR 8, or of
    nine images XOR 2, as those two show no image in common. What is left, or with too few positions left the last block
    too, is a circle in which the partner lies half around. In an epoch of one position that is its own partner.
    """
    num_left = _num_left(num_positions, num_images)
    start = num_positions - num_left
    around = start + (positions - start + max(1, num_left // 2)) % max(1, num_left)
    return np.where(positions < start, positions ^ MIXING_PARTNERS[num_images], around)


def mosaic_partners(positions: Int, num_positions: int, num_images: int) -> Int:
    """(n, num_images - 1) positions whose samples stand with those at (n,) positions in a mosaic.

    Within whole blocks of 64 they are the positions XOR 32, 16 and 48, and of nine images XOR 8, 40, 24, 56 and 4, too;
    else the next ones of a circle of what is left.
    """
    num_left = _num_left(num_positions, num_images)
    start = num_positions - num_left
    around = start + (positions[:, None] - start + np.arange(1, num_images)) % max(1, num_left)
    return np.where(positions[:, None] < start, positions[:, None] ^ MOSAIC_PARTNERS[: num_images - 1], around)


def _num_left(num_positions: int, num_images: int) -> int:
    """Positions behind the whole blocks, and those of the last block too where they are too few for partners."""
    num_left = num_positions % PARTNER_BLOCK
    are_few = num_left < num_images if num_images > 1 else num_left == 1
    return num_left + PARTNER_BLOCK if are_few and num_positions > PARTNER_BLOCK else num_left


def sample_ids(positions: Int, num_samples: int, seed: int, epoch: int, shuffle: bool) -> Int:
    """Which samples stand at these positions of the epoch's order."""
    return permute(positions, num_samples, seed, epoch) if shuffle else positions


def sticky_sample_ids(positions: Int, num_samples: int, seed: int, epoch: int, rank: int, world_size: int) -> Int:
    """Which samples stand at a rank's positions of an epoch in which every rank keeps its own samples.

    Rank r owns the samples with ids ≡ r (mod `world_size`), as many as it has positions, and puts them in another order
    each epoch. Ranks do so by seeds of their own: by one seed for all, samples r apart would meet in a global batch
    every epoch, and neighbours in a source are often of one class. What it costs: two samples of one rank never lie in
    batches of two ranks, and a global batch holds as many samples of each rank, where a plain shuffle draws freely.

    Args:
        positions: of `rank_positions`, so all ≡ rank (mod `world_size`): a global batch must begin at a multiple of
            `world_size`, as it does in a run that has kept its world size since the epoch began.
        num_samples: of all ranks.
        seed: 0..2^64 - 1.
        epoch: 0..2^32 - 1.
        rank, world_size: whose positions they are.
    """
    assert np.all(positions % world_size == rank), "an epoch of sticky samples is cut by one world size"
    num_owned = len(range(rank, num_samples, world_size))
    if num_owned == 0:
        return positions  # there are more ranks than samples
    return permute(positions // world_size, num_owned, rank_seed(seed, rank), epoch) * world_size + rank


def rank_seed(seed: int, rank: int) -> int:
    """The seed, 0..2^64 - 1, by which a rank shuffles the samples that it owns."""
    low, high = draws(seed, 0, [rank], STICKY_STREAM, 2)[0].tolist()
    return int(low) | int(high) << 32


def num_batches(num_samples: int, batch_size: int, world_size: int, drop_last: bool) -> int:
    """Global batches in `num_samples` positions, the last one cut short unless dropped."""
    per_batch = batch_size * world_size
    return num_samples // per_batch if drop_last else -(-num_samples // per_batch)
