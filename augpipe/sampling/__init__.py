"""Which samples come when: the order of an epoch, samplers, ranks, and where a run stands."""

from typing import TYPE_CHECKING

from augpipe.sampling.samplers import (
    ClassBalanced,
    Mixture,
    Repeated,
    Sampler,
    Sampling,
    Weighted,
)
from augpipe.validation.suggest import missing

__all__ = [
    "ClassBalanced",
    "Mixture",
    "Repeated",
    "Sampler",
    "Sampling",
    "Weighted",
]

_ANSWERS = {
    "weightedrandomsampler": "sampling.Weighted(weights)",
    "distributedsampler": "Loader(..., rank=..., world_size=...); under torchrun they are found",
    "subsetrandomsampler": "Loader(sources.Subset(source, ids), ...)",
    "randomsampler": "Loader(..., shuffle=True)",
    "sequentialsampler": "Loader(..., shuffle=False)",
    "batchsampler": "Loader(..., batch_size=64, drop_last=False)",
}
"""torch's samplers, as `suggest.plain` gives their names -> what to write here."""


if not TYPE_CHECKING:  # a type checker says itself which names there are not

    def __getattr__(name):
        raise missing(__name__, name, __all__, _ANSWERS)


def __dir__() -> list[str]:
    return __all__
