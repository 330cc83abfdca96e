"""The system, Python, the processor and its memory; the compiler of the CPU's kernels, and where they are kept."""

import os
import platform
from collections import Counter
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from llvmlite.binding import get_host_cpu_features, get_host_cpu_name

from augpipe.bench.machine import cpu_name
from augpipe.cache.budget import available_host_bytes
from augpipe.doctor.finding import Finding
from augpipe.gpu_ops.compiled.cache import find as find_kernel
from augpipe.gpu_ops.compiled.cache import prebuilt_problem
from augpipe.gpu_ops.compiled.declared import overloads
from augpipe.gpu_ops.compiled.folder import (
    CACHE_VARIABLE,
    PREBUILT,
    cache_place,
    host_level,
    kernels_name,
    why_not_kept,
)
from augpipe.native.control_groups import cpu_quota, memory_limit
from augpipe.native.workers import num_usable_cores

_SETS = {"avx512f": "AVX-512", "avx2": "AVX2", "avx": "AVX", "sve": "SVE", "neon": "NEON"}
_GB = 1e9


def system() -> list[Finding]:
    """What this process runs on; all of it is there by necessity."""
    return [_system(), _python(), processor(), cores(), memory()]


def processor(
    name: Callable[[], str] = cpu_name,
    llvm_name: Callable[[], str] = get_host_cpu_name,
    features: Callable[[], dict[str, bool]] = get_host_cpu_features,
) -> Finding:
    """Its name, and the vector instructions that LLVM, and so every kernel, uses."""
    on = {feature for feature, is_on in features().items() if is_on}
    sets = [text for feature, text in _SETS.items() if feature in on]
    vectors = " and ".join(sets[:2]) if sets else "no vector instructions that LLVM knows"
    return Finding(
        name="processor",
        status="ok",
        text=f"{name()}: {vectors} (LLVM compiles for {llvm_name()})",
        data={"name": name(), "llvm": llvm_name(), "features": sorted(on)},
    )


def memory(
    available: Callable[[], int] = available_host_bytes, limit: Callable[[], int | None] = memory_limit
) -> Finding:
    """What the machine has, a container's limit, and what this process can still take."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        left: int | None = available()
    except ValueError:  # not Linux
        left = None
    most = limit()
    text = f"{total / _GB:.1f} GB"
    if most is not None:
        text += f", limited to {most / _GB:.1f} GB by a control group"
    if left is not None:
        text += f", of which this process can take {left / _GB:.1f} GB"
    data = {"total_bytes": total, "available_bytes": left, "limit_bytes": most}
    return Finding(name="memory", status="ok", text=text, data=data)


def _system() -> Finding:
    try:
        name = platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:  # not Linux, or a container without the file
        name = ""
    text = ", ".join(part for part in (name, f"{platform.system()} {platform.release()}", platform.machine()) if part)
    return Finding(name="system", status="ok", text=text, data={"name": name, "machine": platform.machine()})


def _python() -> Finding:
    version = platform.python_version()
    text = f"{version} ({platform.python_implementation()})"
    return Finding(name="Python", status="ok", text=text, data={"version": version})


def cores(usable: Callable[[], int] = num_usable_cores, quota: Callable[[], float | None] = cpu_quota) -> Finding:
    """How many this process can keep busy, of all that the machine has, and a container's quota."""
    num, there, most = usable(), os.cpu_count() or 1, quota()
    text = f"{num} usable" + (f" of {there}" if there != num else "")
    if most is not None:
        text += f"; a control group gives this process the time of {most:g}"
    return Finding(name="cores", status="ok", text=text, data={"usable": num, "all": there, "quota": most})


def kernels() -> list[Finding]:
    """numba, and the folder of compiled kernels."""
    return [_numba(), kernel_cache()]


def kernel_cache(place: Callable[[], Path] = lambda: cache_place(kernels_name())) -> Finding:
    """Which kernels are compiled: those of the wheel, those of this machine, and which are missing."""
    try:
        folder = place()
        problem = why_not_kept(folder)
    except RuntimeError as error:  # the user has no home
        folder, problem = Path("~/.cache"), str(error)
    places = Counter(found[1] if (found := find_kernel(one)) else "missing" for one in overloads())
    wheel_problem = prebuilt_problem() if PREBUILT.is_dir() else None
    remedy = ", which `augpipe warm` compiles" if problem is None else ""
    parts = [f"{places['wheel']} from the wheel, for {host_level()}"] if places["wheel"] else []
    parts += [f"{places['here']} compiled here"] if places["here"] else []
    parts += [f"{places['missing']} not yet{remedy}"] if places["missing"] else []
    parts += [f"those of the wheel are not used: {wheel_problem}"] if wheel_problem else []
    held = "; ".join(parts)
    data = {
        "folder": str(folder),
        "is_writable": problem is None,
        "num_kernels": {where: places[where] for where in ("wheel", "here", "missing")},
        "wheel_problem": wheel_problem,
        "variable": os.environ.get(CACHE_VARIABLE),
    }
    if problem is not None and places["missing"]:
        return Finding(
            name="kernel cache",
            status="missing",
            text=f"compiled kernels cannot be kept in {folder} ({problem}); {held}",
            brings="kernels are compiled once, not at every start",
            command=f"export {CACHE_VARIABLE}=/a/folder/that/can/be/written",
            data=data,
        )
    where = str(folder) if problem is None else f"{folder}, which cannot be written"
    return Finding(name="kernel cache", status="ok", text=f"{where} ({held})", data=data)


def _numba() -> Finding:
    numba, llvmlite = version("numba"), version("llvmlite")
    return Finding(
        name="numba",
        status="ok",
        text=f"{numba}, llvmlite {llvmlite}; kernels run on augpipe's own threads, not on numba's threading layer",
        is_needed=True,
        data={"numba": numba, "llvmlite": llvmlite},
    )
