"""mAP and mIoU against cases that are counted by hand."""

import numpy as np
import pytest

from benchmarks.papers.scores import Boxes, average_precision, confusion, ious, mean_average_precision, mean_iou

A, B, FAR = [0, 0, 10, 10], [20, 0, 30, 10], [50, 50, 60, 60]
HALF = [0, 0, 10, 5]
"""Half of A: an IoU of 0.5."""


def boxes(rows: list[list[int]], labels: list[int], scores: list[float] | None = None) -> Boxes:
    return Boxes(
        boxes=np.array(rows, np.float64).reshape(-1, 4),
        labels=np.array(labels, np.int64),
        scores=None if scores is None else np.array(scores),
    )


def test_average_precision_is_that_of_a_case_counted_by_hand() -> None:
    # by score: right, wrong, right. Precision 1, 1/2, 2/3 at recall 1/2, 1/2, 1
    found = [boxes([A, FAR], [0, 0], [0.9, 0.8]), boxes([B], [0], [0.7])]
    there = [boxes([A], [0]), boxes([B], [0])]
    assert average_precision(found, there, 0, 0.5) == pytest.approx((51 * 1.0 + 50 * 2 / 3) / 101)
    # the second box on an object is wrong, and so is one in another image or of another class
    twice = [boxes([A, A], [0, 0], [0.9, 0.8]), boxes([A, B], [0, 1], [0.95, 0.5])]
    assert average_precision(twice, there, 0, 0.5) == pytest.approx(51 * 0.5 / 101)
    nothing = boxes([], [], [])
    assert average_precision([nothing, nothing], there, 0, 0.5) == 0.0


def test_classes_and_thresholds_count_alike() -> None:
    there = [boxes([A, B], [0, 3])]
    found = [boxes([HALF, B], [0, 3], [0.2, 0.1])]
    assert ious(found[0].boxes, there[0].boxes).tolist() == [[0.5, 0.0], [0.0, 1.0]]
    assert mean_average_precision(found, there, np.array([0.5])) == pytest.approx(1.0)
    assert mean_average_precision(found, there) == pytest.approx((0.1 + 1.0) / 2)  # half of A is enough once in ten


def test_mean_iou_is_that_of_a_case_counted_by_hand() -> None:
    labels, said = np.array([[0, 0, 1, 1]]), np.array([[0, 1, 1, 1]])
    counts = confusion(said, labels, 3)
    assert counts.tolist() == [[1, 1, 0], [0, 2, 0], [0, 0, 0]]
    assert mean_iou(counts) == pytest.approx((1 / 2 + 2 / 3) / 2)  # 2 is nowhere
