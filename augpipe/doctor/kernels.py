"""The compiler of the CPU's kernels, and where compiled ones are kept."""

import os
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from augpipe.doctor.finding import Finding
from augpipe.gpu_ops.jit import CACHE_VARIABLE, cache_folder


def kernels() -> list[Finding]:
    """numba, and the folder of compiled kernels."""
    return [_numba(), kernel_cache()]


def kernel_cache(find: Callable[[], Path | None] = cache_folder) -> Finding:
    """Whether compiled kernels can be kept from one start to the next."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        folder = find()
    if folder is None:
        return Finding(
            name="kernel cache",
            status="missing",
            text=str(caught[-1].message).partition(": they")[0],
            brings="kernels compile at the first start alone, not at every one",
            command=f"export {CACHE_VARIABLE}=/a/folder/that/can/be/written",
        )
    num = len(list(folder.glob("**/*.nbi")))
    held = f"{num} compiled" if num else "empty: the first batch waits for the compiler"
    data = {"folder": str(folder), "num_kernels": num, "variable": os.environ.get(CACHE_VARIABLE)}
    return Finding(name="kernel cache", status="ok", text=f"{folder} ({held})", data=data)


def _numba() -> Finding:
    numba, llvmlite = version("numba"), version("llvmlite")
    return Finding(
        name="numba",
        status="ok",
        text=f"{numba}, llvmlite {llvmlite}; kernels run on augpipe's own threads, not on numba's threading layer",
        is_needed=True,
        data={"numba": numba, "llvmlite": llvmlite},
    )
