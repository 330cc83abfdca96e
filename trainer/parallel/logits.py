"""Logits that stay split by classes, and what is asked of logits, whole or split: losses and likeliest classes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from augpipe.trainer.parallel.layouts import Hop
from augpipe.trainer.parallel.link import Link


@dataclass(frozen=True, kw_only=True)
class SplitLogits:
    """A rank's classes of the logits of all images of its model axis."""

    values: Tensor
    """(rows, classes of this rank), the images in the order of ranks."""
    cuts: tuple[int, ...]
    """Where the classes are cut, M + 1 offsets."""
    rows: tuple[int, ...]
    """Images of each rank."""
    link: Link

    def __len__(self) -> int:
        """This rank's images."""
        return self.rows[self.link.rank]

    @property
    def num_classes(self) -> int:
        """Classes of all ranks together."""
        return self.cuts[-1]

    @property
    def own_classes(self) -> tuple[int, int]:
        """This rank's first class, and the one behind its last."""
        return self.cuts[self.link.rank], self.cuts[self.link.rank + 1]

    def of_all(self, mine: Tensor) -> Tensor:
        """(rows, ...) of all images, from what each rank has of its own."""
        flat = mine.detach().reshape(len(mine), -1)
        hop = Hop(source="own", target="gathered", cuts=(0, flat.shape[1]))
        return self.link.end(self.link.begin(hop, flat, self.rows, "control")).view(-1, *mine.shape[1:])

    def of_own(self, everyones: Tensor) -> Tensor:
        """This rank's images of what stands there for all."""
        return torch.split(everyones, list(self.rows))[self.link.rank]

    def detach(self) -> "SplitLogits":
        """The same without autograd's history."""
        return SplitLogits(values=self.values.detach(), cuts=self.cuts, rows=self.rows, link=self.link)


def cross_entropy(logits: Tensor | SplitLogits, labels: Tensor, *, label_smoothing: float = 0.0) -> Tensor:
    """(B,) the cross-entropy of each image, as torch.nn.functional.cross_entropy has it without a reduction.

    Of split logits each rank sees its own classes alone: all ranks of a model axis call it together, and exchange the
    largest logit of each image, and then a sum of exponentials.

    Args:
        logits: (B, classes), or split.
        labels: (B,) int64, of this rank's images.
        label_smoothing: share of the target that is spread over all classes.
    """
    if isinstance(logits, SplitLogits):
        losses: Tensor = _split_cross_entropy(logits.values, logits, labels, label_smoothing)
        return losses
    return functional.cross_entropy(logits, labels, reduction="none", label_smoothing=label_smoothing)


def likeliest(logits: Tensor | SplitLogits, num: int) -> Tensor:
    """(B, num) the classes with the largest logits, the largest first; of split logits all ranks call it together."""
    if not isinstance(logits, SplitLogits):
        return logits.detach().topk(num, 1).indices
    own = logits.values.detach().float()
    first = logits.own_classes[0]
    found = own.new_full((2, len(own), num), -torch.inf)
    kept = min(num, own.shape[1])
    values, places = own.topk(kept, 1)
    found[0, :, :kept] = values
    classes = torch.zeros((len(own), num), dtype=torch.int64, device=own.device)
    classes[:, :kept] = places + first
    # to the last bit of a number of 2^53, and NaN stays NaN
    everyones = logits.link.gather("likeliest classes", torch.stack([found[0].double(), classes.double()]))
    values, classes = (part.permute(1, 0, 2).flatten(1) for part in everyones.unbind(1))
    chosen = values.topk(num, 1).indices
    return logits.of_own(classes.gather(1, chosen).long())


class _SplitCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, logits: SplitLogits, labels: Tensor, label_smoothing: float) -> Tensor:
        own = values.float() if values.dtype != torch.float64 else values
        first, stop = logits.own_classes
        everyones_labels = logits.of_all(labels)
        place = everyones_labels - first
        is_own = (place >= 0) & (place < stop - first)
        place = place.clamp(0, stop - first - 1)[:, None]
        largest = logits.link.gather("largest logits", own.amax(1)).amax(0)
        exponentials = torch.exp(own - largest[:, None])
        target = torch.where(is_own, own.gather(1, place)[:, 0], 0.0)
        sums = logits.link.gather("sums of logits", torch.stack([exponentials.sum(1), target, own.sum(1)]))
        total, target, all_logits = sums.sum(0)
        ctx.save_for_backward(exponentials.div_(total[:, None]), place, is_own)
        ctx.logits, ctx.label_smoothing, ctx.dtype = logits.detach(), label_smoothing, values.dtype
        smoothed = label_smoothing / logits.num_classes
        losses = largest + total.log() - (1.0 - label_smoothing) * target - smoothed * all_logits
        return logits.of_own(losses).clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        shares, place, is_own = ctx.saved_tensors
        smoothing = ctx.label_smoothing
        deltas = shares - smoothing / ctx.logits.num_classes
        deltas.scatter_add_(1, place, -(1.0 - smoothing) * is_own[:, None].to(deltas.dtype))
        deltas *= ctx.logits.of_all(gradient)[:, None]
        return deltas.to(ctx.dtype), None, None, None


_split_cross_entropy: Callable[..., Tensor] = _SplitCrossEntropy.apply
