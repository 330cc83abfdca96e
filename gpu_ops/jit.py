"""The decorators of this room: `leaf` for scalar math, `kernel` for the CPU loops that run it, in `subroutine`s."""

from collections.abc import Callable
from typing import Any

from numba import njit

from augpipe.gpu_ops.compiled.cache import KernelCache

leaf = njit(inline="always")
"""Scalars in, a scalar (or a tuple of them) out, and no other option: a CUDA kernel takes the same leaf for the device,
the CPU loop stays vectorised, and `leaf.py_func` is the oracle in plain Python."""

_SETTINGS: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "fastmath": {"contract"},
    "no_cfunc_wrapper": True,  # nothing but Python and kernels calls them
}

subroutine = njit(no_cpython_wrapper=True, **_SETTINGS)
"""What a kernel calls and does not inline: numba's own inlining takes time with the square of a function's length.

Python cannot call it: there is nothing that converts arguments, which would take a fifth of the time to compile it.
"""


def kernel(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a loop over arrays: without the GIL, kept on disk, divisions by zero as in IEEE 754.

    Only `contract` of the fast-math flags is on by default (a*b + c as one operation): it does not depend on where in a
    row a pixel lies, so the same pixel gives the same bits from any thread and in any batch.
    """
    settings = _SETTINGS | options

    def decorate(function: Callable[..., Any]) -> Any:
        compiled = njit(**settings)(function)
        if compiled is not function:  # NUMBA_DISABLE_JIT leaves it as it is
            compiled._cache = KernelCache(compiled)
        return compiled

    return decorate
