"""What the tests of loaders over regions of JPEGs share: files, loaders, and a count of decoded pixels."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import pytest

from augpipe import Batch, Loader, Recipe
from augpipe.cache.row_indexes import RowIndexes
from augpipe.datasets.shards.encode import encode_jpeg
from augpipe.decoding import MAX_PIXELS, Header, jpeg, probe
from augpipe.gpu_ops.jpeg.workspace import Workspace
from augpipe.pipeline import stored_image
from augpipe.pipeline.decode_stage import Decoder
from augpipe.pipeline.stored_image import StoredImage
from tests.augpipe.decoding.image_files import encoded, exif, scene
from tests.augpipe.loader.loader_sources import MemorySource

KINDS = ("4:2:0", "4:2:2", "4:4:4", "gray")
SIDES = [(97, 131), (180, 241), (64, 300), (233, 175), (300, 420), (17, 90), (411, 333), (1, 70)]
"""Odd ones, small ones, and some from which half and quarter sizes are decoded."""


def noise(height: int, width: int, seed: int = 0) -> npt.NDArray[np.uint8]:
    """(height, width, 3) uint8 of colours that differ from pixel to pixel: the harshest test of chroma's neighbours."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def header_of(data: bytes | memoryview) -> Header:
    return probe(data, max_pixels=MAX_PIXELS)


def of_kind(image: npt.NDArray[np.uint8], kind: str, **options: Any) -> bytes:
    """(H, W, 3) `image` in one of `KINDS`."""
    if kind == "gray":
        return encode_jpeg(np.ascontiguousarray(image[..., 0]), **options)
    return encode_jpeg(image, subsampling=kind, **options)


def jpeg_files(num: int, sides: Sequence[tuple[int, int]] = tuple(SIDES)) -> list[bytes]:
    """`num` files of each kind and size in turn; no two alike."""
    return [_jpeg_file(i, *sides[i % len(sides)], KINDS[(i + i // len(sides)) % len(KINDS)]) for i in range(num)]


@cache
def _jpeg_file(number: int, height: int, width: int, kind: str) -> bytes:
    return of_kind(scene(height, width, number), kind, quality=88)


def turned(data: bytes, orientation: int) -> bytes:
    """The same file with an EXIF orientation."""
    noted = encoded(scene(8, 8), "JPEG", exif=exif(orientation))
    start = noted.index(b"\xff\xe1")
    length = int.from_bytes(noted[start + 2 : start + 4], "big")
    return data[:2] + noted[start : start + 2 + length] + data[2:]


def damaged(data: bytes) -> bytes:
    """A file with a sound header whose first codes are ones alone, which no table has."""
    start = data.index(b"\xff\xda")
    start += 2 + int.from_bytes(data[start + 2 : start + 4], "big")
    return data[:start] + b"\xff\0" * 30 + data[start + 60 :]


def make(contents: Sequence[Any], recipe: Recipe, **options: Any) -> Loader:
    """A loader over `contents`, on two threads of the native backend unless told otherwise."""
    settings = {"batch_size": 6, "framework": "numpy", "num_threads": 2, "seed": 5, "backend": "native"} | options
    return Loader(MemorySource(contents), recipe, **settings)


@contextmanager
def decoding_whole() -> Iterator[None]:
    """Loaders within decode no region alone."""
    with patch.object(StoredImage, "may_crop", False):
        yield


@contextmanager
def by_themselves() -> Iterator[None]:
    """Loaders within decode and render no images in one compiled call."""
    with patch.object(Decoder, "render", lambda _, items, *__, **___: items):
        yield


@contextmanager
def by_libjpeg() -> Iterator[None]:
    """Loaders within decode images by themselves, whole, and by libjpeg-turbo."""
    with by_themselves(), decoding_whole(), patch.object(jpeg, "own_decoder", lambda: None):
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
        """DCT factors of images and regions so far."""
        decode, decode_region = stored_image.decode, RowIndexes.decode_region
        by_libjpeg, render = stored_image.decode_by_libjpeg, Workspace.render

        def decoded(content: Any, header: Any, *, dct_factor: int = 1, **options: Any) -> Any:
            self._whole.append(header.height * header.width)
            self.factors.add(dct_factor)
            return decode(content, header, dct_factor=dct_factor, **options)

        def region(
            indexes: Any, sample_id: int, content: Any, height: int, width: int, factor: int, box: Any, out: Any
        ) -> bool:
            is_taken = decode_region(indexes, sample_id, content, height, width, factor, box, out)
            if is_taken:
                self._regions.append((box[2] - box[0]) * (box[3] - box[1]))
                self.factors.add(factor)
            return is_taken

        def left_to_libjpeg(data: memoryview, height: int, width: int, *args: Any) -> Any:
            self._whole.append(height * width)
            return by_libjpeg(data, height, width, *args)

        def rendered(workspace: Any, files: Sequence[Any], *args: Any, **options: Any) -> list[bool]:
            are_taken = render(workspace, files, *args, **options)
            for file, is_taken in zip(files, are_taken, strict=True):
                if is_taken:
                    self._regions.append(file.region_bytes // 4)
                    self.factors.add(file.factor)
            return are_taken

        monkeypatch.setattr(Workspace, "render", rendered)
        monkeypatch.setattr(stored_image, "decode_by_libjpeg", left_to_libjpeg)
        monkeypatch.setattr(stored_image, "decode", decoded)
        monkeypatch.setattr(RowIndexes, "decode_region", region)

    def look(self) -> tuple[list[int], list[int]]:
        """(whole images, regions): how many pixels each image had before it was scaled, and each region after it."""
        found = self._whole[:], self._regions[:]
        self._whole.clear()
        self._regions.clear()
        return found
