"""A worker: from weights and a lease to a push, by its own network, loader and codec."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from augpipe import MixedLabels
from augpipe.trainer.codecs import ErrorFeedback, codec
from augpipe.trainer.loop.score import Score
from augpipe.trainer.loop.step import loss_sum_of
from augpipe.trainer.parallel import likeliest
from augpipe.trainer.servers.group import Group, OneProcess, ShareResult
from augpipe.trainer.servers.messages import Lease, Part
from augpipe.trainer.servers.slices import FlatWeights
from augpipe.trainer.servers.specs import WorkerSpec

LeaseBatches: TypeAlias = Sequence[tuple[Tensor, Tensor | MixedLabels]]
"""(images, labels) of each of a lease's batches, of one process."""


class Batches(Protocol):
    """Where a worker's images come from."""

    def take(self, lease: Lease, upcoming: Lease | None) -> LeaseBatches:
        """The batches of a lease's member; those of `upcoming` may be made ahead."""
        ...


@dataclass(frozen=True, kw_only=True)
class Computed(Score):
    """What a lease's forward and backward passes gave."""

    parts: tuple[Part, ...]
    """A server each; empty where something was not finite."""
    data_s: float
    compute_s: float

    @property
    def is_finite(self) -> bool:
        """Whether there is something to push."""
        return bool(self.parts)


class Worker:
    """Computes; it knows nothing of who else is there.

    Raises:
        ValueError: the network does not suit.
    """

    def __init__(self, spec: WorkerSpec, model: nn.Module, batches: Batches, group: Group | None = None) -> None:
        self._spec = spec
        self._group = group or OneProcess(spec.group_size)
        self.model = model
        self._batches = batches
        self._flat = FlatWeights(model)
        self._push_codec = codec(spec.push_codec)
        self._pull_codec = None if spec.pull_codec is None else codec(spec.pull_codec)
        self._feedback = ErrorFeedback(self._push_codec) if spec.error_feedback else None
        self._residuals: dict[Any, Any] = {}
        """As they were before the push under way."""
        self._own_before: tuple[Tensor, tuple[Tensor, Tensor]] | None = None
        """The weights and buffers before the lease under way, where a worker may go on with them."""
        self._given: Tensor | None = None
        """The weights as the servers know them, where they send what changed and the worker takes steps of its own."""
        self._buffers = self._flat.buffers()

    def load(self, parts: Sequence[Part]) -> None:
        """Take on weights, or add what changed in them."""
        values = self._flat.values
        if parts[0].is_change and self._given is not None:
            values.copy_(self._given)
        for one, part in zip(self._spec.slices, parts, strict=True):
            wide = values[slice(*one.wide)]
            if part.is_change:
                assert self._pull_codec is not None
                self._pull_codec.decode_into(np.asarray(part.wide), wide.numpy(), add=True)
            else:
                wide.numpy()[:] = part.wide.view(np.float32)
            values[slice(*one.narrow)].numpy()[:] = part.narrow
            if part.buffers is not None and part.counts is not None:
                self._buffers = torch.from_numpy(np.array(part.buffers)), torch.from_numpy(np.array(part.counts))
        self._flat.set_buffers(*self._buffers)
        if self._pull_codec is not None and self._spec.local_lr is not None:
            self._given = values.clone()

    def begin_afresh(self) -> None:
        """Forget what encoding has left out so far."""
        if self._feedback is not None:
            self._feedback.load_state_dict({})

    def compute(self, lease: Lease, upcoming: Lease | None, lr: float) -> Computed:
        """The lease's gradient, encoded, a part for each server.

        Args:
            lease: what to train on.
            upcoming: what may be read ahead.
            lr: what the learning rate is multiplied by, for the worker's own steps.
        """
        start = time.perf_counter()
        found, data_s = self.compute_shares(lease, upcoming, lr)
        gradient = found.gradient
        if self._spec.optim.clip_norm is not None:
            norm = torch.linalg.vector_norm(gradient)
            gradient.mul_(torch.clamp(self._spec.optim.clip_norm / (norm + 1e-6), max=1.0))
        is_finite = math.isfinite(found.loss_sum) and bool(torch.isfinite(gradient).all())
        if not is_finite:
            self._put_back()
        return Computed(
            parts=self._encoded(found) if is_finite else (),
            loss_sum=found.loss_sum,
            num_correct=found.num_correct,
            num_samples=found.num_samples,
            data_s=data_s,
            compute_s=time.perf_counter() - start - data_s,
        )

    def compute_shares(self, lease: Lease, upcoming: Lease | None, lr: float) -> tuple[ShareResult, float]:
        """(What the group found, seconds that were waited for batches); every process of a group calls it."""
        data_s = 0.0
        # without steps of its own, a lease leaves the weights as they are
        values = self._flat.values.clone() if self._spec.local_lr is not None else self._flat.values
        self._own_before = values, self._flat.buffers()
        shares = []
        for member in self._group.members:
            begun = time.perf_counter()
            own = replace(lease, member=member)
            batches = self._batches.take(own, None if upcoming is None else replace(upcoming, member=member))
            data_s += time.perf_counter() - begun
            shares.append(self._compute_share(own, batches, lr))
        return self._group.combine(shares), data_s

    def state(self) -> tuple[Tensor, ...]:
        """The weights, which may be written to, and copies of the floating-point and the integer buffers."""
        return self._flat.values, *self._flat.buffers()

    def set_buffers(self, floating: Tensor, counting: Tensor) -> None:
        """Take on buffers."""
        self._flat.set_buffers(floating, counting)

    def _compute_share(self, lease: Lease, batches: LeaseBatches, lr: float) -> ShareResult:
        """One process's share, from the buffers that all of the group begin with."""
        # torch.manual_seed writes down the stack for each kind of GPU besides: a tenth of a small lease's time
        torch.default_generator.manual_seed(seed_of(self._spec.seed, lease))
        self.model.train()
        assert self._own_before is not None
        before = self._own_before[1]
        self._flat.set_buffers(*before)
        local_lr = self._spec.local_lr
        gradients = self._flat.gradients.zero_()
        total = torch.zeros_like(gradients) if local_lr is not None else gradients
        loss_sum, num_correct, num_samples = 0.0, 0, 0
        for images, labels in batches:
            num = len(images)
            if num == 0:
                continue
            logits = self.model(images)
            loss = loss_sum_of(logits, labels, self._spec.optim.label_smoothing)
            scaled = loss * (1.0 / (lease.num_samples if local_lr is None else num))
            torch.autograd.backward([scaled])
            loss_sum += loss.item()
            classes = labels.heavier() if isinstance(labels, MixedLabels) else labels
            num_correct += int((likeliest(logits, 1)[:, 0] == classes).sum())
            num_samples += num
            if local_lr is not None:
                total.add_(gradients)
                self._flat.values.add_(gradients, alpha=-local_lr * lr)
                gradients.zero_()
        floating, counting = (now - then for now, then in zip(self._flat.buffers(), before, strict=True))
        return ShareResult(
            gradient=total if len(self._group.members) == 1 else total.clone(),
            buffers=(floating, counting),
            loss_sum=loss_sum,
            num_correct=num_correct,
            num_samples=num_samples,
        )

    def settle(self, *, counted: bool) -> None:
        """Whether the push counts: if not, all is as before its lease, as nothing of it is in the run's order."""
        if not counted:
            self._put_back()
            if self._feedback is not None:
                self._feedback.load_state_dict(self._residuals)
        self._residuals = {}
        self._own_before = None

    def _put_back(self) -> None:
        assert self._own_before is not None
        values, buffers = self._own_before
        if values is not self._flat.values:
            self._flat.values.copy_(values)
        self._flat.set_buffers(*buffers)

    def _encoded(self, found: ShareResult) -> tuple[Part, ...]:
        if self._feedback is not None:
            self._residuals = self._feedback.state_dict()
        gradients, changes = found.gradient, found.buffers
        parts = []
        for index, one in enumerate(self._spec.slices):
            wide = gradients[slice(*one.wide)]
            payload = np.empty(self._push_codec.num_bytes(len(wide)), np.uint8)
            if self._feedback is None:
                self._push_codec.encode_into(wide.numpy(), payload)
            else:
                self._feedback.encode_into(index, wide.numpy(), payload)
            parts.append(
                Part(
                    wide=payload,
                    narrow=gradients[slice(*one.narrow)].numpy().copy(),
                    buffers=changes[0].numpy() if index == 0 else None,
                    counts=changes[1].numpy() if index == 0 else None,
                )
            )
        return tuple(parts)


def seed_of(seed: int, lease: Lease) -> int:
    """Dropout's, for a lease's member; the same whoever trains on it, and how often."""
    words = (seed % 2**32, seed // 2**32, lease.name.epoch, lease.name.number, lease.member)
    return int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0])
