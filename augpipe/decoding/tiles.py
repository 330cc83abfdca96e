"""Tile-addressable JPEGs: which bytes hold a rectangle of pixels, and a small valid JPEG made of them.

Such a file is a baseline JPEG of one scan with a restart marker every few MCUs, so that each row of MCUs ends with one.
What stands between two of these markers decodes by itself: it is a tile. Any run of whole tiles under a header with
the run's own size, its restart markers numbered anew, is a valid JPEG (ITU-T T.81, E.1.4).
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from augpipe.decoding.jpeg import Frame, read_frame
from augpipe.decoding.tile_scan import (
    ALL_RIGHT,
    OTHER_MARKERS,
    TOO_SHORT,
    cut,
    num_coded_bytes,
    place_segments,
    renumber,
    scan_usual,
)
from augpipe.decoding.tile_table import ALONE, unpack_table

_SOF0 = 0xC0
_SIZE = struct.Struct(">HH")
_USUAL_HEAD_BYTES = 2048
_USUAL_TILES = 2048
"""2.7 megapixels of 4:2:0 at eight MCUs a tile."""
_FOUND = np.zeros(9, np.int64)
_TABLE_START = np.frombuffer(ALONE, np.uint8)
_SAMPLINGS = {b"\x11": (1, 1), b"\x11\x11\x11": (1, 1), b"\x21\x11\x11": (1, 2), b"\x22\x11\x11": (2, 2)}
"""Rows and columns of blocks in an MCU by the sampling factors in SOF0: gray, 4:4:4, 4:2:2, 4:2:0."""


class Region(NamedTuple):
    """Whole tiles: which, where, and what to read for them. All pixels count from the image's first as stored."""

    left: int
    top: int
    right: int
    """Excluded, as is `bottom`; padding may belong to the region."""
    bottom: int
    tiles: tuple[int, int, int, int]
    """First row of tiles, last row, first column, last column, both last ones excluded."""
    ranges: list[tuple[int, int]]
    """(start, stop) in the file, one of each row of tiles."""


class Cut(NamedTuple):
    """A small JPEG of whole tiles."""

    jpeg: memoryview
    first_x: int
    """Column of the image, decoded at the DCT factor, that the JPEG's first column is."""
    first_y: int
    """Row of the image, likewise."""
    height: int
    """Rows of the JPEG in pixels at factor 1: decoded at 1/f it has ceil(height / f)."""
    width: int
    holds_last: bool
    """Whether its last tile is the file's, behind which bytes before the end mark are taken as in any JPEG. Behind
    another tile they are damage: the end mark was a restart marker."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Tiles:
    """The tiles of one file, compared with its content by `read_tiles`; they count as stored, before orientation."""

    height: int
    """True height in pixels."""
    width: int
    """True width in pixels."""
    stored_height: int
    """Rows in the file, padding included."""
    stored_width: int
    """Columns in the file, padding included."""
    tile_height: int
    """Rows of a tile in pixels: one MCU. The last row of tiles may be cut short by the image's end."""
    tile_width: int
    """Columns of a tile in pixels. The last one of a row may be cut short likewise."""
    num_columns: int
    """Tiles side by side."""
    margin_x: int
    """Columns of pixels beside a rectangle that its colours depend on: chroma is enlarged with its neighbours' help."""
    margin_y: int
    """Rows, likewise."""
    head: bytes = field(repr=False)
    """All that stands before the coded data, but notes and the table."""
    size_at: int
    """Where height and width stand in `head`."""
    bounds: npt.NDArray[np.int64] = field(repr=False)
    """(num_tiles + 1,) where the first tile starts in the file, then where each stops, behind its closing marker."""

    def region(self, left: int, top: int, right: int, bottom: int, *, dct_factor: int = 1) -> Region:
        """The tiles that a decoder needs for a rectangle of pixels.

        Args:
            left: of the rectangle, in pixels of the image decoded at 1/`dct_factor`, as are the others.
            top: likewise.
            right: excluded, at most ceil(width / dct_factor).
            bottom: excluded, at most ceil(height / dct_factor).
            dct_factor: 1, 2, 4 or 8.

        Raises:
            ValueError: the rectangle is empty or reaches out of the image.
        """
        chosen = self._chosen(left, top, right, bottom, dct_factor)
        first_row, last_row, first_column, last_column = chosen
        start, stop = first_row * self.num_columns, (last_row - 1) * self.num_columns + 1
        starts = self.bounds[start + first_column : stop + first_column : self.num_columns]
        stops = self.bounds[start + last_column : stop + last_column : self.num_columns]
        return Region(*self._box(chosen), chosen, list(zip(starts.tolist(), stops.tolist(), strict=True)))

    def join(self, region: Region, pieces: Sequence[bytes | memoryview], *, dct_factor: int = 1) -> Cut:
        """The JPEG of a region from what stands in the file at `region.ranges`.

        Raises:
            ValueError: a piece is not what stood there when the table was checked.
        """
        if [len(piece) for piece in pieces] != [stop - start for start, stop in region.ranges]:
            raise ValueError("the pieces are not as long as the region's ranges: the file has changed")
        jpeg = np.frombuffer(bytearray().join((self.head, *pieces)), np.uint8)
        is_sound = renumber(jpeg[len(self.head) :], self.bounds, self.num_columns, *region.tiles)
        return self._finished(jpeg, is_sound, region.tiles, dct_factor)

    def extract(
        self, data: bytes | memoryview, left: int, top: int, right: int, bottom: int, *, dct_factor: int = 1
    ) -> Cut:
        """A small JPEG that holds a rectangle: decoded, its pixels there are the whole decode's, bit for bit.

        Args:
            data: the file that `read_tiles` was given.
            left: of the rectangle in pixels, as `region` takes it, and so are the others.
            top: likewise.
            right: likewise.
            bottom: likewise.
            dct_factor: the factor that the JPEG will be decoded with.

        Raises:
            ValueError: the rectangle is empty or reaches out of the image, or the file has changed.
        """
        chosen = self._chosen(left, top, right, bottom, dct_factor)
        head = len(self.head)
        jpeg = np.empty(head + num_coded_bytes(self.bounds, self.num_columns, *chosen), np.uint8)
        jpeg.data[:head] = self.head
        is_sound = cut(np.frombuffer(data, np.uint8), self.bounds, self.num_columns, *chosen, jpeg[head:])
        return self._finished(jpeg, is_sound, chosen, dct_factor)

    def _chosen(self, left: int, top: int, right: int, bottom: int, dct_factor: int) -> tuple[int, int, int, int]:
        """The tiles that `region` chooses: first row, last row, first column, last column, both last ones excluded."""
        f = dct_factor
        height, width = -(-self.height // f), -(-self.width // f)
        if not (0 <= left < right <= width and 0 <= top < bottom <= height):
            raise ValueError(
                f"left={left}, top={top}, right={right}, bottom={bottom} is no rectangle in {width}x{height} pixels; "
                "keep 0 <= left < right <= width, and 0 <= top < bottom <= height"
            )
        rows = _tiles_of(top, bottom, self.stored_height, self.tile_height, self.margin_y, f)
        columns = _tiles_of(left, right, self.stored_width, self.tile_width, self.margin_x, f)
        return *rows, *columns

    def _box(self, chosen: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
        """Left, top, right and bottom of tiles, in pixels of the image as stored."""
        first_row, last_row, first_column, last_column = chosen
        right = min(last_column * self.tile_width, self.stored_width)
        bottom = min(last_row * self.tile_height, self.stored_height)
        return first_column * self.tile_width, first_row * self.tile_height, right, bottom

    def _finished(
        self, jpeg: npt.NDArray[np.uint8], is_sound: bool, chosen: tuple[int, int, int, int], dct_factor: int
    ) -> Cut:
        if not is_sound:
            raise ValueError("a tile does not end with its restart marker: the file has changed")
        left, top, right, bottom = self._box(chosen)
        height, width = bottom - top, right - left
        _, last_row, _, last_column = chosen
        _SIZE.pack_into(jpeg.data, self.size_at, height, width)
        holds_last = last_column == self.num_columns and last_row * self.num_columns == self.bounds.size - 1
        return Cut(jpeg.data, left // dct_factor, top // dct_factor, height, width, holds_last)


def read_tiles(data: bytes | memoryview) -> Tiles | None:
    """The tiles of a JPEG; None for one without a table.

    The table is never trusted: sizes and counts are compared with the frame header and the restart interval, and each
    end of a tile with the markers in the coded data, so nothing outside the file is read and no tile taken for another.
    Whether the coded data decode is another question: damage shows when they do not.

    Args:
        data: the whole file.

    Raises:
        ValueError: the reason: the JPEG is damaged, or its table is, or is another file's.
    """
    view = memoryview(data).cast("B")
    return tiles_of(view, read_frame(view))


def usual_tiles(data: memoryview) -> Tiles | None:
    """The tiles of a JPEG without EXIF as `prepare` writes it; None for all others, which `read_tiles` may yet take."""
    if ALONE not in bytes(data[:_USUAL_HEAD_BYTES]):  # most JPEGs: nothing has to be compiled for them
        return None
    head, bounds, found = np.empty(_USUAL_HEAD_BYTES, np.uint8), np.empty(_USUAL_TILES + 1, np.int64), _FOUND.copy()
    num_tiles = scan_usual(np.frombuffer(data, np.uint8), _TABLE_START, head, bounds, found)
    if num_tiles == 0:
        return None
    stored_height, stored_width, height, width, blocks_y, blocks_x, interval, num_head, size_at = found.tolist()
    return Tiles(
        height=height,
        width=width,
        stored_height=stored_height,
        stored_width=stored_width,
        tile_height=8 * blocks_y,
        tile_width=8 * blocks_x * interval,
        num_columns=-(-stored_width // (8 * blocks_x * interval)),
        margin_x=blocks_x - 1,
        margin_y=blocks_y - 1,
        head=head.data[:num_head].tobytes(),
        size_at=size_at,
        bounds=bounds[: num_tiles + 1].copy(),
    )


def tiles_of(data: memoryview, frame: Frame) -> Tiles | None:
    """The same as `read_tiles`, for a file whose `frame` has been read."""
    if not frame.tile_tables:
        return None
    table = unpack_table([bytes(data[start:stop]) for start, stop in frame.tile_tables])
    head, size_at, factors = _read_head(data, frame)
    interval = frame.restart_interval
    if factors not in _SAMPLINGS or interval == 0:
        raise _mismatch("the JPEG is no baseline one of gray, 4:4:4, 4:2:2 or 4:2:0 with restart markers")
    if not (1 <= table.height <= frame.height and 1 <= table.width <= frame.width):
        raise _mismatch(f"it speaks of {table.width}x{table.height} pixels, the header of {frame.width}x{frame.height}")
    blocks_y, blocks_x = _SAMPLINGS[factors]
    row_mcus = -(-frame.width // (8 * blocks_x))
    if row_mcus % interval:
        raise _mismatch(f"rows of {row_mcus} MCUs do not end with a restart marker, which comes every {interval}")
    num_columns = row_mcus // interval
    num_tiles = num_columns * -(-frame.height // (8 * blocks_y))
    if table.lengths.size != num_tiles:
        raise _mismatch(f"it has {table.lengths.size} tiles, the header {num_tiles}")
    return Tiles(
        height=table.height,
        width=table.width,
        stored_height=frame.height,
        stored_width=frame.width,
        tile_height=8 * blocks_y,
        tile_width=8 * blocks_x * interval,
        num_columns=num_columns,
        margin_x=blocks_x - 1,
        margin_y=blocks_y - 1,
        head=head,
        size_at=size_at,
        bounds=_checked_bounds(data, frame, table.lengths),
    )


def _tiles_of(start: int, stop: int, stored: int, tile: int, margin: int, factor: int) -> tuple[int, int]:
    """First and last (excluded) tile along one side that hold the pixels [start, stop) at 1/factor, with a margin.

    No fewer than eight pixels after scaling: libjpeg-turbo enlarges the chroma of narrower images in a simpler way.
    """
    first = max(0, min((start - margin) * factor, stored - 8 * factor))
    last = min(stored, max((stop + margin) * factor, first + 8 * factor))
    return first // tile, -(-last // tile)


def _read_head(data: memoryview, frame: Frame) -> tuple[bytes, int, bytes]:
    """The header of a small JPEG, where the size stands in it, and the sampling factors of the file.

    The factors are empty where the file is not a baseline JPEG of one scan.
    """
    size_at = 2
    for start, stop in frame.kept:
        if start < frame.size_at < stop:
            size_at += frame.size_at - start
            break
        size_at += stop - start
    scan = data[frame.scan_start : _coded_start(data, frame)]
    head = b"".join([b"\xff\xd8", *(data[start:stop] for start, stop in frame.kept), scan])
    num = frame.num_components
    factors_at = frame.size_at + 6
    factors = bytes(data[factors_at : factors_at + 3 * num : 3])
    is_baseline = data[frame.size_at - 4] == _SOF0
    is_one_scan = len(scan) == 8 + 2 * num and scan[4] == num
    return head, size_at, factors if is_baseline and is_one_scan else b""


def _coded_start(data: memoryview, frame: Frame) -> int:
    start = frame.scan_start
    if start + 4 > len(data) or data[start + 1] == 0xFF:
        raise _mismatch("the scan's header is not where it belongs")
    return start + 2 + (data[start + 2] << 8 | data[start + 3])


def _checked_bounds(data: memoryview, frame: Frame, lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    bounds = np.empty(lengths.size + 1, np.int64)
    found = place_segments(np.frombuffer(data, np.uint8), _coded_start(data, frame), lengths, bounds)
    if found == ALL_RIGHT:
        return bounds
    if found == TOO_SHORT:
        raise ValueError(f"truncated JPEG: its {len(data)} bytes are fewer than its tile table speaks of")
    if found == OTHER_MARKERS:
        raise _mismatch("there are more markers in the coded data than tiles")
    raise _mismatch(f"tile {found} of {lengths.size} does not end with the marker that belongs there")


def _mismatch(reason: str) -> ValueError:
    return ValueError(
        f"damaged JPEG: its tile table does not fit ({reason}); "
        "write the file anew, or remove its APP9 markers to have it decoded without them"
    )
