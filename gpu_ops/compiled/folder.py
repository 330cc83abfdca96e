"""Where compiled kernels lie, and from which sources and for which CPU they were made."""

import atexit
import hashlib
import logging
import os
import platform
import shutil
import stat
import sys
import tempfile
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

import llvmlite
import numba
from llvmlite.binding import get_host_cpu_features, get_host_cpu_name

from augpipe.gpu_ops.compiled.sealed import OTHERS_WRITE

logger = logging.getLogger("augpipe")

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


_private: list[Path] = []
"""The folder that this process has made because none that lasts could be written; one at most."""


def host_level() -> str | None:
    """The best of `LEVELS` that this machine is; None where it is below all, or does not run Linux on x86-64."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return None
    has = get_host_cpu_features()
    return next((level for level, features in LEVELS.items() if all(map(has.get, features))), None)


def target_cpu() -> str:
    """The CPU that numba compiles for in this process: the machine's own, or the one that the user names."""
    return str(numba.config.CPU_NAME or _host_cpu())


@lru_cache
def _host_cpu() -> str:
    """Asked for once: llvmlite takes a lock, which a forked process may find held by a thread that it does not have."""
    return str(get_host_cpu_name())


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
    """Where this process, and those that it starts, put the kernels that they compile.

    It lasts where one can be had (`lasting_folder`); else it is this process's own, which is removed when it ends. None
    where there can be neither.
    """
    lasting = lasting_folder()
    if lasting is not None:
        return lasting
    private = _private_folder()
    return None if private is None else private / kernels_name()


@lru_cache
def lasting_folder() -> Path | None:
    """The folder of this machine's kernels, to write; None, with a line in the log, where it cannot be written."""
    return cache_folder(kernels_name())


def readable_folders() -> list[Path]:
    """Where kernels of this machine may lie, the lasting ones first; see `readable_folder`."""
    found = [readable_folder(kernels_name())]
    if _private:
        found.append(_private[0] / kernels_name())
    return [folder for folder in found if folder is not None]


def kernels_name() -> str:
    """The name of the folder of kernels for this CPU."""
    return f"kernels-{kernels_digest(target_cpu())}"


def cache_place(name: str) -> Path:
    """Where the folder `name` lies: below `$AUGPIPE_CACHE_DIR`, else below the user's cache folder.

    Raises:
        RuntimeError: the user has no home, as some containers' users.
    """
    chosen = os.environ.get(CACHE_VARIABLE)
    folder = Path(chosen or os.environ.get("XDG_CACHE_HOME") or "~/.cache") / ("" if chosen else "augpipe") / name
    return folder.expanduser()


def cache_folder(name: str) -> Path | None:
    """`cache_place`, to write compiled code there.

    Returns None, with a line in the log, where that cannot be written, or others can write it too. A shared temporary
    folder is not used instead: what lies there is code, and anybody could have put it there.
    """
    try:
        folder = cache_place(name)
        problem = why_not_kept(folder)
    except RuntimeError as error:
        folder, problem = Path("~/.cache"), str(error)
    if problem is None:
        return folder
    _say_once(
        f"compiled kernels cannot be kept in {folder} ({problem}): they are compiled at every start, which takes up to "
        f"a minute. Set {CACHE_VARIABLE} to a folder that can be written, by you only."
    )
    return None


def why_not_kept(folder: Path) -> str | None:
    """Why no code is put into a folder of `cache_place`; None where it is, and the folder is there then.

    Only its owner can write to one that is made. Other users can read it if it was chosen, as for a container's image.
    """
    mode = 0o755 if os.environ.get(CACHE_VARIABLE) else 0o700
    try:
        for made in (folder.parent, folder):
            made.mkdir(mode=mode, parents=True, exist_ok=True)
        problem = _why_not_trusted(folder)
        if problem is None:
            with tempfile.TemporaryFile(dir=folder):
                pass
        return problem
    except OSError as error:
        return str(error)


def readable_folder(name: str) -> Path | None:
    """`cache_place`, to load machine code from; None where there is none, or none that is to be trusted.

    It is read only where it belongs to this user or to root, and nobody else may write into it; the same holds for each
    file, see `is_readable`.
    """
    try:
        folder = cache_place(name)
        problem = _why_not_trusted(folder)
    except (OSError, RuntimeError):
        return None  # not there
    if problem is None:
        return folder
    if not _may_write(folder):  # else `cache_folder` says it
        _say_once(f"compiled kernels in {folder} are not used: {problem}, and they are machine code")
    return None


def is_readable(file: Path) -> bool:
    """Whether a kernel's file is there, and to be trusted as `readable_folder` says."""
    try:
        return file.is_file() and _why_not_trusted(file) is None
    except OSError:
        return False


def _may_write(folder: Path) -> bool:
    return os.access(folder, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def _why_not_trusted(path: Path) -> str | None:
    """Why somebody else may have put code there; None where only this user or root can have done so.

    A folder of this user's that a umask of 002 has opened to others is closed to them.
    """
    if not hasattr(os, "geteuid"):
        return None  # Windows, whose modes do not tell
    status, user = os.stat(path), os.geteuid()
    if status.st_uid not in (0, user):
        return f"it belongs to the user {status.st_uid}, and this is {user}"
    if status.st_uid == user and stat.S_ISDIR(status.st_mode) and status.st_mode & OTHERS_WRITE:
        with suppress(OSError):
            os.chmod(path, stat.S_IMODE(status.st_mode) & ~OTHERS_WRITE)
            status = os.stat(path)
    return "it can be written by others" if status.st_mode & OTHERS_WRITE else None


def _private_folder() -> Path | None:
    """A new folder that only this user can read, for as long as this process lives; None where there can be none."""
    if not _private:
        try:
            folder = Path(tempfile.mkdtemp(prefix="augpipe-"))
            (folder / kernels_name()).mkdir(mode=0o700)
        except OSError:
            return None
        _private.append(folder)
        atexit.register(_remove, folder, os.getpid())
    return _private[0]


def _remove(folder: Path, process: int) -> None:
    if os.getpid() == process:  # and not in one that was forked from it
        shutil.rmtree(folder, ignore_errors=True)


@lru_cache
def _say_once(text: str) -> None:
    logger.warning("%s", text)
