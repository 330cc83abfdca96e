"""A bucket's exchange among four ranks in one process: what the threads and all-to-all do, in turn."""

import numpy as np
import torch

from augpipe.trainer.codecs import ErrorFeedback, codec
from augpipe.trainer.exchange.bucket import BucketExchange, controls_of, take_controls
from augpipe.trainer.exchange.message import CodecWire, RawWire, Wire
from augpipe.trainer.exchange.meter import Meter

CUTS = (0, 64, 64, 103, 180)
"""Slices of the bucket; one rank owns nothing."""


RAW = {"fp32": torch.float32, "raw bf16": torch.bfloat16, "raw fp16": torch.float16, "raw fp64": torch.float64}
"""Dtypes of parameters whose gradients are not encoded."""


def read_controls(units: list[BucketExchange]) -> None:
    """What the threads do, where none can fail: bring what exchanges found to the host."""
    take_controls(units, controls_of(units).cpu())


def ranks_of_a_bucket(
    name: str, *, residuals: bool, device: str = "cpu", cuts: tuple[int, ...] = CUTS
) -> list[BucketExchange]:
    """What each rank has of it, with a wire of its own for a codec's name or one of `RAW`."""
    dtype = torch.float64 if name == "raw fp64" else torch.float32

    def wire() -> Wire:
        return RawWire(RAW[name], dtype) if name in RAW else CodecWire(ErrorFeedback(codec(name, block=32)))

    return [
        BucketExchange(
            torch.zeros(cuts[-1], dtype=dtype, device=device),
            cuts,
            rank,
            wire(),
            number=0,
            label="bucket",
            payload_classes=("gradients", "gradients"),
            num_flags=9,
            with_norm=True,
            fed_back=("reduce", "gather") if residuals and name not in RAW else (),
            meter=Meter(),
        )
        for rank in range(len(cuts) - 1)
    ]


def set_gradients(units: list[BucketExchange], step: int) -> None:
    """Draw those of one step; in step 1 two ranks have a NaN."""
    for rank, unit in enumerate(units):
        unit.values.copy_(torch.randn(len(unit.values), generator=torch.Generator().manual_seed(10 * step + rank)))
        unit.flags = [flag == rank + step for flag in range(9)]
        if step == 1 and rank < 2:
            unit.values[70 * rank + 5] = np.nan


def send(units: list[BucketExchange], phase: str) -> None:
    """The all-to-all of a phase."""
    data, output = ("theirs", "mine") if phase == "reduce" else ("mine", "theirs")
    for src, sender in enumerate(units):
        parts = torch.split(getattr(sender, data), getattr(sender, f"{data}_split"))
        for dst, receiver in enumerate(units):
            torch.split(getattr(receiver, output), getattr(receiver, f"{output}_split"))[src].copy_(parts[dst])


def exchange(units: list[BucketExchange]) -> None:
    """Values become the mean over ranks, as they are decoded."""
    for unit in units:
        unit.pack_reduce()
    send(units, "reduce")
    for unit in units:
        unit.reduce()
        unit.pack_gather()
    send(units, "gather")
    for unit in units:
        unit.unpack_gather()
