"""Kernels as machine code: compiled by the first process that needs them, kept on disk for all later ones, launched.

numba-cuda's own cache (`cuda.jit(cache=True)`) takes these kernels, and is not used: two ranks that save two variants
of one at the same time can leave an index that names the other's code for it, a damaged file goes unnoticed or raises,
and its key knows neither the sources of what a kernel calls nor its launch bounds.
"""

import ctypes
import hashlib
import logging
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from cuda.bindings import driver
from cuda.core import LaunchConfig, Linker, LinkerOptions, ObjectCode, Stream, launch
from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib
from numba import cuda

from augpipe.gpu_ops.compiled.folder import (
    SOURCES,
    cache_folder,
    is_readable,
    readable_folder,
    sources_digest,
    target_cpu,
)
from augpipe.gpu_ops.compiled.sealed import read_sealed, write_sealed

logger = logging.getLogger("augpipe")

Capability = tuple[int, int]
"""(9, 0) of an H100."""

LEGACY_STREAM = 1
"""cudaStreamLegacy: the default stream by a name that means no other one."""

NUM_CONFIGURATIONS = 256
"""Launch configurations kept; a training run has one or two for each view."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """What a kernel is compiled from."""

    body: Callable[..., Any]
    """The Python function; it and all that it calls lie below `jit.SOURCES`."""
    signature: str
    """The signature in numba's words; arguments are int64."""
    launch_bounds: tuple[int, int]
    """Threads of a block, and blocks on a multiprocessor at once."""

    @property
    def identity(self) -> str:
        """What tells it from every other kernel of the same sources."""
        closed_over = [cell.cell_contents for cell in self.body.__closure__ or ()]
        assert all(isinstance(value, int | float | str) for value in closed_over), "its text must say it all"
        name = f"{self.body.__module__}.{self.body.__qualname__}"
        return f"{name} {closed_over} {self.signature} {self.launch_bounds}"


@dataclass(frozen=True, kw_only=True)
class MachineCode:
    """A kernel for one compute capability."""

    entry: str
    """The name of its function."""
    cubin: bytes
    """The file that a driver loads."""


class Kernel:
    """A kernel that is launched on whichever device is current; compiled or loaded for that one when it is made."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._loaded: dict[Capability, Any] = {}
        self._lock = threading.Lock()
        self._for_current_device()

    def launch(self, grid: tuple[int, ...], block: Any, stream: int, *arguments: int) -> None:
        """Queue a launch; `stream` is a cudaStream_t as a number, 0 the default stream."""
        kernel = self._for_current_device()
        launch(*_configured(grid, block, stream), kernel, *map(ctypes.c_int64, arguments))

    def _for_current_device(self) -> Any:
        capability = cuda.get_current_device().compute_capability  # makes a context current where there is none
        if capability not in self._loaded:
            with self._lock:
                code = machine_code(self._source, capability)
                self._loaded[capability] = ObjectCode.from_cubin(code.cubin).get_kernel(code.entry)
        return self._loaded[capability]


@lru_cache(NUM_CONFIGURATIONS)
def _configured(grid: tuple[int, ...], block: Any, stream: int) -> tuple[Any, Any]:
    # 0 is the thread's default stream where the user's environment says so, and torch's never is
    return Stream.from_handle(stream or LEGACY_STREAM), LaunchConfig(grid=grid, block=block)


def machine_code(source: Source, capability: Capability) -> MachineCode:
    """A kernel's machine code: from disk where it lies there undamaged, else compiled and put there."""
    digest = code_digest(capability)
    identity = f"{digest} {source.identity}"
    place, name = f"cuda-{digest}", f"{source.body.__name__}-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.cubin"
    kept = readable_folder(place)
    found = _read(kept / name, identity) if kept is not None and is_readable(kept / name) else None
    if found is None:
        found = build(source, capability)
        folder = cache_folder(place)
        if folder is not None:
            _write(folder / name, identity, found)
    return found


def code_digest(capability: Capability) -> str:
    """Hash of all that decides how a kernel comes out: sources, compilers, linker, compute capability."""
    made_by = [target_cpu(), f"numba-cuda {version('numba-cuda')}", f"sm {capability}"]
    return sources_digest(SOURCES, *made_by, _library("nvvm"), _library("nvJitLink"), _driver())


def compile_ptx(source: Source, capability: Capability) -> str:
    """A kernel's PTX, without a device; takes a second or so."""
    ptx, _ = cuda.compile_ptx(
        source.body, source.signature, debug=False, opt=True, cc=capability, launch_bounds=source.launch_bounds
    )
    return str(ptx)


def build(source: Source, capability: Capability) -> MachineCode:
    """Compile and link a kernel, without a device where nvJitLink is installed."""
    ptx = compile_ptx(source, capability)
    entry = re.search(r"\.entry\s+(\w+)", ptx)
    assert entry is not None
    options = LinkerOptions(arch=f"sm_{capability[0]}{capability[1]}")
    linked = Linker(ObjectCode.from_ptx(ptx.encode()), options=options).link("cubin")
    return MachineCode(entry=entry[1], cubin=bytes(linked.code))


def _library(name: str) -> str:
    """What tells one release of a library from another; NVVM does not say itself of which toolkit it is."""
    try:
        path = Path(load_nvidia_dynamic_lib(name).abs_path or name)
        return f"{path} {path.stat().st_size} {path.stat().st_mtime_ns}"
    except (DynamicLibNotFoundError, OSError):
        return f"no {name}"


def _driver() -> str:
    """The driver's version: it links where nvJitLink is missing."""
    try:
        return f"driver {driver.cuDriverGetVersion()}"
    except RuntimeError:
        return "no driver"


def _read(path: Path, identity: str) -> MachineCode | None:
    content = read_sealed(path, identity)
    if content is None:
        return None
    entry, _, cubin = content.partition(b"\n")
    return MachineCode(entry=entry.decode(), cubin=cubin)


def _write(path: Path, identity: str, code: MachineCode) -> None:
    try:
        write_sealed(path, identity, code.entry.encode() + b"\n" + code.cubin)
    except OSError as error:
        logger.warning(
            "the kernel %s cannot be kept in %s (%s): it compiles again at the next start",
            path.stem,
            path.parent,
            error,
        )
