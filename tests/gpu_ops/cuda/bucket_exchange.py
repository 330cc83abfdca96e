"""A bucket's exchange among four ranks in one process: what the threads and all-to-all do, in turn."""

import numpy as np
import torch

from augpipe.trainer.codecs import ErrorFeedback, codec
from augpipe.trainer.exchange.bucket import BucketExchange
from augpipe.trainer.exchange.message import CodecWire, RawWire, Wire
from augpipe.trainer.exchange.meter import Meter

CUTS = (0, 64, 64, 103, 180)
"""Slices of the bucket; one rank owns nothing."""


def ranks_of_a_bucket(name: str, *, residuals: bool, device: str = "cpu") -> list[BucketExchange]:
    """What each rank has of it, with a wire of its own for a codec's name."""

    def wire() -> Wire:
        raw = name == "fp32"
        return RawWire(torch.float32, torch.float32) if raw else CodecWire(ErrorFeedback(codec(name, block=32)))

    return [
        BucketExchange(
            torch.zeros(CUTS[-1], device=device),
            CUTS,
            rank,
            wire(),
            number=0,
            label="bucket",
            payload_classes=("gradients", "gradients"),
            num_flags=9,
            with_norm=True,
            fed_back=("reduce", "gather") if residuals and name != "fp32" else (),
            meter=Meter(),
        )
        for rank in range(len(CUTS) - 1)
    ]


def set_gradients(units: list[BucketExchange], step: int) -> None:
    """Draw those of one step; in step 1 two ranks have a NaN."""
    for rank, unit in enumerate(units):
        unit.values.copy_(torch.randn(CUTS[-1], generator=torch.Generator().manual_seed(10 * step + rank)))
        unit.flags = [flag == rank + step for flag in range(9)]
        if step == 1 and rank < 2:
            unit.values[70 * rank + 5] = np.nan


def exchange(units: list[BucketExchange]) -> None:
    """Values become the mean over ranks, as they are decoded."""

    def send(data: str, data_split: str, output: str, output_split: str) -> None:
        for src, sender in enumerate(units):
            parts = torch.split(getattr(sender, data), getattr(sender, data_split))
            for dst, receiver in enumerate(units):
                torch.split(getattr(receiver, output), getattr(receiver, output_split))[src].copy_(parts[dst])

    for unit in units:
        unit.pack_reduce()
    send("theirs", "theirs_split", "mine", "mine_split")
    for unit in units:
        unit.reduce()
        unit.pack_gather()
    send("mine", "mine_split", "theirs", "theirs_split")
    for unit in units:
        unit.unpack_gather()
