"""The record that a plan holds for each sample and view: everything that the kernel needs, and what was drawn."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from augpipe.ops.colour_program import program_fields
from augpipe.ops.frame import Frame
from augpipe.ops.mosaic import Mosaic
from augpipe.planning.fields import FIELD
from augpipe.planning.mixing_draws import MIXED
from augpipe.planning.mosaic_draws import placed_dtype
from augpipe.planning.record_passes import EARLIER, earlier_dtype
from augpipe.recipes.view import View

BORDERS = ("context", "reflect", "edge", "constant", "sharp", "reflect_101", "wrap", "meeting")
"""sharp: as constant, of an image that was padded after it was resized; meeting: of one that meets others."""

INTERPOLATIONS = ("bilinear", "bicubic", "nearest", "sharp bicubic")
"""sharp bicubic: OpenCV's, with a = -0.75."""

PLAN_FIELDS: list[tuple[Any, ...]] = [
    ("sample_id", np.int64),
    ("epoch", np.int64),
    ("view", np.int32),
    # the stored image, upright
    ("height", np.int32),
    ("width", np.int32),
    # the output image
    ("out_height", np.int32),
    ("out_width", np.int32),
    # left, top, right, bottom of what the crops keep of the image, without padding, in source pixels
    ("crop", np.float64, (4,)),
    # x, y of the source pixel that `after` counts from; a multiple of 8
    ("origin", np.int32, (2,)),
    # output pixel from the frame's centre -> lens coordinates (radius 1 at the frame's corner)
    ("before", np.float64, (2, 2)),
    # what is added to that, and what the sum is divided by: along x, along y and at the frame's centre
    ("before_offset", np.float64, (2,)),
    ("before_divisor", np.float64, (3,)),
    # k1, k2, k3, p1, p2; all zero: no lens
    ("lens", np.float64, (5,)),
    # lens coordinates -> source pixel from `origin`
    ("after", np.float64, (2, 3)),
    # index into INTERPOLATIONS
    ("interpolation", np.int8),
    # source pixels from one output pixel to the next along x and y, at least 1, as far as shrinking averages over them
    ("support", np.float64, (2,)),
    # half-width of what blurs it further, added in quadrature; 0 where nothing does
    ("blur", np.float64, (2,)),
    # radius where it begins, strength at the corner
    ("vignette", np.float64, (2,)),
    ("cast", np.float64, (3,)),
    ("cast_is_last", np.bool_),
    ("mean", np.float64, (3,)),
    ("std", np.float64, (3,)),
    # index into BORDERS
    ("border", np.int8),
    ("fill", np.float64, (3,)),
]
"""The fields of every plan; `drawn` follows, with one field for each op of the recipe that draws anything, and where
an op bends by a displacement `field`; where colours take more than a cast and a vignette `num_steps`, `steps` and
`tables`; where the recipe mixes, `mixing`; where it makes mosaics, `mosaic`; of a view of several passes, `earlier`:
all else is of its last pass then, save `height` and `width`."""

RECORD = np.dtype(PLAN_FIELDS)
"""What every plan record begins with; a `FIELD` comes next where an op bends."""
RECORD_BYTES = RECORD.itemsize

MAX_DCT_FACTOR = 8
"""The decoder scales by 1/8 at most; origins are multiples of it, so that they stay whole at every scale."""


def plan_dtype(
    view: View, frames: Sequence[Frame], mixes: bool = False, mosaic: Mosaic | None = None
) -> np.dtype[np.void]:
    """The record of a recipe's view: PLAN_FIELDS, what bends it, what its ops draw, and its colours' program; of a view
    of several passes, each with its frame, those of the last one and, as `earlier`, of the others."""
    mixing = [("mixing", MIXED)] if mixes else [("mosaic", placed_dtype(mosaic))] if mosaic is not None else []
    *before, last = frames
    drawn = ("drawn", view.drawn_dtype)
    earlier = [(EARLIER, earlier_dtype([np.dtype(_of_frame(frame)) for frame in before]))] if before else []
    return np.dtype([*_of_frame(last, drawn), *mixing, *earlier])


def _of_frame(frame: Frame, *drawn: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    bends = [("field", FIELD)] if frame.bends is not None else []
    return [*PLAN_FIELDS, *bends, *drawn, *program_fields(frame.steps)]
