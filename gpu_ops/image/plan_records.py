"""Records of a plan: their fields, and what loops over them are made of."""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from augpipe.gpu_ops.image.rows import NUM_NODES
from augpipe.gpu_ops.jit import leaf

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

FIELD = np.dtype(
    [
        # of `gpu_ops.image.rows`; 0 where nothing bends
        ("kind", np.int8),
        # a displacement -> source pixels
        ("matrix", np.float64, (2, 2)),
        # where in it, in nodes along x and y, lens coordinates (GRID) lie, or pixels from the output's centre
        ("scale", np.float64, (2,)),
        ("origin", np.float64, (2,)),
        # GRID: cells along an axis, and the displacements at their ends
        ("cells", np.int8),
        ("nodes", np.float64, (2, NUM_NODES)),
        # SPLINE: what its nodes are made of; GRID: width and height of cells of whole pixels, 0 for joined ones
        ("key", np.uint32, (2,)),
    ]
)
"""A plan record's `field`."""

BEND = np.dtype(
    [
        ("kind", np.int8),
        ("matrix", np.float64, (2, 2)),
        ("cells", np.int8),
        ("nodes", np.float64, (2, NUM_NODES)),
        ("sides", np.float64, (2,)),
        ("spacing", np.float64, (1,)),
        ("phase", np.float64, (2,)),
        ("key", np.uint32, (2,)),
    ]
)
"""What a displacement does to an image: its kind (of `gpu_ops.image.rows`, 0 for none) and what its numbers mean in
pixels of the frame; a GRID's cells and their ends; width and height of the frame; a SPLINE's spacing in pixels, where
it begins, and its key, which of a GRID is width and height of cells of whole pixels, or 0."""


@intrinsic
def memory_at(typingctx: Any, address: Any) -> Any:
    """The pointer of an address, for `numba.carray`: arrays of one record would be of another type than of more."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.intp), codegen


@intrinsic
def multiply_add(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c, rounded once."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fma(*args)

    return types.float64(types.float64, types.float64, types.float64), codegen


@leaf
def product(first_x, first_y, second_x, second_y):
    """The sum of two products, as BLAS has an entry of the product of two matrices: the second one is not rounded."""
    return multiply_add(first_y, second_y, first_x * second_x)


@leaf
def product_by_vector(first_x, first_y, x, y):
    """The sum of two products, as BLAS has an entry of a matrix times a vector: the first one is not rounded."""
    return multiply_add(first_x, x, first_y * y)
