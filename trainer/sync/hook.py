"""The butterfly as a communication hook for any trainer that uses DistributedDataParallel."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import GradBucket
from torch.distributed import ProcessGroup
from torch.futures import Future

from augpipe.trainer.codecs import Codec
from augpipe.trainer.codecs import codec as codec_by_name
from augpipe.trainer.schedule import Bucket, Piece, cut
from augpipe.trainer.sync.engine import Engine
from augpipe.trainer.sync.errors import SyncError
from augpipe.trainer.sync.groups import let_go, own_group, world_size_of
from augpipe.trainer.sync.handshake import handshake
from augpipe.trainer.sync.meter import Meter
from augpipe.trainer.sync.residuals import Residuals
from augpipe.trainer.sync.unit import Unit
from augpipe.trainer.sync.wire import CodecWire, RawWire, Wire


@dataclass(eq=False)
class _Job:
    """One of DDP's buckets: what is encoded of it, what is exempt, and the future that DDP waits for."""

    units: list[Unit]
    parts: list[list[int]]
    """For each unit, the indices of the bucket's gradients that it carries; empty where it carries the buffer
    itself."""
    buffer: Tensor
    gradients: list[Tensor]
    """Views of the buffer, one a parameter."""
    future: Future[Tensor]
    residuals: list[Residuals]
    pending: int = 0


class ButterflyState:
    """What the hook keeps: threads, process groups, messages, residuals, and the meter."""

    def __init__(
        self, codec: Codec, *, group: ProcessGroup | None, exempt_1d: bool, error_feedback: bool, timeout_s: float
    ) -> None:
        self.meter = Meter()
        """Bytes that this rank sent."""
        self._codec = codec
        self._group = group
        self._exempt_1d = exempt_1d and codec.name != "fp32"
        self._error_feedback = error_feedback and codec.name != "fp32"
        self._timeout_s = timeout_s
        self._engine: Engine | None = None
        self._groups: list[ProcessGroup] = []
        self._jobs: dict[tuple[int, ...], _Job] = {}
        self._job_of: dict[Unit, _Job] = {}
        self._is_spoilt = False
        """Something in this backward was not finite, as all ranks know."""

    def exchange(self, bucket: GradBucket) -> Future[Tensor]:
        """The mean over ranks of a bucket's gradients, in the bucket's own buffer, as a future."""
        buffer = bucket.buffer()
        future: Future[Tensor] = Future(devices=[buffer.device] if buffer.is_cuda else [])
        if world_size_of(self._group) == 1:
            future.set_result(buffer)
            return future
        if self._engine is None:
            self._engine = self._start(buffer.device)
        gradients = bucket.gradients()
        if bucket.index() == 0 and self._is_spoilt:
            # a scaler has left that step out, and what was to be made up for was as far off as its gradients
            for residuals in (one for job in self._jobs.values() for one in job.residuals):
                residuals.scale(0.0)
            self._is_spoilt = False
        # not by shapes: after the first step DDP orders parameters anew, and layers of equal shape change places
        key = (bucket.index(), *(parameter.data_ptr() for parameter in bucket.parameters()))
        job = self._jobs.get(key)
        if job is None:
            self._forget(bucket.index())
            job = self._jobs[key] = self._make(buffer, gradients, bucket.index())
            self._job_of.update(dict.fromkeys(job.units, job))
        job.buffer, job.gradients, job.future, job.pending = buffer, gradients, future, len(job.units)
        for unit, part in zip(job.units, job.parts, strict=True):
            if not part:
                unit.values = buffer
            else:
                torch.cat([gradients[i].reshape(-1).to(unit.values.dtype) for i in part], out=unit.values)
            self._engine.reduce(unit)
        return future

    def _forget(self, index: int) -> None:
        """DDP rebuilds its buckets after the first step."""
        for key in [key for key in self._jobs if key[0] == index]:
            for unit in self._jobs.pop(key).units:
                del self._job_of[unit]

    def _start(self, device: torch.device) -> Engine:
        control, reduce_group, gather_group = (own_group(self._group, timeout_s=self._timeout_s) for _ in range(3))
        self._groups = [control, reduce_group, gather_group]
        settings = {
            "strategy": "butterfly hook",
            "codec": self._codec.name,
            "codec block": self._codec.block,
            "exempt_1d": self._exempt_1d,
            "error_feedback": self._error_feedback,
        }
        handshake(settings, {}, control, timeout_s=self._timeout_s)  # DDP has compared the models
        return Engine(
            "butterfly hook",
            reduce_group,
            gather_group,
            device=device,
            timeout_s=self._timeout_s,
            chained=True,
            after_gather=self._finished,
            on_failure=self._failed,
        )

    def _make(self, buffer: Tensor, gradients: list[Tensor], index: int) -> _Job:
        exempt = [i for i, gradient in enumerate(gradients) if self._exempt_1d and gradient.ndim <= 1]
        encoded = [i for i in range(len(gradients)) if i not in set(exempt)]
        raw = self._codec.name == "fp32"
        values_dtype = torch.float64 if buffer.dtype == torch.float64 else torch.float32
        units, parts, kept = [], [], []
        for members, payload_class in ((encoded, "gradients"), (exempt, "exempt")):
            if not members:
                continue
            num = sum(gradients[i].numel() for i in members)
            whole = len(members) == len(gradients) and buffer.dtype == values_dtype and num == buffer.numel()
            wire: Wire = (
                RawWire(buffer.dtype, values_dtype) if raw or payload_class == "exempt" else CodecWire(self._codec)
            )
            feedback = [Residuals(), Residuals()] if self._error_feedback and isinstance(wire, CodecWire) else []
            kept += feedback
            units.append(
                Unit(
                    buffer if whole else torch.zeros(num, dtype=values_dtype, device=buffer.device),
                    cut(
                        Bucket(kind=0, start=0, pieces=(Piece(parameter=0, start=0, stop=num, offset=0),)),
                        world_size_of(self._group),
                    ),
                    dist.get_rank(self._group),
                    wire,
                    label=f"DDP's bucket {index}",
                    payload_classes=(payload_class, payload_class),
                    num_flags=0,
                    with_norm=False,
                    residuals=feedback[0] if feedback else None,
                    gather_residuals=feedback[1] if feedback else None,
                    meter=self.meter,
                )
            )
            parts.append([] if whole else members)
        return _Job(units=units, parts=parts, buffer=buffer, gradients=gradients, future=Future(), residuals=kept)

    def _finished(self, unit: Unit) -> None:
        """On the engine's last thread: put a unit's values where DDP looks for them."""
        job = self._job_of[unit]
        self._is_spoilt |= unit.gathered_non_finite > 0
        part = job.parts[job.units.index(unit)]
        start = 0
        for i in part:
            gradient = job.gradients[i]
            gradient.copy_(unit.values[start : start + gradient.numel()].view(gradient.shape))
            start += gradient.numel()
        job.pending -= 1
        if not job.pending:
            job.future.set_result(job.buffer)

    def _failed(self, error: SyncError) -> None:
        for job in list(self._jobs.values()):  # backward may be adding one
            if job.pending:
                job.future.set_exception(error)  # type: ignore[arg-type]

    def close(self) -> None:
        """End the threads and let go of the process groups; call it when training is over."""
        if self._engine is not None:
            self._engine.close()
            for group in self._groups:
                let_go(group)
            self._engine = None


def _hook(state: ButterflyState, bucket: GradBucket) -> Future[Tensor]:
    return state.exchange(bucket)


def butterfly_hook(
    codec: str | Codec = "fp32",
    *,
    group: ProcessGroup | None = None,
    exempt_1d: bool = True,
    error_feedback: bool = False,
    timeout_s: float = 300.0,
) -> tuple[ButterflyState, Callable[[ButterflyState, GradBucket], Future[Tensor]]]:
    """The state and the hook for `DistributedDataParallel.register_comm_hook(*butterfly_hook(...))`.

    DDP's gradients become means over ranks, the same to the last bit on every rank. `no_sync`, accumulation and
    GradScaler work as without it: a block of gradients that is not finite comes out as NaN everywhere. `state.meter`
    counts bytes.

    Args:
        codec: a name or codec as for `augpipe.trainer.codec`.
        group: DDP's process group; None for all ranks.
        exempt_1d: send biases and normalisation weights as they are.
        error_feedback: keep what encoding left out and add it to the next gradients.
        timeout_s: seconds after which an exchange that a rank takes no part in is an error.
    """
    used = codec_by_name(codec) if isinstance(codec, str) else codec
    state = ButterflyState(used, group=group, exempt_1d=exempt_1d, error_feedback=error_feedback, timeout_s=timeout_s)
    return state, _hook
