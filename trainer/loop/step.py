"""One update of the weights: forward and backward over its batches, then the strategy's exchange and step."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler

from augpipe import Batch, MixedLabels
from augpipe.sampling import epoch_order
from augpipe.trainer.config.tables import RunConfig
from augpipe.trainer.exchange.host_copy import HostCopy
from augpipe.trainer.loop.precision import FiniteCheckScaler, autocast
from augpipe.trainer.loop.score import Score
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
    num = min(accumulate, epoch_order.num_batches(left, per_batch, 1, drop_last))
    if num <= 0:
        return None
    return UpdateBatches(num_batches=num, num_samples=min(num * per_batch, left))


def loss_sum_of(logits: Tensor | SplitLogits, labels: Tensor | MixedLabels, label_smoothing: float) -> Tensor:
    """The sum of the images' cross-entropy; of mixed ones that of both labels, by their weights."""
    if not isinstance(labels, MixedLabels):
        return cross_entropy(logits, labels, label_smoothing=label_smoothing).sum()
    own, other = (
        cross_entropy(logits, classes, label_smoothing=label_smoothing)
        for classes in (labels.labels, labels.other_labels)
    )
    total: Tensor = (labels.weights * own + (1.0 - labels.weights) * other).sum()
    return total


@dataclass(frozen=True, kw_only=True)
class StepResult(Score):
    """What one update did, on this rank."""

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
        before_step = self._keep_buffers() if may_go_on else None
        for number in range(update.num_batches):
            start = time.perf_counter()
            batch = next(batches)
            data_s += time.perf_counter() - start
            ids += batch.sample_ids.tolist()
            is_last = number == update.num_batches - 1
            # black images stand in for none, and running statistics must not learn them
            before_batch = None if len(batch) else self._keep_buffers()
            with nullcontext() if is_last else self._strategy.no_sync():
                logits, labels, loss = self._forward(batch)
                # the strategy takes the mean over ranks; this makes it the mean over the images
                scaled = loss * (self._world.size / update.num_samples)
                (scaled if self._scaler is None else self._scaler.scale(scaled)).backward()  # type: ignore[no-untyped-call]
            if before_batch is not None:  # not before backward, which still looks at them
                before_batch()
            loss_sum += loss.detach()
            classes = labels.heavier() if isinstance(labels, MixedLabels) else labels
            is_right = likeliest(logits, 1)[:, 0] == classes  # of split logits, all ranks look for it together
            num_correct += is_right.sum() if len(batch) else 0
        # before the strategy waits for the device to decide on the step, so that one wait is for both
        sums = HostCopy(torch.stack([loss_sum.double(), num_correct.double()]))
        report = self._strategy.step(self._scaler)
        if report.found_inf and before_step is not None:
            before_step()
        total, num_right = sums.read().tolist()
        looks = self._config.faults.on_nan != "ignore"
        overflowed = report.found_inf and (self._scaler is None or isinstance(self._scaler, FiniteCheckScaler))
        return StepResult(
            loss_sum=total,
            num_correct=int(num_right),
            num_samples=len(ids),
            data_s=data_s,
            is_finite=not looks or (math.isfinite(total) and not overflowed),
            is_skipped=report.found_inf,
            report=report,
            sample_ids=ids,
        )

    def _keep_buffers(self) -> Callable[[], None]:
        """Copy the buffers, by one launch for each dtype; returns what puts the copies back."""
        buffers: dict[torch.dtype, list[Tensor]] = {}
        for buffer in self._module.buffers():
            buffers.setdefault(buffer.dtype, []).append(buffer.detach())
        copies = {dtype: [torch.empty_like(one) for one in of_dtype] for dtype, of_dtype in buffers.items()}
        for dtype, of_dtype in buffers.items():
            torch._foreach_copy_(copies[dtype], of_dtype)

        def put_back() -> None:
            for dtype, of_dtype in buffers.items():
                torch._foreach_copy_(of_dtype, copies[dtype])

        return put_back

    def _forward(self, batch: Batch) -> tuple[Tensor | SplitLogits, Tensor | MixedLabels, Tensor]:
        device = self._world.device
        images, labels = batch.images.to(device, non_blocking=True), batch.labels.to(device, non_blocking=True)
        if len(batch) == 0:  # the epoch's last batch, for this rank: it joins the exchange with a gradient of zero
            images, labels = self._nothing(images), torch.zeros(2, dtype=torch.int64, device=device)
        with autocast(self._config, device):
            logits = self._module(images)
            loss = loss_sum_of(logits, labels, self._config.optim.label_smoothing)
        return logits, labels, loss if len(batch) else loss * 0.0

    def _nothing(self, images: Any) -> Tensor:
        layout = torch.channels_last if self._config.model.channels_last else torch.contiguous_format
        return torch.zeros((2, *images.shape[1:]), device=images.device).to(memory_format=layout)
