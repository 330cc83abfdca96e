"""A source's statistics, made from its sums: what the command prints, plots and writes as JSON."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from augpipe.datasets.stats.distribution import Distribution, distribution
from augpipe.datasets.stats.duplicates import Duplicates, class_name
from augpipe.datasets.stats.sums import Sums

SIDE_EDGES = (1, 32, 64, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 8192, math.inf)
"""Of the histogram of sides, in pixels: powers of two and the middles between them."""
ASPECT_EDGES = (0, 0.4, 0.6, 0.7, 0.9, 1.1, 1.42, 1.65, 2, 3, math.inf)
"""Of the histogram of width / height: 9:16, 2:3, 3:4, 1:1, 4:3, 3:2 and 16:9 lie each within a bin of their own."""
PIXELS_EDGES = (0, 0.01, 0.1, 0.25, 0.5, 1, 2, 4, 8, 16, 32, math.inf)
"""Of the histogram of megapixels."""


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """What there is to know of a source's photographs as they are stored."""

    source: str
    classes: tuple[str, ...]
    sums: Sums
    duplicates: Duplicates | None
    """None where they were not looked for."""

    @cached_property
    def class_sizes(self) -> dict[str, int]:
        """Class -> photographs, unusable ones too; the source's order, classes without any among them."""
        highest = max(self.sums.labels, default=-1)
        labels = range(max(len(self.classes), highest + 1))
        return {class_name(self.classes, label) or "": self.sums.labels.get(label, 0) for label in labels}

    def short_name(self, name: str) -> str:
        """A photograph's name without the source's own path, which every photograph of a folder has in front."""
        return name.removeprefix(f"{self.source.rstrip('/')}/")

    @property
    def num_unlabelled(self) -> int:
        """Photographs without a label."""
        return self.sums.labels.get(-1, 0)

    @property
    def balance(self) -> float | None:
        """1 where all classes are equally large, towards 0 where one holds nearly everything; None below two classes.

        The entropy of the class of a photograph drawn at random, divided by the largest possible.
        """
        sizes = list(self.class_sizes.values())
        total = sum(sizes)
        if len(sizes) < 2 or not total:
            return None
        shares = [size / total for size in sizes if size]
        return -math.fsum(share * math.log(share) for share in shares) / math.log(len(sizes))

    @cached_property
    def sizes(self) -> dict[str, Distribution]:
        """Of height, width, short_side, aspect (width / height) and megapixels; empty without a usable photograph."""
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
            "unlabelled": self.num_unlabelled,
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
