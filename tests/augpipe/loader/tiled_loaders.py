"""What the tests of loaders over tile-addressable JPEGs share: such files, loaders, and a count of decoded pixels."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest

from augpipe import Batch, Loader, Recipe
from augpipe.cache.row_indexes import RowIndexes
from augpipe.decoding import jpeg
from augpipe.decoding.tile_table import TileTable
from augpipe.pipeline import stored_image
from augpipe.pipeline.stored_image import StoredImage
from tests.augpipe.decoding.image_files import encoded, exif, scene
from tests.augpipe.decoding.tiled_files import KINDS, table_of, tiled, tiles_in, with_table
from tests.augpipe.loader.loader_sources import MemorySource

SIDES = [(97, 131), (180, 241), (64, 300), (233, 175), (300, 420), (17, 90), (411, 333), (1, 70)]
"""Odd ones, small ones, and some from which half and quarter sizes are decoded."""


def tiled_files(
    num: int, tile: tuple[int, int] = (32, 16), sides: Sequence[tuple[int, int]] = tuple(SIDES)
) -> list[bytes]:
    """`num` files of each kind and size in turn; no two alike."""
    sizes = [sides[i % len(sides)] for i in range(num)]
    kinds = [KINDS[(i + i // len(sides)) % len(KINDS)] for i in range(num)]
    return [
        tiled(scene(*size, i), kind, quality=88, tile=tile)
        for i, (size, kind) in enumerate(zip(sizes, kinds, strict=True))
    ]


def turned(data: bytes, orientation: int) -> bytes:
    """The same file with an EXIF orientation."""
    noted = encoded(scene(8, 8), "JPEG", exif=exif(orientation))
    start = noted.index(b"\xff\xe1")
    length = int.from_bytes(noted[start + 2 : start + 4], "big")
    return data[:2] + noted[start : start + 2 + length] + data[2:]


def damaged(data: bytes, which: Iterable[int] | None = None) -> bytes:
    """A file of which some tiles, or all of them, are zeros up to their closing marker, which the table agrees with."""
    tiles, changed = tiles_in(data), bytearray(data)
    for number in range(tiles.bounds.size - 1) if which is None else which:
        start, stop = int(tiles.bounds[number]), int(tiles.bounds[number + 1]) - 2
        changed[start:stop] = bytes(stop - start)
    return bytes(changed)


def wrong_tables(data: bytes, other: bytes) -> dict[str, tuple[bytes, str]]:
    """Files that are refused for their table's sake, made of two good ones, and how the reasons begin."""
    table = table_of(data)
    lengths = table.lengths.copy()
    lengths[:2] += [1, -1]
    cut = data[: len(data) // 2]
    no_fit = "damaged JPEG: its tile table does not fit"
    return {
        "moved": (with_table(data, TileTable(table.height, table.width, lengths)), no_fit),
        "too large": (with_table(data, TileTable(table.height, table.width + 999, table.lengths)), no_fit),
        "too few": (with_table(data, TileTable(table.height, table.width, table.lengths[:-1])), no_fit),
        "another file's": (with_table(data, table_of(other)), no_fit),
        "cut off": (cut, "truncated JPEG"),
    }


def make(contents: Sequence[Any], recipe: Recipe, **options: Any) -> Loader:
    """A loader over `contents`, on two threads of the native backend unless told otherwise."""
    settings = {"batch_size": 6, "framework": "numpy", "num_threads": 2, "seed": 5, "backend": "native"} | options
    return Loader(MemorySource(contents), recipe, **settings)  # type: ignore[arg-type]


@contextmanager
def decoding_whole() -> Iterator[None]:
    """Loaders within take no notice of tables of tiles."""
    with patch.object(StoredImage, "may_crop", lambda *_: False):
        yield


def whole(loader: Loader) -> list[Batch]:
    """An epoch of which every image was decoded whole."""
    with decoding_whole():
        return list(loader)


class Decodes:
    """Spies on our own decoder: pixels decoded of whole images and of regions, since the last look."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._whole: list[int] = []
        self._regions: list[int] = []
        self.factors: set[int] = set()
        """DCT factors of regions so far."""
        decode, decode_stored = stored_image.decode, jpeg.decode_stored

        def decoded(content: Any, header: Any, *args: Any, **options: Any) -> Any:
            self._whole.append(header.height * header.width)
            return decode(content, header, *args, **options)

        def region(data: memoryview, height: int, width: int, factor: int, *args: Any, **options: Any) -> Any:
            self._regions.append(height * width)
            self.factors.add(factor)
            return decode_stored(data, height, width, factor, *args, **options)

        decode_region = RowIndexes.decode_region

        def plain_region(
            indexes: Any, sample_id: int, content: Any, height: int, width: int, box: Any, out: Any
        ) -> bool:
            is_taken = decode_region(indexes, sample_id, content, height, width, box, out)
            if is_taken:
                self._regions.append((box[2] - box[0]) * (box[3] - box[1]))
            return is_taken

        by_libjpeg = stored_image.decode_by_libjpeg

        def left_to_libjpeg(data: memoryview, height: int, width: int, *args: Any) -> Any:
            self._whole.append(height * width)
            return by_libjpeg(data, height, width, *args)

        monkeypatch.setattr(stored_image, "decode_by_libjpeg", left_to_libjpeg)
        monkeypatch.setattr(stored_image, "decode", decoded)
        monkeypatch.setattr(RowIndexes, "decode_region", plain_region)
        monkeypatch.setattr(stored_image, "decode_stored", region)

    def look(self) -> tuple[list[int], list[int]]:
        """(whole images, regions): how many pixels each had before it was scaled."""
        found = self._whole[:], self._regions[:]
        self._whole.clear()
        self._regions.clear()
        return found
