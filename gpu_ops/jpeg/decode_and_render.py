"""Several JPEGs of a batch in one call: each one's region is decoded, and its views are rendered while it is in the
core's cache."""

from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from augpipe.gpu_ops.image.fused import ROWS_PER_JOB, is_slanted, run_aligned, run_slanted
from augpipe.gpu_ops.jit import kernel
from augpipe.gpu_ops.jpeg.decode_region import decode_region
from augpipe.gpu_ops.jpeg.header import TAKEN

ADDRESS, NUM_BYTES, SIZE, REGION, POSITION, RESULT = 0, 1, 2, 5, 9, 10
"""Where a job holds what, as int64: address and length of a file, its height and width and the DCT factor, left, top,
right and bottom of the region, its place in the batch, and what became of it."""

ROWS, ROW_BYTES, BATCH, HEIGHT, WIDTH = range(5)
"""Where a view holds what, as int64: the address of its table, bytes from row to row there, the address of its images,
and height and width of one."""

FIRST_JOB = np.int64(0)
"""For a literal numba would compile the fused loop once more."""


@intrinsic
def _array_like(typingctx: Any, like: Any, address: Any, num: Any) -> Any:
    """(num,) items at an address, in an array of the type that `like` is of; nobody owns it."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array = context.make_array(like)(context, builder)
        item_bytes = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(like.dtype)))
        populate_array(
            array,
            data=builder.inttoptr(args[1], array.data.type),
            shape=[args[2]],
            strides=[item_bytes],
            itemsize=item_bytes,
            meminfo=None,
        )
        return array._getvalue()

    return like(like, types.intp, types.intp), codegen


@kernel()
def render_files(jobs, views, planar, like, pixels, points, tables):
    """Decode and render; whatever is not TAKEN was not rendered.

    Args:
        jobs: (n, 11) int64, one a file; RESULT is written: TAKEN, LEFT or SMALL, as `decode_region` says.
        views: (v, 5) int64; no row of theirs has a `field`.
        planar: see `fused.run_jobs`.
        like: arrays of the types that files, `KERNEL_ROW`s and images are of.
        pixels: uint32 of each region in turn.
        points, tables: a `Workspace`'s, the first with an entry for each file.
    """
    file_like, rows_like, batch_like = like
    known, positions, predictors = points
    decoded = np.empty((1, 4), np.int64)
    for i in range(len(jobs)):
        job = jobs[i]
        file = _array_like(file_like, job[ADDRESS], job[NUM_BYTES])
        region = job[REGION:POSITION]
        arguments = (known[i], positions[i], predictors[i]) + tables  # as numba does not unpack two in a row
        job[RESULT] = decode_region(file, region, job[SIZE:REGION], pixels, *arguments)
        if job[RESULT] != TAKEN:
            continue
        decoded[0, 0], decoded[0, 1] = pixels.ctypes.data, region[2] - region[0]
        decoded[0, 2], decoded[0, 3] = region[0], region[1]
        for nth in range(len(views)):
            view = views[nth]
            height, width = view[HEIGHT], view[WIDTH]
            num = height * width * 3
            row = _array_like(rows_like, view[ROWS] + job[POSITION] * view[ROW_BYTES], 1)
            image = _array_like(batch_like, view[BATCH] + job[POSITION] * num * batch_like.itemsize, num)
            num_jobs = (height + ROWS_PER_JOB - 1) // ROWS_PER_JOB
            if is_slanted(row[0], height, width, False):
                run_slanted(decoded, row, image, height, width, planar, FIRST_JOB, num_jobs, None)
            else:
                run_aligned(decoded, row, image, height, width, planar, FIRST_JOB, num_jobs, None, None)
