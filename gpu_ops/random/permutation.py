"""The order of samples in an epoch: a keyed permutation of 0..num - 1, computed for each position by itself.

A position is laid out as a row and a column of a table that holds at least `num` places. Each round shifts the row by a
hash of the column and then the column by a hash of the row, modulo the table's sides: a Feistel network on two numbers
that need not be powers of two (Black & Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002, method 3). Where
it leads past `num`, it is applied again until it does not ("cycle walking", method 2 there), which makes it a
permutation of 0..num - 1. But for a handful of samples, the table has fewer than sqrt(num) + 3 places too many, so that
about one walk in sqrt(num) needs a second step.
"""

import math
import zlib
from typing import SupportsIndex

import numpy as np
import numpy.typing as npt

from augpipe.gpu_ops.compiled.declared import declare
from augpipe.gpu_ops.jit import kernel, leaf
from augpipe.gpu_ops.random.philox import (
    LOW_32_BITS,
    MAX_WORD,
    SHIFT_32,
    Words,
    draws,
    philox_block,
    seed_key,
    whole_number,
    whole_numbers,
)

Ids = npt.NDArray[np.int64]

MAX_SAMPLES = 2**32
"""Sample ids are one word of a Philox counter."""

ORDER_STREAM = zlib.crc32(b"augpipe.order")
"""The Philox op id under which the round keys are drawn, as sample 0."""

GROUP_STREAM = zlib.crc32(b"augpipe.order.groups")
"""The Philox op id under which the round keys of a group's pass are drawn: the group stands in the sample id's place,
the pass in the epoch's."""

NUM_ROUND_KEYS = 16
"""Half of them shift rows, half columns. Measured over 4 million seeds, how often each of the num! orders came was
indistinguishable from even (chi-square) for every num of 2..8 with 16; with 10 it was not for 4 and 5."""

MIN_SIDE = 4
"""The least side of the table: the fewer rows or columns, the more rounds it takes to mix. With sides of 2, 16 keys
were too few for 5..8 samples."""


@leaf
def mix(word, key):
    """A 32-bit hash in which each bit of `word ^ key` changes about half of the result's (MurmurHash3's finaliser)."""
    word = word ^ key
    word = ((word ^ (word >> np.uint64(16))) * np.uint64(0x85EBCA6B)) & LOW_32_BITS
    word = ((word ^ (word >> np.uint64(13))) * np.uint64(0xC2B2AE35)) & LOW_32_BITS
    return word ^ (word >> np.uint64(16))


@leaf
def shifted(value, other, key, size):
    """`value` moved up, modulo `size`, by a hash of `other`; all are uint64 below 2^32."""
    moved = value + ((mix(other, key) * size) >> SHIFT_32)
    return moved - size if moved >= size else moved


@kernel()
def _walk(positions, num, num_rows, num_columns, keys, ids):
    for i in range(len(positions)):
        place = np.uint64(positions[i])
        while True:
            row = place // num_columns
            column = place - row * num_columns
            for k in range(0, len(keys), 2):
                row = shifted(row, column, np.uint64(keys[k]), num_rows)
                column = shifted(column, row, np.uint64(keys[k + 1]), num_columns)
            place = row * num_columns + column
            if place < num:
                break
        ids[i] = np.int64(place)


declare(
    __name__,
    _walk,
    any=lambda: (
        np.zeros(1, np.int64), *np.ones(3, np.uint64), np.zeros(NUM_ROUND_KEYS, np.uint32), np.zeros(1, np.int64)
    ),
)  # fmt: skip


@kernel()
def _walk_groups(places, groups, passes, nums, num_rows, num_columns, stream, key, ids):
    keys = np.empty(NUM_ROUND_KEYS, np.uint64)
    for i in range(len(places)):
        group = groups[i]
        for k in range(0, NUM_ROUND_KEYS, 4):
            keys[k], keys[k + 1], keys[k + 2], keys[k + 3] = philox_block(
                np.uint64(k // 4), np.uint64(stream), np.uint64(group), np.uint64(passes[i]), key[0], key[1]
            )
        place = np.uint64(places[i])
        while True:
            row = place // num_columns[group]
            column = place - row * num_columns[group]
            for k in range(0, NUM_ROUND_KEYS, 2):
                row = shifted(row, column, keys[k], num_rows[group])
                column = shifted(column, row, keys[k + 1], num_columns[group])
            place = row * num_columns[group] + column
            if place < nums[group]:
                break
        ids[i] = np.int64(place)


declare(
    __name__,
    _walk_groups,
    groups=lambda: (
        *np.ones((3, 1), np.int64),
        *np.ones((3, 1), np.uint64),
        1,
        np.ones(2, np.uint64),
        np.ones(1, np.int64),
    ),
)


def permute(positions: npt.ArrayLike, num: SupportsIndex, seed: SupportsIndex, epoch: SupportsIndex) -> Ids:
    """Which sample stands at each position of an epoch's order.

    Takes memory for the positions asked for alone, and about the same time for each, whatever `num` is. An order is
    part of a run's reproducibility: it never changes within a major version.

    Args:
        positions: whole numbers in 0..num - 1, of any shape.
        num: how many samples there are, 1..2^32.
        seed: 0..2^64 - 1.
        epoch: 0..2^32 - 1.

    Returns:
        int64 sample ids in 0..num - 1, in the shape of `positions`.

    Raises:
        ValueError: an argument is not a whole number or out of range.
    """
    count = whole_number("num", num, 1, MAX_SAMPLES)
    places = whole_numbers("positions", positions, 0, count - 1).astype(np.int64)
    ids = np.empty(places.size, np.int64)
    _walk(places.ravel(), np.uint64(count), *sides(count), round_keys(seed, epoch), ids)
    return ids.reshape(places.shape)


class GroupOrders:
    """Keyed permutations of several groups of samples, a new one for each pass over a group.

    Args:
        nums: (G,) how many samples each group holds, 0..2^32; one that holds none is never asked for.
    """

    def __init__(self, nums: npt.ArrayLike) -> None:
        self._nums = whole_numbers("nums", nums, 0, MAX_SAMPLES).astype(np.uint64)
        shapes = np.array([sides(max(num, 1)) for num in self._nums.tolist()], np.uint64).reshape(-1, 2)
        self._num_rows, self._num_columns = np.ascontiguousarray(shapes.T)

    def permute(self, places: Ids, groups: Ids, passes: Ids, seed: SupportsIndex) -> Ids:
        """Which sample of its group stands at each place of a pass over it, about 0.2 us each, in constant memory.

        Args:
            places: (B,) in 0..nums[group] - 1.
            groups: (B,) in 0..G - 1.
            passes: (B,) 0..2^32 - 1, which pass over the group.
            seed: 0..2^64 - 1.

        Returns:
            (B,) int64 in 0..nums[group] - 1.
        """
        assert len(places) == len(groups) == len(passes)
        assert np.all(places < self._nums[groups]) and np.all((passes >= 0) & (passes <= MAX_WORD))
        ids = np.empty(len(places), np.int64)
        key = seed_key(seed).astype(np.uint64)
        _walk_groups(places, groups, passes, self._nums, self._num_rows, self._num_columns, GROUP_STREAM, key, ids)
        return ids


def sides(num: int) -> tuple[np.uint64, np.uint64]:
    """(rows, columns) of a nearly square table of at least `num` places.

    The number of rows is even: then shifting rows is as often an odd permutation of the table as an even one. With two
    odd sides (or with exclusive-or for the shift, and sides above 2) only the even half of its orders could be reached.
    """
    num_rows = max(math.isqrt(num - 1) + 1, MIN_SIDE)
    num_rows += num_rows % 2
    return np.uint64(num_rows), np.uint64(max(-(-num // num_rows), MIN_SIDE))


def round_keys(seed: SupportsIndex, epoch: SupportsIndex) -> Words:
    """(NUM_ROUND_KEYS,) the keys of one epoch's order, alternately for the rows and for the columns."""
    return draws(seed, epoch, [0], ORDER_STREAM, NUM_ROUND_KEYS).ravel()
