"""Image files for tests, made on the spot: ordinary, odd and bad ones, and random corruptions of them."""

import io
import random
import struct
import zlib
from collections.abc import Callable, Iterator
from copy import copy
from functools import cache, wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt
from PIL import Image

Bytes = npt.NDArray[np.uint8]
ORIENTATION_TAG = 0x0112
P = ParamSpec("P")
T = TypeVar("T")


def made_once(make: Callable[P, T]) -> Callable[P, T]:
    """The same files for the same arguments, in a list or dict of the caller's own."""
    kept: Callable[..., T] = cache(make)

    @wraps(make)
    def copied(*args: P.args, **kwargs: P.kwargs) -> T:
        return copy(kept(*args, **kwargs))

    return copied


def scene(height: int, width: int, seed: int = 0) -> Bytes:
    """(height, width, 3) uint8: smooth shades and a little noise, different in every direction and channel."""
    rng = np.random.default_rng(seed)
    y, x = (np.arange(length).reshape(shape) / max(height, width) for length, shape in ((height, (-1, 1)), (width, -1)))
    levels = rng.normal(0, 4, (height, width, 3))
    for c in range(3):
        levels[..., c] += 128 + 90 * np.sin(9 * x * (c + 1) + seed) * np.cos(5 * y + c) + 30 * (x - y)
    return np.clip(levels, 0, 255, out=levels).astype(np.uint8)


def encoded(image: Image.Image | Bytes, kind: str, **options: Any) -> bytes:
    """`image` in the format `kind` as Pillow names it, with Pillow's options."""
    file = io.BytesIO()
    (image if isinstance(image, Image.Image) else Image.fromarray(image)).save(file, kind, **options)
    return file.getvalue()


def exif(orientation: int) -> Image.Exif:
    notes = Image.Exif()
    notes[ORIENTATION_TAG] = orientation
    return notes


@made_once
def jpeg_kinds(height: int = 45, width: int = 61) -> dict[str, bytes]:
    """A JPEG of every kind that libjpeg-turbo decodes."""
    image = Image.fromarray(scene(height, width))
    return {
        "420": encoded(image, "JPEG", subsampling="4:2:0"),
        "422": encoded(image, "JPEG", subsampling="4:2:2"),
        "444": encoded(image, "JPEG", subsampling="4:4:4", quality=95),
        "gray": encoded(image.convert("L"), "JPEG"),
        "progressive": encoded(image, "JPEG", progressive=True),
        "gray progressive": encoded(image.convert("L"), "JPEG", progressive=True),
        "restart rows": encoded(image, "JPEG", restart_marker_rows=1),
        "restart blocks": encoded(image, "JPEG", restart_marker_blocks=3),
        "exif": encoded(image, "JPEG", exif=exif(6)),
        "rgb": encoded(image, "JPEG", keep_rgb=True),
        "comment and profile": encoded(image, "JPEG", comment=b"a note", icc_profile=b"p" * 300),
    }


@made_once
def other_kinds(height: int = 45, width: int = 61) -> dict[str, bytes]:
    """Images that Pillow decodes, of every format and mode that it writes; the key begins with the format."""
    image = Image.fromarray(scene(height, width))
    gray, palette, alpha = image.convert("L"), image.quantize(40), image.convert("RGB")
    alpha.putalpha(Image.fromarray(scene(height, width, 1)[..., 0]))
    deep = Image.fromarray(np.asarray(gray).astype(np.uint16) * 250 + 77)
    still_next = [image.transpose(Image.Transpose.ROTATE_180)]
    kinds = {
        "JPEG cmyk": encoded(image.convert("CMYK"), "JPEG"),
        "JPEG ycck": ycck_jpeg(image),
        "JPEG odd sampling": odd_sampling_jpeg(),
        "PNG exif": encoded(image, "PNG", exif=exif(8)),
        "PNG animated": encoded(image, "PNG", save_all=True, append_images=still_next),
        "PNG transparent palette": encoded(palette, "PNG", transparency=bytes(range(0, 200, 5))),
        "PNG transparent colour": encoded(image, "PNG", transparency=(1, 2, 3)),
        "PNG 16 gray": encoded(deep, "PNG"),
        "GIF transparent": encoded(palette, "GIF", transparency=3),
        "GIF animated": encoded(palette, "GIF", save_all=True, append_images=still_next),
        "WEBP lossless exif": encoded(image, "WEBP", lossless=True, exif=exif(5)),
        "WEBP animated": encoded(image, "WEBP", save_all=True, append_images=still_next),
        "WEBP alpha": encoded(alpha, "WEBP"),
        "TIFF lzw": encoded(image, "TIFF", compression="tiff_lzw"),
        "TIFF deflate exif": encoded(image, "TIFF", compression="tiff_adobe_deflate", exif=exif(7)),
        "TIFF jpeg": encoded(image, "TIFF", compression="jpeg"),
        "TIFF big": encoded(image, "TIFF", big_tiff=True),
        "TIFF pages": encoded(image, "TIFF", save_all=True, append_images=still_next),
        "TIFF 16 gray": encoded(deep, "TIFF"),
        "TIFF cmyk": encoded(image.convert("CMYK"), "TIFF"),
        "TIFF ycbcr": encoded(image.convert("YCbCr"), "TIFF"),
        "TIFF fax": encoded(gray.convert("1"), "TIFF", compression="group4"),
        "TIFF noted": encoded(image, "TIFF", description="a note", software="a program", dpi=(72, 72)),
    }
    modes = {"rgb": image, "gray": gray, "palette": palette, "alpha": alpha, "gray alpha": alpha.convert("LA")}
    modes["bit"] = gray.convert("1")
    for mode, picture in modes.items():
        for kind in ("PNG", "GIF", "BMP", "WEBP", "TIFF"):
            if (kind, mode) != ("BMP", "gray alpha"):  # there is no such BMP
                kinds[f"{kind} {mode}"] = encoded(picture, kind)
    return kinds


def ycck_jpeg(image: Image.Image) -> bytes:
    """A CMYK JPEG whose Adobe mark says that its colours are YCCK."""
    data = bytearray(encoded(image.convert("CMYK"), "JPEG"))
    data[data.index(b"Adobe") + 11] = 2
    return bytes(data)


def odd_sampling_jpeg() -> bytes:
    """An 8x24 JPEG of RGB whose green alone has twice the rows: libjpeg decodes it, simplejpeg has no name for it."""
    data = bytearray(encoded(scene(8, 32), "JPEG", keep_rgb=True))  # 4 x 3 blocks of one table, taken as 3 x 4
    frame = data.index(b"\xff\xc0")
    data[frame + 8], data[frame + 14] = 24, 0x12
    return bytes(data)


def png_16_bit_rgb(pixels: npt.NDArray[np.uint16]) -> bytes:
    """A PNG of 16 bits a channel, which Pillow cannot write."""
    height, width, _ = pixels.shape
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        [
            png_chunk(b"IHDR", struct.pack(">LLBBBBB", width, height, 16, 2, 0, 0, 0)),
            png_chunk(b"IDAT", zlib.compress(rows)),
            png_chunk(b"IEND", b""),
        ]
    )


def png_chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">L", len(content)) + kind + content + struct.pack(">L", zlib.crc32(kind + content))


def tiff(
    pixels: npt.NDArray[Any],
    *,
    order: str = "<",
    bits: int | None = None,
    photometric: int | None = None,
    sample_format: int | None = None,
) -> bytes:
    """An uncompressed TIFF of one strip; `bits` and `photometric` where they are not what `pixels` suggest."""
    height, width, channels = pixels.shape
    content = pixels.astype(pixels.dtype.newbyteorder(order)).tobytes()
    bits = bits or 8 * pixels.itemsize
    photometric = photometric if photometric is not None else (2 if channels == 3 else 1)
    bits_at = 8 + len(content)
    tags = [
        (256, 4, 1, width),
        (257, 4, 1, height),
        (258, 3, channels, bits_at) if channels > 2 else (258, 3, 1, bits),
        (259, 3, 1, 1),
        (262, 3, 1, photometric),
        (273, 4, 1, 8),
        (277, 3, 1, channels),
        (278, 4, 1, height),
        (279, 4, 1, len(content)),
        *([] if sample_format is None else [(339, 3, 1, sample_format)]),
    ]
    entries = b"".join(
        struct.pack(order + "HHL", *head)
        + (struct.pack(order + "HH", value, 0) if head[1:] == (3, 1) else struct.pack(order + "L", value))
        for *head_list, value in tags
        for head in [tuple(head_list)]
    )
    bits_block = struct.pack(f"{order}{channels}H", *[bits] * channels)
    mark = b"II" if order == "<" else b"MM"
    start = mark + struct.pack(order + "HL", 42, bits_at + len(bits_block))
    return start + content + bits_block + struct.pack(order + "H", len(tags)) + entries + bytes(4)


def bomb_jpeg() -> bytes:
    """A small JPEG that claims 60000x60000 pixels."""
    data = bytearray(encoded(scene(16, 16), "JPEG"))
    frame = data.index(b"\xff\xc0")
    data[frame + 5 : frame + 9] = struct.pack(">HH", 60000, 60000)
    return bytes(data)


def bomb_png() -> bytes:
    """A small PNG that claims 60000x60000 pixels."""
    header = png_chunk(b"IHDR", struct.pack(">LLBBBBB", 60000, 60000, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + png_chunk(b"IDAT", zlib.compress(bytes(10_000))) + png_chunk(b"IEND", b"")


@made_once
def bad_files() -> dict[str, tuple[bytes, str]]:
    """Files that no reader should take: name -> (bytes, a pattern of the reason that is told)."""
    photo = encoded(scene(120, 160), "JPEG", quality=90)
    drawing = encoded(scene(120, 160), "PNG")
    return {
        "empty.jpg": (b"", r"the file is empty \(0 bytes\)"),
        "text.jpg": (b"Hello, this is no picture\n", r"not a picture: it begins with b'Hello, .*looks like text"),
        "noise.jpg": (bytes(range(200, 250)), r"not a picture: it begins with b'\\xc8\\xc9.*; JPEG, PNG"),
        "truncated.jpg": (photo[: len(photo) * 2 // 3], r"truncated JPEG: Premature end of JPEG file"),
        "start.jpg": (photo[:100], r"truncated JPEG: its 100 bytes end before the first scan"),
        "truncated.png": (drawing[: len(drawing) // 2], r"truncated PNG: "),
        "bomb.jpg": (
            bomb_jpeg(),
            r"claims 60000x60000 = 3600000000 pixels, more than max_pixels=\d+; raise max_pixels",
        ),
        "bomb.png": (bomb_png(), r"claims 60000x60000 = 3600000000 pixels, more than max_pixels=\d+; raise max_pixels"),
        "float.tif": (encoded(Image.new("F", (5, 4)), "TIFF"), r"its mode 'F' .* save it as 8-bit or unsigned 16-bit"),
        "signed.tif": (
            tiff(np.full((4, 5, 1), -3, np.int8), sample_format=2),
            r"its numbers of 8 bits are signed.*; save it as 8-bit or unsigned 16-bit",
        ),
        "half.tif": (
            tiff(np.ones((4, 5, 1), np.float16), sample_format=3),
            r"a kind of TIFF that Pillow does not read .*; save it as 8-bit or unsigned 16-bit",
        ),
    }


@made_once
def odd_files() -> dict[str, tuple[bytes, tuple[int, int]]]:
    """Files that must be read, name -> (bytes, upright height and width): odd kinds, sizes, and wrong extensions."""
    image = Image.fromarray(scene(40, 60))
    return {
        "gray.jpg": (encoded(image.convert("L"), "JPEG"), (40, 60)),
        "cmyk.jpg": (encoded(image.convert("CMYK"), "JPEG"), (40, 60)),
        "progressive.jpeg": (encoded(image, "JPEG", progressive=True), (40, 60)),
        "turned.jpg": (encoded(image, "JPEG", exif=exif(6)), (60, 40)),
        "png named.jpg": (encoded(image, "PNG"), (40, 60)),
        "webp named.JPEG": (encoded(image, "WEBP"), (40, 60)),
        "gif named.png": (encoded(image, "GIF"), (40, 60)),
        "bmp named.jpg": (encoded(image, "BMP"), (40, 60)),
        "tiff named.jpg": (encoded(image, "TIFF"), (40, 60)),
        "jpeg named.png": (encoded(image, "JPEG"), (40, 60)),
        "palette.png": (encoded(image.quantize(16), "PNG"), (40, 60)),
        "alpha.png": (encoded(image.convert("RGBA"), "PNG"), (40, 60)),
        "sixteen bits.png": (png_16_bit_rgb(scene(40, 60).astype(np.uint16) * 257), (40, 60)),
        "one pixel.png": (encoded(scene(1, 1), "PNG"), (1, 1)),
        "one pixel.jpg": (encoded(scene(1, 1), "JPEG"), (1, 1)),
        "long.jpg": (encoded(scene(1, 5000), "JPEG"), (1, 5000)),
        "tall.png": (encoded(scene(5000, 1), "PNG"), (5000, 1)),
        "Фото № 1 – été 写真.jpg": (encoded(image, "JPEG"), (40, 60)),
    }


def write_files(folder: Path, files: dict[str, bytes]) -> list[Path]:
    """Write name -> bytes below `folder`; returns the paths in the order given."""
    paths = [folder / name for name in files]
    for path, data in zip(paths, files.values(), strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return paths


def corruptions(data: bytes, num: int, seed: int) -> Iterator[bytes]:
    """`num` damaged copies: flipped bits, cut ends, lost bytes, overwritten bytes; half of them near the start."""
    rng = random.Random(seed)
    for index in range(num):
        damaged = bytearray(data)
        reach = min(len(data), 400) if rng.random() < 0.5 else len(data)
        match index % 4:
            case 0:
                for _ in range(rng.choice((1, 1, 3, 20))):
                    damaged[rng.randrange(reach)] ^= 1 << rng.randrange(8)
            case 1:
                del damaged[rng.randrange(reach) :]
            case 2:
                start = rng.randrange(reach)
                del damaged[start : start + rng.randint(1, 8)]
            case _:
                for _ in range(rng.choice((1, 2, 4))):
                    damaged[rng.randrange(reach)] = rng.choice((0x00, 0x01, 0x7F, 0x80, 0xFF))
        yield bytes(damaged)
