"""Some samples of a source as a source of their own, and a source cut in two for training and evaluation."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from augpipe import order
from augpipe.source import Pixels, Source, is_sized


class Part:
    """The samples `ids` of a source, numbered anew from 0."""

    def __init__(self, source: Source, ids: npt.NDArray[np.int64]) -> None:
        self._source = source
        self.ids = ids

    @property
    def classes(self) -> Sequence[str]:
        """Those of the whole source."""
        return self._source.classes

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def knows_sizes(self) -> bool:
        """Whether the whole source has `size`; see `augpipe.source.SizedSource`."""
        return is_sized(self._source)

    def size(self, sample_id: int) -> tuple[int, int]:
        """(height, width) in pixels of the sample, where the whole source knows it."""
        assert is_sized(self._source)
        return self._source.size(int(self.ids[sample_id]))

    def read(self, sample_id: int) -> bytes | Pixels:
        """The sample's file or pixels."""
        return self._source.read(int(self.ids[sample_id]))

    def label(self, sample_id: int) -> int:
        """The sample's class."""
        return self._source.label(int(self.ids[sample_id]))

    def name(self, sample_id: int) -> str:
        """The sample's name."""
        return self._source.name(int(self.ids[sample_id]))


def hold_out(source: Source, fraction: float, seed: int) -> tuple[Part, Part]:
    """(the rest, the held-out share), both in the source's order; the same for the same seed and number of samples.

    Raises:
        ValueError: one of the two would be empty.
    """
    total = len(source)
    num = round(total * fraction)
    if not 0 < num < total:
        raise ValueError(
            f"data.eval_fraction={fraction:g} of {total} photographs is {num}: both training and evaluation need some."
        )
    drawn = order.sample_ids(np.arange(total, dtype=np.int64), total, seed, 2**32 - 1, True)
    return Part(source, np.sort(drawn[num:])), Part(source, np.sort(drawn[:num]))
