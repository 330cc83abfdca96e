"""A tiny CUDA kernel, compiled, linked and launched: what versions alone cannot promise."""

import numpy as np

EXPECTED = 42


def launch_kernel() -> None:
    """Run it on the first device that numba-cuda sees; initialises CUDA, so it is for a process of its own.

    Raises:
        RuntimeError: the kernel ran and wrote something else. Whatever numba-cuda raises goes through.
    """
    from numba import cuda

    def write(out):  # type: ignore[no-untyped-def]
        out[0] = EXPECTED

    memory = cuda.device_array(1, np.int32)
    cuda.jit(write)[1, 1](memory)
    found = int(memory.copy_to_host()[0])
    if found != EXPECTED:
        raise RuntimeError(f"a kernel that writes {EXPECTED} left {found}")
