"""An image as it is stored, for sheets and thumbnails."""

import numpy as np
import numpy.typing as npt

from augpipe.decoding import MAX_PIXELS, decode, probe
from augpipe.sources.protocol import Pixels, Source


def whole_image(source: Source, sample_id: int) -> Pixels:
    """(H, W, 3) uint8 of an image as it is stored, upright.

    Raises:
        ValueError: it cannot be decoded.
        OSError: it cannot be read.
    """
    content = source.read(sample_id)
    if isinstance(content, np.ndarray):
        shaped: npt.NDArray[np.uint8] = content[:, :, None] if content.ndim == 2 else content
        return np.repeat(shaped, 3, axis=2) if shaped.shape[2] == 1 else shaped[:, :, :3]
    return decode(content, probe(content, max_pixels=MAX_PIXELS))[:, :, :3]
