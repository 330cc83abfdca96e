"""What is known of a set of images, as sums that two sets' can be merged into those of both."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from augpipe.datasets.stats.channels import ChannelSums
from augpipe.datasets.stats.fingerprints import FINGERPRINT, Fingerprints

MAX_LISTED = 1_000
"""Unusable images that are kept by name, so that a source of nothing else does not fill the memory."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Unusable:
    """An image that cannot be read or decoded."""

    sample_id: int
    name: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class FormatSums:
    """The files of one format."""

    num: int
    total_bytes: int
    least_bytes: int
    most_bytes: int

    def merge(self, other: "FormatSums") -> "FormatSums":
        """Those of both."""
        return FormatSums(
            num=self.num + other.num,
            total_bytes=self.total_bytes + other.total_bytes,
            least_bytes=min(self.least_bytes, other.least_bytes),
            most_bytes=max(self.most_bytes, other.most_bytes),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Sums:
    """What is known of some images of a source; `a.merge(b)` is that of those of `a` and then those of `b`.

    Nothing in it grows with the number of images but `fingerprints` (49 bytes each) and, up to what there is of
    them, the different sizes.
    """

    num: int = 0
    """Images looked at, unusable ones too."""
    labels: Mapping[int, int] = field(default_factory=dict)
    """Label (-1: none) -> how many of `num`."""
    sizes: Mapping[tuple[int, int], int] = field(default_factory=dict)
    """Upright (height, width) in pixels -> how many usable ones."""
    formats: Mapping[str, FormatSums] = field(default_factory=dict)
    """Format by content, or "array" -> the usable ones."""
    num_gray: int = 0
    """R = G = B in every pixel, whatever the file holds."""
    num_turned: int = 0
    """Those whose EXIF orientation is not upright."""
    channels: ChannelSums = field(default_factory=ChannelSums)
    num_unusable: int = 0
    unusable: tuple[Unusable, ...] = ()
    """The first `MAX_LISTED`."""
    fingerprints: Fingerprints = field(default_factory=lambda: np.zeros(0, FINGERPRINT))
    """(n,) `FINGERPRINT`, one a usable image; empty where no duplicates are looked for."""

    @property
    def num_usable(self) -> int:
        """Images that were decoded."""
        return self.num - self.num_unusable

    def merge(self, other: "Sums") -> "Sums":
        """Those of both."""
        formats = dict(self.formats)
        for name, sums in other.formats.items():
            formats[name] = formats[name].merge(sums) if name in formats else sums
        return Sums(
            num=self.num + other.num,
            labels=Counter(self.labels) + Counter(other.labels),
            sizes=Counter(self.sizes) + Counter(other.sizes),
            formats=formats,
            num_gray=self.num_gray + other.num_gray,
            num_turned=self.num_turned + other.num_turned,
            channels=self.channels.merge(other.channels),
            num_unusable=self.num_unusable + other.num_unusable,
            unusable=(self.unusable + other.unusable)[:MAX_LISTED],
            fingerprints=np.concatenate([self.fingerprints, other.fingerprints]),
        )


def merge_all(parts: Iterable[Sums]) -> Sums:
    """All of them in their order; each is merged into about log2 of their number others, not into all."""
    pending: list[tuple[int, Sums]] = []  # how many parts each holds: powers of two, falling
    for part in parts:
        num = 1
        while pending and pending[-1][0] == num:
            part = pending.pop()[1].merge(part)
            num *= 2
        pending.append((num, part))
    whole = Sums()
    while pending:
        whole = pending.pop()[1].merge(whole)
    return whole
