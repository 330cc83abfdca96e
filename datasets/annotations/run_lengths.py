"""COCO's run-length masks: read in both spellings, and written; `planning.targets.mask_rings` makes outlines of them.

A mask is counted column by column: so many pixels outside, so many inside, and so on. The short spelling is that of
pycocotools: each number is the difference to the one before the last, in groups of five bits as letters from "0" on.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.datasets.annotations.object_table import Ints
from augpipe.planning.targets.mask_rings import runs_of

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


def encode(mask: npt.NDArray[Any]) -> dict[str, Any]:
    """A mask, (H, W), in COCO's short spelling: what is not 0 is inside.

    Returns:
        {"size": [height, width], "counts": text}
    """
    return {"size": [int(side) for side in mask.shape], "counts": _as_letters(runs_of(mask).tolist())}


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
