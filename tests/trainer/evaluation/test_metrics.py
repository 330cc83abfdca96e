"""Metrics are those of plain loops, of scikit-learn and scipy, and of torchmetrics where it is installed."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import binomtest
from sklearn import metrics as peers
from sklearn.calibration import calibration_curve

from augpipe.trainer.evaluation import measure, wilson
from augpipe.trainer.evaluation.metrics import NUM_BINS, Metrics

NUM, NUM_CLASSES = 300, 9


@pytest.fixture(scope="module")
def answers() -> tuple[Any, Any]:
    """Logarithms of probabilities that know something, and labels of all classes but the last."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, NUM_CLASSES - 1, NUM)
    logits = rng.normal(0, 2, (NUM, NUM_CLASSES))
    logits[np.arange(NUM), labels] += 1.5
    return torch.log_softmax(torch.from_numpy(logits), 1).float().numpy(), labels


@pytest.fixture(scope="module")
def found(answers: tuple[Any, Any]) -> Metrics:
    return measure(*answers)


def test_top_k_loss_and_confusion_are_a_plain_loops(answers: tuple[Any, Any], found: Metrics) -> None:
    top1 = top5 = 0
    loss = 0.0
    confusion = [[0] * NUM_CLASSES for _ in range(NUM_CLASSES)]
    for row, label in zip(*answers, strict=True):
        order = sorted(range(NUM_CLASSES), key=lambda one: -row[one])
        top1 += order[0] == label
        top5 += label in order[:5]
        loss -= float(row[label])
        confusion[label][order[0]] += 1
    assert 0 < top1 < top5 < NUM == found.num_samples
    assert (found.top1.num_right, found.top5.num_right) == (top1, top5)
    assert found.loss == pytest.approx(loss / NUM, rel=1e-6)
    assert found.confusion.tolist() == confusion
    for number, row in enumerate(found.classes):
        named = sum(line[number] for line in confusion)
        assert (row.recall.num_right, row.recall.num) == (confusion[number][number], sum(confusion[number]))
        assert (row.precision.num_right, row.precision.num) == (confusion[number][number], named)
    assert math.isnan(found.classes[-1].recall.value)  # no image is of it


def test_calibration_is_a_plain_loops(answers: tuple[Any, Any], found: Metrics) -> None:
    gap = 0.0
    for number in range(NUM_BINS):
        low, high = number / NUM_BINS, (number + 1) / NUM_BINS
        inside = [
            (float(np.exp(row.max())), row.argmax() == label)
            for row, label in zip(*answers, strict=True)
            if low < np.exp(row.max()) <= high
        ]
        assert found.bins[number].num == len(inside)
        gap += abs(sum(sure for sure, _ in inside) - sum(right for _, right in inside))
    assert found.ece == pytest.approx(gap / NUM, rel=1e-6) and found.ece > 0.01


def test_metrics_are_those_of_scikit_learn(answers: tuple[Any, Any], found: Metrics) -> None:
    log_probs, labels = answers
    probabilities, named, classes = np.exp(log_probs), log_probs.argmax(1), np.arange(NUM_CLASSES)
    for k, share in ((1, found.top1), (5, found.top5)):
        assert share.value == pytest.approx(peers.top_k_accuracy_score(labels, probabilities, k=k, labels=classes))
    assert found.loss == pytest.approx(peers.log_loss(labels, probabilities, labels=classes), rel=1e-5)
    assert np.array_equal(found.confusion, peers.confusion_matrix(labels, named, labels=classes))
    precision, recall, _, num = peers.precision_recall_fscore_support(
        labels, named, labels=classes, zero_division=np.nan
    )
    assert [row.precision.value for row in found.classes] == pytest.approx(precision, nan_ok=True)
    assert [row.recall.value for row in found.classes] == pytest.approx(recall, nan_ok=True)
    assert [row.recall.num for row in found.classes] == num.tolist()


def test_the_reliability_plot_is_scikit_learns(answers: tuple[Any, Any], found: Metrics) -> None:
    log_probs, labels = answers
    right, sure = log_probs.argmax(1) == labels, np.exp(log_probs.max(1).astype(np.float64))
    rights, means = calibration_curve(right, sure, n_bins=NUM_BINS)
    filled = [one for one in found.bins if one.num]
    assert [one.accuracy for one in filled] == pytest.approx(rights)
    assert [one.confidence for one in filled] == pytest.approx(means, rel=1e-5)


@pytest.mark.slow
def test_metrics_are_those_of_torchmetrics(answers: tuple[Any, Any], found: Metrics) -> None:
    peers = pytest.importorskip("torchmetrics.functional.classification")
    probabilities, labels = torch.from_numpy(np.exp(answers[0])), torch.from_numpy(answers[1])
    ece = peers.multiclass_calibration_error(probabilities, labels, NUM_CLASSES, n_bins=NUM_BINS)
    top5 = peers.multiclass_accuracy(probabilities, labels, NUM_CLASSES, average="micro", top_k=5)
    matrix = peers.multiclass_confusion_matrix(probabilities, labels, NUM_CLASSES)
    assert found.ece == pytest.approx(float(ece), abs=1e-6)
    assert found.top5.value == pytest.approx(float(top5), abs=1e-6)
    assert np.array_equal(found.confusion, matrix.numpy())


@pytest.mark.parametrize(("num_right", "num"), [(0, 1), (1, 1), (0, 40), (40, 40), (7, 40), (21, 90), (9_000, 50_000)])
def test_intervals_are_scipys(num_right: int, num: int) -> None:
    expected = binomtest(num_right, num).proportion_ci(method="wilson")
    found = wilson(num_right, num)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_a_share_of_nothing_says_nothing() -> None:
    found = wilson(0, 0)
    assert (found.low, found.high) == (0.0, 1.0) and math.isnan(found.value)


def test_with_few_classes_the_top_5_are_all() -> None:
    found = measure(np.log(np.array([[0.7, 0.3], [0.6, 0.4]], np.float32)), np.array([0, 1]))
    assert (found.top1.value, found.top5.value) == (0.5, 1.0)
