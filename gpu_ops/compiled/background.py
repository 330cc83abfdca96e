"""Kernels are compiled by processes of their own, while this one goes on without them."""

import atexit
import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from numba.core.registry import cpu_target
from numba.core.runtime import rtsys

from augpipe.gpu_ops.compiled.cache import PATIENCE_S, find, say_compiling
from augpipe.gpu_ops.compiled.declared import Overload, overloads
from augpipe.gpu_ops.compiled.folder import CACHE_VARIABLE, kernels_folder, lasting_folder
from augpipe.gpu_ops.compiled.lock import POLL_S

_ROOT = Path(__file__).parents[3]
"""What stands on the path of modules where this package is found; see `_start`."""

_SELDOM = (200_000, 5, 100)
"""When to look for garbage: numba's graphs are large and little of them is garbage; it took a fifth of the time."""

_processes: dict[str, "subprocess.Popen[bytes]"] = {}
"""Overload -> the process that compiles it, or did."""
_lock = threading.Lock()


def start(groups: Sequence[Sequence[Overload]], *, nice: int = 0) -> None:
    """Have those that are not compiled yet compiled, each group by a process of its own, which outlives this one.

    With `nice`, 0 to 19, it makes way for processes of less.

    Where compiled kernels cannot be kept, they are of use to this process only, and end with it. Nothing is started
    where there is not even a temporary folder: this process then compiles what it calls, see `compiles_here`.
    """
    with _lock:
        for group in groups:
            wanted = [one for one in group if one.name not in _processes and not one.is_loaded]
            missing = [one for one in wanted if find(one) is None]
            if missing and sys.executable and kernels_folder() is not None:
                process = _start(missing, nice)
                _processes.update((one.name, process) for one in missing)
                if lasting_folder() is None:
                    atexit.register(_end, process, os.getpid())


@contextmanager
def runtime_loading() -> Iterator[None]:
    """What every kernel needs of numba is made meanwhile: 40 ms, in which LLVM works without the GIL."""
    thread = threading.Thread(target=rtsys.initialize, args=(cpu_target.target_context,))
    thread.start()
    try:
        yield
    finally:
        thread.join()


def is_coming(overload: Overload) -> bool:
    """Whether another process is about to have compiled it; else calling it loads it, or compiles it here."""
    process = _processes.get(overload.name)
    return process is not None and find(overload) is None and process.poll() is None


def compiles_here(overload: Overload) -> bool:
    """Whether calling it would compile it in line, and for this call's process only, as there is nowhere to keep it."""
    return not overload.is_loaded and find(overload) is None and kernels_folder() is None


def wait(wanted: Sequence[Overload]) -> None:
    """Until none `is_coming`; a line in the log says so where it takes long."""
    until = time.monotonic() + PATIENCE_S
    while coming := [one for one in wanted if is_coming(one)]:
        time.sleep(POLL_S)
        if time.monotonic() > until:
            say_compiling("kernels" if len(coming) > 1 else "a kernel")


def _start(wanted: Sequence[Overload], nice: int) -> "subprocess.Popen[bytes]":
    groups, names = sorted({one.group for one in wanted}), [one.name for one in wanted]
    # numba leaves one thread to compile in a process; the package is found as it was here, whatever is installed
    program = (
        f"import gc, sys; sys.path.append({str(_ROOT)!r}); gc.set_threshold{_SELDOM}; "
        "from augpipe.gpu_ops.compiled.background import compile_named; compile_named(*sys.argv[1:])"
    )
    folder = kernels_folder()
    assert folder is not None
    process = subprocess.Popen(
        [sys.executable, "-c", program, ",".join(groups), *names],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,  # what cannot be compiled there is tried again here, and says why
        start_new_session=True,
        env=os.environ | {CACHE_VARIABLE: str(folder.parent)},
    )
    if nice:
        _make_way(process.pid, nice)
    return process


def _make_way(process: int, nice: int) -> None:
    with suppress(OSError, AttributeError):  # not every system has all of it
        os.setpriority(os.PRIO_PROCESS, process, nice)
        # Linux may share cores among sessions first, and the process has one of its own
        Path(f"/proc/{process}/autogroup").write_text(str(nice))


def _end(process: "subprocess.Popen[bytes]", started_by: int) -> None:
    """Stop compiling what nobody will find."""
    if os.getpid() == started_by and process.poll() is None:
        process.terminate()
        process.wait()


def compile_named(groups: str, *names: str) -> None:
    """Compile declared overloads of some groups, "render,order" say; what such a process runs."""
    gc.freeze()
    gc.set_threshold(*_SELDOM)
    by_name = {one.name: one for one in overloads(groups.split(","))}
    for name in names:
        by_name[name].compile()
