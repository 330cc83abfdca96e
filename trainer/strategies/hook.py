"""The butterfly as a communication hook for any trainer that uses DistributedDataParallel."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor
from torch._C._distributed_c10d import GradBucket
from torch.autograd import Variable
from torch.distributed import ProcessGroup
from torch.futures import Future

from augpipe.trainer.codecs import Codec
from augpipe.trainer.codecs import codec as codec_by_name
from augpipe.trainer.exchange import Bucket, Piece, cut, interleaved
from augpipe.trainer.exchange.bucket import BucketExchange, controls_of
from augpipe.trainer.exchange.exchange_errors import SyncError
from augpipe.trainer.exchange.group_exchange import GroupExchange
from augpipe.trainer.exchange.host_copy import HostCopy
from augpipe.trainer.exchange.issuer import Issuer
from augpipe.trainer.exchange.meter import Meter
from augpipe.trainer.exchange.ranks import handshake, own_group, world_size_of
from augpipe.trainer.exchange.threads import ExchangeThreads


@dataclass(eq=False)
class _DdpBucket:
    """One of DDP's buckets in one backward."""

    buffer: Tensor
    gradients: list[Tensor]
    """Views of the buffer, one a parameter."""
    future: Future[Tensor]
    """What DDP waits for."""
    pending: int
    """Exchanges that its gradients are in: one for those that are encoded, one for those that are exempt."""


Sources: TypeAlias = list[tuple[_DdpBucket, list[int]]]
"""The gradients that a bucket of ours carries, by DDP's bucket and their places in it."""


class ButterflyState:
    """What the hook keeps: the exchange that DDP's buckets go through, as the butterfly's do."""

    def __init__(
        self,
        codec: Codec,
        *,
        group: ProcessGroup | None,
        exempt_1d: bool,
        error_feedback: bool,
        timeout_s: float,
        issuer: Issuer | None = None,
    ) -> None:
        self._codec = codec
        self._group = group
        self._exempt_1d = exempt_1d and codec.name != "fp32"
        self._error_feedback = error_feedback and codec.name != "fp32"
        self._timeout_s = timeout_s
        self._issuer = issuer
        self.meter = Meter()
        """Bytes that this rank sent."""
        self._exchange: GroupExchange | None = None
        self._buckets: dict[int, tuple[list[int], BucketExchange]] = {}
        """By number, with the addresses of the gradients' parameters."""
        self._sources: dict[BucketExchange, Sources] = {}
        self._parameters: set[Tensor] = set()
        """The model's, as they came so far."""
        self._knows_all = False
        """Whether those are all."""
        self._begin_backward()

    def _begin_backward(self) -> None:
        self._given: list[_DdpBucket] = []
        self._exempt: dict[torch.dtype, tuple[Sources, list[int]]] = {}
        """What is exempt of all of DDP's buckets goes at once, after the last one: they are small."""
        self._under_way: list[BucketExchange] = []
        self._found: HostCopy | None = None
        """What its exchanges have found, once it has ended; with error feedback."""

    def exchange(self, given: GradBucket) -> Future[Tensor]:
        """The mean over ranks of a bucket's gradients, in the bucket's own buffer, as a future.

        Raises:
            ValueError: the bucket is another model's, or has gradients that are not exchanged.
        """
        buffer = given.buffer()
        future: Future[Tensor] = Future(devices=[buffer.device] if buffer.is_cuda else [])
        if world_size_of(self._group) == 1:
            future.set_result(buffer)
            return future
        self._check(given, buffer)
        gradients = given.gradients()
        exchange = self._exchange or self.start(buffer.device)
        if given.index() == 0:
            if self._found is not None:  # of the last backward: the device has been done with that for a while
                self._threads.read_controls(self._under_way, self._found)
                if any(one.gathered_non_finite for one in self._under_way):
                    # a scaler has left that step out, and what was to be made up for was as far off as its gradients
                    exchange.scale_residuals(0.0, "reduce", "gather")
            self._begin_backward()
        # not by shapes: after the first step DDP orders parameters again, and layers of equal shape change places
        addresses = [parameter.data_ptr() for parameter in given.parameters()]
        exempt = [i for i, gradient in enumerate(gradients) if self._exempt_1d and gradient.ndim <= 1]
        encoded = [i for i in range(len(gradients)) if i not in set(exempt)]
        bucket = _DdpBucket(buffer, gradients, future, bool(exempt) + bool(encoded))
        self._given.append(bucket)
        if exempt:
            sources, places = self._exempt.setdefault(buffer.dtype, ([], []))
            sources.append((bucket, exempt))
            places += [addresses[i] for i in exempt]
        if encoded:
            is_last = given.is_last() and not self._exempt
            self._send(2 * given.index(), [(bucket, encoded)], addresses, is_exempt=False, is_last=is_last)
        if given.is_last():
            for number, (sources, places) in enumerate(self._exempt.values(), 1):
                is_last = number == len(self._exempt)
                self._send(2 * number - 1, sources, places, is_exempt=True, is_last=is_last)
            # before DDP awaits its futures, out of which an error would come as a failed cast
            Variable._execution_engine.queue_callback(self._finish)
        return future

    def check(self) -> None:
        """Raise what made an exchange fail, if one did; on a GPU backward has returned before that is known."""
        if self._exchange is not None:
            self._threads.check()

    def _finish(self) -> None:
        """Await what was sent; called by autograd at the end of backward, which raises what this does."""
        for bucket in self._under_way:
            self._threads.wait_gathered(bucket)
        if self._error_feedback:
            self._found = HostCopy(controls_of(self._under_way))

    def _check(self, given: GradBucket, buffer: Tensor) -> None:
        parameters = given.parameters()
        has_begun = self._knows_all or (self._parameters and given.index() == 0)
        if has_begun and not self._parameters.issuperset(parameters):
            raise ValueError(
                "this hook state is another model's: each DistributedDataParallel model needs its own, since a state "
                "keeps what encoding left out of one model's gradients. Call butterfly_hook(...) for each."
            )
        self._parameters.update(parameters)
        self._knows_all |= given.is_last()
        shape, dtype = tuple(parameters[0].shape), parameters[0].dtype  # DDP shows a complex buffer as a real one
        if buffer.layout != torch.strided:
            raise ValueError(
                f"the hook: a gradient of shape {shape} is sparse, and only dense ones are exchanged. "
                "Build the layer with sparse=False."
            )
        if not dtype.is_floating_point or (dtype == torch.float64 and self._codec.name != "fp32"):
            taken = "floating-point ones are" if self._codec.name == "fp32" else "16 and 32 bits of floating point are"
            raise ValueError(
                f"the hook: a gradient of shape {shape} is {str(dtype).removeprefix('torch.')}, and with "
                f"codec={self._codec.name!r} only {taken} exchanged. Change the dtype, or leave the hook out."
            )

    def start(self, device: torch.device) -> GroupExchange:
        """Meet the other ranks; done by the first exchange, where nobody did it before."""
        group = own_group(self._group, timeout_s=self._timeout_s, waits_itself=True)
        settings = {
            "strategy": "butterfly hook",
            "codec": self._codec.name,
            "codec block": self._codec.block,
            "exempt_1d": self._exempt_1d,
            "error_feedback": self._error_feedback,
        }
        handshake(settings, {}, group, timeout_s=self._timeout_s)  # DDP has compared the models
        exchange = GroupExchange(
            "butterfly hook",
            group,
            self._codec,
            device=device,
            timeout_s=self._timeout_s,
            error_feedback=self._error_feedback,
            meter=self.meter,
            issuer=self._issuer,
        )
        self._threads: ExchangeThreads = exchange.start(self)
        self._exchange = exchange
        return exchange

    def _send(self, number: int, sources: Sources, addresses: list[int], *, is_exempt: bool, is_last: bool) -> None:
        """Begin what the butterfly's list has for one more bucket."""
        first, members = sources[0]
        gradients = [bucket.gradients[i] for bucket, of_bucket in sources for i in of_bucket]
        dtype = torch.float64 if first.buffer.dtype == torch.float64 else torch.float32
        num = sum(gradient.numel() for gradient in gradients)
        whole = len(members) == len(first.gradients) and first.buffer.dtype == dtype and num == first.buffer.numel()
        bucket = self._buckets.get(number, ([], None))[1]
        if bucket is None or self._buckets[number][0] != addresses:
            values = first.buffer if whole else torch.zeros(num, dtype=dtype, device=first.buffer.device)
            bucket = self._make(number, addresses, values, first.buffer.dtype, is_exempt=is_exempt)
        if whole:
            bucket.values, self._sources[bucket] = first.buffer, [(first, [])]
        else:
            self._sources[bucket] = sources
        self._under_way.append(bucket)
        for collective in interleaved(len(self._under_way) - 1, is_last=is_last):
            assert collective.phase != "agree"
            self._threads.begin(collective.phase, self._under_way[collective.bucket])

    def _make(
        self, number: int, addresses: list[int], values: Tensor, dtype: torch.dtype, *, is_exempt: bool
    ) -> BucketExchange:
        """A bucket for these gradients, in the place of one of that number for others."""
        assert self._exchange is not None
        if number in self._buckets:
            before = self._buckets[number][1]
            del self._sources[before]
            self._exchange.drop_residuals(number)
        whole = Piece(parameter=0, start=0, stop=len(values), offset=0)
        bucket = self._exchange.bucket(
            number,
            values,
            cut(Bucket(kind=0, start=0, pieces=(whole,)), self._exchange.world_size),
            dtype=dtype,
            exempt=is_exempt,
            label="what is exempt of DDP's buckets" if is_exempt else f"DDP's bucket {number // 2}",
        )
        self._buckets[number] = addresses, bucket
        return bucket

    def before_reduce(self, bucket: BucketExchange) -> None:
        """Collect the gradients, which DDP leaves alone until it has its future's result."""
        gradients = [source.gradients[i] for source, members in self._sources[bucket] for i in members]
        if gradients:
            torch.cat([gradient.reshape(-1).to(bucket.values.dtype) for gradient in gradients], out=bucket.values)

    def before_gather(self, bucket: BucketExchange) -> None:
        """The means are what is sent back."""

    def after_gather(self, bucket: BucketExchange) -> None:
        """Put the means where DDP looks for them."""
        start = 0
        for source, members in self._sources[bucket]:
            for gradient in (source.gradients[i] for i in members):
                gradient.copy_(bucket.values[start : start + gradient.numel()].view(gradient.shape))
                start += gradient.numel()
        for source, _ in self._sources[bucket]:
            source.pending -= 1
            if not source.pending:
                source.future.set_result(source.buffer)

    def on_failure(self, error: SyncError) -> None:
        """Hand the error to whoever waits for DDP's futures."""
        for bucket in self._given:
            if bucket.pending and not bucket.future.done():
                bucket.future.set_exception(error)  # type: ignore[arg-type]

    def close(self) -> None:
        """End the threads and let the process group go; call it when training is over."""
        if self._exchange is not None:
            self._exchange.close()
            self._exchange = None


def _hook(state: ButterflyState, bucket: GradBucket) -> Future[Tensor]:
    return state.exchange(bucket)


def butterfly_hook(
    codec: str | Codec = "fp32",
    *,
    group: ProcessGroup | None = None,
    exempt_1d: bool = True,
    error_feedback: bool = False,
    timeout_s: float = 300.0,
    issuer: Issuer | None = None,
) -> tuple[ButterflyState, Callable[[ButterflyState, GradBucket], Future[Tensor]]]:
    """The state and the hook for `DistributedDataParallel.register_comm_hook(*butterfly_hook(...))`.

    DDP's gradients become means over ranks, the same to the last bit on every rank. `no_sync`, accumulation and
    GradScaler work as without it: a block of gradients that is not finite comes out as NaN everywhere. `state.meter`
    counts bytes. A state is for one model: backward raises a `ValueError` where it is in a second one, or gradients are
    sparse or complex, and a `SyncError` where another rank took no part; on a GPU the next backward raises that, and
    `state.check()`.

    Args:
        codec: a name or codec as for `augpipe.trainer.codec`.
        group: DDP's process group; None for all ranks.
        exempt_1d: send biases and normalisation weights as they are.
        error_feedback: keep what encoding left out and add it to the next gradients.
        timeout_s: seconds after which an exchange that a rank takes no part in is an error.
        issuer: as for `strategy`.

    Raises:
        ValueError: there is no such codec.
    """
    used = codec_by_name(codec) if isinstance(codec, str) else codec
    if not isinstance(used, Codec):
        raise ValueError(
            f"codec is a {type(used).__name__}. Give a codec's name, as in "
            "model.register_comm_hook(*butterfly_hook('dynamic-tree')) of a model in DistributedDataParallel."
        )
    state = ButterflyState(
        used,
        group=group,
        exempt_1d=exempt_1d,
        error_feedback=error_feedback,
        timeout_s=timeout_s,
        issuer=issuer,
    )
    return state, _hook
