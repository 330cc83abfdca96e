"""Which of many hashes differ in a few bits only, without comparing every pair."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]


def near_groups(hashes: Hashes, num_bits: int, max_distance: int) -> Indices:
    """Number the (n,) hashes' groups, int64 (n,): in one group are those that a chain of near ones connects.

    A group's number is the lowest index in it. Two hashes are near where at most `max_distance` bits differ: of
    `max_distance` + 1 pieces one is then the same in both, so only hashes that share a piece are compared. Memory goes
    with n, time with the number of pairs that share a piece: about n^2 / 2^12 for 64 random bits and a distance of 4.
    """
    distinct, numbers = np.unique(hashes, return_inverse=True)
    parents = np.arange(len(distinct))
    for left, right in _near_pairs(distinct, num_bits, max_distance):
        _join(parents, left, right)
    roots = _roots(parents, np.arange(len(distinct)))[numbers]
    first = np.full(len(distinct), len(hashes))
    np.minimum.at(first, roots, np.arange(len(hashes)))
    groups: Indices = first[roots]
    return groups


def _near_pairs(hashes: Hashes, num_bits: int, max_distance: int) -> Iterator[tuple[Indices, Indices]]:
    """Index pairs of (n,) distinct hashes that are near, in portions of at most n, each pair once."""
    cuts = [num_bits * piece // (max_distance + 1) for piece in range(max_distance + 2)]
    masks = [np.uint64((1 << stop) - (1 << start)) for start, stop in pairwise(cuts)]
    for piece, mask in enumerate(masks):
        order = np.argsort(hashes & mask, kind="stable")
        ordered = hashes[order]  # so that what is compared lies side by side
        keys = ordered & mask
        stops = np.searchsorted(keys, keys, side="right")
        here = np.arange(len(keys))
        step = 1
        while len(here := here[here + step < stops[here]]):
            differing = ordered[here] ^ ordered[here + step]
            near = np.flatnonzero(np.bitwise_count(differing) <= max_distance)
            for earlier in masks[:piece]:  # a pair that shares an earlier piece was met there
                near = near[(differing[near] & earlier) != 0]
            if len(near):
                yield order[here[near]], order[here[near] + step]
            step += 1


def _join(parents: Indices, left: Indices, right: Indices) -> None:
    """Unite the groups of each pair; `parents` is a forest whose roots point to themselves."""
    for side in (left, right):
        parents[side] = _roots(parents, side)  # keeps the paths short
    a, b = parents[left], parents[right]
    apart = a != b
    for pair in zip(a[apart], b[apart], strict=True):
        low, high = sorted(_roots(parents, np.array(pair)))
        parents[high] = low


def _roots(parents: Indices, indices: Indices) -> Indices:
    while not np.array_equal(above := parents[indices], indices):
        indices = above
    return indices
