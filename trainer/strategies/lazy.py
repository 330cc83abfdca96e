"""Lazy update: the owner updates its slice, and the others' slices are awaited where a parameter is next used."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from augpipe.trainer.exchange import Piece, pieces_within
from augpipe.trainer.exchange.bucket import BucketExchange, SliceKey, controls_of
from augpipe.trainer.exchange.group_exchange import GroupExchange
from augpipe.trainer.strategies.agreement import Agreement
from augpipe.trainer.strategies.bucket_strategy import BucketStrategy
from augpipe.trainer.strategies.collected import Collected, add_up
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
        collected = self.collect(is_scaled(scaler))
        found = collected.take(self._threads.read(collected.numbers))
        return self.update(self._scaler.decide(scaler, found, self._clip_norm))

    def collect(self, scaled: bool) -> Collected:
        """Await the averages of the own slices.

        Only clipping and scaling need to know of the other owners', by one small exchange; a gather is not waited for
        even then.
        """
        self._finish_backward()
        for bucket in self._buckets:
            self._threads.wait_reduced(bucket)
        looks = self._clip_norm is not None or scaled
        totals = [self._exchange.gather_totals()] if looks else []

        def take(copied: Tensor) -> Found:
            left = self._take_controls(copied)
            num_bad, square_sum = add_up(left.view(torch.int64))
            return self._found(square_sum, num_bad)

        return Collected(numbers=controls_of(self._buckets, *totals), take=take, totals=lambda: totals[0])

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
            for one in (factor, clip):
                if one != 1.0:
                    torch._foreach_mul_([bucket.own_values for bucket in self._buckets], one)
            encoded = [piece for bucket in self._buckets if bucket.is_encoded for piece in self._owned[bucket.number]]
            if encoded:
                torch._foreach_copy_([piece.weight for piece in encoded], [self._weights(piece) for piece in encoded])
            for bucket in self._buckets:
                for piece in self._owned[bucket.number]:
                    if used[piece.index]:
                        piece.weight.grad = _part(bucket, piece).to(piece.weight.dtype)
        self.optimizer.step()
        for piece in self._all_owned:
            piece.weight.grad = None

    def _weights(self, piece: OwnedSlice | Piece) -> Tensor:
        """(num,) view of the parameter's memory."""
        index = piece.index if isinstance(piece, OwnedSlice) else piece.parameter
        return self._memory[index][piece.start : piece.stop]

    def before_gather(self, bucket: BucketExchange) -> None:
        """Put the new weights into the own slice, or the update where it is encoded."""
        owned = self._owned[bucket.number]
        if not owned:
            return
        values = [_part(bucket, piece) for piece in owned]
        torch._foreach_copy_(values, [piece.weight for piece in owned])
        if bucket.is_encoded:
            torch._foreach_sub_(values, [self._weights(piece) for piece in owned])

    def after_gather(self, bucket: BucketExchange) -> None:
        """Bring a whole bucket into the model: one and the same arithmetic on every rank, also for the own slice."""
        pieces = self._plan.exchange.buckets[bucket.number].pieces
        weights, values = [self._weights(piece) for piece in pieces], [_part(bucket, piece) for piece in pieces]
        if bucket.is_encoded:
            torch._foreach_add_(weights, values)
        else:
            torch._foreach_copy_(weights, values)

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


def _part(bucket: BucketExchange, piece: OwnedSlice | Piece) -> Tensor:
    """(num,) view of a piece in its bucket's values."""
    return bucket.values[piece.offset : piece.offset + piece.num]
