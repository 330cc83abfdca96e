"""From a model's parameters to flat buffers and an exchange schedule."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from augpipe.trainer.codecs.base_codec import Codec
from augpipe.trainer.exchange import MODES, Exchange, fill_buckets
from augpipe.trainer.exchange.bucket import BucketExchange
from augpipe.trainer.exchange.group_exchange import GroupExchange


@dataclass(frozen=True, kw_only=True)
class Kind:
    """Parameters that may share a bucket."""

    dtype: torch.dtype
    device: torch.device
    exempt: bool
    """One-dimensional, and so not encoded."""

    @property
    def values_dtype(self) -> torch.dtype:
        """What sums are done in: float32, or float64 for such parameters."""
        return torch.float64 if self.dtype == torch.float64 else torch.float32


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Where every parameter's gradient lies and how it is exchanged; the same on all ranks."""

    parameters: tuple[nn.Parameter, ...]
    names: tuple[str, ...]
    kinds: tuple[Kind, ...]
    exchange: Exchange
    flats: tuple[Tensor, ...]
    """A flat buffer a kind."""
    views: tuple[Tensor, ...]
    """Each parameter's part of its flat buffer, with the parameter's shape and strides."""

    @property
    def by_parameter(self) -> dict[nn.Parameter, str]:
        """Each parameter's name."""
        return dict(zip(self.parameters, self.names, strict=True))

    def label(self, index: int) -> str:
        """A bucket for a message: its number, and its first and last parameter."""
        bucket = self.exchange.buckets[index]
        first, last = (self.names[bucket.pieces[i].parameter] for i in (0, -1))
        names = first if first == last else f"{first} to {last}"
        return f"bucket {index + 1} of {len(self.exchange.buckets)} ({names})"

    def make_buckets(self, exchange: GroupExchange) -> list[BucketExchange]:
        """What each bucket is exchanged by."""
        buckets = []
        for index, bucket in enumerate(self.exchange.buckets):
            kind = self.kinds[bucket.kind]
            buckets.append(
                exchange.bucket(
                    index,
                    self.flats[bucket.kind][bucket.start : bucket.start + bucket.num],
                    self.exchange.slices(index),
                    dtype=kind.dtype,
                    exempt=kind.exempt,
                    label=self.label(index),
                    gathers=self.exchange.gathers,
                    num_flags=len(bucket.parameters),
                    adds_up=True,
                )
            )
        return buckets


def in_memory_order(tensor: Tensor) -> Tensor:
    """(numel,) view of a dense tensor's memory, whatever its strides."""
    return tensor.detach().as_strided((tensor.numel(),), (1,))


def make_plan(
    mode: str,
    names: Mapping[nn.Parameter, str],
    *,
    world_size: int,
    codec: Codec,
    bucket_bytes: int,
    exempt_1d: bool,
) -> Plan:
    """Lay the gradients of parameters, by name, out in buckets of at most `bucket_bytes` of float32 and schedule their
    exchange."""
    for parameter, name in names.items():
        _check(parameter, name, codec)
    parameters = tuple(names)
    encoded = codec.name != "fp32"
    of_parameter = [
        Kind(dtype=p.dtype, device=p.device, exempt=encoded and exempt_1d and p.ndim <= 1) for p in parameters
    ]
    kinds = tuple(dict.fromkeys(of_parameter))
    indices = [kinds.index(kind) for kind in of_parameter]
    sizes = [parameter.numel() for parameter in parameters]
    capacity = {i: bucket_bytes // kind.values_dtype.itemsize for i, kind in enumerate(kinds)}
    exchange = MODES[mode](fill_buckets(sizes, indices, capacity), world_size)
    flats = tuple(
        torch.zeros(
            sum(size for size, index in zip(sizes, indices, strict=True) if index == i),
            dtype=kind.values_dtype,
            device=kind.device,
        )
        for i, kind in enumerate(kinds)
    )
    starts = {
        piece.parameter: bucket.start + piece.offset
        for bucket in exchange.buckets
        for piece in bucket.pieces
        if piece.start == 0
    }
    views = tuple(flats[indices[i]].as_strided(p.shape, p.stride(), starts.get(i, 0)) for i, p in enumerate(parameters))
    return Plan(
        parameters=parameters, names=tuple(names.values()), kinds=kinds, exchange=exchange, flats=flats, views=views
    )


def check_dtype(parameter: nn.Parameter, name: str, codec: Codec) -> None:
    """Refuse a parameter whose gradient cannot be exchanged by the codec."""
    if not parameter.is_floating_point():
        raise ValueError(f"parameter {name} is {parameter.dtype}: only floating-point parameters are synchronised.")
    if codec.name != "fp32" and parameter.dtype == torch.float64:
        raise ValueError(
            f"parameter {name} is float64 and codec={codec.name!r} takes float32: use codec='fp32', or float32 weights."
        )


def _check(parameter: nn.Parameter, name: str, codec: Codec) -> None:
    check_dtype(parameter, name, codec)
    dense = torch.empty_like(parameter, memory_format=torch.preserve_format).stride()
    if parameter.layout != torch.strided or (parameter.numel() > 1 and dense != parameter.stride()):
        raise ValueError(
            f"parameter {name} of shape {tuple(parameter.shape)} and strides {parameter.stride()} is not dense: "
            "make it contiguous before the strategy is built."
        )
