"""What is said where masks of two labels have the default label beyond the image."""

import logging
import threading
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.planning.targets.masks import shown_pixels
from augpipe.planning.targets.options import TargetOptions

logger = logging.getLogger("augpipe")

_looking = threading.Lock()
"""Threads look one after another: two would both warn."""
_looks_left = 64
"""How many more masks of this process are looked at; none once it was said, or a mask of classes was seen."""
_ones_seen = 0
_LARGEST = 1, 255
_ENOUGH_ONES = 8
"""Masks of 0 and 1 before anything is said: a data set of more classes also has such ones."""


def tell_of_fill(mask: npt.NDArray[Any], row: npt.NDArray[np.void], options: TargetOptions) -> None:
    """Warn, once a process, where a mask of 0 and 255, or of 0 and 1, shows what lies beyond the image as 255.

    Whether that is an object or to be ignored, a loss of two classes does not ask. Nothing is said where the user
    chose `mask_fill`, nor of masks of classes, in which 255 is the usual label to ignore.

    Args:
        mask: (height, width, ..) of an image.
        row: the image's (1,) plan record.
        options: of the loader or the call.
    """
    global _looks_left
    is_chosen = "mask_fill" in options.model_fields_set or options.mask_border != "fill"
    if not _looks_left or is_chosen or mask.dtype.kind == "b" or not mask.size:
        return
    if not _looking.acquire(timeout=1):  # a fork copied it while it was held
        _looks_left = 0
        return
    try:
        is_told = _is_told(mask, row, holes=options.mask_holes)
    finally:
        _looking.release()
    if is_told:
        logger.warning(
            "masks of 0 and %g also show 255 where there is no image%s, which a loss has to ignore. With "
            'targets=TargetOptions(mask_fill=0) they show 0 there; mask_border="image" mirrors them where pixels are '
            "mirrored; mask_fill=255 keeps it.",
            mask.max(),
            " or a hole" if options.mask_holes else "",
        )


def _is_told(mask: npt.NDArray[Any], row: npt.NDArray[np.void], *, holes: bool) -> bool:
    """Count a mask; whether it is the one to be told of."""
    global _looks_left, _ones_seen
    if not _looks_left:
        return False  # said meanwhile
    _looks_left -= 1
    largest = mask.max()
    if largest == 0:
        return False  # an image without objects
    _ones_seen += int(largest == 1)
    if largest not in _LARGEST or not ((mask == 0) | (mask == largest)).all():
        _looks_left = 0
    elif (largest != 1 or _ones_seen >= _ENOUGH_ONES) and (shown_pixels(row, fills=True, holes=holes) < 0).any():
        _looks_left = 0
        return True
    return False
