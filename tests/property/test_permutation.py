"""Shuffling is a permutation, whatever the number of samples, seed and epoch, and each position stands for itself."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from augpipe.gpu_ops.random.permutation import permute

seeds = st.integers(0, 2**64 - 1)
epochs = st.integers(0, 2**32 - 1)
common = settings(deadline=None, max_examples=100, derandomize=True)  # the first example compiles


def test_permutation_for_every_small_number():
    for num in range(1, 301):
        positions = np.arange(num)
        ids = permute(positions, num, num, 7)
        assert np.array_equal(np.sort(ids), positions), num


@pytest.mark.parametrize("num", [65_535, 65_536, 65_537, 1_000_000])
def test_permutation_for_large_numbers(num):
    positions = np.arange(num)
    ids = permute(positions, num, 2**64 - 1, 2**32 - 1)
    assert np.array_equal(np.sort(ids), positions)


@common
@given(num=st.integers(1, 5000), seed=seeds, epoch=epochs)
def test_each_sample_comes_exactly_once(num, seed, epoch):
    assert np.array_equal(np.sort(permute(np.arange(num), num, seed, epoch)), np.arange(num))


@common
@given(num=st.integers(1, 2**32), seed=seeds, epoch=epochs, data=st.data())
def test_different_positions_get_different_samples(num, seed, epoch, data):
    numbers = data.draw(st.lists(st.integers(0, num - 1), max_size=30, unique=True))
    ids = permute(numbers, num, seed, epoch)
    assert len(set(ids.tolist())) == len(numbers)
    assert all(0 <= sample < num for sample in ids.tolist())


@common
@given(num=st.integers(1, 3000), seed=seeds, epoch=epochs, data=st.data())
def test_positions_asked_for_alone_get_the_same_samples(num, seed, epoch, data):
    """So ranks may take any share of the positions, and a resumed run may start anywhere."""
    subset = data.draw(st.lists(st.integers(0, num - 1), min_size=1, max_size=30))
    whole = permute(np.arange(num), num, seed, epoch)
    assert np.array_equal(permute(subset, num, seed, epoch), whole[subset])
    assert permute(subset[0], num, seed, epoch) == whole[subset[0]]
