"""From a codebook to the table by which the kernels find the nearest code; how far off that code can be."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from augpipe.gpu_ops.codec.leaves import BUCKET_BITS
from augpipe.trainer.codecs.codebooks import Codebook

ONE_BITS = 0x3F800000


@dataclass(frozen=True, eq=False)
class Lookup:
    """What `gpu_ops.codec.loops` reads."""

    entries: npt.NDArray[np.int32]
    """(2 * num_buckets,): for each bucket of scaled numbers its code and the border within; the negative side last."""
    first_bucket: int
    """Upper bits of the magnitude that has the first entry."""
    num_buckets: int
    """The buckets of one side."""


def borders(levels: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Between ascending `levels` >= 0: the smallest float32 nearer to the upper one; a tie goes to the lower."""
    middles = (levels[:-1].astype(np.float64) + levels[1:].astype(np.float64)) / 2  # exact: both are float32
    nearest = middles.astype(np.float32)
    above = np.nextafter(nearest, np.float32(np.inf))
    return np.where(nearest.astype(np.float64) > middles, nearest, above)


def build_lookup(codebook: Codebook) -> Lookup:
    """The table of a sorted codebook in -1..1 that holds 0 and 1; `ValueError` where its levels lie too close."""
    zero = int(np.flatnonzero(codebook == 0)[-1])
    positive, negative = codebook[zero:], -codebook[127::-1]
    first_border = min(borders(side)[0] for side in (positive, negative))
    # one bucket more, so that what shares the first entry has no border
    first_bucket = (int(first_border.view(np.int32)) >> BUCKET_BITS) - 1
    num_buckets = (ONE_BITS >> BUCKET_BITS) - first_bucket + 1
    sides = [
        _side(np.unique(side), base, first_bucket, num_buckets) for side, base in ((positive, zero), (negative, 0))
    ]
    return Lookup(np.concatenate(sides), first_bucket, num_buckets)


def _side(levels: npt.NDArray[np.float32], base: int, first_bucket: int, num_buckets: int) -> npt.NDArray[np.int32]:
    limits = borders(levels).view(np.int32).astype(np.int64)
    starts = (first_bucket + np.arange(num_buckets + 1)) << BUCKET_BITS
    below = np.searchsorted(limits, starts, side="left")  # borders that lie before a bucket
    within = np.diff(below)
    if within.max() > 1:
        place = starts[int(within.argmax())].astype(np.int32).view(np.float32)
        raise ValueError(f"levels near {place} lie closer than 2^-6 of their size: a bucket holds two borders")
    entries = (base + below[:-1]) << BUCKET_BITS
    border = limits[np.minimum(below[:-1], len(limits) - 1)]
    # adding a number's lower bits carries where they reach the border's; always, where that is where the bucket starts
    entries += np.where(within == 1, (1 << BUCKET_BITS) - (border - starts[:-1]), 0)
    return entries.astype(np.int32)


NUM_DECADES = 6
"""Decades below the absmax that have a bound of their own; what is smaller shares one."""


def decade_bounds(codebook: Codebook) -> npt.NDArray[np.float64]:
    """(7,) how far off the nearest level a number can be: in 0.1..1, in 0.01..0.1 and so on, and last below 10^-6."""
    levels = np.unique(codebook).astype(np.float64)
    middles = (levels[:-1] + levels[1:]) / 2
    edges = 10.0 ** -np.arange(NUM_DECADES + 1)
    # the distance to the nearest level is greatest midway, or else where a decade ends
    places = np.concatenate([middles, edges, -edges, [0.0]])
    distances = np.abs(places[:, None] - levels).min(1)
    lowest = np.append(edges[1:], [0.0, 0.0])[: len(edges)]
    within = (np.abs(places) <= edges[:, None]) & (np.abs(places) >= lowest[:, None])
    bounds: npt.NDArray[np.float64] = np.where(within, distances, 0.0).max(1)
    return bounds
