"""Encode an image as a JPEG for a shard."""

import io
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
from PIL import Image

Subsampling = Literal["4:2:0", "4:2:2", "4:4:4"]
MAX_SIDE = 65_500
"""The largest side of a JPEG in pixels; libjpeg's own limit."""


def encode_jpeg(
    image: Image.Image | npt.NDArray[np.uint8], quality: int = 90, *, subsampling: Subsampling = "4:2:0"
) -> bytes:
    """A baseline JPEG with the standard's own Huffman tables.

    The bytes are a function of the pixels, the arguments and the versions of Pillow and its libjpeg-turbo.

    Args:
        image: mode RGB or L; or uint8 (H, W, 3) RGB, or (H, W) gray. Notes and profiles are not kept.
        quality: 1 to 100, as libjpeg counts.
        subsampling: of the chroma; a gray image has none.

    Raises:
        ValueError: an argument is out of range, or the image is of another mode, empty or too large.
    """
    checked = _checked(image, quality, subsampling)
    file = io.BytesIO()
    sampled = subsampling if checked.mode == "RGB" else -1  # libjpeg's default, which for gray is none
    # Pillow writes the comment of the file that an image is from, unless told that there is none
    checked.save(file, "JPEG", quality=quality, subsampling=sampled, comment=None)
    return file.getvalue()


def _checked(image: Image.Image | npt.NDArray[np.uint8], quality: int, subsampling: str) -> Image.Image:
    if not 1 <= quality <= 100:
        raise ValueError(f"quality={quality} is not within 1..100")
    if subsampling not in get_args(Subsampling):
        raise ValueError(f"subsampling={subsampling!r} is none of {', '.join(get_args(Subsampling))}")
    if isinstance(image, np.ndarray):
        if image.dtype != np.uint8 or not (image.ndim == 2 or (image.ndim == 3 and image.shape[2] == 3)):
            raise ValueError(f"an array must be uint8 (H, W, 3) or (H, W), and is {image.dtype} {image.shape}")
        image = Image.fromarray(image)
    if image.mode not in ("RGB", "L"):
        raise ValueError(f"mode {image.mode!r} is neither RGB nor L; convert the picture first")
    if image.width == 0 or image.height == 0:
        raise ValueError(f"a picture of {image.width}x{image.height} has no pixels")
    if max(image.size) > MAX_SIDE:
        raise ValueError(
            f"{image.width}x{image.height} pixels: a JPEG has at most {MAX_SIDE} along each side; give a smaller image"
        )
    return image
