"""Which samples stand in one mosaic, where its images meet, and which of them each planned image is."""

import numpy as np
import numpy.typing as npt

from augpipe.gpu_ops.random.philox import draws
from augpipe.ops.mosaic import NUM_CELLS, Mosaic
from augpipe.ops.random_words import RandomWords, stream_id

Ints = npt.NDArray[np.int64]
Rows = npt.NDArray[np.void]

PLACED = np.dtype(
    [
        # whether it is one of a mosaic
        ("applied", np.bool_),
        # which of its images this is: 0 and 1 above, 0 and 2 left of the centre; 0 is the sample's own
        ("cell", np.int8),
        # x and y of the centre, in pixels of the canvas
        ("centre", np.int32, (2,)),
        # of cell 0: the samples in the cells 1, 2 and 3; -1 where there is none
        ("partners", np.int64, (NUM_CELLS - 1,)),
    ]
)
"""The field `mosaic` of the plans of recipes with a mosaic."""


def draw_mosaic(mosaic: Mosaic, seed: int, epoch: int, drawn_by: Ints, *, is_sampled: bool) -> Rows:
    """(B,) `PLACED` of cell 0, drawn by sample id, or in epochs of a sampler by position; without partners."""
    stream = stream_id("mosaic:sampled" if is_sampled else "mosaic")
    words = RandomWords(draws(seed, epoch, drawn_by, stream, 3))
    placed: Rows = np.zeros(len(words), PLACED)
    placed["applied"] = words.happens(0, mosaic.p)
    _, (height, width) = mosaic.canvases
    for axis, side in enumerate((width, height)):
        placed["centre"][:, axis] = np.floor(words.uniform(1 + axis, *mosaic.centre) * side)
    placed["partners"] = -1
    return placed
