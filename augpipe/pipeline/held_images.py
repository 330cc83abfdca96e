"""Images held in memory for a measurement, so that what is timed is not the disk."""

from collections.abc import Sequence

import numpy as np

from augpipe.decoding import MAX_PIXELS
from augpipe.errors import SampleError
from augpipe.native.cpu_render import Scratch
from augpipe.pipeline.stored_image import StoredImage, open_image
from augpipe.recipes.recipe import Recipe
from augpipe.sampling import epoch_order
from augpipe.sources.protocol import Pixels, Source, is_sized
from augpipe.validation.plural import count

MAX_IMAGES = 256
"""Enough for a mean over a dataset's sizes, and few enough to be held."""


def hold(source: Source, recipe: Recipe, *, skips_bad: bool = False) -> tuple[list[StoredImage], dict[int, str]]:
    """Up to `MAX_IMAGES` images, evenly spread over the source and then shuffled, and what was skipped.

    Raises:
        SampleError: an image cannot be used with the recipe and none is skipped, or all are.
    """
    num = len(source)
    num_tried = min(num, MAX_IMAGES)
    held: list[StoredImage] = []
    scratch = Scratch()
    skipped: dict[int, str] = {}
    shuffled = epoch_order.sample_ids(np.arange(num_tried), num_tried, seed=0, epoch=0, shuffle=True)
    for sample_id in (num * int(i) // num_tried for i in shuffled):
        try:
            held.append(open_sound(source, recipe, sample_id, scratch))
        except SampleError as problem:
            if not skips_bad:
                raise
            skipped[sample_id] = str(problem)
    if not held:
        first, text = next(iter(skipped.items()))
        name, tried = source.name(first), count(num_tried, "photograph")
        raise SampleError(name, f"{text.removeprefix(f'{name}: ')}; and none of the {tried} tried can be used")
    return held, skipped


class HeldSource:
    """A source of images in memory, or of those same files, said over and over until there are `num` of them."""

    def __init__(self, photographs: Sequence[StoredImage], num: int, source: Source | None = None) -> None:
        self._images = photographs
        self._num = num
        self._source = source
        self.classes: Sequence[str] = ()

    def __len__(self) -> int:
        return self._num

    @property
    def knows_sizes(self) -> bool:
        """What `source` says, so that a loader does what it does with that."""
        return self._source is not None and is_sized(self._source)

    def size(self, sample_id: int) -> tuple[int, int]:
        """(height, width) in pixels."""
        return self._images[sample_id % len(self._images)].size

    def row_index(self, sample_id: int) -> bytes | memoryview:
        """What `source` has."""
        row_index = getattr(self._source, "row_index", None)
        return row_index(self._images[sample_id % len(self._images)].sample_id) if row_index is not None else b""

    def read(self, sample_id: int) -> bytes | Pixels:
        """From memory, or from `source` where that was given."""
        image = self._images[sample_id % len(self._images)]
        if self._source is not None:
            return self._source.read(image.sample_id)
        assert image.content is not None
        return image.content

    def label(self, sample_id: int) -> int:
        """None has one."""
        return -1

    def name(self, sample_id: int) -> str:
        """The name that the loader's messages use."""
        image = self._images[sample_id % len(self._images)]
        name = f"photograph {image.sample_id}"
        return name if self._source is None else self._source.name(image.sample_id)


def open_sound(
    source: Source, recipe: Recipe, sample_id: int, scratch: Scratch, max_pixels: int = MAX_PIXELS
) -> StoredImage:
    """An image as it is stored, once all of it has been decoded.

    Raises:
        SampleError: it cannot be used with the recipe, or is damaged.
    """
    image = open_image(source, recipe, sample_id, max_pixels)
    try:
        # one with a sound header can still be damaged further on, which is better known before the clock runs
        image.decode(scratch)
    except ValueError as problem:
        raise SampleError(source.name(sample_id), str(problem)) from problem
    return image
