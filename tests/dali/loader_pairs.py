"""What the tests of the loader with DALI share: loaders of both backends, odd and bad files, and who decoded what."""

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np
import pytest

from augpipe import Batch, Loader, Recipe
from augpipe.dali.decoder import DaliDecoder
from tests.unit.loader_sources import PAPER, MemorySource, arrays, as_array, jpegs, views_of
from tests.unit.picture_files import encoded, exif, jpeg_kinds, odd_files, other_kinds, png_16_bit_rgb, scene, tiff

NUM = 24
GOOD = jpegs(NUM)
TEXT = b"this is no picture"
LARGE = scene(400, 520, 7)


def make(backend: str, contents: Sequence[Any] = GOOD, recipe: Recipe = PAPER, **options: Any) -> Loader:
    """A loader over `contents`, small and on two threads unless told otherwise."""
    settings = {"batch_size": 4, "framework": "numpy", "num_threads": 2, "seed": 9} | options
    return Loader(MemorySource(contents), recipe, backend=backend, **settings)  # type: ignore[arg-type]


def pair(*args: Any, **options: Any) -> tuple[Loader, Loader]:
    """(native, dali), otherwise alike."""
    return make("native", *args, **options), make("dali", *args, **options)


def assert_same_batches(found: Iterable[Batch], expected: Iterable[Batch]) -> int:
    """Fail unless they are the same in every bit and in order; returns the number of samples."""
    num = 0
    for batch, wanted in zip_longest(found, expected):
        assert batch is not None and wanted is not None, "one of them has more batches"
        np.testing.assert_array_equal(batch.sample_ids, wanted.sample_ids)
        np.testing.assert_array_equal(as_array(batch.labels), as_array(wanted.labels), strict=True)
        assert len(batch.plan.views) == len(wanted.plan.views)
        for rows, wanted_rows in zip(batch.plan.views, wanted.plan.views, strict=True):
            assert rows.dtype == wanted_rows.dtype and rows.tobytes() == wanted_rows.tobytes()
        for images, wanted_images in zip(views_of(batch), views_of(wanted), strict=True):
            assert type(images) is type(wanted_images)
            np.testing.assert_array_equal(as_array(images), as_array(wanted_images), strict=True)
        num += len(batch)
    return num


class Decoders:
    """Which samples of a source went to DALI, and which to our own decoder, call by call since the last look."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, contents: Sequence[Any]) -> None:
        self._ids = {bytes(content): i for i, content in enumerate(contents) if isinstance(content, bytes)}
        self._dali: list[int] = []
        self._ours: list[int] = []
        submit = DaliDecoder.submit

        def submitted(decoder: DaliDecoder, encoded: Sequence[bytes], regions: Any) -> None:
            self._dali.extend(self._ids[content] for content in encoded)
            submit(decoder, encoded, regions)

        from augpipe.backends import photograph

        decode = photograph.decode

        def decoded(content: Any, *args: Any, **options: Any) -> Any:
            self._ours.append(self._ids[bytes(content)])
            return decode(content, *args, **options)

        monkeypatch.setattr(DaliDecoder, "submit", submitted)
        monkeypatch.setattr(photograph, "decode", decoded)

    def look(self) -> tuple[list[int], list[int]]:
        """(DALI's samples, ours), each in ascending order."""
        found = sorted(self._dali), sorted(self._ours)
        self._dali.clear()
        self._ours.clear()
        return found


def mixed_bag() -> dict[str, Any]:
    """Everything that is read: of each kind, size, turn and depth, and arrays; no two of the same content."""
    files: dict[str, Any] = {f"JPEG {name}": data for name, data in jpeg_kinds(75, 111).items()}
    files |= {f"large {name}": data for name, data in jpeg_kinds(330, 270).items()}
    files |= {f"turned {turn}": encoded(scene(50, 70, turn), "JPEG", exif=exif(turn)) for turn in range(1, 9)}
    for side in (100, 180, 340, 700):  # decoded at full size, a half, a quarter and an eighth
        files[f"side {side}"] = encoded(scene(side, side + 30, side), "JPEG", quality=80)
    files |= other_kinds()
    files |= {name: data for name, (data, _) in odd_files().items()}
    files["PNG 16 rgb"] = png_16_bit_rgb(scene(41, 60).astype(np.uint16) * 257)
    files["TIFF 16 rgb"] = tiff(scene(41, 61).astype(np.uint16) * 257)
    files["TIFF big-endian"] = tiff(scene(41, 62), order=">")
    files["gray pixel"] = encoded(scene(1, 1)[..., 0], "JPEG")
    files["bytes left over"] = encoded(scene(52, 61, 3), "JPEG") + bytes(50)
    rgb = arrays(2, 60, 44)
    files |= {"RGB array": rgb[0], "gray array": rgb[0][..., 0], "RGBA array": np.dstack([rgb[1], rgb[0][..., 1]])}
    names = {bytes(content): name for name, content in files.items()}
    return {name: files[name] for name in names.values()}


def without_tables(seed: int = 0) -> bytes:
    """A JPEG without the tables that its pixels need: its header is sound, and no decoder makes anything of it."""
    data = encoded(scene(60, 50, seed), "JPEG", quality=90)
    start = data.index(b"\xff\xdb")
    while data[start : start + 2] == b"\xff\xdb":
        data = data[:start] + data[start + 2 + int.from_bytes(data[start + 2 : start + 4], "big") :]
        start = data.find(b"\xff\xdb")
    return data
