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

from augpipe.gpu_ops.jit import kernel, leaf
from augpipe.gpu_ops.random.philox import LOW_32_BITS, SHIFT_32, Words, draws, whole_number, whole_numbers

Ids = npt.NDArray[np.int64]

MAX_SAMPLES = 2**32
"""Sample ids are one word of a Philox counter."""

ORDER_STREAM = zlib.crc32(b"augpipe.order")
"""The Philox op id under which the round keys are drawn, as sample 0."""

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
