"""How good answers are: top-1 and top-5 with intervals, each class, confusion, and how well they are calibrated."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Z_95 = 1.959963984540054
"""Standard deviations of a normal distribution that hold 95 % of it."""
NUM_BINS = 15
"""Bins of confidence, as in Guo et al., 2017."""

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.floating]


@dataclass(frozen=True, kw_only=True)
class Share:
    """How many of some images, with the 95 % interval of the share that they are a sample of."""

    num_right: int
    num: int
    low: float
    high: float

    @property
    def value(self) -> float:
        """The share; nan of none."""
        return self.num_right / self.num if self.num else math.nan


@dataclass(frozen=True, kw_only=True)
class ClassRow:
    """One class."""

    recall: Share
    """Images of the class that are named so: its top-1."""
    precision: Share
    """Images named so that are of the class."""


@dataclass(frozen=True, kw_only=True)
class Bin:
    """The images whose likeliest class has a probability of `low` to `high`, `high` included."""

    low: float
    high: float
    num: int
    confidence: float
    """Their mean probability; nan of none."""
    accuracy: float
    """The share of them that is right; nan of none."""


@dataclass(frozen=True, kw_only=True)
class Metrics:
    """What answers are worth."""

    num_samples: int
    loss: float
    """Mean cross-entropy."""
    top1: Share
    top5: Share
    """The right class among the five likeliest, or all where there are fewer."""
    classes: tuple[ClassRow, ...]
    confusion: Ints
    """(C, C): how many images of a class (row) were named another (column)."""
    ece: float
    """Expected calibration error: the mean distance of confidence and accuracy over `bins`, weighted by images."""
    bins: tuple[Bin, ...]


def wilson(num_right: int, num: int, z: float = Z_95) -> Share:
    """A share with Wilson's score interval (1927), which is sound for few images and near 0 and 1, too."""
    if num == 0:
        return Share(num_right=0, num=0, low=0.0, high=1.0)
    share, spread = num_right / num, z * z / num
    middle = (share + spread / 2) / (1 + spread)
    half = z / (1 + spread) * math.sqrt(share * (1 - share) / num + spread / (4 * num))
    low = 0.0 if num_right == 0 else middle - half
    high = 1.0 if num_right == num else middle + half
    return Share(num_right=num_right, num=num, low=low, high=high)


def likeliest(log_probs: Floats, num: int) -> Ints:
    """(N, num) the classes with the largest of (N, C) numbers, the largest first, the lower class of equal ones."""
    order: Ints = np.argsort(-log_probs, axis=1, kind="stable")[:, :num]
    return order


def measure(log_probs: Floats, labels: Ints) -> Metrics:
    """Compare answers with the truth.

    Args:
        log_probs: (N, C) logarithms of the classes' probabilities, N at least 1.
        labels: (N,) the right classes, 0..C-1.
    """
    num, num_classes = log_probs.shape
    named = likeliest(log_probs, min(5, num_classes))
    is_right = named == labels[:, None]
    top1 = is_right[:, 0]
    confusion = np.zeros((num_classes, num_classes), np.int64)
    np.add.at(confusion, (labels, named[:, 0]), 1)
    right, of_class, so_named = np.diag(confusion), confusion.sum(1), confusion.sum(0)
    confidence = np.exp(np.take_along_axis(log_probs.astype(np.float64), named[:, :1], 1)[:, 0])
    bins = calibration(confidence, top1)
    gaps = (bin.num * abs(bin.confidence - bin.accuracy) for bin in bins if bin.num)
    true_log_probs = np.take_along_axis(log_probs.astype(np.float64), labels[:, None], 1)
    return Metrics(
        num_samples=num,
        loss=float(-true_log_probs.mean()),
        top1=wilson(int(top1.sum()), num),
        top5=wilson(int(is_right.any(1).sum()), num),
        classes=tuple(
            ClassRow(recall=wilson(int(a), int(b)), precision=wilson(int(a), int(c)))
            for a, b, c in zip(right, of_class, so_named, strict=True)
        ),
        confusion=confusion,
        ece=sum(gaps) / num,
        bins=bins,
    )


def calibration(confidence: Floats, is_right: npt.NDArray[np.bool_]) -> tuple[Bin, ...]:
    """Bins of equal width over 0..1; each holds its upper edge."""
    which = np.clip(np.ceil(confidence * NUM_BINS).astype(np.int64) - 1, 0, NUM_BINS - 1)
    made = []
    for number in range(NUM_BINS):
        within = which == number
        num = int(within.sum())
        made.append(
            Bin(
                low=number / NUM_BINS,
                high=(number + 1) / NUM_BINS,
                num=num,
                confidence=float(confidence[within].mean()) if num else math.nan,
                accuracy=float(is_right[within].mean()) if num else math.nan,
            )
        )
    return tuple(made)
