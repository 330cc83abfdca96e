"""One photograph as its source gave it: opened, checked against the recipe, and decoded when its turn comes."""

from dataclasses import dataclass

import numpy as np

from augpipe.backends.render import Scratch, as_rgbx, check_image
from augpipe.decoding import Header, decode, probe
from augpipe.errors import SampleError
from augpipe.planning.plan import refusals
from augpipe.recipe import Recipe
from augpipe.source import Pixels, Source


@dataclass(kw_only=True, slots=True)
class Photograph:
    """A sample's content, with what its header says."""

    sample_id: int
    content: bytes | Pixels
    """The encoded file, or pixels; whoever needs it no longer may drop it."""
    size: tuple[int, int]
    """Height and width, upright."""
    header: Header | None
    """None for a source that holds pixels."""

    def decode(self, scratch: Scratch, factor: int = 1) -> Pixels:
        """(ceil(H / factor), ceil(W / factor), 4) uint8 RGBX, in the calling thread's `scratch`.

        Raises:
            ValueError: the content is damaged; the reason alone.
        """
        if isinstance(self.content, np.ndarray):
            return as_rgbx(self.content, scratch)
        assert self.header is not None
        height, width, channels = self.header.shape(factor)
        buffer = scratch.pixels(height * width * channels)
        return decode(self.content, self.header, dct_factor=factor, buffer=buffer)


def open_photograph(source: Source, recipe: Recipe, sample_id: int, max_pixels: int) -> Photograph:
    """Read a sample and look at its header; nothing is decoded.

    Raises:
        SampleError: it cannot be read, is no picture, is too large, or cannot be used with the recipe.
    """
    try:
        content = source.read(sample_id)
        header = None
        if isinstance(content, np.ndarray):
            check_image(content)
            size = (content.shape[0], content.shape[1])
        else:
            header = probe(content, max_pixels=max_pixels)
            size = (header.height, header.width)
        reason = refusals(recipe, [size])[0]
        if reason:
            raise ValueError(reason)
    except (ValueError, OSError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
        raise SampleError(source.name(sample_id), reason or type(problem).__name__) from problem
    return Photograph(sample_id=sample_id, content=content, size=size, header=header)
