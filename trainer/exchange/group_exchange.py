"""The exchanges of a group of ranks: a process group and its threads, a codec, its rounding errors, bytes sent."""

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup

from augpipe.trainer.codecs.base_codec import Codec
from augpipe.trainer.codecs.error_feedback import ErrorFeedback
from augpipe.trainer.exchange.bucket import BucketExchange, SliceKey, Totals
from augpipe.trainer.exchange.issuer import Issuer
from augpipe.trainer.exchange.message import CodecWire, RawWire, Wire
from augpipe.trainer.exchange.meter import Meter
from augpipe.trainer.exchange.objects import gather_bytes
from augpipe.trainer.exchange.ranks import destroy_group
from augpipe.trainer.exchange.schedule import Phase
from augpipe.trainer.exchange.threads import BucketHandler, ExchangeThreads


class GroupExchange:
    """What butterfly, lazy and the hook exchange buckets by; `group` is their own, and is let go of with them."""

    def __init__(
        self,
        name: str,
        group: ProcessGroup,
        codec: Codec,
        *,
        device: torch.device,
        timeout_s: float,
        error_feedback: bool = False,
        with_norm: bool = False,
        meter: Meter | None = None,
        issuer: Issuer | None = None,
    ) -> None:
        self.group = group
        self.rank = dist.get_rank(group)
        self.world_size = dist.get_world_size(group)
        self.meter = meter or Meter()
        self.feedback = ErrorFeedback(codec)
        """Residuals, by `SliceKey`."""
        self.device = device
        self._name = name
        self._codec = codec
        self._timeout_s = timeout_s
        self._error_feedback = error_feedback
        self._with_norm = with_norm
        self._issuer = issuer
        self._cuts: dict[Phase, dict[int, tuple[int, ...]]] = {"reduce": {}, "gather": {}}
        """The cuts of the buckets that have residuals in a phase."""
        self.totals: Totals | None = None
        """Of the buckets that were made to be added up."""

    def start(self, handler: BucketHandler) -> ExchangeThreads:
        """The threads; they end with `close`."""
        self.threads = ExchangeThreads(
            self._name, self.group, handler, device=self.device, timeout_s=self._timeout_s, issuer=self._issuer
        )
        return self.threads

    def bucket(
        self,
        number: int,
        values: Tensor,
        cuts: tuple[int, ...],
        *,
        dtype: torch.dtype,
        exempt: bool,
        label: str,
        gathers: Literal["gradients", "weights"] = "gradients",
        num_flags: int = 0,
        adds_up: bool = False,
    ) -> BucketExchange:
        """A bucket of parameters of a dtype; updates (of weights) that are encoded always have error feedback.

        With `adds_up` its means are added to the `totals`, by the schedule from bucket 0 on.
        """
        raw = exempt or self._codec.name == "fp32"
        wire: Wire = RawWire(dtype, values.dtype) if raw else CodecWire(self.feedback)
        phases: list[Phase] = [] if raw else ["reduce"] * self._error_feedback
        phases += ["gather"] if not raw and (self._error_feedback or gathers == "weights") else []
        for phase in phases:
            self._cuts[phase][number] = cuts
        if adds_up and self.totals is None:
            self.totals = Totals(self.device, "gather" if gathers == "gradients" else "reduce")
        return BucketExchange(
            values,
            cuts,
            self.rank,
            wire,
            number=number,
            label=label,
            payload_classes=("exempt", "exempt") if exempt else ("gradients", gathers),
            num_flags=num_flags,
            with_norm=self._with_norm,
            fed_back=phases,
            meter=self.meter,
            totals=self.totals if adds_up else None,
        )

    def gather_totals(self) -> Tensor:
        """(world_size, 2) int64: the words of every rank's `totals`, in the order of ranks, on the device.

        On a GPU the current stream waits for them, and the host does not.
        """
        assert self.totals is not None
        mine = self.totals.words
        everyones = mine.new_empty((self.world_size, len(mine)))
        self.meter.add("control", (self.world_size - 1) * mine.nbytes)
        what = "gradient norms of the other ranks"

        def collective(group: ProcessGroup) -> None:
            self.threads.finish(what, dist.all_gather(list(everyones), mine, group=group, async_op=True))

        self.threads.call(what, collective)
        return everyones

    def gather_bytes(self, what: str, mine: Tensor) -> list[Tensor]:
        """Every rank's (num_bytes,) uint8 on the CPU; `what` names it in messages."""
        found: list[Tensor] = self.threads.call(f"{what} of the other ranks", partial(gather_bytes, mine))
        return found

    def scale_residuals(self, factor: float, *phases: Phase) -> None:
        """Multiply the residuals of some phases; while no bucket is under way in them."""
        if factor != 1.0:
            self.feedback.scale(factor, _of(phases))

    def drop_residuals(self, number: int) -> None:
        """Start again with a bucket of that number."""
        self.feedback.scale(0.0, lambda key: key[1] == number)

    def residual_state(self, *phases: Phase) -> dict[str, Any]:
        """This rank's residuals of some phases, of which slices they are, and which rank of how many that is."""
        found: dict[SliceKey, Tensor] = self.feedback.state_dict()  # type: ignore[assignment]
        return self._layout(phases) | {"residuals": {key: found[key] for key in found if _of(phases)(key)}}

    def _layout(self, phases: tuple[Phase, ...]) -> dict[str, Any]:
        cuts = {(phase, bucket): cuts for phase in phases for bucket, cuts in self._cuts[phase].items()}
        return {"rank": self.rank, "world_size": self.world_size, "slices": cuts}

    def load_residual_state(self, state: dict[str, Any], *phases: Phase) -> None:
        """Take up residuals of the same rank's same slices; others start from zero, with a warning."""
        others = {key: kept for key, kept in self.feedback.state_dict().items() if not _of(phases)(key)}
        saved: dict[Any, Tensor] = state.get("residuals", {})
        layout = self._layout(phases)
        if {key: state.get(key) for key in layout} == layout:
            others |= {SliceKey(*key): residual.to(self.device) for key, residual in saved.items()}
        elif layout["slices"] or saved:
            warnings.warn(
                "error feedback of gradients starts again: the state has none, or that of other buckets, of another "
                "rank or of another world size.",
                stacklevel=3,
            )
        self.feedback.load_state_dict(others)

    def close(self) -> None:
        """End the threads and let go of the group."""
        self.threads.close()
        destroy_group(self.group)


def _of(phases: tuple[Phase, ...]) -> Callable[[Any], bool]:
    return lambda key: key[0] in phases
