"""The decorators of this room: `leaf` for scalar math, `kernel` for the CPU loops that run it, in `subroutine`s."""

import hashlib
import os
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llvmlite
import numba
from llvmlite.binding import get_host_cpu_name
from numba import config, njit

leaf = njit(inline="always")
"""Scalars in, a scalar (or a tuple of them) out, and no other option: a CUDA kernel takes the same leaf for the device,
the CPU loop stays vectorised, and `leaf.py_func` is the oracle in plain Python."""

CACHE_VARIABLE = "AUGPIPE_CACHE_DIR"


SOURCES = Path(__file__).parent
"""The folder of all that kernels are made of."""


def sources_digest(folder: Path, *made_by: str) -> str:
    """Hash of every source in `folder` and below, of the compilers for the CPU, and of what else kernels are `made_by`.

    numba itself does not see that a leaf in another file has changed.
    """
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.relative_to(folder).as_posix().encode())
        digest.update(path.read_bytes())
    versions = [numba.__version__, llvmlite.__version__, get_host_cpu_name(), *made_by]
    digest.update(" ".join(versions).encode())
    return digest.hexdigest()[:16]


def cache_folder(name: str | None = None) -> Path | None:
    """Where compiled kernels are kept: below `$AUGPIPE_CACHE_DIR`, else below the user's cache folder.

    Returns None, with a warning, where that cannot be written: kernels then compile anew at every start. A shared
    temporary folder is no way out: what lies there is code, and anybody could have put it there.

    Args:
        name: the folder's own; None for the one of the CPU's kernels.
    """
    chosen = os.environ.get(CACHE_VARIABLE)
    folder = Path(chosen or os.environ.get("XDG_CACHE_HOME") or "~/.cache") / ("" if chosen else "augpipe")
    folder /= name or f"kernels-{sources_digest(SOURCES)}"
    try:
        folder = folder.expanduser()  # RuntimeError where the user has no home, as some containers' users
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except (OSError, RuntimeError) as error:
        warnings.warn(
            f"compiled kernels cannot be kept in {folder} ({error}): they compile anew at every start, which takes "
            f"some seconds. Set {CACHE_VARIABLE} to a folder that can be written.",
            RuntimeWarning,
            stacklevel=2,
        )
        return None


_CACHE_FOLDER = cache_folder()


_SETTINGS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": {"contract"}}

subroutine = njit(**_SETTINGS)
"""What a kernel calls and does not inline: numba's own inlining takes time with the square of a function's length."""


def kernel(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a loop over arrays: without the GIL, kept on disk, divisions by zero as in IEEE 754.

    Only `contract` of the fast-math flags is on by default (a*b + c as one operation): it does not depend on where in a
    row a pixel lies, so the same pixel gives the same bits from any thread and in any batch.
    """
    settings = _SETTINGS | options

    def decorate(function: Callable[..., Any]) -> Any:
        if _CACHE_FOLDER is None:
            return njit(**settings)(function)
        # numba reads its cache folder when it decorates; the user's own setting is for the user's own kernels
        previous = config.CACHE_DIR
        config.CACHE_DIR = str(_CACHE_FOLDER)
        try:
            return njit(cache=True, **settings)(function)
        finally:
            config.CACHE_DIR = previous

    return decorate
