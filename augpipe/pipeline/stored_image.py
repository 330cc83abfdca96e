"""One image as its source gave it: opened, checked against the recipe, and decoded when its turn comes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from augpipe.cache.row_indexes import RowIndexes
from augpipe.decoding import Header, decode, probe
from augpipe.decoding.decoded_pixels import LocatedPixels
from augpipe.decoding.header import tell_of_lost_bits
from augpipe.decoding.jpeg import decode_by_libjpeg, decode_region, own_decoder
from augpipe.errors import SampleError, SourceChangedError
from augpipe.native.cpu_render import Scratch, check_image, pack_into
from augpipe.planning.plan import refusals
from augpipe.recipes.recipe import Recipe
from augpipe.sources.protocol import Pixels, Source
from augpipe.validation.arguments import MAX_INDEXABLE_PIXELS


@dataclass(kw_only=True, slots=True)
class Decodable:
    """What can be decoded by one call: an image, or a region of it."""

    height: int
    """In pixels, as they will be decoded."""
    width: int
    first_x: int = 0
    """The column of the image, at the same scale, with which it begins."""
    first_y: int = 0
    """The row, as above."""
    decode: Callable[[Pixels], Pixels]
    """Called with (num_bytes,) uint8: RGBX (height, width, 4) in it, or ValueError with the reason alone."""

    @property
    def num_bytes(self) -> int:
        return self.height * self.width * 4

    def decode_into(self, memory: Pixels) -> LocatedPixels:
        """The RGBX pixels, in flat `memory` of `num_bytes` or more.

        Raises:
            ValueError: the content is damaged; the reason alone.
        """
        return LocatedPixels.of(self.decode(memory[: self.num_bytes]), self.first_x, self.first_y)


@dataclass(kw_only=True, slots=True)
class StoredImage:
    """A sample's content, with what its header says."""

    sample_id: int
    content: bytes | Pixels | None
    """The encoded file, or pixels; None where the sizes alone are known yet, and once it is needed no longer."""
    size: tuple[int, int]
    """Height and width, upright."""
    may_scale: bool
    """Whether a plan may have it decoded at a DCT scale."""
    header: Header | None
    """None for a source that holds pixels, and where there is no content yet."""

    def shape(self, factor: int = 1) -> tuple[int, int, int]:
        """(height, width, 4) of the decoded pixels at 1/`factor`."""
        return -(-self.size[0] // factor), -(-self.size[1] // factor), 4

    @property
    def num_bytes(self) -> int:
        """The length of the encoded file; 0 for pixels, and before it is read."""
        return 0 if self.content is None or isinstance(self.content, np.ndarray) else len(self.content)

    @property
    def may_crop(self) -> bool:
        """Whether a region of it is worth decoding alone."""
        return self.header is not None and self.header.may_crop

    def is_array_above(self, num_pixels: int) -> bool:
        """Whether it is held as pixels, and of more than so many."""
        return isinstance(self.content, np.ndarray) and self.size[0] * self.size[1] > num_pixels

    def in_place(self) -> LocatedPixels | None:
        """All of an array whose pixels the kernel can read where they lie: four bytes each, side by side; else None."""
        array = self.content
        if not isinstance(array, np.ndarray) or array.ndim != 3 or array.shape[2] < 3:
            return None
        if array.strides[1:] != (4, 1) or array.strides[0] < 0:
            return None
        address, (height, width), pixels_to_next_row = array.ctypes.data, self.size, array.strides[0] // 4
        if address % 4 or array.strides[0] % 4 or width < 2 or height * pixels_to_next_row > MAX_INDEXABLE_PIXELS:
            return None
        return LocatedPixels(address=address, height=height, width=pixels_to_next_row, owner=array)

    def dense_rows(self) -> tuple[int, int, int] | None:
        """Of an array of one or three bytes a pixel, side by side: its address, and bytes of a row and of a pixel."""
        array = self.content
        if not isinstance(array, np.ndarray):
            return None
        pixel_bytes = 1 if array.ndim == 2 else array.shape[2]
        if pixel_bytes == 4 or array.strides[1:] != (pixel_bytes, 1)[: array.ndim - 1]:
            return None
        address: int = array.__array_interface__["data"][0]  # `ctypes` takes three times as long
        return address, array.strides[0], pixel_bytes

    def whole(self, factor: int = 1) -> Decodable:
        """All of it at 1/`factor`."""
        height, width, _ = self.shape(factor)
        return Decodable(height=height, width=width, decode=partial(self._decode_whole, factor))

    def region(self, factor: int, region: Sequence[int], row_indexes: RowIndexes | None) -> Decodable:
        """A region of it at 1/`factor`, where `may_crop`, or of an array.

        Args:
            factor: 1, 2, 4 or 8.
            region: left, top, right, bottom, in pixels at that scale.
            row_indexes: the loader's; None where there is none.
        """
        left, top, right, bottom = map(int, region)
        decode_part = partial(self._decode_region, row_indexes, factor, (left, top, right, bottom))
        return Decodable(height=bottom - top, width=right - left, first_x=left, first_y=top, decode=decode_part)

    def decode(self, scratch: Scratch, factor: int = 1) -> Pixels:
        """`shape(factor)` uint8 RGBX in the calling thread's `scratch`.

        Raises:
            ValueError: the content is damaged; the reason alone.
        """
        height, width, channels = self.shape(factor)
        return self._decode_whole(factor, scratch.pixels(height * width * channels))

    def _decode_region(
        self, row_indexes: RowIndexes | None, factor: int, region: tuple[int, int, int, int], memory: Pixels
    ) -> Pixels:
        assert self.content is not None
        left, top, right, bottom = region
        if isinstance(self.content, np.ndarray):
            return pack_into(memory, self.content[top:bottom, left:right])
        pixels = memory.reshape(bottom - top, right - left, 4)
        where = (*self.size, factor, region, memory)
        decode_by_ours = (
            partial(decode_region, self.content, *where)
            if row_indexes is None
            else partial(row_indexes.decode_region, self.sample_id, self.content, *where)
        )
        if not decode_by_ours():
            try:
                whole = decode_by_libjpeg(memoryview(self.content), *self.size, factor, None)
            except ValueError:
                own_decoder()  # see `decoder_if_compiled`
                if not decode_by_ours():
                    raise
            else:
                np.copyto(pixels.view(np.uint32), whole[top:bottom, left:right].view(np.uint32))
        return pixels

    def _decode_whole(self, factor: int, memory: Pixels) -> Pixels:
        if isinstance(self.content, np.ndarray):
            return pack_into(memory, self.content)
        assert self.header is not None and self.content is not None
        return decode(self.content, self.header, dct_factor=factor, buffer=memory)


def open_image(source: Source, recipe: Recipe, sample_id: int, max_pixels: int) -> StoredImage:
    """Read a sample and look at its header; nothing is decoded.

    Raises:
        SampleError: it cannot be read, is not an image, is too large, or cannot be used with the recipe.
        TypeError: the source returned neither bytes nor an array.
        ConnectionError: remote storage does not answer.
        SourceChangedError: a file of the source is another one than when it was opened.
    """
    try:
        content = source.read(sample_id)
        header = None
        if isinstance(content, np.ndarray):
            check_image(content)
            size = (content.shape[0], content.shape[1])
        else:
            if not isinstance(content, bytes | bytearray | memoryview):
                raise TypeError(
                    f"read({sample_id}) of the source returned a value of type {type(content).__name__}. Return the "
                    "encoded file as bytes, as Path(path).read_bytes(), or an uint8 array of shape (H, W, 3)."
                )
            header = probe(content, max_pixels=max_pixels)
            size = (header.height, header.width)
            if header.loses_bits:
                tell_of_lost_bits(source.name(sample_id))
        reason = refusals(recipe, [size])[0]
        if reason:
            raise ValueError(reason)
    except (ConnectionError, SourceChangedError):  # they say nothing of the image: nothing to skip
        raise
    except (ValueError, OSError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
        raise SampleError(source.name(sample_id), reason or type(problem).__name__) from problem
    may_scale = bool(header and header.may_scale)
    return StoredImage(sample_id=sample_id, content=content, size=size, may_scale=may_scale, header=header)
