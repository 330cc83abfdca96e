"""An alias table: numbers 0..n - 1 drawn by weight, in constant time and 8 bytes a number.

Source: Walker, "An efficient method for generating discrete random variables with general distributions", 1977; Vose,
"A linear algorithm for generating random numbers with a given distribution", 1991. It is built from prefix sums, which
numpy adds fast (Hübschle-Schneider & Sanders, "Parallel weighted random sampling", 2019, section 4), and in whole
numbers, so that every machine builds the same one.
"""

import math
import zlib

import numpy as np
import numpy.typing as npt

from augpipe.gpu_ops.random.philox import SHIFT_32, Words

Ints = npt.NDArray[np.int64]

ONE = 2**32
"""What fills a column: the mean weight."""
MAX_NUM = 2**30
"""The sum of all columns stays below 2^63."""


class AliasTable:
    """Column i is number i with the probability `kept[i]` / 2^32, and number `alias[i]` otherwise.

    Args:
        weights: (n,) float64, finite and at least 0, not all 0.

    Raises:
        ValueError: there are too many.
    """

    def __init__(self, weights: npt.NDArray[np.float64]) -> None:
        num = len(weights)
        if num > MAX_NUM:
            raise ValueError(f"{num} weights are more than 2^30. Draw from a part of the source, by augpipe.sources.")
        masses = _masses(weights)
        is_light = masses < ONE
        light, heavy = np.flatnonzero(is_light), np.flatnonzero(~is_light)
        # what light columns lack, before each of them and after it, and what heavy ones have too much, after each
        lacking = np.concatenate([[0], np.cumsum(ONE - masses[light])])
        spare = np.cumsum(masses[heavy] - ONE)
        assert lacking[-1] == spare[-1]
        self._kept = np.zeros(num, np.uint32)
        self._alias = np.arange(num, dtype=np.uint32)
        self._kept[light] = masses[light]
        self._alias[light] = heavy[np.searchsorted(spare, lacking[:-1], side="right")]
        # a heavy column fills light ones until it is one itself, which the next heavy one fills
        left = ONE + spare - lacking[np.searchsorted(lacking, spare)]
        is_cut = left < ONE
        self._kept[heavy[is_cut]] = left[is_cut]
        self._alias[heavy[:-1][is_cut[:-1]]] = heavy[1:][is_cut[:-1]]

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def num_bytes(self) -> int:
        """Its size in memory."""
        return self._kept.nbytes + self._alias.nbytes

    def find(self, words: Words) -> Ints:
        """The numbers that (B, 3) random words draw: (B,) int64. Two words find the column, exactly to 2^-64 * n."""
        num, (high, low, coin) = np.uint64(len(self)), words.astype(np.uint64).T
        columns = (high * num + (low * num >> SHIFT_32)) >> SHIFT_32
        columns = columns.astype(np.int64)
        found: Ints = np.where(coin < self._kept[columns], columns, self._alias[columns].astype(np.int64))
        return found

    def may_come(self, numbers: Ints) -> npt.NDArray[np.bool_]:
        """(B,) whether the probability of each is above 0."""
        found: npt.NDArray[np.bool_] = (self._kept[numbers] > 0) | (self._alias[numbers] == numbers)
        return found

    def checksum(self) -> int:
        """CRC-32 of the table."""
        return zlib.crc32(self._alias.tobytes(), zlib.crc32(self._kept.tobytes()))


def _masses(weights: npt.NDArray[np.float64]) -> Ints:
    """(n,) whole numbers in proportion to the weights, which add up to n * `ONE`; those of weight 0 are 0."""
    num = len(weights)
    # fsum rounds once: a sum in another order, as by another numpy, would be another table
    masses = np.floor(weights / math.fsum(weights) * (num * float(ONE))).astype(np.int64)
    masses[np.argmax(masses)] += num * ONE - int(masses.sum())
    return masses
