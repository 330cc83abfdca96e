"""Where a plan record fills holes, found by the compiled loops that fill them in images."""

import numpy as np
import numpy.typing as npt

from augpipe.gpu_ops.image.program import take_programs
from augpipe.gpu_ops.image.program_rows import AT_STEPS, DROP, FILL, HOLES, STEP_BYTES, row_dtype

Rows = npt.NDArray[np.void]

SPREAD = slice(7, 10)
"""The numbers of a `FILL` that hold the noise about its levels."""
LEVELS = {FILL: slice(4, 7), HOLES: slice(8, 11), DROP: slice(2, 5)}
"""The steps that fill holes, and which of their numbers hold the levels that they fill with."""


def holes_of_pass(row: Rows) -> npt.NDArray[np.bool_] | None:
    """(H, W) whether a (1,) plan record of one pass fills a pixel of its output; None where it has no holes.

    A pixel of which only some channels are filled counts.
    """
    if "steps" not in (row.dtype.names or ()):
        return None
    steps = row["steps"][0, : int(row["num_steps"][0])]
    steps = steps[np.isin(steps["kind"], list(LEVELS))]
    if not len(steps):
        return None
    program: Rows = np.zeros(1, row_dtype(len(steps), 0))
    header = program["header"]
    header["scale"], header["num_steps"], header["at_tables"] = 1.0, len(steps), AT_STEPS + len(steps) * STEP_BYTES
    program["steps"] = steps
    for step in program["steps"][0]:
        step["numbers"][LEVELS[int(step["kind"])]] = 1.0
        if step["kind"] == FILL:
            step["numbers"][SPREAD] = 0.0
    height, width = int(row["out_height"][0]), int(row["out_width"][0])
    levels = np.zeros(height * width * 3, np.float32)
    take_programs(program, levels, levels, height, width, True)
    found: npt.NDArray[np.bool_] = np.logical_or.reduce(levels.reshape(3, height, width), axis=0)
    return found
