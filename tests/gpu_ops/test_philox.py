"""Philox against Random123's published answers and against plain Python, and the streams of samples and ops."""

import itertools

import numpy as np
import pytest
from scipy.stats import chi2

from augpipe.gpu_ops.random.philox import draws, integers, philox_block, philox_round, seed_key, uniform

ONES = 0xFFFFFFFF
NUM = 200_000

# Random123 (Salmon et al.), file kat_vectors, the lines "philox4x32 10"
KNOWN_ANSWERS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((ONES, ONES, ONES, ONES), (ONES, ONES), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


def reference(counter, key):
    """The paper's definition in Python's own integers."""
    (c0, c1, c2, c3), (k0, k1) = counter, key
    for _ in range(10):
        high0, low0 = divmod(0xD2511F53 * c0, 2**32)
        high1, low1 = divmod(0xCD9E8D57 * c2, 2**32)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return c0, c1, c2, c3


def as_words(*numbers):
    return [np.uint64(number) for number in numbers]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN_ANSWERS)
def test_known_answers(counter, key, expected):
    assert philox_block(*as_words(*counter, *key)) == expected
    assert reference(counter, key) == expected  # so that the other tests may lean on it


@pytest.mark.parametrize("leaf", [philox_round, philox_block])
def test_plain_python_equals_compiled(leaf):
    for row in [*np.random.default_rng(1).integers(0, 2**32, (50, 6)).tolist(), [ONES] * 6, [0] * 6]:
        assert leaf.py_func(*as_words(*row)) == leaf(*as_words(*row))


def test_inputs_are_left_alone_and_may_be_read_only():
    ids = np.arange(8, dtype=np.uint32)
    ids.flags.writeable = False
    draws(5, 0, ids, 0, 4)
    assert ids.tolist() == list(range(8))


def test_seed_gives_its_lower_word_first():
    assert seed_key(0x0123456789ABCDEF).tolist() == [0x89ABCDEF, 0x01234567]
    assert seed_key(2**64 - 1).tolist() == [ONES, ONES]
    assert seed_key(np.uint64(7)).dtype == np.uint32


@pytest.mark.parametrize("num_words", [0, 1, 3, 4, 5, 11])
def test_draws_are_the_blocks_of_their_counters(num_words):
    seed, epoch, op_id, ids = 2**63 + 17, ONES, 0xDEADBEEF, [0, 5, ONES]
    key = (seed % 2**32, seed // 2**32)
    blocks = [[reference((block, op_id, sample, epoch), key) for block in range(3)] for sample in ids]
    words = draws(seed, epoch, ids, op_id, num_words)
    assert words.shape == (3, num_words)
    assert words.dtype == np.uint32
    assert words.tolist() == [list(itertools.chain(*row))[:num_words] for row in blocks]


def test_draws_do_not_depend_on_the_batch():
    ids = np.random.default_rng(3).permutation(1000)
    whole = draws(7, 1, ids, 2, 6)
    parts = [draws(7, 1, part, 2, 6) for part in np.split(ids, [1, 10, 333])]
    assert np.array_equal(whole, np.concatenate(parts))
    assert np.array_equal(draws(7, 1, ids[::-1], 2, 6), whole[::-1])


def test_every_seed_epoch_sample_op_has_words_of_its_own():
    rows = [
        tuple(row)
        for seed, epoch, op_id in itertools.product((0, 1, 2, 2**32, 2**33), (0, 1, 2), (0, 1, 2))
        for row in draws(seed, epoch, [0, 1, 2], op_id, 4).tolist()
    ]
    assert len(set(rows)) == len(rows) == 5 * 3 * 3 * 3


def test_no_samples():
    assert draws(0, 0, [], 0, 3).shape == (0, 3)


@pytest.mark.parametrize("word", range(5))
def test_words_are_evenly_spread(word):
    """Chi-square over 256 bins of the top and of the bottom byte; the seed is fixed, so it passes or fails for good."""
    words = draws(11, 4, np.arange(NUM), 99, 5)[:, word]
    for byte in (words >> 24, words & 255):
        statistic = _chi_square(np.bincount(byte, minlength=256))
        assert chi2.ppf(1e-4, 255) < statistic < chi2.ppf(1 - 1e-4, 255)


def test_neighbours_are_independent():
    """Pairs along each axis of the counter: chi-square over 16 x 16 bins of both words' top four bits."""
    by_sample = draws(11, 0, np.arange(NUM + 1), 5, 2)
    pairs = {
        "words of a row": (by_sample[:, 0], by_sample[:, 1]),
        "samples": (by_sample[:-1, 0], by_sample[1:, 0]),
        "ops": (by_sample[:, 0], draws(11, 0, np.arange(NUM + 1), 6, 1)[:, 0]),
        "epochs": (by_sample[:, 0], draws(11, 1, np.arange(NUM + 1), 5, 1)[:, 0]),
        "seeds": (by_sample[:, 0], draws(12, 0, np.arange(NUM + 1), 5, 1)[:, 0]),
    }
    for name, (first, second) in pairs.items():
        statistic = _chi_square(np.bincount((first >> 28) * 16 + (second >> 28), minlength=256))
        assert chi2.ppf(1e-4, 255) < statistic < chi2.ppf(1 - 1e-4, 255), name


def test_uniform_is_exact():
    numbers = uniform(np.array([[0, 1], [2**31, ONES]], np.uint32))
    assert numbers.dtype == np.float64
    assert numbers.tolist() == [[0.0, 2.0**-32], [0.5, 1.0 - 2.0**-32]]


def test_integers_are_exact():
    words = np.array([0, 1, 2**31 - 1, 2**31, ONES - 1, ONES], np.uint32)
    for n in (1, 2, 3, 7, 1000, 2**31 + 1, 2**32 - 1, 2**32):
        drawn = integers(words, n)
        assert drawn.dtype == np.int64
        assert drawn.tolist() == [int(word) * n // 2**32 for word in words]


def test_integers_broadcast():
    words = draws(1, 1, np.arange(50), 1, 3)
    each = np.arange(1, 51)
    drawn = integers(words, each[:, None])
    assert drawn.shape == (50, 3)
    assert drawn.tolist() == [integers(words[i], i + 1).tolist() for i in range(50)]
    assert integers(words[:, 0], each).tolist() == drawn[:, 0].tolist()


def test_integers_reach_each_value_evenly():
    statistic = _chi_square(np.bincount(integers(draws(3, 0, np.arange(NUM), 1, 1)[:, 0], 41), minlength=41))
    assert chi2.ppf(1e-4, 40) < statistic < chi2.ppf(1 - 1e-4, 40)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: seed_key(-1), r"^seed must lie in 0\.\.18446744073709551615, but is -1\. Choose"),
        (lambda: seed_key(2**64), "^seed must lie in .* but is 18446744073709551616"),
        (lambda: seed_key(1.5), r"^seed must be a whole number, but is 1\.5 \(float\)\. Give an int"),
        (lambda: draws(0, 2**32, [0], 0, 1), r"^epoch must lie in 0\.\.4294967295, but is 4294967296"),
        (lambda: draws(0, 0, [0], -1, 1), "^op_id must lie in .* but is -1"),
        (lambda: draws(0, 0, [0], 0, -1), "^num_words must lie in .* but is -1"),
        (lambda: draws(0, 0, [3, -1, 2**32], 0, 1), r"^sample_ids must lie in 0\.\.4294967295, but holds -1\."),
        (lambda: draws(0, 0, [2**32], 0, 1), "^sample_ids must lie in .* but holds 4294967296"),
        (lambda: draws(0, 0, [0.0], 0, 1), "^sample_ids must be whole numbers, but has dtype float64"),
        (lambda: draws(0, 0, [[0]], 0, 1), r"^sample_ids must have shape \(n,\), but has \(1, 1\)"),
        (lambda: uniform(np.array([1])), "^words must be uint32, but has dtype int64"),
        (lambda: integers(np.array([1.0]), 2), "^words must be uint32, but has dtype float64"),
        (lambda: integers(np.zeros(1, np.uint32), 0), r"^n must lie in 1\.\.4294967296, but holds 0"),
        (lambda: integers(np.zeros(2, np.uint32), [5, 2**32 + 1]), "^n must lie in .* but holds 4294967297"),
        (lambda: integers(np.zeros(1, np.uint32), 2.0), "^n must be whole numbers, but has dtype float64"),
    ],
)
def test_errors_name_the_argument_and_the_value(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def _chi_square(counts):
    expected = counts.sum() / len(counts)
    return float(((counts - expected) ** 2).sum() / expected)
