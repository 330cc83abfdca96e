"""What the tests of the loader with DALI share: loaders of both backends, odd and bad files, and who decoded what."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

from augpipe import Loader, Recipe
from augpipe.cache.row_indexes import RowIndexes
from augpipe.dali.decoder import DaliDecoder
from augpipe.dali.nvjpeg import Nvjpeg
from augpipe.gpu_ops.jpeg.workspace import File, Workspace
from tests.augpipe.decoding.image_files import (
    encoded,
    exif,
    jpeg_kinds,
    odd_files,
    other_kinds,
    png_16_bit_rgb,
    scene,
    tiff,
)
from tests.augpipe.loader.loader_sources import PAPER, MemorySource, arrays, jpegs

NUM = 24
GOOD = jpegs(NUM)
LARGE = scene(400, 520, 7)
NEW = Nvjpeg(path="/wheel/libnvjpeg.so.13", version=(13, 2))
OLD = Nvjpeg(path="/toolkit/libnvjpeg.so.13", version=(13, 1))


def make(backend: str, contents: Sequence[Any] = GOOD, recipe: Recipe = PAPER, **options: Any) -> Loader:
    """A loader over `contents`, small and on two threads unless told otherwise."""
    settings = {"batch_size": 4, "framework": "numpy", "num_threads": 2, "seed": 9} | options
    return Loader(MemorySource(contents), recipe, backend=backend, **settings)  # type: ignore[arg-type]


def pair(*args: Any, **options: Any) -> tuple[Loader, Loader]:
    """(native, dali), otherwise alike."""
    return make("native", *args, **options), make("dali", *args, **options)


class Decoders:
    """Which samples of a source went to DALI, and which to our own decoder, call by call since the last look."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, contents: Sequence[Any]) -> None:
        self._ids = {bytes(content): i for i, content in enumerate(contents) if isinstance(content, bytes)}
        self._dali: list[int] = []
        self._ours: list[int] = []
        submit = DaliDecoder.submit

        def submitted(decoder: DaliDecoder, encoded: Sequence[bytes], *wanted: Any) -> None:
            self._dali.extend(self._ids[content] for content in encoded)
            submit(decoder, encoded, *wanted)

        from augpipe.pipeline import stored_image

        decode, decode_region = stored_image.decode, RowIndexes.decode_region

        def decoded(content: Any, *args: Any, **options: Any) -> Any:
            self._ours.append(self._ids[bytes(content)])
            return decode(content, *args, **options)

        def region_decoded(indexes: RowIndexes, sample_id: int, content: Any, *args: Any) -> bool:
            self._ours.append(self._ids[bytes(content)])
            return decode_region(indexes, sample_id, content, *args)

        render = Workspace.render

        def rendered(workspace: Workspace, files: Sequence[File], *args: Any, **options: Any) -> list[bool]:
            are_taken = render(workspace, files, *args, **options)
            of_files = zip(files, are_taken, strict=True)
            self._ours.extend(self._ids[bytes(file.content)] for file, is_taken in of_files if is_taken)
            return are_taken

        monkeypatch.setattr(Workspace, "render", rendered)
        monkeypatch.setattr(DaliDecoder, "submit", submitted)
        monkeypatch.setattr(stored_image, "decode", decoded)
        monkeypatch.setattr(RowIndexes, "decode_region", region_decoded)

    def look(self) -> tuple[list[int], list[int]]:
        """(DALI's samples, ours), each in ascending order."""
        found = sorted(self._dali), sorted(self._ours)
        self._dali.clear()
        self._ours.clear()
        return found


class AsOnGpu:
    """Decoders on the CPU that ask for images as those on a GPU do, beside an nvJPEG that is told to be loaded."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, nvjpeg: Nvjpeg | None) -> None:
        self._wanted: list[tuple[tuple[int, ...], bool]] = []
        submit = DaliDecoder.submit

        def submitted(decoder: DaliDecoder, encoded: Sequence[bytes], regions: Any, whole: Any) -> None:
            self._wanted.extend(zip(map(tuple, regions.tolist()), whole.tolist(), strict=True))
            submit(decoder, encoded, regions, whole)

        monkeypatch.setattr(DaliDecoder, "submit", submitted)
        monkeypatch.setattr("augpipe.dali.decoder.DaliDecoder", partial(DaliDecoder, as_on_gpu=True))
        monkeypatch.setattr("augpipe.dali.decoder.loaded_nvjpeg", lambda: nvjpeg)

    def look(self) -> list[tuple[tuple[int, ...], bool]]:
        """(region, whether it is all of the image) of each one that DALI was given since the last look."""
        found = self._wanted[:]
        self._wanted.clear()
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
