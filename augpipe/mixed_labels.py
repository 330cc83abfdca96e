"""The labels of samples that are mixed: two a sample, and the weight of the first."""

from typing import Any, NamedTuple, Never

import numpy as np

from augpipe.sources.protocol import Ints, Labels

_REMEDY = (
    "the recipe mixes, so they are MixedLabels(labels, other_labels, weights). Take labels.soft(num_classes), or "
    "labels.labels for the samples' own classes."
)


class MixedLabels(NamedTuple):
    """What `Batch.labels` is where a recipe mixes: `labels, other_labels, weights = batch.labels`.

    The loss is `weights * loss(labels) + (1 - weights) * loss(other_labels)`, or that of `soft(num_classes)`.
    """

    labels: Any
    """(B,) int64: the classes of the samples, -1 where there is none."""
    other_labels: Any
    """(B,) int64: those of their partners; of a sample that is not mixed its own."""
    weights: Any
    """(B,) float32 in 0..1: the parts of `labels`, 1 where nothing is mixed."""

    def soft(self, num_classes: int) -> Any:
        """(B, num_classes) float32 that add up to 1.

        Of labels on a CUDA device, which would have to be waited for, a row without such numbers is NaN.

        Raises:
            ValueError: a label on the host is -1, or `num_classes` or more.
        """
        first, second, weights = self.labels[:, None], self.other_labels[:, None], self.weights[:, None]
        if isinstance(first, np.ndarray):
            classes: Any = np.arange(num_classes)
        else:
            import torch

            classes = torch.arange(num_classes, device=first.device)
        made = (classes == first) * weights + (classes == second) * (1.0 - weights)
        if not isinstance(first, np.ndarray) and first.device.type != "cpu":
            return nan_where_none(made, first, second, num_classes)
        if len(first):
            smallest, largest = int(min(first.min(), second.min())), int(max(first.max(), second.max()))
            if largest >= num_classes:
                raise ValueError(f"num_classes={num_classes} and a label is {largest}. Give {largest + 1} or more.")
            if smallest < 0:
                raise ValueError(
                    f"a label is {smallest}, a sample without a class, which has no soft label. Leave such samples "
                    "out: augpipe.sources.Subset(source, ids)."
                )
        return made

    def heavier(self) -> Any:
        """(B,) int64: of each sample the label that weighs more, which accuracy can be counted by."""
        if isinstance(self.labels, np.ndarray):
            return np.where(self.weights >= 0.5, self.labels, self.other_labels)
        return self.labels.where(self.weights >= 0.5, self.other_labels)

    def to(self, *args: Any, **options: Any) -> "MixedLabels":
        """On another device: each by its tensor's own `to`, which must not change dtypes."""
        return MixedLabels(*(each.to(*args, **options) for each in self))

    def __getattr__(self, name: str) -> Never:
        """Say to whom wants one integer a sample, as by `labels.long()`, that these are two and a weight."""
        raise AttributeError(f"labels have no {name!r}: {_REMEDY}")

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Never:
        """Say the same where torch is given these as one tensor, as by `logits.argmax(1) == labels`.

        Raises:
            ValueError: always; of a TypeError in a comparison torch makes False.
        """
        name = getattr(function, "__name__", function)
        raise ValueError(f"torch's {name} takes a tensor, and labels are three: {_REMEDY}")


def nan_where_none(made: Any, first: Any, second: Any, num_classes: int) -> Any:
    """Soft labels, a tensor, whose rows of a label outside 0..num_classes - 1 are NaN: a loss shows them."""
    is_none = (first < 0) | (second < 0) | (first >= num_classes) | (second >= num_classes)
    return made.masked_fill(is_none, float("nan"))


def mix_labels(labels: Labels, weights: Any, others: Ints, num: int) -> MixedLabels | Labels:
    """The labels of the first `num` samples of a batch, mixed.

    Args:
        labels: (N,) or (N, k), of its guests too.
        weights: (N,) of the samples' own labels.
        others: (N,) where each one's partner lies in the batch; its own place where it is not mixed.
        num: the batch's own samples.

    Returns:
        `MixedLabels` of classes; of k numbers a sample the weighted mean, (num, k) float32.
    """
    own, other, parts = labels[:num], labels[others[:num]], weights[:num].astype(np.float32)
    if labels.ndim == 1:
        return MixedLabels(own, other, parts)
    mean: Labels = (parts[:, None] * own + (1.0 - parts[:, None]) * other).astype(np.float32)
    return mean
