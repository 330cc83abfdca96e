"""Philox4x32-10: random 32-bit words as a pure function of a seed and a counter, with no state to carry.

Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011; the constants are those of
its reference implementation, Random123. A word travels as a uint64 below 2^32: so products need no second type, and
sums and shifts mean the same in plain Python, in a CPU loop and on CUDA.
"""

import operator
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from augpipe.gpu_ops.compiled.declared import declare
from augpipe.gpu_ops.jit import kernel, leaf

Words = npt.NDArray[np.uint32]

MAX_WORD = 2**32 - 1
MAX_SEED = 2**64 - 1
NUM_ROUNDS = 10
LOW_32_BITS = np.uint64(MAX_WORD)
SHIFT_32 = np.uint64(32)
MULTIPLIER_0 = np.uint64(0xD2511F53)
MULTIPLIER_1 = np.uint64(0xCD9E8D57)
KEY_STEP_0 = np.uint64(0x9E3779B9)  # the golden ratio's fraction
KEY_STEP_1 = np.uint64(0xBB67AE85)  # the fraction of the square root of 3


@leaf
def philox_round(word0, word1, word2, word3, key0, key1):
    """One round: two products, whose halves change places and meet the other words and the key."""
    # a compiled leaf hands plain Python an int, which would come back here as an int64
    word0, word1, word2, word3 = np.uint64(word0), np.uint64(word1), np.uint64(word2), np.uint64(word3)
    product0 = MULTIPLIER_0 * word0
    product1 = MULTIPLIER_1 * word2
    return (
        (product1 >> SHIFT_32) ^ word1 ^ key0,
        product1 & LOW_32_BITS,
        (product0 >> SHIFT_32) ^ word3 ^ key1,
        product0 & LOW_32_BITS,
    )


@leaf
def philox_block(word0, word1, word2, word3, key0, key1):
    """The four random words of one counter; all six arguments and the results are uint64 below 2^32."""
    for _ in range(NUM_ROUNDS):
        word0, word1, word2, word3 = philox_round(word0, word1, word2, word3, key0, key1)
        key0 = (key0 + KEY_STEP_0) & LOW_32_BITS
        key1 = (key1 + KEY_STEP_1) & LOW_32_BITS
    return word0, word1, word2, word3


@kernel()
def _fill_draws(key, epoch, sample_ids, op_ids, words):
    key0, key1 = np.uint64(key[0]), np.uint64(key[1])
    num_words = words.shape[1]
    for i in range(len(sample_ids)):
        for first in range(0, num_words, 4):
            word0, word1, word2, word3 = philox_block(
                np.uint64(first // 4), np.uint64(op_ids[i]), np.uint64(sample_ids[i]), np.uint64(epoch), key0, key1
            )
            words[i, first] = word0
            if first + 1 < num_words:
                words[i, first + 1] = word1
            if first + 2 < num_words:
                words[i, first + 2] = word2
            if first + 3 < num_words:
                words[i, first + 3] = word3


declare(
    __name__,
    _fill_draws,
    any=lambda: (np.zeros(2, np.uint32), 0, *np.zeros((2, 1), np.uint32), np.zeros((1, 4), np.uint32)),
)


def seed_key(seed: SupportsIndex) -> Words:
    """(2,) the key of a seed in 0..2^64 - 1, its lower word first.

    Raises:
        ValueError: the seed is not a whole number, or out of range.
    """
    number = whole_number("seed", seed, 0, MAX_SEED)
    return np.array([number & MAX_WORD, number >> 32], np.uint32)


def draws(
    seed: SupportsIndex, epoch: SupportsIndex, sample_ids: npt.ArrayLike, op_id: SupportsIndex, num_words: SupportsIndex
) -> Words:
    """The random words of one op for each sample: a row depends on its own sample id, never on the rest of the batch.

    Word i of a row is word i % 4 of the Philox block with the counter (i // 4, op_id, sample id, epoch) and the seed as
    the key; so the first words stay as they are when more are asked for.

    Args:
        seed: 0..2^64 - 1.
        epoch: 0..2^32 - 1.
        sample_ids: (n,) whole numbers in 0..2^32 - 1.
        op_id: 0..2^32 - 1; names a stream of its own.
        num_words: how many words for each sample, 0..2^32 - 1.

    Returns:
        (n, num_words) uint32.

    Raises:
        ValueError: an argument is not a whole number or out of range, or `sample_ids` is not one-dimensional.
    """
    ids = whole_numbers("sample_ids", sample_ids, 0, MAX_WORD).astype(np.uint32)
    if ids.ndim != 1:
        raise ValueError(f"sample_ids must have shape (n,), but has {ids.shape}. Flatten it.")
    op_ids = np.full(len(ids), whole_number("op_id", op_id, 0, MAX_WORD), np.uint32)
    epoch_word = whole_number("epoch", epoch, 0, MAX_WORD)
    return checked_draws(seed_key(seed), epoch_word, ids, op_ids, whole_number("num_words", num_words, 0, MAX_WORD))


def checked_draws(key: Words, epoch: int, sample_ids: Words, op_ids: Words, num_words: int) -> Words:
    """What `draws` gives, for arguments that were checked before, and with an op for each sample.

    Args:
        key: (2,) of `seed_key`.
        epoch: 0..2^32 - 1.
        sample_ids: (n,) uint32.
        op_ids: (n,) uint32.
        num_words: how many words for each sample.
    """
    words = np.empty((len(sample_ids), num_words), np.uint32)
    if words.size:  # a plan of nothing need not wait until the kernel is compiled
        _fill_draws(key, epoch, sample_ids, op_ids, words)
    return words


def uniform(words: Words) -> npt.NDArray[np.float64]:
    """Numbers evenly spread over 0 <= x < 1, in steps of 2^-32: word * 2^-32, exact in float64.

    Raises:
        ValueError: `words` is not uint32.
    """
    return _checked_words(words).astype(np.float64) * 2.0**-32


def integers(words: Words, n: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Whole numbers in 0..n - 1: floor(word * n / 2^32), exactly.

    Each number is hit by either floor(2^32 / n) or ceil(2^32 / n) of the 2^32 words, so its probability differs from
    1/n by less than 2^-32 (Lemire, "Fast random integer generation in an interval", 2019, without his rejection: a
    draw always costs one word).

    Args:
        words: uint32, any shape.
        n: how many numbers, 1..2^32; broadcast against `words`.

    Raises:
        ValueError: `words` is not uint32, or `n` is not a whole number or out of range.
    """
    counts = whole_numbers("n", n, 1, 2**32).astype(np.uint64)
    return ((_checked_words(words).astype(np.uint64) * counts) >> SHIFT_32).astype(np.int64)


def whole_number(name: str, value: SupportsIndex, low: int, high: int) -> int:
    """`value` as an int in low..high; ValueError names the argument otherwise."""
    try:
        number = operator.index(value)
    except TypeError:
        raise ValueError(
            f"{name} must be a whole number, but is {value!r} ({type(value).__name__}). Give an int."
        ) from None
    if not low <= number <= high:
        raise ValueError(f"{name} must lie in {low}..{high}, but is {number}. Choose a number in that range.")
    return number


def whole_numbers(name: str, values: npt.ArrayLike, low: int, high: int) -> npt.NDArray[Any]:
    """`values` as an array of whole numbers in low..high; ValueError names the argument and the first bad value."""
    numbers = np.asarray(values)
    if numbers.size == 0:
        return numbers.astype(np.int64)  # numpy takes an empty list for floats
    if numbers.dtype.kind not in "iu":
        raise ValueError(f"{name} must be whole numbers, but has dtype {numbers.dtype}. Give an integer array.")
    if int(numbers.min()) < low or int(numbers.max()) > high:
        bad = numbers[(numbers < low) | (numbers > high)][0]
        raise ValueError(f"{name} must lie in {low}..{high}, but holds {bad}. Choose numbers in that range.")
    return numbers


def _checked_words(words: Words) -> Words:
    array = np.asarray(words)
    if array.dtype != np.uint32:
        raise ValueError(f"words must be uint32, but has dtype {array.dtype}. Give what `draws` returns.")
    return array
