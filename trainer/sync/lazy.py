"""Lazy update: the owner updates its slice, and the others' slices are awaited where a parameter is next used."""

import math
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler

from augpipe.trainer.schedule import pieces_within
from augpipe.trainer.sync.base import Parts
from augpipe.trainer.sync.collect import Collector
from augpipe.trainer.sync.engine import Engine
from augpipe.trainer.sync.fences import Fences
from augpipe.trainer.sync.plan import in_memory_order
from augpipe.trainer.sync.protocol import StepReport
from augpipe.trainer.sync.scaling import Witness, clip_factor
from augpipe.trainer.sync.shards import Owned, load_shard, merge, own_slices, shard_state
from augpipe.trainer.sync.unit import Unit, count_non_finite
from augpipe.trainer.sync.update import scale_lr
from augpipe.trainer.sync.wire import RawWire


class Lazy:
    """A `Strategy`: optimizer state is sharded, weights travel (Deep Image, section 3.1, 'lazy update').

    Uncompressed, owners send the weights of their slices. Encoded, they send updates: the new slice minus the one that
    everybody has, plus what earlier payloads lacked of such differences. Everybody, the owner too, adds what is
    decoded, so weights are bit-identical everywhere and never drift from what the optimizers meant by more than one
    payload's error.
    """

    def __init__(self, parts: Parts, *, wait: Literal["use", "model"]) -> None:
        self.module = parts.model
        self.optimizer = parts.optimizer
        self.meter = parts.meter
        self._parts = parts
        self._plan = parts.plan
        self._groups = [[parts.names[p] for p in group["params"]] for group in self.optimizer.param_groups]
        self._units = parts.make_units(gradient_gather=False)
        self._index = {unit: index for index, unit in enumerate(self._units)}
        self._raw = [isinstance(parts.plan.wire(index, parts.codec), RawWire) for index in range(len(self._units))]
        self._memory = [in_memory_order(parameter) for parameter in self._plan.parameters]
        self._owned = [piece for index in range(len(self._units)) for piece in self._own(index)]
        own_slices(self.optimizer, self._plan, self._owned)
        self._engine = Engine(
            "lazy",
            parts.reduce_group,
            parts.gather_group,
            device=parts.device,
            timeout_s=parts.timeout_s,
            chained=False,
            before_gather=self._put_updated,
            after_gather=self._apply_gathered,
        )
        self._collector = Collector(self._plan, self._units, self._engine, parts.model.parameters)
        self._witness = Witness(parts.device)
        self._units_of: dict[nn.Parameter, list[Unit]] = {}
        for index, unit in enumerate(self._units):
            for parameter in self._plan.bucket_parameters(index):
                self._units_of.setdefault(self._plan.parameters[parameter], []).append(unit)
        self._fences = Fences(parts.model, self._await_parameter, self.flush, wait)

    def _own(self, bucket: int) -> list[Owned]:
        """The pieces of a bucket's own slice."""
        start, stop = self._units[bucket].own_range
        owned = []
        for piece in pieces_within(self._plan.exchange.buckets[bucket], start, stop):
            part = self._memory[piece.parameter][piece.start : piece.stop]
            weight = nn.Parameter(part if self._raw[bucket] else part.float().clone())
            owned.append(
                Owned(
                    index=piece.parameter,
                    start=piece.start,
                    stop=piece.stop,
                    bucket=bucket,
                    offset=piece.offset,
                    weight=weight,
                )
            )
        return owned

    def _await_parameter(self, parameter: nn.Parameter) -> None:
        for unit in self._units_of.get(parameter, ()):
            self._engine.wait(unit.done, unit)

    def no_sync(self) -> AbstractContextManager[None]:
        """Backward inside it adds to the gradients without any exchange."""
        return self._collector.no_sync()

    def step(self, scaler: GradScaler | None = None) -> StepReport:
        """Await the averages of the own slices, unscale, clip, update them, and start sending them."""
        self._collector.finish()
        for unit in self._units:
            self._engine.wait(unit.reduced, unit)
        norm, not_finite = self._agree(scaler)
        found_inf = self._witness.found_inf(scaler, not_finite > 0)
        self._parts.scale_residuals(self._witness.residual_factor, phase="reduce")
        factor = self._witness.inverse_scale
        if norm is not None:
            norm *= factor
        if not found_inf:
            self._update(factor, norm)
            for index in self._plan.exchange.gather_order:
                self._engine.gather(self._units[index])
        return StepReport(
            grad_norm=norm,
            found_inf=found_inf,
            non_finite=max(sum(unit.non_finite for unit in self._units), not_finite),
            exposed_s=self._engine.take_exposed_s(),
            bytes_sent=self.meter.since_last(),
        )

    def _agree(self, scaler: GradScaler | None) -> tuple[float | None, int]:
        """The norm of the whole gradient, still scaled, and how many averaged values are not finite, on all ranks.

        Only clipping and scaling need the one small exchange; a gather is not waited for even then.
        """
        clips = self._parts.clip_norm is not None
        if not clips and (scaler is None or not scaler.is_enabled()):
            return None, 0
        square = math.fsum(unit.square_sums[self._parts.rank] for unit in self._units) if clips else 0.0
        not_finite = sum(count_non_finite(unit.own_values) for unit in self._units)
        squares, counts = self._parts.gather_numbers(square, float(not_finite), self._engine)
        return math.sqrt(math.fsum(squares)) if clips else None, int(sum(counts))

    def _update(self, factor: float, norm: float | None) -> None:
        """Let the optimizer update the own slices; parameters that no rank has a gradient for are left alone."""
        used = self._collector.used()
        clip = 1.0 if norm is None or self._parts.clip_norm is None else clip_factor(norm, self._parts.clip_norm)
        with torch.no_grad():
            for piece in self._owned:
                if not self._raw[piece.bucket]:
                    piece.weight.copy_(self._memory[piece.index][piece.start : piece.stop])
                if not used[piece.index]:
                    continue
                gradient = self._units[piece.bucket].values[piece.offset : piece.offset + piece.weight.numel()]
                if factor != 1.0:
                    gradient.mul_(factor)
                if clip != 1.0:
                    gradient.mul_(clip)
                piece.weight.grad = gradient.to(piece.weight.dtype)
        self.optimizer.step()
        for piece in self._owned:
            piece.weight.grad = None

    def _put_updated(self, unit: Unit) -> None:
        """Into the own slice of the bucket: the new weights, or the update where it is encoded."""
        index = self._index[unit]
        for piece in self._owned_in(index):
            part = unit.values[piece.offset : piece.offset + piece.weight.numel()]
            if self._raw[index]:
                part.copy_(piece.weight)
            else:
                torch.sub(piece.weight, self._memory[piece.index][piece.start : piece.stop], out=part)

    def _owned_in(self, bucket: int) -> list[Owned]:
        return [piece for piece in self._owned if piece.bucket == bucket]

    def _apply_gathered(self, unit: Unit) -> None:
        """Bring a whole bucket into the model: one and the same arithmetic on every rank, also for the own slice."""
        index = self._index[unit]
        for piece in self._plan.exchange.buckets[index].pieces:
            weights = self._memory[piece.parameter][piece.start : piece.stop]
            part = unit.values[piece.offset : piece.offset + piece.num]
            if self._raw[index]:
                weights.copy_(part)
            else:
                weights.add_(part)

    def flush(self) -> None:
        """Await every slice."""
        for unit in self._units:
            self._engine.wait(unit.done, unit)

    def set_lr(self, factor: float) -> None:
        """Set every group's learning rate to `factor` times its first one."""
        scale_lr(self.optimizer, factor)

    def _update_residuals(self) -> dict[Owned, Tensor]:
        """What encoded updates lacked so far, by piece."""
        found = {}
        for piece in self._owned:
            kept = self._parts.residuals.get(f"gather {piece.bucket}")
            residual = None if kept is None else kept.state().get(self._parts.rank)
            if residual is not None:
                start = piece.offset - self._units[piece.bucket].own_range[0]
                found[piece] = residual[start : start + piece.weight.numel()]
        return found

    def state_dict(self) -> dict[str, Any]:
        """This rank's shard of the optimizer state, and its residuals; `merge` makes shards a full state."""
        self.flush()
        shard = shard_state(self.optimizer, self._plan, self._owned, self._groups, self._update_residuals())
        return shard | self._parts.residual_state(phase="reduce")

    def full_optimizer_state(self) -> dict[str, Any]:
        """All ranks' shards, merged, on every rank."""
        shards: list[Any] = [None] * self._parts.world_size
        dist.all_gather_object(shards, self.state_dict(), group=self._parts.control_group)
        return merge(shards)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up this rank's shard, or a full state, whichever strategy it is from."""
        self.flush()
        residuals = load_shard(self.optimizer, self._plan, self._owned, self._groups, state)
        self._parts.load_residual_state(state, phase="reduce")
        self._load_update_residuals(residuals)

    def _load_update_residuals(self, residuals: Mapping[Owned, Tensor]) -> None:
        for index, unit in enumerate(self._units):
            kept = self._parts.residuals.get(f"gather {index}")
            if kept is None:
                continue
            whole = torch.zeros_like(unit.own_values)
            for piece in self._owned_in(index):
                if piece in residuals:
                    start = piece.offset - unit.own_range[0]
                    whole[start : start + piece.weight.numel()].copy_(residuals[piece])
            kept.load({self._parts.rank: whole}, whole.device)

    def close(self) -> None:
        """Flush, end the threads, take fences and hooks off."""
        try:
            self.flush()
        finally:
            self._collector.close()
            self._engine.close()
            self._fences.remove()
            self._parts.close()
