"""The decoders of the native backend, each tried on an image."""

import io
from collections.abc import Callable
from importlib.metadata import version

import numpy as np
import numpy.typing as npt
from PIL import Image

from augpipe.decoding import MAX_PIXELS, decode, probe
from augpipe.doctor.finding import Finding
from augpipe.gpu_ops.jpeg.workspace import HAS_WIDE_VECTORS

SHAPE = (48, 64, 3)
_TOLERANCE = 8  # levels that JPEG may change in a smooth image


def decoders() -> list[Finding]:
    """Our own and libjpeg-turbo for JPEGs, Pillow for the rest."""
    by = f"simplejpeg {version('simplejpeg')} (libjpeg-turbo)"
    if HAS_WIDE_VECTORS:
        by = f"augpipe's own decoder, and {by} for other files"
    else:
        by += ", as this CPU has no AVX2 for augpipe's own decoder"
    return [
        tried("JPEG", by, jpeg_bytes()),
        tried("other formats", f"Pillow {version('pillow')}", _png_bytes()),
    ]


def tried(name: str, by: str, data: bytes, decoded: Callable[[bytes], npt.NDArray[np.uint8]] | None = None) -> Finding:
    """Whether `data`, a file of `image()`, decodes to it."""
    pixels = (decoded or _decode)(data)
    if pixels.shape[:2] != SHAPE[:2] or np.abs(pixels[..., :3].astype(int) - picture()).max() > _TOLERANCE:
        return Finding(name=name, status="broken", text=f"{by} decodes a test picture wrongly", is_needed=True)
    return Finding(name=name, status="ok", text=f"{by}, decoded a test picture", is_needed=True)


def picture() -> npt.NDArray[np.uint8]:
    """A smooth (48, 64, 3) image, which JPEG hardly changes."""
    rows, columns = np.mgrid[: SHAPE[0], : SHAPE[1]]
    return np.stack([rows * 4, columns * 3, rows + columns], axis=-1).astype(np.uint8)


def jpeg_bytes() -> bytes:
    """`image()` as a JPEG that every decoder takes."""
    file = io.BytesIO()
    Image.fromarray(picture()).save(file, "JPEG", quality=95, subsampling=0)
    return file.getvalue()


def _png_bytes() -> bytes:
    file = io.BytesIO()
    Image.fromarray(picture()).save(file, "PNG")
    return file.getvalue()


def _decode(data: bytes) -> npt.NDArray[np.uint8]:
    return decode(data, probe(data, max_pixels=MAX_PIXELS))
