"""Where numba finds a kernel's machine code: in the wheel, else in the user's folder, else it compiles and keeps it.

numba's own cache is not used. Its key holds this very machine's CPU, so that nothing can be shipped; it does not notice
a damaged file, nor a change in what a kernel calls; and it imports a second's worth of modules before it reads a file.
"""

import hashlib
import inspect
import json
import logging
import pickle
import threading
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from llvmlite.binding import Linkage, parse_assembly, parse_bitcode
from numba.core.caching import _Cache
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompileResult
from numba.core.runtime import rtsys
from numba.core.serialize import dumps

from augpipe.gpu_ops.compiled.declared import Overload, is_declared, name_of
from augpipe.gpu_ops.compiled.folder import (
    CACHE_VARIABLE,
    LEVELS,
    PREBUILT,
    SOURCES,
    compilers,
    host_level,
    is_readable,
    kernels_digest,
    kernels_folder,
    lasting_folder,
    readable_folders,
    target_cpu,
)
from augpipe.gpu_ops.compiled.lock import Lock
from augpipe.gpu_ops.compiled.sealed import read_sealed, write_sealed

logger = logging.getLogger("augpipe")

MANIFEST = "manifest.json"
"""Lies next to a level's kernels: the compilers and the digest of the sources that they were made of."""

PATIENCE_S = 2.0
"""How long a wait is silent."""

_ENV = "NumbaEnv"
"""In the names of variables that hold a pointer to what numba's code needs of Python."""

_is_said = False

_under_way: list["KernelCache"] = []
"""Kernels that are being compiled, each for the one before it; numba compiles under a lock of its own."""


class KernelCache(_Cache):  # type: ignore[misc]
    """The cache of one kernel, as numba's dispatcher asks for it."""

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel
        self._name = name_of(kernel)
        self._lock: Lock | None = None
        self._patience: threading.Timer | None = None

    @property
    def cache_path(self) -> str | None:
        """The folder in which kernels of this machine are looked for."""
        return next(map(str, readable_folders()), None)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """What numba needs to call the kernel for these types of arguments, or None: then it compiles."""
        _forget_failed()
        found = self._load(sig, target_context)
        if found is None and not _under_way and (folder := kernels_folder()) is not None:
            say = partial(say_compiling, "a kernel")
            lock = Lock(self._path(folder, sig).with_suffix(".lock"), say, PATIENCE_S)
            found = self._load(sig, target_context)  # another process may have compiled it meanwhile
            if found is None:
                self._lock = lock
            else:
                lock.release()
        if found is None:
            rtsys.initialize(target_context)  # before a kernel is under way, as it is a part of none
            target_context.codegen()._library_class = _SelfContained
            if not _under_way:
                self._patience = threading.Timer(PATIENCE_S, say_compiling, ["a kernel"])
                self._patience.daemon = True
                self._patience.start()
            _under_way.append(self)
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep what was compiled, except for what is a part of another kernel alone."""
        _forget_failed()
        _under_way.remove(self)
        folder = kernels_folder()
        try:
            if folder is not None and (not _under_way or is_declared(self._name)):
                self._keep(folder, sig, data)
        finally:
            self._end_waiting()

    @property
    def is_compiling(self) -> bool:
        """Whether numba compiles this kernel now."""
        return bool(self._kernel.is_compiling)

    def enable(self) -> None:
        """As numba has it; this cache is always on."""

    def disable(self) -> None:
        """As numba has it; this cache is always on."""

    def flush(self) -> None:
        """As numba has it; files whose sources have changed lie in another folder."""

    def find(self, sig: Any) -> tuple[Path, str] | None:
        """The file that would be loaded, by its name alone, and "wheel" or "here"."""
        level = prebuilt_level()
        if level is not None and not _under_way and (path := self._path(PREBUILT / level, sig)).is_file():
            return path, "wheel"
        here = self._find_here(sig)
        return None if here is None else (here, "here")

    def _find_here(self, sig: Any) -> Path | None:
        return next(filter(is_readable, (self._path(folder, sig) for folder in readable_folders())), None)

    def _end_waiting(self) -> None:
        if self._lock is not None:
            self._lock.release()
        if self._patience is not None:
            self._patience.cancel()
        self._lock = self._patience = None

    def _load(self, sig: Any, target_context: Any) -> Any:
        found = self.find(sig)
        if found is None:
            return None
        path, where = found
        content = read_sealed(path, self._identity(sig, _cpu_of(where)))
        if content is None and where == "wheel":
            logger.warning("%s is damaged or another kernel's: it is compiled on this machine instead", path)
            here = self._find_here(sig)
            content = None if here is None else read_sealed(here, self._identity(sig, _cpu_of("here")))
        if content is None:
            return None
        # what machine code needs of numba; the rest of `refresh` is for compiling, and takes half a second
        rtsys.initialize(target_context)
        reduced, bitcode = pickle.loads(content)
        result = CompileResult._rebuild(target_context, *reduced)
        result.library._get_module_for_linking = lru_cache(partial(parse_bitcode, bitcode))
        return result

    def _keep(self, folder: Path, sig: Any, data: Any) -> None:
        assert not data.lifted and not data.library.has_dynamic_globals, f"{self._name} cannot be kept"
        path = self._path(folder, sig)
        (name, kind, (machine_code, bitcode)), *others = data._reduce()
        names = _names_alone(data.library._get_module_for_linking())
        content = dumps((((name, kind, (machine_code, names)), *others), bitcode))
        try:
            write_sealed(path, self._identity(sig, target_cpu()), content)
        except OSError as error:
            logger.warning(
                "the compiled kernel %s cannot be kept in %s (%s): it is compiled again at the next start",
                self._name,
                folder,
                error,
            )

    def _path(self, folder: Path, sig: Any) -> Path:
        types = hashlib.sha256(str(sig).encode()).hexdigest()[:16]
        return folder / f"{self._name}-{types}.kernel"

    def _identity(self, sig: Any, cpu: str) -> str:
        return f"{kernels_digest(cpu)} {_file_digest(inspect.getfile(self._kernel.py_func))} {self._name} {sig}"


class _SelfContained(JITCodeLibrary):  # type: ignore[misc]
    """What numba compiles a function into, whose own copies of what it calls are called where it is a kernel.

    In numba's every function of a module is weak: code calls whichever copy its process had first. Copies that were
    optimized within one kernel or another may differ in a last bit, and in the process that compiles them are others.

    What a kernel calls becomes machine code as a part of it only; numba's does for each function by itself, too, which
    took a tenth of the time.
    """

    @property
    def _is_part(self) -> bool:
        is_loaded = self._disable_inspection  # from a file
        return bool(_under_way) and not is_loaded and self.name != _under_way[-1]._kernel.__qualname__

    def _optimize_final_module(self) -> None:
        super()._optimize_final_module()  # of parts, too: loops that are optimized in place only are slower by 5 %
        if _under_way and not self._is_part:
            for function in self._final_module.functions:
                if not function.is_declaration and function.linkage is Linkage.linkonce_odr:
                    function.linkage = Linkage.internal

    def _finalize_final_module(self) -> None:
        if not self._is_part:
            super()._finalize_final_module()
            return
        self._finalize_dynamic_globals()
        variables = [one.name for one in self._final_module.global_variables if not one.is_declaration]
        places = parse_assembly("\n".join(f'@"{name}" = common global i64 0' for name in variables if _ENV in name))
        self._codegen._add_module(places)  # numba writes there
        self._finalized = True


def _names_alone(module: Any) -> bytes:
    """Bitcode of a module that defines what another one does, without any content.

    numba parses the bitcode of all that it loads, to know its names: a third of the time to a first batch. Only a
    kernel that calls the loaded one, and is compiled now, needs the whole.
    """
    functions = [f'define void @"{one.name}"() {{ ret void }}' for one in module.functions if _is_seen(one)]
    variables = [f'@"{one.name}" = global i8 0' for one in module.global_variables if not one.is_declaration]
    return bytes(parse_assembly("\n".join(functions + variables)).as_bitcode())


def _is_seen(function: Any) -> bool:
    return not function.is_declaration and function.linkage is not Linkage.internal


def say_compiling(what: str) -> None:
    """Log, once a process, what takes so long."""
    global _is_said
    if not _is_said:
        _is_said = True
        kept = lasting_folder()
        again = (
            f"this happens once: it is kept in {kept}. `augpipe warm` compiles all kernels ahead of the first batch"
            if kept is not None
            else f"this happens at every start until {CACHE_VARIABLE} names a folder that can be written"
        )
        logger.warning("compiling %s for this CPU; %s", what, again)


def _forget_failed() -> None:
    """Forget kernels that could not be compiled: numba keeps nothing of them, and so says nothing."""
    for cache in [cache for cache in _under_way if not cache.is_compiling]:
        _under_way.remove(cache)
        cache._end_waiting()


def find(overload: Overload) -> tuple[Path, str] | None:
    """The file of a declared kernel, and "wheel" or "here"; None where it is not compiled yet."""
    cache: KernelCache = overload.kernel._cache
    return cache.find(overload.types)


@lru_cache
def prebuilt_level() -> str | None:
    """The level of CPU whose kernels the wheel has for this machine; None, and a line in the log, where none fit."""
    if numba_compiles_for_another_cpu() or not PREBUILT.is_dir():
        return None
    problem = prebuilt_problem()
    if problem is not None:
        logger.warning("the compiled kernels of this wheel are not used: %s. They are compiled here, once", problem)
    return host_level() if problem is None else None


def prebuilt_problem() -> str | None:
    """Why the wheel's kernels are not for this machine or installation; None where they are."""
    level = host_level()
    if level is None:
        return f"they are for Linux on a CPU of the level {' or '.join(reversed(LEVELS))}"
    return why_not_prebuilt(level)


def why_not_prebuilt(level: str) -> str | None:
    """What of a level's kernels does not fit this installation; None where all does."""
    try:
        manifest = json.loads((PREBUILT / level / MANIFEST).read_text())
        made_by, made_of = manifest["compilers"], manifest["digest"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"its list of kernels cannot be read ({error})"
    if made_by != compilers():
        return f"they were made by {made_by}, and this is {compilers()}"
    return None if made_of == kernels_digest(level) else "they were made of other sources than those installed"


def numba_compiles_for_another_cpu() -> bool:
    """Whether the user has named a CPU (NUMBA_CPU_NAME): then nothing but what is compiled for it is loaded."""
    from numba import config

    return bool(config.CPU_NAME)


def _cpu_of(where: str) -> str:
    return str(prebuilt_level()) if where == "wheel" else target_cpu()


@lru_cache
def _file_digest(file: str) -> str:
    """Hash of a file outside `SOURCES`, whose text the folder's name says nothing of; "" for one within."""
    if Path(file).resolve().is_relative_to(SOURCES.resolve()):
        return ""
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16]
