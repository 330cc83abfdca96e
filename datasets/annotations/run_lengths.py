"""COCO's run-length masks: read in both spellings, turned into outlines, and written.

A mask is counted column by column: so many pixels outside, so many inside, and so on. The short spelling is that of
pycocotools: each number is the difference to the one before the last, in groups of five bits as letters from "0" on.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.datasets.annotations.object_table import Floats, Ints, ranges

MAX_SIDE = 1 << 20
"""Longest side of a mask, so that its pixels can be numbered."""
_MOST_LETTERS = 7
"""Of one number: 35 bits, more than any mask has pixels in a run."""


def read_counts(mask: Any, size: tuple[int, int] | None) -> tuple[Ints, int]:
    """The runs of a mask `{"size": [height, width], "counts": ...}`, and its height.

    Args:
        mask: its counts are a list of numbers or a short text.
        size: height and width of its image; None where they are not known.

    Raises:
        ValueError: it is not such a mask, is of another size, or its runs do not fill it; the reason alone.
    """
    if not isinstance(mask, Mapping) or "counts" not in mask:
        raise ValueError('its mask has no counts. Write {"size": [height, width], "counts": ...}')
    sides = mask.get("size")
    if not (isinstance(sides, list | tuple) and len(sides) == 2 and all(type(side) is int for side in sides)):
        raise ValueError(f"its mask has the size {sides!r:.40}. Write [height, width]")
    height, width = sides
    if not (1 <= height <= MAX_SIDE and 1 <= width <= MAX_SIDE):
        raise ValueError(f"its mask has the size {height}x{width}. Sides are 1 to {MAX_SIDE:,} pixels")
    if size is not None and (height, width) != size:
        raise ValueError(f"its mask is {width}x{height} pixels, and its image {size[1]}x{size[0]}")
    counts = mask["counts"]
    runs = _letters(counts) if isinstance(counts, str | bytes) else _numbers(counts)
    if len(runs) and runs.min() < 0:
        raise ValueError(f"its mask has a run of {runs.min()} pixels")
    total = runs.sum(dtype=np.float64)  # exact where it matters, and it cannot overflow
    if total != height * width:
        raise ValueError(f"the runs of its mask have {total:,.0f} pixels together, and its size is {width}x{height}")
    return runs, height


def _numbers(counts: Any) -> Ints:
    if not isinstance(counts, list | tuple) or not all(type(run) is int and abs(run) < 1 << 40 for run in counts):
        raise ValueError("the counts of its mask are not a list of whole numbers")
    return np.array(counts, np.int64)


def _letters(text: str | bytes) -> Ints:
    """The numbers of a short text, all at once."""
    try:
        raw = text.encode("ascii") if isinstance(text, str) else text
    except UnicodeEncodeError:
        raw = b"\0"
    groups = np.frombuffer(raw, np.uint8).astype(np.int64) - 48
    if len(groups) == 0:
        return np.empty(0, np.int64)
    if groups.min() < 0 or groups.max() > 63 or groups[-1] & 32:
        raise ValueError("the counts of its mask are not a text of run lengths")
    is_last = (groups & 32) == 0
    firsts = np.concatenate([[0], np.flatnonzero(is_last)[:-1] + 1])
    lengths = np.diff([*firsts, len(groups)])
    if lengths.max() > _MOST_LETTERS:
        raise ValueError("a run of its mask is too long")
    places = np.arange(len(groups)) - np.repeat(firsts, lengths)
    numbers = np.add.reduceat((groups & 31) << (5 * places), firsts)
    numbers -= np.where(groups[is_last] & 16, 1 << (5 * lengths), 0)  # the last group's highest bit is the sign
    if len(numbers) > 3:  # from the fourth on: differences to the number before the last
        for first in (1, 2):
            numbers[first::2] = np.cumsum(numbers[first::2])
    return numbers


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
    before, after = np.repeat(np.arange(len(pieces)), num_next), ranges(first, num_next)
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
    """Around chains of rectangles that stand side by side, and from one into another where they are joined.

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


def encode(mask: npt.NDArray[Any]) -> dict[str, Any]:
    """A mask, (H, W), in COCO's short spelling: what is not 0 is inside.

    Returns:
        {"size": [height, width], "counts": text}
    """
    inside = np.asarray(mask, np.bool_).ravel(order="F")
    changes = np.flatnonzero(np.diff(inside)) + 1
    runs = np.diff(np.concatenate([[0], changes, [inside.size]]))
    if inside.size and inside[0]:
        runs = np.concatenate([[0], runs])
    return {"size": [int(side) for side in mask.shape], "counts": _as_letters(runs.tolist())}


def _as_letters(runs: Sequence[int]) -> str:
    text = bytearray()
    for place, run in enumerate(runs):
        rest = run - runs[place - 2] if place > 2 else run
        while True:
            group, rest = rest & 31, rest >> 5
            is_last = rest == (-1 if group & 16 else 0)
            text.append(48 + group + (0 if is_last else 32))
            if is_last:
                break
    return text.decode("ascii")
