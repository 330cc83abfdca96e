"""Lazy update: the owner updates its slice, and the others' slices are awaited where a parameter is next used."""

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from augpipe.trainer.exchange import pieces_within
from augpipe.trainer.exchange.bucket import BucketExchange, SliceKey
from augpipe.trainer.exchange.group_exchange import GroupExchange
from augpipe.trainer.exchange.message import count_non_finite
from augpipe.trainer.strategies.agreement import Agreement
from augpipe.trainer.strategies.bucket_strategy import BucketStrategy
from augpipe.trainer.strategies.flat_buffers import Plan, in_memory_order
from augpipe.trainer.strategies.owned_slices import OwnedSlice, load_shard, merge, own_slices, shard_state
from augpipe.trainer.strategies.parameter_waits import Fences
from augpipe.trainer.strategies.protocol import StepReport
from augpipe.trainer.strategies.state import gather_states, named_groups
from augpipe.trainer.strategies.update import Decision, Found, clip_factor, is_scaled


class Lazy(BucketStrategy):
    """A `Strategy`: optimizer state is sharded, weights travel (Deep Image, section 3.1, 'lazy update').

    Uncompressed, owners send the weights of their slices. Encoded, they send updates: the new slice minus the one that
    everybody has, plus what earlier payloads lacked of such differences. Everybody, the owner too, adds what is
    decoded, so weights are bit-identical everywhere and never drift from what the optimizers meant by more than one
    payload's error.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        plan: Plan,
        exchange: GroupExchange,
        *,
        clip_norm: float | None,
        strangers: Callable[[], Iterator[nn.Parameter]],
        wait: Literal["use", "model"],
    ) -> None:
        super().__init__(model, optimizer, plan, exchange, clip_norm=clip_norm, strangers=strangers)
        self._groups = named_groups(optimizer, plan.by_parameter)
        self._memory = [in_memory_order(parameter) for parameter in plan.parameters]
        self._owned = {bucket.number: self._own(bucket) for bucket in self._buckets}
        self._all_owned = [piece for pieces in self._owned.values() for piece in pieces]
        own_slices(optimizer, plan, self._all_owned)
        self._agreement = Agreement(optimizer, strangers)  # of the slices
        self._fences = Fences(model, self._await_parameter, self.flush, wait)

    def _own(self, bucket: BucketExchange) -> list[OwnedSlice]:
        """The pieces of a bucket's own slice."""
        owned = []
        for piece in pieces_within(self._plan.exchange.buckets[bucket.number], *bucket.own_range):
            weights = self._memory[piece.parameter][piece.start : piece.stop]
            owned.append(
                OwnedSlice(
                    index=piece.parameter,
                    start=piece.start,
                    stop=piece.stop,
                    offset=piece.offset,
                    weight=nn.Parameter(weights.float().clone() if bucket.is_encoded else weights),
                )
            )
        return owned

    def _await_parameter(self, parameter: nn.Parameter) -> None:
        for bucket in self._buckets_of.get(parameter, ()):
            self._threads.wait_gathered(bucket)

    def step(self, scaler: GradScaler | None = None) -> StepReport:
        """Await the averages of the own slices, unscale, clip, update them, and start sending them."""
        return self.update(self._scaler.decide(scaler, self.collect(is_scaled(scaler)), self._clip_norm))

    def collect(self, scaled: bool) -> Found:
        """Await the averages of the own slices.

        Only clipping and scaling need to know of the other owners', by one small exchange; a gather is not waited for
        even then.
        """
        self._finish_backward()
        for bucket in self._buckets:
            self._threads.wait_reduced(bucket)
        self._read_controls()
        clips = self._clip_norm is not None
        if not clips and not scaled:
            return self._found(0.0, 0)
        square = math.fsum(bucket.own_square_sum for bucket in self._buckets) if clips else 0.0
        num_bad = int(sum(count_non_finite(bucket.own_values) for bucket in self._buckets))
        squares, counts = self._exchange.agree(square, float(num_bad))
        return self._found(math.fsum(squares), int(sum(counts)))

    def update(self, decision: Decision) -> StepReport:
        """Unscale, clip, update the own slices, and start sending them."""
        self._exchange.scale_residuals(decision.residual_factor, "reduce")
        if not decision.found_inf:
            self._update_owned(decision.inverse_scale, clip_factor(decision.norm, self._clip_norm))
            for collective in self._plan.exchange.after_update:
                self._threads.begin("gather", self._buckets[collective.bucket])
        self._drop_gradients()
        return self._report(decision)

    def _update_owned(self, factor: float, clip: float) -> None:
        """Let the optimizer update the own slices; parameters that no rank has a gradient for are left alone."""
        used = self._used()
        with torch.no_grad():
            for bucket in self._buckets:
                for piece in self._owned[bucket.number]:
                    if bucket.is_encoded:
                        piece.weight.copy_(self._memory[piece.index][piece.start : piece.stop])
                    if not used[piece.index]:
                        continue
                    gradient = bucket.values[piece.offset : piece.offset + piece.num]
                    if factor != 1.0:
                        gradient.mul_(factor)
                    if clip != 1.0:
                        gradient.mul_(clip)
                    piece.weight.grad = gradient.to(piece.weight.dtype)
        self.optimizer.step()
        for piece in self._all_owned:
            piece.weight.grad = None

    def before_gather(self, bucket: BucketExchange) -> None:
        """Put the new weights into the own slice, or the update where it is encoded."""
        for piece in self._owned[bucket.number]:
            values = bucket.values[piece.offset : piece.offset + piece.num]
            if bucket.is_encoded:
                torch.sub(piece.weight, self._memory[piece.index][piece.start : piece.stop], out=values)
            else:
                values.copy_(piece.weight)

    def after_gather(self, bucket: BucketExchange) -> None:
        """Bring a whole bucket into the model: one and the same arithmetic on every rank, also for the own slice."""
        for piece in self._plan.exchange.buckets[bucket.number].pieces:
            weights = self._memory[piece.parameter][piece.start : piece.stop]
            values = bucket.values[piece.offset : piece.offset + piece.num]
            if bucket.is_encoded:
                weights.add_(values)
            else:
                weights.copy_(values)

    def flush(self) -> None:
        """Await every slice."""
        for bucket in self._buckets:
            self._threads.wait_gathered(bucket)

    def state_dict(self) -> dict[str, Any]:
        """This rank's shard of the optimizer state, and its residuals; `merge` makes shards a full state."""
        self.flush()
        kept = self._exchange.feedback.state_dict()
        lacked: dict[OwnedSlice, Tensor] = {}
        for bucket in self._buckets:
            residual = kept.get(SliceKey("gather", bucket.number, self._exchange.rank))
            if residual is not None:
                for piece in self._owned[bucket.number]:
                    start = piece.offset - bucket.own_range[0]
                    lacked[piece] = residual[start : start + piece.num]
        shard = shard_state(self.optimizer, self._plan, self._all_owned, self._groups, lacked)
        return shard | self._exchange.residual_state("reduce")

    def full_optimizer_state(self) -> dict[str, Any]:
        """All ranks' shards, merged, on every rank; on the CPU."""
        return merge(gather_states(self.state_dict(), partial(self._exchange.gather_bytes, "optimizer states")))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up this rank's shard, or a full state, whichever strategy it is from."""
        self.flush()
        lacked = load_shard(self.optimizer, self._plan, self._all_owned, self._groups, state)
        self._exchange.load_residual_state(state, "reduce")
        self._load_update_residuals(lacked)

    def _load_update_residuals(self, lacked: Mapping[OwnedSlice, Tensor]) -> None:
        feedback = self._exchange.feedback
        kept = feedback.state_dict()
        for bucket in self._buckets:
            if "gather" not in bucket.fed_back:
                continue
            whole = torch.zeros_like(bucket.own_values)
            for piece in self._owned[bucket.number]:
                if piece in lacked:
                    start = piece.offset - bucket.own_range[0]
                    whole[start : start + piece.num].copy_(lacked[piece])
            kept[SliceKey("gather", bucket.number, self._exchange.rank)] = whole
        feedback.load_state_dict(kept)

    def close(self) -> None:
        """Flush, end the threads, take fences and hooks off."""
        try:
            self.flush()
            self._threads.settle()
        finally:
            self._fences.remove()
            super().close()
