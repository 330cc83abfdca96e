"""Tile-addressable JPEGs for tests, and tables forged for them."""

from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.datasets.shards.encode import encode_tiled
from augpipe.decoding import MAX_PIXELS, Header, Tiles, probe
from augpipe.decoding.jpeg import read_frame
from augpipe.decoding.tile_table import TileTable, pack_table, unpack_table

Bytes = npt.NDArray[np.uint8]
KINDS = ("4:2:0", "4:2:2", "4:4:4", "gray")


def noise(height: int, width: int, seed: int = 0) -> Bytes:
    """(height, width, 3) uint8 of colours that differ from pixel to pixel: the harshest test of chroma's neighbours."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def tiled(image: Bytes, kind: str, **options: Any) -> bytes:
    """(H, W, 3) `image` in one of `KINDS`."""
    if kind == "gray":
        return encode_tiled(np.ascontiguousarray(image[..., 0]), **options)
    return encode_tiled(image, subsampling=kind, **options)  # type: ignore[arg-type]


def header_of(data: bytes | memoryview) -> Header:
    return probe(data, max_pixels=MAX_PIXELS)


def tiles_in(data: bytes | memoryview) -> Tiles:
    tiles = header_of(data).tiles
    assert tiles is not None
    return tiles


def table_of(data: bytes) -> TileTable:
    return unpack_table([data[start:stop] for start, stop in read_frame(memoryview(data)).tile_tables])


def without_table(data: bytes) -> bytes:
    for start, stop in reversed(read_frame(memoryview(data)).tile_tables):
        data = data[: start - 4] + data[stop:]
    return data


def with_markers(data: bytes, markers: bytes) -> bytes:
    """A file without a table, with these marker segments behind its JFIF marker."""
    return data[:20] + markers + data[20:]


def with_table(data: bytes, table: TileTable) -> bytes:
    """The same file with another table."""
    return with_markers(without_table(data), pack_table(table))
