"""Where compiled kernels lie, and what they are made of and for."""

import hashlib
import os
import platform
import sys
import tempfile
import warnings
from functools import lru_cache
from pathlib import Path

import llvmlite
import numba
from llvmlite.binding import get_host_cpu_features, get_host_cpu_name

CACHE_VARIABLE = "AUGPIPE_CACHE_DIR"

SOURCES = Path(__file__).parent.parent
"""The folder of all that kernels are made of."""

PREBUILT = Path(__file__).parent / "prebuilt"
"""The kernels that a wheel carries: a folder for each level of CPU. There is none in a clone."""

_V3 = (
    "avx avx2 bmi bmi2 cmov cx16 cx8 f16c fma fxsr lzcnt mmx movbe popcnt sahf sse sse2 sse3 sse4.1 sse4.2 ssse3 xsave"
)
LEVELS = {
    "x86-64-v4": (*_V3.split(), "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"),
    "x86-64-v3": tuple(_V3.split()),
}
"""Levels of CPUs that wheels carry kernels for, the best first, and what a CPU of the level has, in LLVM's words."""


def host_level() -> str | None:
    """The best of `LEVELS` that this machine is; None where it is below all, or does not run Linux on x86-64."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return None
    has = get_host_cpu_features()
    return next((level for level, features in LEVELS.items() if all(map(has.get, features))), None)


def target_cpu() -> str:
    """The CPU that numba compiles for in this process: the machine's own, or the one that the user names."""
    return str(numba.config.CPU_NAME or get_host_cpu_name())


def compilers() -> str:
    """What else decides how a kernel comes out, and whether it can be read."""
    python = ".".join(platform.python_version_tuple()[:2])
    return f"numba {numba.__version__}, llvmlite {llvmlite.__version__}, Python {python}"


def sources_digest(folder: Path, *made_by: str) -> str:
    """Hash of every source in `folder` and below, of the compilers for the CPU, and of what else kernels are `made_by`.

    numba itself does not see that a leaf in another file has changed.
    """
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.relative_to(folder).as_posix().encode())
        digest.update(path.read_bytes())
    digest.update(" ".join([compilers(), *made_by]).encode())
    return digest.hexdigest()[:16]


@lru_cache
def kernels_digest(cpu: str) -> str:
    """What tells the kernels of these sources and compilers for a CPU (or a level) from all others."""
    return sources_digest(SOURCES, cpu)


@lru_cache
def kernels_folder() -> Path | None:
    """The folder of the kernels that are compiled on this machine; None, with a warning, where there can be none."""
    return cache_folder(f"kernels-{kernels_digest(target_cpu())}")


def cache_folder(name: str) -> Path | None:
    """Where compiled code is kept: the folder `name` below `$AUGPIPE_CACHE_DIR`, else below the user's cache folder.

    Returns None, with a warning, where that cannot be written: kernels then compile at every start. A shared temporary
    folder is not used instead: what lies there is code, and anybody could have put it there.
    """
    chosen = os.environ.get(CACHE_VARIABLE)
    folder = Path(chosen or os.environ.get("XDG_CACHE_HOME") or "~/.cache") / ("" if chosen else "augpipe") / name
    try:
        folder = folder.expanduser()  # RuntimeError where the user has no home, as some containers' users
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except (OSError, RuntimeError) as error:
        warnings.warn(
            f"compiled kernels cannot be kept in {folder} ({error}): they are compiled at every start, which takes up "
            f"to a minute. Set {CACHE_VARIABLE} to a folder that can be written.",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
