"""One photograph as its source gave it: opened, checked against the recipe, and decoded when its turn comes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from augpipe.backends.render import Scratch, check_image, pack_into
from augpipe.decoding import Header, decode, probe
from augpipe.decoding.jpeg import decode_stored
from augpipe.errors import SampleError
from augpipe.planning.plan import refusals
from augpipe.recipe import Recipe
from augpipe.source import Pixels, Source


@dataclass(kw_only=True, slots=True)
class Photograph:
    """A sample's content, with what its header says."""

    sample_id: int
    content: bytes | Pixels | None
    """The encoded file, or pixels; None where the cache knows the sample, and once it is needed no longer."""
    size: tuple[int, int]
    """Height and width, upright."""
    may_scale: bool
    """Whether a plan may have it decoded at a DCT scale."""
    header: Header | None
    """None for a source that holds pixels, and where the cache knows the sample."""

    def shape(self, factor: int = 1) -> tuple[int, int, int]:
        """(height, width, 4) of the decoded pixels at 1/`factor`."""
        return -(-self.size[0] // factor), -(-self.size[1] // factor), 4

    def decode_into(self, buffer: Pixels, factor: int = 1) -> Pixels:
        """`shape(factor)` uint8 RGBX in flat `buffer`, which holds at least that many bytes.

        Raises:
            ValueError: the content is damaged; the reason alone.
        """
        if isinstance(self.content, np.ndarray):
            return pack_into(buffer, self.content)
        assert self.header is not None and self.content is not None
        return decode(self.content, self.header, dct_factor=factor, buffer=buffer)

    @property
    def may_crop(self) -> bool:
        """Whether a rectangle of it may be decoded alone."""
        return self.header is not None and self.header.may_crop

    def decode_region(
        self, rectangle: Sequence[int], room: Callable[[int], Pixels], factor: int = 1
    ) -> tuple[Pixels, tuple[int, int]]:
        """RGBX of the tiles that hold a rectangle, and the column and row of the photograph at which they start.

        Args:
            rectangle: left, top, right, bottom, in pixels of the photograph at 1/`factor`.
            room: gives flat memory of so many bytes to decode into.
            factor: the DCT factor.

        Raises:
            ValueError: the content is damaged; the reason alone.
        """
        assert self.header is not None and self.header.tiles is not None and isinstance(self.content, bytes)
        left, top, right, bottom = (int(side) for side in rectangle)
        cut = self.header.tiles.extract(self.content, left, top, right, bottom, dct_factor=factor)
        num_bytes = -(-cut.height // factor) * -(-cut.width // factor) * 4
        out = room(num_bytes)[:num_bytes]
        pixels = decode_stored(cut.jpeg, cut.height, cut.width, factor, out, may_end_early=cut.holds_last)
        return pixels, (cut.first_x, cut.first_y)

    def cut(self, rectangle: Sequence[int]) -> tuple[bytes | memoryview, int, int]:
        """A file that holds a rectangle, and the column and row at which it starts: of tiles, or all of it.

        Raises:
            ValueError: the content is damaged; the reason alone.
        """
        assert isinstance(self.content, bytes)
        if not self.may_crop:
            return self.content, 0, 0
        assert self.header is not None and self.header.tiles is not None
        left, top, right, bottom = (int(side) for side in rectangle)
        cut = self.header.tiles.extract(self.content, left, top, right, bottom)
        return cut.jpeg, cut.first_x, cut.first_y

    def decode(self, scratch: Scratch, factor: int = 1) -> Pixels:
        """`shape(factor)` uint8 RGBX in the calling thread's `scratch`; raises as `decode_into`."""
        height, width, channels = self.shape(factor)
        return self.decode_into(scratch.pixels(height * width * channels), factor)


def open_photograph(source: Source, recipe: Recipe, sample_id: int, max_pixels: int) -> Photograph:
    """Read a sample and look at its header; nothing is decoded.

    Raises:
        SampleError: it cannot be read, is no picture, is too large, or cannot be used with the recipe.
        ConnectionError: remote storage does not answer.
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
    except ConnectionError:  # storage that does not answer says nothing of the photograph: nothing to skip
        raise
    except (ValueError, OSError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
        raise SampleError(source.name(sample_id), reason or type(problem).__name__) from problem
    may_scale = bool(header and header.may_scale)
    return Photograph(sample_id=sample_id, content=content, size=size, may_scale=may_scale, header=header)
