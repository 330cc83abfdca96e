"""One update of the weights: forward and backward over its batches, then the strategy's exchange and step."""

import math
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.amp.grad_scaler import GradScaler

from augpipe import Batch, MixedLabels, order
from augpipe.trainer.config.tables import RunConfig
from augpipe.trainer.loop.precision import FiniteCheckScaler, autocast
from augpipe.trainer.loop.world import World
from augpipe.trainer.parallel import SplitLogits, cross_entropy, likeliest
from augpipe.trainer.strategies import StepReport, Strategy


@dataclass(frozen=True, kw_only=True)
class UpdateBatches:
    """The batches of one update."""

    num_batches: int
    """That each rank takes."""
    num_samples: int
    """In all of them, over all ranks."""


def next_update(
    *, consumed: int, num_samples: int, per_batch: int, accumulate: int, drop_last: bool
) -> UpdateBatches | None:
    """The next update's batches; None at the epoch's end.

    Args:
        consumed: samples of the epoch that all ranks have taken.
        num_samples: in the source.
        per_batch: batch size times world size.
        accumulate: batches of an update; the epoch's last one takes what there is.
        drop_last: whether the loader leaves out a last batch that is cut short.
    """
    left = num_samples - consumed
    num = min(accumulate, order.num_batches(left, per_batch, 1, drop_last))
    if num <= 0:
        return None
    return UpdateBatches(num_batches=num, num_samples=min(num * per_batch, left))


def loss_sum_of(
    logits: torch.Tensor | SplitLogits, labels: torch.Tensor | MixedLabels, label_smoothing: float
) -> torch.Tensor:
    """The sum of the images' cross-entropy; of mixed ones that of both labels, by their weights."""
    if not isinstance(labels, MixedLabels):
        return cross_entropy(logits, labels, label_smoothing=label_smoothing).sum()
    own, other = (
        cross_entropy(logits, classes, label_smoothing=label_smoothing)
        for classes in (labels.labels, labels.other_labels)
    )
    total: torch.Tensor = (labels.weights * own + (1.0 - labels.weights) * other).sum()
    return total


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """What one update did, on this rank."""

    loss_sum: float
    """Over this rank's images."""
    num_correct: int
    """How many of this rank's images were named rightly; of mixed ones, by the label that weighs more."""
    num_samples: int
    """This rank's images."""
    data_s: float
    """Seconds that the loop waited for batches."""
    is_finite: bool
    """Whether loss and gradients were; an overflow that fp16's scaler answers by a lower scale counts as finite."""
    is_skipped: bool
    """Whether no rank touched its weights."""
    report: StepReport
    """The strategy's."""
    sample_ids: list[int]
    """What this rank took."""


class Step:
    """Turns batches into updates."""

    def __init__(
        self, config: RunConfig, world: World, module: nn.Module, strategy: Strategy, scaler: GradScaler | None
    ) -> None:
        self._config = config
        self._world = world
        self._module = module
        self._strategy = strategy
        self._scaler = scaler

    def run(self, batches: Iterator[Batch], update: UpdateBatches) -> StepResult:
        """Take the update's batches, and update the weights by their mean gradient over all ranks.

        A step that is skipped leaves weights and buffers as they were, on every rank.
        """
        loss_sum = torch.zeros((), device=self._world.device)
        num_correct = torch.zeros((), dtype=torch.int64, device=self._world.device)
        data_s, ids = 0.0, []
        may_go_on = self._scaler is not None and (
            self._config.faults.on_nan == "skip" or not isinstance(self._scaler, FiniteCheckScaler)
        )
        # a step that is left out leaves nothing behind: not what running statistics have seen in it, either
        before_step = self._buffers() if may_go_on else []
        for number in range(update.num_batches):
            start = time.perf_counter()
            batch = next(batches)
            data_s += time.perf_counter() - start
            ids += batch.sample_ids.tolist()
            is_last = number == update.num_batches - 1
            # black images stand in for none, and running statistics must not learn them
            kept = [] if len(batch) else self._buffers()
            with nullcontext() if is_last else self._strategy.no_sync():
                logits, labels, loss = self._forward(batch)
                # the strategy takes the mean over ranks; this makes it the mean over the images
                scaled = loss * (self._world.size / update.num_samples)
                (scaled if self._scaler is None else self._scaler.scale(scaled)).backward()  # type: ignore[no-untyped-call]
            for buffer, before in kept:  # not before backward, which still looks at them
                buffer.copy_(before)
            loss_sum += loss.detach()
            classes = labels.heavier() if isinstance(labels, MixedLabels) else labels
            is_right = likeliest(logits, 1)[:, 0] == classes  # of split logits, all ranks look for it together
            num_correct += is_right.sum() if len(batch) else 0
        report = self._strategy.step(self._scaler)
        for buffer, before in before_step if report.found_inf else []:
            buffer.copy_(before)
        total = loss_sum.item()
        looks = self._config.faults.on_nan != "ignore"
        overflowed = report.found_inf and (self._scaler is None or isinstance(self._scaler, FiniteCheckScaler))
        return StepResult(
            loss_sum=total,
            num_correct=int(num_correct.item()),
            num_samples=len(ids),
            data_s=data_s,
            is_finite=not looks or (math.isfinite(total) and not overflowed),
            is_skipped=report.found_inf,
            report=report,
            sample_ids=ids,
        )

    def _buffers(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Each buffer, and a copy of what it holds now."""
        return [(buffer, buffer.detach().clone()) for buffer in self._module.buffers()]

    def _forward(self, batch: Batch) -> tuple[torch.Tensor | SplitLogits, torch.Tensor | MixedLabels, torch.Tensor]:
        device = self._world.device
        images, labels = batch.images.to(device, non_blocking=True), batch.labels.to(device, non_blocking=True)
        if len(batch) == 0:  # the epoch's last batch, for this rank: it joins the exchange with a gradient of zero
            images, labels = self._nothing(images), torch.zeros(2, dtype=torch.int64, device=device)
        with autocast(self._config, device):
            logits = self._module(images)
            loss = loss_sum_of(logits, labels, self._config.optim.label_smoothing)
        return logits, labels, loss if len(batch) else loss * 0.0

    def _nothing(self, images: Any) -> torch.Tensor:
        layout = torch.channels_last if self._config.model.channels_last else torch.contiguous_format
        return torch.zeros((2, *images.shape[1:]), device=images.device).to(memory_format=layout)
