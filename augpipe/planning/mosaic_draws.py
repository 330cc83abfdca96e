"""Which samples stand in one mosaic, where its images lie, and which of them each planned image is."""

import numpy as np
import numpy.typing as npt

from augpipe.gpu_ops.random.philox import draws
from augpipe.ops.mosaic import Mosaic
from augpipe.ops.random_words import RandomWords, stream_id

Ints = npt.NDArray[np.int64]
Rows = npt.NDArray[np.void]


def placed_dtype(mosaic: Mosaic) -> np.dtype[np.void]:
    """The field `mosaic` of the plans of recipes with a mosaic."""
    return np.dtype(
        [
            # whether it is one of a mosaic
            ("applied", np.bool_),
            # which of its images this is, see `Mosaic.places`; 0 is the sample's own
            ("cell", np.int8),
            # x and y of the centre, in pixels of the canvas
            ("centre", np.int32, (2,)),
            # left, top, right and bottom of the image, in pixels of the canvas
            ("place", np.int32, (4,)),
            # of cell 0: the samples in the cells from 1 on; -1 where there is none
            ("partners", np.int64, (mosaic.num_images - 1,)),
        ]
    )


def draw_mosaic(mosaic: Mosaic, seed: int, epoch: int, drawn_by: Ints, *, is_sampled: bool) -> Rows:
    """(B,) `placed_dtype` of cell 0, drawn by sample id, or in epochs of a sampler by position; without places and
    partners."""
    stream = stream_id("mosaic:sampled" if is_sampled else "mosaic")
    words = RandomWords(draws(seed, epoch, drawn_by, stream, 3))
    placed: Rows = np.zeros(len(words), placed_dtype(mosaic))
    placed["applied"] = words.happens(0, mosaic.p)
    _, (height, width) = mosaic.canvases
    for axis, side in enumerate((width, height)):
        placed["centre"][:, axis] = np.floor(words.uniform(1 + axis, *mosaic.centre) * side)
    placed["partners"] = -1
    return placed


def write_places(mosaic: Mosaic, placed: Rows, owners: Ints, sizes: Ints) -> Rows:
    """The same (n,) records with their places; (n,) numbers of mosaics and (n, 2) sizes of images, see
    `Mosaic.places`."""
    placed = placed.copy()
    placed["place"] = mosaic.places(placed["applied"], placed["centre"], placed["cell"], owners, sizes)
    return placed
