"""Which pixel of a photograph stands for one that lies beyond its border."""

import numpy as np

from augpipe.gpu_ops import sampling
from augpipe.gpu_ops.cuda.functions import function, shared
from augpipe.gpu_ops.cuda.memory import reciprocal

clamp, reflect = shared(sampling.clamp), shared(sampling.reflect)

ONE = np.float32(1.0)
TWO = np.float32(2.0)


@function("int32")
def existing(tap, low, high, reflects):
    """The index of the pixel for a tap, both counted from the row's origin; `low` and `high` are float32 like `tap`."""
    if reflects:
        period = TWO * (high - low + ONE)
        tap = reflect(tap, low, period, reciprocal(period))
    return np.int32(clamp(tap, low, high))
