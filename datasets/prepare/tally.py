"""What is counted while images are prepared: whole numbers, so that chunks add up to the same in any order."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable

from pydantic import Field

from augpipe.datasets.shards.manifest import Histogram, Written
from augpipe.datasets.stats.channels import ChannelSums
from augpipe.datasets.stats.statistics import ASPECT_EDGES, SIDE_EDGES

_SIDES, _ASPECTS = ((*edges[:-1], 1 << 31) for edges in (SIDE_EDGES, ASPECT_EDGES))  # closed: JSON has no infinity
EDGES: dict[str, tuple[float, ...]] = {"height": _SIDES, "width": _SIDES, "aspect": _ASPECTS}
"""Edges of the originals' histograms: pixels; width / height."""
NOTES = ("kept", "gray", "turned", "array", "srgb", "converted", "ignored", "enlarged")
"""What is counted of single images; see `report`."""


class Tally(Written):
    """What was counted of those images of some shards that could be used."""

    num: int = Field(default=0, ge=0)
    labels: dict[int, int] = Field(default_factory=dict)
    """Label (-1: none) -> images."""
    histograms: dict[str, tuple[int, ...]] = Field(default_factory=dict)
    """The names of `EDGES` -> counts."""
    num_pixels: int = Field(default=0, ge=0)
    """At the largest scale, as are the sums."""
    sums: tuple[int, int, int] = (0, 0, 0)
    squares: tuple[int, int, int] = (0, 0, 0)
    notes: dict[str, int] = Field(default_factory=dict)
    """The names of `NOTES` -> images; files kept count once a scale."""

    @property
    def channels(self) -> ChannelSums:
        """For mean and standard deviation."""
        return ChannelSums(num_pixels=self.num_pixels, sums=self.sums, squares=self.squares)

    def manifest_histograms(self) -> dict[str, Histogram]:
        """The histograms in the manifest's form."""
        return {
            name: Histogram(edges=tuple(map(float, edges)), counts=self.histograms.get(name, (0,) * (len(edges) - 1)))
            for name, edges in EDGES.items()
        }


class TallyBuilder:
    """Adds up images, or the tallies of others; `build` may be called at any time."""

    def __init__(self) -> None:
        self._num = 0
        self._labels: Counter[int] = Counter()
        self._notes: Counter[str] = Counter()
        self._histograms = {name: [0] * (len(edges) - 1) for name, edges in EDGES.items()}
        self._channels = ChannelSums()

    def add(self, label: int, height: int, width: int, channels: ChannelSums, notes: Iterable[str]) -> None:
        """Count one image.

        Args:
            label: its class, or -1.
            height: of the original, upright, in pixels.
            width: as above.
            channels: of its pixels at the largest scale.
            notes: of `NOTES`.
        """
        self._num += 1
        self._labels[label] += 1
        self._notes.update(notes)
        for name, value in (("height", height), ("width", width), ("aspect", width / height)):
            self._histograms[name][bisect_right(EDGES[name], value) - 1] += 1
        self._channels = self._channels.merge(channels)

    def merge(self, tally: Tally) -> None:
        """Add those of a tally."""
        self._num += tally.num
        self._labels.update(tally.labels)
        self._notes.update(tally.notes)
        self._channels = self._channels.merge(tally.channels)
        for name, counts in self._histograms.items():
            for place, num in enumerate(tally.histograms[name]):
                counts[place] += num

    def build(self) -> Tally:
        """What was counted so far."""
        return Tally(
            num=self._num,
            labels=dict(sorted(self._labels.items())),
            histograms={name: tuple(counts) for name, counts in self._histograms.items()},
            num_pixels=self._channels.num_pixels,
            sums=self._channels.sums,
            squares=self._channels.squares,
            notes={name: self._notes[name] for name in NOTES if self._notes[name]},
        )
