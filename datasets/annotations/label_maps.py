"""Files with a label of each pixel: which belongs to which image, and how one is read."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from PIL import Image

from augpipe.datasets.annotations.stored_pixels import stored_size, upright_map
from augpipe.datasets.files.image_files import read_file
from augpipe.datasets.metadata.names import NameTable, printable
from augpipe.decoding.pillow import PILLOW_ERRORS, PNG_BITS_AT, open_pillow
from augpipe.decoding.png import check_pixel_sums
from augpipe.decoding.probe import format_of
from augpipe.sources.targets import LabelMap

Encoding = Literal["labels", "ids", "colours"]
"""labels: gray levels, palette numbers, or the colours as they are. ids: R + 256 G + 65536 B, as of COCO's and
Cityscapes' panoptic files. colours: a class for each colour of a list."""
NO_LIMIT = sys.maxsize
"""Pixels of an image whose header is read: the loader has its own limit, and label maps have their image's size."""
_COLOUR_MODES = ("RGB", "RGBA", "RGBX")
_LABEL_MODES = ("P", "L", "1", "I", "I;16", "I;16B", "I;16L")


@dataclass(frozen=True, kw_only=True)
class MapFiles:
    """One file of labels for each of N images."""

    names: NameTable
    """Paths, fit for `open`."""
    encoding: Encoding = "labels"
    colours: Sequence[tuple[int, int, int]] = ()
    """Class number -> its colour, for "colours"."""

    def read(self, sample_id: int, size: tuple[int, int], orientation: int) -> LabelMap:
        """The labels of an upright image of `size`, (H, W) or, of colours as they are, (H, W, 3).

        Args:
            sample_id: the image.
            size: its height and width, upright.
            orientation: EXIF's, of the image: labels lie as the stored pixels do, unless their size says otherwise.

        Raises:
            OSError: the file cannot be read.
            ValueError: it cannot be decoded, or is of another size; names the file.
        """
        path = self.names[sample_id]
        stored = stored_size(size, orientation)
        try:
            labels = self._decode(read_file(path), (size, stored))
        except ValueError as error:
            raise ValueError(f"{printable(path)}: {error}") from error
        if orientation != 1 and labels.shape[:2] == stored:
            labels = upright_map(labels, orientation)
        return labels

    def holds_colours(self, sample_id: int) -> bool:
        """Whether a file has three numbers a pixel; False where it cannot be read."""
        try:
            content = read_file(self.names[sample_id])
            return open_pillow(content, format_of(content), NO_LIMIT)[0].mode in _COLOUR_MODES
        except (OSError, ValueError):
            return False

    def _decode(self, content: bytes, sizes: tuple[tuple[int, int], ...]) -> LabelMap:
        kind = format_of(content)
        if kind == "JPEG":
            raise ValueError("labels in a JPEG are not those that were drawn. Write them as PNG.")
        if kind == "PNG":
            check_pixel_sums(content)
        opened, _ = open_pillow(content, kind, NO_LIMIT)
        image: Image.Image = opened
        if (image.height, image.width) not in sizes:
            expected = f"{sizes[0][1]}x{sizes[0][0]}"
            raise ValueError(f"it has {image.width}x{image.height} pixels, and its image {expected}.")
        if image.mode not in (*_LABEL_MODES, *_COLOUR_MODES, "LA"):
            raise ValueError(
                f"its mode {image.mode!r} is not one of label maps. Write it as PNG: gray, with a palette, or in RGB."
            )
        try:
            if image.mode == "LA":
                image = image.getchannel("L")
            levels = np.asarray(image if image.mode in _LABEL_MODES else image.convert("RGB"))
            if image.mode == "L" and kind == "PNG" and content[PNG_BITS_AT] in (2, 4):
                levels = levels // (255 // (2 ** content[PNG_BITS_AT] - 1))  # Pillow stretches them to 0..255
        except PILLOW_ERRORS as error:
            raise ValueError(f"damaged {opened.format}: {error}") from error
        if levels.dtype == np.bool_:
            levels = levels.astype(np.uint8)
        if self.encoding == "labels":
            return levels
        if levels.ndim == 2:
            raise ValueError(
                "it holds numbers, gray or of a palette, and no colours. Write it in RGB; a LabelMapSource reads "
                'numbers with encoding="labels".'
            )
        ids = levels.astype(np.int32) @ np.array([1, 256, 65536], np.int32)
        return ids if self.encoding == "ids" else self._classes_of(ids)

    def _classes_of(self, ids: LabelMap) -> LabelMap:
        known = np.array([red + 256 * green + 65536 * blue for red, green, blue in self.colours], np.int64)
        order = np.argsort(known)
        places = np.minimum(np.searchsorted(known[order], ids), len(known) - 1)
        classes = order[places]
        is_unknown = known[classes] != ids
        if is_unknown.any():
            found = int(ids[is_unknown][0])
            colour = found & 255, found >> 8 & 255, found >> 16
            raise ValueError(f"the colour {colour} is none of the {len(known)} given. Add it to colours.")
        return classes.astype(np.uint8 if len(known) <= 256 else np.int32)
