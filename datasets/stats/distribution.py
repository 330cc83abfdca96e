"""Exact percentiles and histograms of numbers that are given as value -> how often."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

PERCENTS = (0, 5, 25, 50, 75, 95, 100)


@dataclass(frozen=True, kw_only=True, slots=True)
class Distribution:
    """How numbers are spread."""

    percentiles: tuple[float, ...]
    """At `PERCENTS`: each the smallest number that at least so many percent do not exceed; the first is the least."""
    mean: float
    edges: tuple[float, ...]
    """Of the histogram's bins: `edges[i]` is in bin i, `edges[i + 1]` in the next one; the last bin holds its end."""
    counts: tuple[int, ...]
    """How many numbers lie in each bin."""

    def to_json(self) -> dict[str, Any]:
        """Percentiles as "min", "p5", ..., "max"."""
        names = ["min" if percent == 0 else "max" if percent == 100 else f"p{percent}" for percent in PERCENTS]
        return {
            **dict(zip(names, self.percentiles, strict=True)),
            "mean": self.mean,
            "histogram": {"edges": list(self.edges), "counts": list(self.counts)},
        }


def distribution(counted: Mapping[float, int], edges: Sequence[float]) -> Distribution | None:
    """That of the numbers, of which none lies outside `edges`; None where there are none."""
    if not counted:
        return None
    values = np.array(sorted(counted), np.float64)
    times = np.array([counted[value] for value in sorted(counted)], np.int64)
    below = np.cumsum(times)
    ranks = [max(-(-int(below[-1]) * percent // 100), 1) for percent in PERCENTS]
    counts, _ = np.histogram(values, np.array(edges, np.float64), weights=times)
    return Distribution(
        percentiles=tuple(float(value) for value in values[np.searchsorted(below, ranks)]),
        mean=float((values * times).sum() / below[-1]),
        edges=tuple(map(float, edges)),
        counts=tuple(map(int, counts)),
    )
