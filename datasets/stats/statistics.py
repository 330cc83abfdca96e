"""A source's statistics, made from its sums: what the command prints, plots and writes as JSON."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from augpipe.datasets.stats.duplicates import Duplicates, class_name
from augpipe.datasets.stats.label_numbers import LabelNumbers
from augpipe.datasets.stats.objects import ObjectStatistics
from augpipe.datasets.stats.sums import Sums

PERCENTS = (0, 5, 25, 50, 75, 95, 100)
SIDE_EDGES = (1, 32, 64, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 8192, math.inf)
"""Edges of the histogram of sides, in pixels: powers of two and the middles between them."""
ASPECT_EDGES = (0, 0.4, 0.6, 0.7, 0.9, 1.1, 1.42, 1.65, 2, 3, math.inf)
"""Edges of that of width / height: 9:16, 2:3, 3:4, 1:1, 4:3, 3:2 and 16:9 lie each within a bin of their own."""
PIXELS_EDGES = (0, 0.01, 0.1, 0.25, 0.5, 1, 2, 4, 8, 16, 32, math.inf)
"""Edges of the histogram of megapixels."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Distribution:
    """How numbers are spread."""

    percentiles: tuple[float, ...]
    """At `PERCENTS`: each the smallest number that at least so many percent do not exceed; the first is the least."""
    mean: float
    edges: tuple[float, ...]
    """The edges of the bins: `edges[i]` is in bin i, `edges[i + 1]` in the next one; the last bin holds its end."""
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


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """What there is to know of a source's images as they are stored."""

    source: str
    classes: tuple[str, ...]
    sums: Sums
    duplicates: Duplicates | None
    """None where they were not looked for."""
    left_out: tuple[str, ...] = ()
    """What lies there and is not among the images: "3 files of .heic ('a.heic')"."""
    label_numbers: tuple[LabelNumbers, ...] = ()
    """Of each number, where labels are several numbers an image."""
    objects: ObjectStatistics | None = None
    """What is known of the images' objects; None where the source knows nothing of them."""

    @cached_property
    def class_sizes(self) -> dict[str, int]:
        """Class -> images, unusable ones too; the source's order, classes without any among them."""
        highest = max(self.sums.labels, default=-1)
        labels = range(max(len(self.classes), highest + 1))
        return {class_name(self.classes, label) or "": self.sums.labels.get(label, 0) for label in labels}

    def short_name(self, name: str) -> str:
        """An image's name without the source's own path, which every image of a folder has in front."""
        return name.removeprefix(f"{self.source.rstrip('/')}/")

    @property
    def num_unlabelled(self) -> int:
        """Images without a label."""
        return 0 if self.label_numbers else self.sums.labels.get(-1, 0)

    @property
    def balance(self) -> float | None:
        """1 where all classes are equally large, towards 0 where one holds nearly everything; None below two classes.

        The entropy of the class of an image drawn at random, divided by the largest possible.
        """
        sizes = list(self.class_sizes.values())
        total = sum(sizes)
        if len(sizes) < 2 or not total:
            return None
        shares = [size / total for size in sizes if size]
        return -math.fsum(share * math.log(share) for share in shares) / math.log(len(sizes))

    @cached_property
    def sizes(self) -> dict[str, Distribution]:
        """Distributions of height, width, short_side, aspect (width / height) and megapixels; empty without a usable
        image."""
        rows: list[tuple[str, Callable[[int, int], float], Sequence[float]]] = [
            ("height", lambda height, width: height, SIDE_EDGES),
            ("width", lambda height, width: width, SIDE_EDGES),
            ("short_side", min, SIDE_EDGES),
            ("aspect", lambda height, width: width / height, ASPECT_EDGES),
            ("megapixels", lambda height, width: height * width / 1e6, PIXELS_EDGES),
        ]
        found = {name: distribution(_counted(self.sums.sizes, number), edges) for name, number, edges in rows}
        return {name: spread for name, spread in found.items() if spread is not None}

    def to_json(self) -> dict[str, Any]:
        """Everything, in plain numbers, texts, lists and dicts; an open last edge of a histogram is null."""
        sums = self.sums
        return {
            "source": self.source,
            "photographs": sums.num,
            "usable": sums.num_usable,
            "bytes": sum(kind.total_bytes for kind in sums.formats.values()),
            "classes": {"num": len(self.class_sizes), "balance": self.balance, "sizes": self.class_sizes},
            "label_numbers": [number.to_json() for number in self.label_numbers],
            "unlabelled": self.num_unlabelled,
            "objects": None if self.objects is None else self.objects.to_json(),
            "left_out": list(self.left_out),
            "sizes": {name: _closed(spread.to_json()) for name, spread in self.sizes.items()},
            "formats": {
                name: {
                    "photographs": kind.num,
                    "bytes": kind.total_bytes,
                    "least_bytes": kind.least_bytes,
                    "most_bytes": kind.most_bytes,
                }
                for name, kind in sorted(sums.formats.items())
            },
            "gray": sums.num_gray,
            "turned": sums.num_turned,
            "pixels": sums.channels.num_pixels,
            "mean": list(sums.channels.mean),
            "std": list(sums.channels.std),
            "unusable": {
                "num": sums.num_unusable,
                "listed": [
                    {"sample_id": bad.sample_id, "name": bad.name, "reason": bad.reason} for bad in sums.unusable
                ],
            },
            "duplicates": self._duplicates_json(),
        }

    def _duplicates_json(self) -> dict[str, Any] | None:
        if self.duplicates is None:
            return None
        return {
            "looked_for_look_alikes": self.duplicates.has_look_alikes,
            "extra": self.duplicates.num_extra,
            "groups": [group.to_json(self.classes) for group in self.duplicates.groups],
        }


def _counted(sizes: Mapping[tuple[int, int], int], number: Callable[[int, int], float]) -> Counter[float]:
    counted: Counter[float] = Counter()
    for (height, width), times in sizes.items():
        counted[number(height, width)] += times
    return counted


def _closed(spread: dict[str, Any]) -> dict[str, Any]:
    edges = spread["histogram"]["edges"]
    spread["histogram"]["edges"] = [None if math.isinf(edge) else edge for edge in edges]
    return spread
