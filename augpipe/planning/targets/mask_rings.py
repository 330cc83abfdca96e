"""Outlines of masks, along the edges of their pixels."""

from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def runs_of(mask: npt.NDArray[Any]) -> Ints:
    """How many pixels of an (H, W) mask are 0, then not 0, and so on in turns, column by column."""
    inside = np.asarray(mask, np.bool_).ravel(order="F")
    changes = np.flatnonzero(np.diff(inside)) + 1
    runs: Ints = np.diff(np.concatenate([[0], changes, [inside.size]]))
    return np.concatenate([[0], runs]) if inside.size and inside[0] else runs


def rings_of(runs: Ints, height: int) -> list[Floats]:
    """The mask's shape as rings, (K, 2) corners each, along the pixels' edges: one for each part that hangs together.

    A ring goes around a hole, too: out along a vertical line and back along the same line.
    """
    pieces = _rectangles(runs, height)
    if not len(pieces):
        return []
    left, right, top, bottom = pieces.T
    begins, ends = left * height + top, left * height + bottom
    first = np.searchsorted(ends, right * height + top, side="right")
    num_next = np.searchsorted(begins, right * height + bottom, side="left") - first
    before, skipped = np.repeat(np.arange(len(pieces)), num_next), np.cumsum(num_next) - num_next
    after = np.repeat(first - skipped, num_next) + np.arange(num_next.sum())
    is_only = (num_next[before] == 1) & (np.bincount(after, minlength=len(pieces))[after] == 1)
    head = np.arange(len(pieces))
    head[after[is_only]] = before[is_only]
    while True:  # to the first piece of each chain, twice as far each time
        further = head[head]
        if (further == head).all():
            break
        head = further
    order = np.argsort(head, kind="stable")
    starts = np.flatnonzero(np.diff(head[order], prepend=-1))
    chain = np.empty(len(pieces), np.int64)
    chain[order] = np.repeat(np.arange(len(starts)), np.diff([*starts, len(pieces)]))
    openings = np.stack(
        [
            chain[before],
            chain[after],
            right[before],
            np.maximum(top[before], top[after]),
            np.minimum(bottom[before], bottom[after]),
        ],
        axis=1,
    )
    return _walk(pieces[order], starts.tolist(), openings[~is_only].tolist())


def _rectangles(runs: Ints, height: int) -> Ints:
    """(N, 4) left, right, top, bottom of what the runs cover: at most three rectangles a run."""
    edges = np.cumsum(runs)
    begin, end = edges[0::2], edges[1::2]
    begin = begin[: len(end)]
    begin, end = begin[end > begin], end[end > begin]
    (first, top), (last, below) = divmod(begin, height), divmod(end - 1, height)
    whole, ones = np.full_like(begin, height), np.ones_like(begin)
    is_one = first == last
    parts = np.stack(
        [
            np.stack([first, first + 1, top, np.where(is_one, below + 1, whole)], axis=1),
            np.stack([first + 1, last, 0 * ones, whole], axis=1),
            np.stack([last, last + 1, 0 * ones, below + 1], axis=1),
        ],
        axis=1,
    )
    kept = np.stack([ones > 0, last > first + 1, ~is_one], axis=1)
    rectangles: Ints = parts[kept]
    return rectangles


def _walk(pieces: Ints, starts: list[int], openings: list[list[int]]) -> list[Floats]:
    """Around chains of rectangles that stand next to each other, and from one into another where they are joined.

    Args:
        pieces: (N, 4) the rectangles, chain by chain.
        starts: where each chain begins.
        openings: first chain, the one to its right, and where they touch: x, from y, to y. In the order of y for both.
    """
    left, right, top, bottom = pieces.T
    above = np.stack([left, top, right, top], axis=1).reshape(-1, 2)
    below = np.stack([left, bottom, right, bottom], axis=1).reshape(-1, 2)
    stops = [*starts[1:], len(pieces)]
    of_right: list[list[int]] = [[] for _ in starts]
    of_left: list[list[int]] = [[] for _ in starts]
    places: list[tuple[int, int]] = []
    for number, (one, other, *_) in enumerate(openings):
        places.append((len(of_right[one]), len(of_left[other])))
        of_right[one].append(number)
        of_left[other].append(number)
    is_joined = _joining(openings, len(starts))
    rings, is_seen = [], [False] * len(starts)
    for begin in range(len(starts)):
        parts: list[npt.NDArray[Any]] = []
        chain = begin
        while not is_seen[chain]:
            is_seen[chain] = True
            parts.append(above[2 * starts[chain] : 2 * stops[chain]])
            is_down, place = True, 0  # from here down a right edge, or up a left one, from opening to opening
            while is_down or place >= 0:
                edge = of_right[chain] if is_down else of_left[chain]
                if is_down and place == len(edge):
                    parts.append(below[2 * starts[chain] : 2 * stops[chain]][::-1])
                    is_down, place = False, len(of_left[chain]) - 1
                elif is_joined[number := edge[place]]:
                    one, other, x, y, to_y = openings[number]
                    parts.append(np.array([[x, y if is_down else to_y]]))
                    chain, place = (other, places[number][1] - 1) if is_down else (one, places[number][0] + 1)
                    is_down = not is_down
                else:
                    place += 1 if is_down else -1
        if parts:
            rings.append(_corners(np.concatenate(parts)))
    return rings


def _joining(openings: list[list[int]], num: int) -> list[bool]:
    """Which openings join chains that no earlier ones have joined; the others would cut a hole off its ring."""
    root = list(range(num))

    def top(chain: int) -> int:
        while root[chain] != chain:
            root[chain] = root[root[chain]]
            chain = root[chain]
        return chain

    is_joined = []
    for one, other, *_ in openings:
        a, b = top(one), top(other)
        root[b] = a
        is_joined.append(a != b)
    return is_joined


def _corners(points: npt.NDArray[Any]) -> Floats:
    """A ring along pixels' edges, without points that stand twice or on a straight line."""
    points = points[(points != np.roll(points, 1, axis=0)).any(axis=1)]
    is_across = points[:, 1] == np.roll(points, 1, axis=0)[:, 1]
    corners: Floats = points[is_across != np.roll(is_across, -1)].astype(np.float64)
    return corners
