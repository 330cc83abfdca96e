"""What was found of the images that were opened so far, for as long as a loader lives."""

import numpy as np
import numpy.typing as npt

from augpipe.cache.pixels import Sizes


class SeenSizes:
    """Sizes by sample id; 9 bytes each. Safe from several threads: who reads while another writes finds a size or none.

    Args:
        num_samples: of the source.
    """

    def __init__(self, num_samples: int) -> None:
        # zeroed memory is not touched before it is used
        self._sizes = np.zeros((num_samples, 2), np.int32)
        self._may_scale = np.zeros(num_samples, np.bool_)

    def note(self, sample_id: int, size: tuple[int, int], may_scale: bool) -> None:
        """Remember the size of an image that a recipe can use.

        Args:
            sample_id: which it is.
            size: height and width, upright, in pixels.
            may_scale: whether a plan may have it decoded at a DCT scale.
        """
        self._may_scale[sample_id] = may_scale
        self._sizes[sample_id] = size

    def find(self, sample_ids: npt.NDArray[np.int64]) -> Sizes:
        """The sizes of (B,) samples, 0 for those not seen yet."""
        heights, widths = self._sizes[sample_ids].T.astype(np.int64)
        return Sizes(heights=heights, widths=widths, may_scale=self._may_scale[sample_ids])
