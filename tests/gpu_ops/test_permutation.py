"""The order of samples: golden values, even spread, no trace of the neighbour, no list in memory, errors."""

import itertools
import math
import tracemalloc
import zlib

import numpy as np
import pytest
from scipy.stats import chi2, poisson

from augpipe.gpu_ops.random.permutation import (
    GROUP_STREAM,
    NUM_ROUND_KEYS,
    GroupOrders,
    _walk,
    mix,
    permute,
    round_keys,
    shifted,
    sides,
)
from augpipe.gpu_ops.random.philox import draws

WHOLE_RANGE = 2**32

# The order of an epoch is part of a run's reproducibility: a resumed run must see the samples that it has not yet seen.
# These values may change with a new major version, and with nothing less.
GOLDEN = [
    (1, 0, 0, [0]),
    (2, 0, 0, [1, 0]),
    (10, 0, 0, [2, 9, 8, 3, 1, 4, 0, 5, 7, 6]),
    (10, 0, 1, [6, 5, 8, 1, 9, 0, 3, 2, 4, 7]),
    (10, 2**64 - 1, 2**32 - 1, [8, 6, 2, 9, 1, 7, 3, 0, 5, 4]),
    (1_281_167, 0, 0, [151344, 448634, 1139569, 474626, 40088]),
    (2**32, 7, 3, [2340723837, 3407103422, 3342579553, 1787042070, 4103752892]),
]


@pytest.mark.parametrize(("num", "seed", "epoch", "expected"), GOLDEN)
def test_golden_orders(num, seed, epoch, expected):
    ids = permute(range(len(expected)), num, seed, epoch)
    assert ids.dtype == np.int64
    assert ids.tolist() == expected


def test_order_follows_its_description():
    """The same network in Python's own integers, from the words of Philox on."""

    def hashed(word, key):
        word ^= key
        word = (word ^ word >> 16) * 0x85EBCA6B % 2**32
        word = (word ^ word >> 13) * 0xC2B2AE35 % 2**32
        return word ^ word >> 16

    def sample_at(place, num, num_rows, num_columns, keys):
        while True:
            row, column = divmod(place, num_columns)
            for row_key, column_key in zip(keys[::2], keys[1::2], strict=True):
                row = (row + hashed(column, row_key) * num_rows // 2**32) % num_rows
                column = (column + hashed(row, column_key) * num_columns // 2**32) % num_columns
            place = row * num_columns + column
            if place < num:
                return place

    keys = draws(5, 9, [0], zlib.crc32(b"augpipe.order"), 16).ravel().tolist()
    for num, num_rows, num_columns in ((3, 4, 4), (17, 6, 4), (1000, 32, 32), (1001, 32, 32), (1025, 34, 31)):
        assert sides(num) == (num_rows, num_columns)
        expected = [sample_at(place, num, num_rows, num_columns, keys) for place in range(num)]
        assert permute(np.arange(num), num, 5, 9).tolist() == expected


def test_plain_python_equals_compiled():
    for row in [*np.random.default_rng(1).integers(0, 2**32, (100, 4)).tolist(), [0, 0, 0, 1], [2**32 - 1] * 4]:
        size = np.uint64(max(row[3] % 2**16, 1))
        value, other, key = np.uint64(row[0] % int(size)), np.uint64(row[1]), np.uint64(row[2])
        assert mix.py_func(other, key) == mix(other, key) < 2**32
        moved = shifted.py_func(value, other, key, size)
        assert moved == shifted(value, other, key, size) < size


def test_table_is_hardly_larger_than_needed():
    for num in (*range(1, 2000), 10**6, 1_281_167, 2**31, 2**32 - 1, 2**32):
        num_rows, num_columns = (int(side) for side in sides(num))
        assert num_rows % 2 == 0
        assert num <= num_rows * num_columns < max(num + num_rows, 25)
        assert max(num_rows, num_columns) <= 2**16  # a hash of 32 bits spreads over a side


def test_keys_differ_between_seeds_epochs_and_rounds():
    keys = np.array([round_keys(seed, epoch) for seed in (0, 1, 2**32) for epoch in (0, 1, 2)])
    assert keys.shape == (9, NUM_ROUND_KEYS)
    assert len(np.unique(keys)) == keys.size


@pytest.mark.slow
@pytest.mark.parametrize("num", [2, 3, 4, 5])
def test_every_order_is_as_frequent(num):
    """Chi-square over all num! orders, 300 epochs each; seeds are fixed, so it passes or fails for good."""
    counts = dict.fromkeys(itertools.permutations(range(num)), 0)
    num_epochs = 300 * len(counts)
    for epoch in range(num_epochs):
        counts[tuple(permute(np.arange(num), num, 1, epoch).tolist())] += 1
    statistic = sum((count - 300) ** 2 / 300 for count in counts.values())
    assert chi2.ppf(1e-4, len(counts) - 1) < statistic < chi2.ppf(1 - 1e-4, len(counts) - 1)


@pytest.mark.parametrize("num", [16, 25, 36])
def test_odd_orders_are_as_frequent_as_even_ones(num):
    """Square tables without cycle walking are where a network may reach even permutations alone."""
    num_odd = sum(_is_odd(permute(np.arange(num), num, seed, 0).tolist()) for seed in range(1000))
    assert abs(num_odd - 500) < 4 * math.sqrt(250)


@pytest.mark.parametrize("num", [13, 64, 97])
def test_every_sample_is_as_frequent_at_every_position(num):
    num_epochs = 4000
    counts = np.zeros((num, num))
    for epoch in range(num_epochs):
        counts[np.arange(num), permute(np.arange(num), num, 2, epoch)] += 1
    expected = num_epochs / num
    statistic = ((counts - expected) ** 2).sum() / expected
    freedom = (num - 1) ** 2  # the rows and the columns add up by construction
    assert chi2.ppf(1e-4, freedom) < statistic < chi2.ppf(1 - 1e-4, freedom)


@pytest.mark.parametrize("num", [100, 1000])
def test_neighbours_do_not_stay_neighbours(num):
    """How far apart the samples of adjacent positions lie: each distance mod num is as likely as any other but 0."""
    counts = np.zeros(num, np.int64)
    for epoch in range(1000):
        counts += np.bincount(np.diff(permute(np.arange(num), num, 3, epoch)) % num, minlength=num)
    expected = 1000  # num - 1 pairs an epoch over num - 1 distances
    assert counts[0] == 0
    statistic = ((counts[1:] - expected) ** 2).sum() / expected
    assert chi2.ppf(1e-4, num - 2) < statistic < chi2.ppf(1 - 1e-4, num - 2)


@pytest.mark.slow
@pytest.mark.parametrize("num", [1000, 50_000, 1_000_003])
def test_no_correlation_within_nor_between_orders(num):
    positions = np.arange(num)
    first, next_epoch, next_seed = (
        permute(positions, num, 4, 0),
        permute(positions, num, 4, 1),
        permute(positions, num, 5, 0),
    )
    pairs = {
        "position and sample": (positions, first),
        "one position and the next": (first[:-1], first[1:]),
        "two epochs": (first, next_epoch),
        "two seeds": (first, next_seed),
        "two epochs, by sample": (np.argsort(first), np.argsort(next_epoch)),
    }
    for name, (a, b) in pairs.items():
        assert abs(np.corrcoef(a, b)[0, 1]) * math.sqrt(num) < 4, name
        # samples that stand where they stood: Poisson with mean 1, as for any random order (for "the next": steps of 0)
        assert np.count_nonzero(a == b) <= poisson.ppf(1 - 1e-6, 1), name


def test_seeds_and_epochs_have_orders_of_their_own():
    orders = [
        tuple(permute(np.arange(50), 50, seed, epoch).tolist())
        for seed in (0, 1, 2**32, 2**64 - 1)
        for epoch in (0, 1, 2, 2**32 - 1)
    ]
    assert len(set(orders)) == len(orders)


def test_four_billion_samples_need_no_list():
    positions = np.concatenate([np.arange(1000), np.arange(WHOLE_RANGE - 1000, WHOLE_RANGE)])
    permute(positions, WHOLE_RANGE, 0, 0)  # compiling takes memory of its own
    tracemalloc.start()
    try:
        ids = permute(positions, WHOLE_RANGE, 0, 0)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 1_000_000
    assert len(np.unique(ids)) == 2000
    assert ids.min() >= 0
    assert ids.max() < WHOLE_RANGE
    assert chi2.ppf(1e-4, 15) < _spread(ids >> 28) < chi2.ppf(1 - 1e-4, 15)


def test_shape_is_kept_and_inputs_may_be_read_only():
    positions = np.arange(12).reshape(3, 4)
    positions.flags.writeable = False
    ids = permute(positions, 100, 0, 0)
    assert ids.shape == (3, 4)
    assert np.array_equal(ids.ravel(), permute(range(12), 100, 0, 0))
    assert np.array_equal(permute(positions.T, 100, 0, 0), ids.T)
    assert permute(5, 100, 0, 0).shape == ()
    assert permute([], 100, 0, 0).shape == (0,)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0], 0, 0, 0), r"^num must lie in 1\.\.4294967296, but is 0\. Choose"),
        (([0], 2**32 + 1, 0, 0), "^num must lie in .* but is 4294967297"),
        (([0], 10.0, 0, 0), "^num must be a whole number, but is 10.0"),
        (([0], 10, -1, 0), "^seed must lie in .* but is -1"),
        (([0], 10, 2**64, 0), "^seed must lie in .* but is 18446744073709551616"),
        (([0], 10, 0, -1), "^epoch must lie in .* but is -1"),
        (([0], 10, 0, 2**32), "^epoch must lie in .* but is 4294967296"),
        (([0, 10, 11], 10, 0, 0), r"^positions must lie in 0\.\.9, but holds 10\."),
        (([3, -1], 10, 0, 0), r"^positions must lie in 0\.\.9, but holds -1\."),
        (([0.5], 10, 0, 0), "^positions must be whole numbers, but has dtype float64"),
    ],
)
def test_errors_name_the_argument_and_the_value(arguments, message):
    with pytest.raises(ValueError, match=message):
        permute(*arguments)


def _is_odd(order):
    num_inversions = sum(first > second for first, second in itertools.combinations(order, 2))
    return num_inversions % 2 == 1


def _spread(bins):
    counts = np.bincount(bins, minlength=16)
    return float(((counts - counts.mean()) ** 2).sum() / counts.mean())


# Groups of samples, each in passes of its own


def test_each_group_s_pass_is_a_permutation_by_keys_of_its_own():
    """Against the walk of a whole order, by round keys from `draws`."""
    seed, nums, passes = 2**40 + 9, [7, 1, 0, 500, 64], [0, 5, 2**32 - 1]
    orders = GroupOrders(nums)
    for group, num in enumerate(nums):
        places = np.arange(num)
        for each in passes:
            expected = np.empty(num, np.int64)
            keys = draws(seed, each, [group], GROUP_STREAM, NUM_ROUND_KEYS).ravel()
            _walk(places, np.uint64(num), *sides(max(num, 1)), keys, expected)
            found = orders.permute(places, np.full(num, group), np.full(num, each), seed)
            assert found.tolist() == expected.tolist()
            assert sorted(found) == list(range(num))


def test_each_group_and_pass_has_an_order_of_its_own_whatever_it_is_asked_with():
    orders, num = GroupOrders([40, 40]), 40
    places = np.tile(np.arange(num), 4)
    groups, passes = np.repeat([0, 0, 1, 1], num), np.repeat([0, 1, 0, 1], num)
    together = orders.permute(places, groups, passes, 3).reshape(4, num)
    assert len({tuple(order) for order in together.tolist()}) == 4
    mixed = np.random.default_rng(0).permutation(4 * num)
    scattered = orders.permute(places[mixed], groups[mixed], passes[mixed], 3)
    assert scattered.tolist() == together.ravel()[mixed].tolist()
    assert together[1].tolist() != orders.permute(places[:num], groups[:num], passes[num : 2 * num], 4).tolist()


def test_golden_orders_of_groups():
    places, groups = np.array([0, 1, 2, 0, 1, 2]), np.array([0, 0, 0, 1, 1, 1])
    found = GroupOrders([10, 1000]).permute(places, groups, np.arange(6), 7)
    assert found.tolist() == [4, 8, 7, 505, 223, 821]
