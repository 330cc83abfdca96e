"""The sticky order: golden values, its definition, seeds of ranks, memory, and how samples of two ranks meet."""

import zlib

import numpy as np
import pytest

from augpipe.gpu_ops.random.permutation import permute
from augpipe.gpu_ops.random.philox import draws
from augpipe.sampling.epoch_order import rank_positions, rank_seed, sticky_sample_ids

# Part of a run's reproducibility, as the plain order is: these change with a new major version, and with nothing less.
GOLDEN = [
    # num_samples, seed, epoch, rank, world_size, the rank's first samples
    (1, 0, 0, 0, 1, [0]),
    (10, 0, 0, 0, 1, [8, 6, 0, 9, 5, 2, 3, 4, 7, 1]),
    (10, 0, 0, 0, 2, [8, 6, 0, 2, 4]),
    (10, 0, 0, 1, 2, [9, 3, 5, 1, 7]),
    (10, 0, 1, 1, 2, [7, 3, 9, 1, 5]),
    (11, 2**64 - 1, 2**32 - 1, 2, 3, [8, 5, 2]),
    (1_281_167, 0, 0, 0, 8, [495408, 903072, 97048, 346176, 524360]),
    (1_281_167, 0, 0, 7, 8, [332103, 638671, 111967, 987807, 276631]),
    (2**32, 7, 3, 5, 6, [1244260127, 2305486583, 3802944173, 2065518389]),
]


def first_ids(num: int, num_samples: int, seed: int, epoch: int, rank: int, world_size: int) -> list[int]:
    """A rank's first `num` samples of an epoch."""
    positions = rank_positions(0, num_samples, num, rank, world_size)
    return sticky_sample_ids(positions, num_samples, seed, epoch, rank, world_size).tolist()


@pytest.mark.parametrize(("num_samples", "seed", "epoch", "rank", "world_size", "expected"), GOLDEN)
def test_golden_orders(
    num_samples: int, seed: int, epoch: int, rank: int, world_size: int, expected: list[int]
) -> None:
    assert first_ids(len(expected), num_samples, seed, epoch, rank, world_size) == expected


def test_the_order_follows_its_description() -> None:
    num_samples, seed, epoch, rank, world_size = 1001, 2**35 + 3, 6, 2, 4
    block = draws(seed, 0, [rank], zlib.crc32(b"augpipe.order.sticky"), 2)[0].tolist()
    assert rank_seed(seed, rank) == block[0] + block[1] * 2**32
    owned = np.arange(rank, num_samples, world_size)
    expected = owned[permute(np.arange(len(owned)), len(owned), rank_seed(seed, rank), epoch)]
    assert first_ids(250, num_samples, seed, epoch, rank, world_size) == expected.tolist()


def test_ranks_and_seeds_have_seeds_of_their_own() -> None:
    seeds = (0, 1, 2**32, 2**64 - 1)
    found = [rank_seed(seed, rank) for seed in seeds for rank in range(500)]
    assert len({*found, *seeds}) == len(found) + len(seeds)
    assert all(type(seed) is int and 0 <= seed < 2**64 for seed in found)
    assert max(found) > 2**63 and min(found) < 2**60


def test_samples_stand_at_the_plain_orders_positions_and_nowhere_else() -> None:
    positions = rank_positions(12, 50, 4, 2, 3)
    assert sticky_sample_ids(positions, 50, 1, 1, 2, 3).shape == positions.shape == (4,)
    for wrong in (positions + 1, np.array([2, 5, 7])):
        with pytest.raises(AssertionError, match="cut by one world size"):
            sticky_sample_ids(wrong, 50, 1, 1, 2, 3)
