"""What kernels call: the CPU's leaves, and functions of the kernels' own, which are compiled apart and then inlined.

numba inlines leaves in its own representation, at a cost that grows with the square of the caller: one kernel of leaves
alone took 45 s to compile. So what calls leaves is cut into functions that LLVM inlines, and a kernel calls those.
numba-cuda's own device functions would not do: they ask for a device, and tests compile where there is none.
"""

from collections.abc import Callable
from typing import Any

from numba import config

IS_SIMULATED = bool(config.ENABLE_CUDASIM)
"""Whether addresses are of host memory, for numba's simulator to work on: set by NUMBA_ENABLE_CUDASIM=1 in the
environment, before numba is first imported."""


def shared(leaf: Any) -> Any:
    """A leaf of the CPU's for a kernel; in the simulator its plain Python, since compiled it hands float64 back."""
    return leaf.py_func if IS_SIMULATED else leaf


def function(*returned: str) -> Callable[[Callable[..., Any]], Any]:
    """A function that kernels call, with the types it returns: none, one, or a tuple of several."""

    def decorate(body: Callable[..., Any]) -> Any:
        if IS_SIMULATED:
            return body
        from augpipe.gpu_ops.cuda.subroutine import subroutine

        return subroutine(body, returned)

    return decorate
