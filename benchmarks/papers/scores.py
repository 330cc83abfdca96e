"""Scores of detectors and of segmentation: mAP as COCO counts it, and mIoU."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating]
Ints = npt.NDArray[np.int64]

IOUS = np.linspace(0.5, 0.95, 10)
"""COCO's thresholds."""
RECALLS = np.linspace(0.0, 1.0, 101)
"""Where COCO looks up the precision."""


@dataclass(frozen=True, kw_only=True)
class Boxes:
    """What is found in an image, or what is there."""

    boxes: Floats
    """(N, 4) left, top, right, bottom."""
    labels: Ints
    """(N,)."""
    scores: Floats | None = None
    """(N,) of what is found."""


def mean_average_precision(found: Sequence[Boxes], there: Sequence[Boxes], thresholds: Floats = IOUS) -> float:
    """The mean over the classes that are there, and over thresholds of the IoU, of the average precision.

    Args:
        found: of each image what was found.
        there: of each image what is there.
        thresholds: from which IoU on a box counts as found.
    """
    classes = np.unique(np.concatenate([one.labels for one in there]))
    return float(np.mean([average_precision(found, there, label, least) for label in classes for least in thresholds]))


def average_precision(found: Sequence[Boxes], there: Sequence[Boxes], label: int, least: float) -> float:
    """The average precision of one class: a box is right if the best free one of its image has this IoU at least."""
    rows: list[tuple[float, int, Floats]] = []
    for image, one in enumerate(found):
        assert one.scores is not None
        rows += [(one.scores[nth], image, one.boxes[nth]) for nth in np.flatnonzero(one.labels == label)]
    wanted = [one.boxes[one.labels == label] for one in there]
    free = [np.ones(len(boxes), np.bool_) for boxes in wanted]
    is_right = np.zeros(len(rows))
    for place, (_, image, box) in enumerate(sorted(rows, key=lambda row: -row[0])):
        overlaps = np.where(free[image], ious(box[None], wanted[image])[0], 0.0)
        if len(overlaps) and overlaps.max() >= least:
            free[image][overlaps.argmax()] = False
            is_right[place] = 1.0
    right = np.cumsum(is_right)
    recall, precision = right / sum(map(len, wanted)), right / np.arange(1, len(rows) + 1)
    best_from = np.append(np.maximum.accumulate(precision[::-1])[::-1], 0.0)
    return float(best_from[np.searchsorted(recall, RECALLS, side="left")].mean())


def ious(boxes: Floats, others: Floats) -> Floats:
    """(N, M) of (N, 4) and (M, 4) boxes: the area that both cover over the one that any does."""
    least, most = np.maximum(boxes[:, None, :2], others[:, :2]), np.minimum(boxes[:, None, 2:], others[:, 2:])
    both = np.maximum(most - least, 0.0).prod(axis=2)
    either = (boxes[:, 2:] - boxes[:, :2]).prod(axis=1)[:, None] + (others[:, 2:] - others[:, :2]).prod(axis=1) - both
    return both / np.maximum(either, 1e-12)


def confusion(said: Ints, labels: Ints, num: int) -> Ints:
    """(num, num) how many pixels of each label (row) are said to be of each (column)."""
    counts: Ints = np.bincount((labels * num + said).reshape(-1), minlength=num * num).reshape(num, num)
    return counts


def mean_iou(counts: Ints) -> float:
    """The mean of the labels' IoUs by a `confusion` of all images; labels that are nowhere do not count."""
    both, either = counts.diagonal(), counts.sum(axis=0) + counts.sum(axis=1) - counts.diagonal()
    return float((both[either > 0] / either[either > 0]).mean())
