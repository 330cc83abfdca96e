"""Where files say how they are turned, besides the usual EXIF block: as Pillow's `exif_transpose` undoes it."""

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from augpipe import Loader, recipes
from augpipe.datasets.formats.folder import FolderSource
from augpipe.datasets.prepare.index_folder import index_folder
from augpipe.decoding import MAX_PIXELS, decode, probe
from augpipe.pipeline.choose import CacheName
from tests.augpipe.decoding.image_files import Bytes, encoded, exif, png_chunk, scene

ATTRIBUTE = (
    b'<x:xmpmeta><rdf:Description xmlns:tiff="http://ns.adobe.com/tiff/1.0/" tiff:Orientation="%d"/></x:xmpmeta>'
)
ELEMENT = b"<x:xmpmeta><tiff:Orientation>%d</tiff:Orientation></x:xmpmeta>"
PADDING = b" " * 3_000
IMAGE = scene(24, 40)


def raw_profile(orientation: int) -> bytes:
    """EXIF as ImageMagick writes it into a PNG's text."""
    block = exif(orientation).tobytes()
    digits = block.hex()
    lines = "\n".join(digits[at : at + 72] for at in range(0, len(digits), 72))
    return f"\nexif\n{len(block):8}\n{lines}\n".encode()


def png(*, before: bytes = b"", after: bytes = b"", at_the_end: bytes = b"") -> bytes:
    data = encoded(IMAGE, "PNG")
    first, end = data.index(b"IDAT") - 4, data.index(b"IEND") - 4
    return data[:first] + before + data[first:end] + after + data[end:] + at_the_end


def exif_chunk(orientation: int) -> bytes:
    return png_chunk(b"eXIf", exif(orientation).tobytes().removeprefix(b"Exif\0\0"))


def text_chunk(key: bytes, text: bytes, kind: bytes = b"tEXt") -> bytes:
    middle = {b"tEXt": b"\0", b"zTXt": b"\0\0", b"iTXt": b"\0\0\0\0\0"}[kind]
    return png_chunk(kind, key + middle + (zlib.compress(text) if kind == b"zTXt" else text))


def packed_text(key: bytes, text: bytes) -> bytes:
    return png_chunk(b"iTXt", key + b"\0\1\0en\0key\0" + zlib.compress(text))


PROFILE, XMP = b"Raw profile type exif", b"XML:com.adobe.xmp"

FILES = {
    "JPEG, XMP attribute": encoded(IMAGE, "JPEG", xmp=ATTRIBUTE % 6),
    "JPEG, XMP element": encoded(IMAGE, "JPEG", xmp=PADDING + ELEMENT % 8),
    "JPEG, XMP without an orientation": encoded(IMAGE, "JPEG", xmp=PADDING),
    "JPEG, XMP of orientation 0": encoded(IMAGE, "JPEG", xmp=ATTRIBUTE % 0),
    "JPEG, progressive": encoded(IMAGE, "JPEG", xmp=ATTRIBUTE % 5, progressive=True),
    "JPEG, EXIF goes before XMP": encoded(IMAGE, "JPEG", exif=exif(1), xmp=ATTRIBUTE % 6),
    "JPEG, EXIF without it": encoded(IMAGE, "JPEG", exif=Image.Exif(), xmp=ATTRIBUTE % 7),
    "JPEG, CMYK": encoded(Image.fromarray(IMAGE).convert("CMYK"), "JPEG", xmp=ATTRIBUTE % 6),
    "WebP, XMP": encoded(IMAGE, "WEBP", lossless=True, xmp=ATTRIBUTE % 6),
    "WebP, EXIF goes before XMP": encoded(IMAGE, "WEBP", lossless=True, exif=exif(3), xmp=ATTRIBUTE % 6),
    "PNG, eXIf before": png(before=exif_chunk(6)),
    "PNG, eXIf behind": png(after=exif_chunk(6)),
    "PNG, eXIf behind the end": png(at_the_end=exif_chunk(6)),
    "PNG, eXIf twice": png(before=exif_chunk(6), after=exif_chunk(8)),
    "PNG, profile in tEXt": png(before=text_chunk(PROFILE, raw_profile(6))),
    "PNG, profile in zTXt": png(before=text_chunk(PROFILE, raw_profile(7), b"zTXt")),
    "PNG, profile in iTXt": png(before=text_chunk(PROFILE, raw_profile(8), b"iTXt")),
    "PNG, profile behind": png(after=text_chunk(PROFILE, raw_profile(5))),
    "PNG, eXIf goes before a profile": png(before=text_chunk(PROFILE, raw_profile(6)) + exif_chunk(3)),
    "PNG, XMP": png(before=text_chunk(XMP, ATTRIBUTE % 6, b"iTXt")),
    "PNG, XMP packed": png(before=packed_text(XMP, ELEMENT % 8)),
    "PNG, XMP behind": png(after=text_chunk(XMP, ATTRIBUTE % 4, b"iTXt")),
    "PNG, another text": png(before=text_chunk(b"Comment", ATTRIBUTE % 6)),
    "TIFF, XMP": encoded(Image.fromarray(IMAGE), "TIFF", tiffinfo={700: ATTRIBUTE % 6}),
}


def upright_by_pillow(data: bytes) -> Bytes:
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(ImageOps.exif_transpose(image).convert("RGB"))


@pytest.mark.parametrize("kind", FILES)
def test_an_image_stands_as_pillow_turns_it(kind: str) -> None:
    expected = upright_by_pillow(FILES[kind])
    header = probe(FILES[kind], max_pixels=MAX_PIXELS)
    assert (header.height, header.width) == expected.shape[:2]
    pixels = decode(FILES[kind], header)[..., :3]
    assert np.abs(pixels.astype(int) - expected).max() <= (2 if kind.startswith("JPEG") else 0)


@pytest.mark.parametrize(
    "damaged",
    [
        text_chunk(PROFILE, b"\nexif\n 10\nno digits"),
        text_chunk(PROFILE, b"\nexif\n"),
        png_chunk(b"zTXt", PROFILE + b"\0\0" + b"not packed"),
        png_chunk(b"zTXt", PROFILE),
        png_chunk(b"iTXt", XMP + b"\0\1"),
        png_chunk(b"zTXt", PROFILE + b"\0\0" + zlib.compress(b" " * (8 << 20))),
    ],
)
def test_damaged_notes_leave_a_png_upright(damaged: bytes) -> None:
    assert probe(png(after=damaged), max_pixels=MAX_PIXELS).orientation == 1


def test_a_tiff_whose_orientation_is_a_long() -> None:
    data = encoded(Image.fromarray(IMAGE), "TIFF", exif=exif(6))
    short, long = struct.pack("<HHLHH", 274, 3, 1, 6, 0), struct.pack("<HHLL", 274, 4, 1, 6)
    assert short in data
    assert probe(data.replace(short, long), max_pixels=MAX_PIXELS).orientation == 6


@pytest.mark.parametrize("is_indexed", [False, True])
@pytest.mark.parametrize("cache", ["off", "host"])
def test_a_loader_turns_by_xmp_as_it_does_by_exif(tmp_path: Path, is_indexed: bool, cache: CacheName) -> None:
    passes = []
    for name, data in (("xmp", FILES["JPEG, XMP attribute"]), ("exif", encoded(IMAGE, "JPEG", exif=exif(6)))):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "1.jpg").write_bytes(data)
        if is_indexed:
            index_folder(folder)
        recipe = recipes.evaluation(size=16, scale=20)
        loader = Loader(FolderSource(folder), recipe, batch_size=1, framework="numpy", cache=cache)
        passes.append([batch.images for _ in range(2) for batch in loader])  # the second pass knows sizes
    assert np.array_equal(*passes)
