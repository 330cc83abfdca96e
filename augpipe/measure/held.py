"""Photographs held in memory for a measurement, so that what is timed is not the disk."""

from collections.abc import Sequence

import numpy as np

from augpipe import order
from augpipe.backends.photograph import Photograph, open_photograph
from augpipe.backends.render import Scratch
from augpipe.decoding import MAX_PIXELS
from augpipe.errors import SampleError
from augpipe.recipe import Recipe
from augpipe.source import Pixels, Source, is_sized

MAX_PHOTOGRAPHS = 256
"""Enough for a mean over a dataset's sizes, and few enough to be held."""


def hold(source: Source, recipe: Recipe, *, skips_bad: bool = False) -> tuple[list[Photograph], dict[int, str]]:
    """Up to `MAX_PHOTOGRAPHS` photographs, evenly spread over the source and then shuffled, and what was skipped.

    Raises:
        SampleError: a photograph cannot be used with the recipe and none is skipped, or all are.
    """
    num = len(source)
    count = min(num, MAX_PHOTOGRAPHS)
    held: list[Photograph] = []
    scratch = Scratch()
    skipped: dict[int, str] = {}
    shuffled = order.sample_ids(np.arange(count), count, seed=0, epoch=0, shuffle=True)
    for sample_id in (num * int(i) // count for i in shuffled):
        try:
            held.append(_open(source, recipe, sample_id, scratch))
        except SampleError as problem:
            if not skips_bad:
                raise
            skipped[sample_id] = str(problem)
    if not held:
        raise SampleError(source.name(0), f"neither it nor any of the {count} photographs looked at can be used")
    return held, skipped


class HeldSource:
    """A source of photographs in memory, or of those same files, said over and over until there are `num` of them."""

    def __init__(self, photographs: Sequence[Photograph], num: int, source: Source | None = None) -> None:
        self._photographs = photographs
        self._num = num
        self._source = source
        self.classes: Sequence[str] = ()

    def __len__(self) -> int:
        return self._num

    @property
    def knows_sizes(self) -> bool:
        """As `source`, so that a loader does what it does with that."""
        return self._source is not None and is_sized(self._source)

    def size(self, sample_id: int) -> tuple[int, int]:
        """(height, width) in pixels."""
        return self._photographs[sample_id % len(self._photographs)].size

    def read(self, sample_id: int) -> bytes | Pixels:
        """From memory, or from `source` where that was given."""
        photograph = self._photographs[sample_id % len(self._photographs)]
        if self._source is not None:
            return self._source.read(photograph.sample_id)
        assert photograph.content is not None
        return photograph.content

    def label(self, sample_id: int) -> int:
        """None has one."""
        return -1

    def name(self, sample_id: int) -> str:
        """As the loader's messages call it."""
        photograph = self._photographs[sample_id % len(self._photographs)]
        name = f"photograph {photograph.sample_id}"
        return name if self._source is None else self._source.name(photograph.sample_id)


def _open(source: Source, recipe: Recipe, sample_id: int, scratch: Scratch) -> Photograph:
    photograph = open_photograph(source, recipe, sample_id, MAX_PIXELS)
    try:
        # one with a sound header can still be damaged further on, which is better known before the clock runs
        photograph.decode(scratch)
    except ValueError as problem:
        raise SampleError(source.name(sample_id), str(problem)) from problem
    return photograph
