"""Versions of the CUDA packages that are installed, which of them go together, and the commands that mend them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

Version = tuple[int, int]
"""(major, minor)."""

OLDEST_MAJOR = 12
OLDEST_NUMBA_CUDA = (0, 30)
"""The first one that was read and tried; it brings the cuda-core whose linker and launches kernels use."""
DRIVER_RELEASES = {12: "525", 13: "580"}
"""The first driver release (as nvidia-smi prints it) for each CUDA major version, of NVIDIA's compatibility guide."""
_LAST_TORCH_12 = "2.11"  # from this release on, the torch that pip installs on Linux is built for CUDA 13
_COMPILERS = {12: "nvidia-cuda-nvcc-cu12", 13: "nvidia-nvvm"}  # the packages that hold libnvvm
_LINKERS = {12: "nvidia-nvjitlink-cu12", 13: "nvidia-nvjitlink"}
_TOOLKIT_EXTRAS = {12: "nvcc,nvrtc", 13: "nvvm,nvrtc"}


@dataclass(frozen=True, kw_only=True)
class Toolkit:
    """What numba-cuda compiles kernels with."""

    compiler: Version
    """The version of libnvvm, which makes PTX, or LTO-IR where there is a linker."""
    linker: Version | None
    """That of nvJitLink, which makes machine code without the driver's help; None: the driver compiles the PTX
    itself."""


def parse(text: str) -> Version:
    """(13, 5) of "13.5.37"."""
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


def written(number: Version) -> str:
    """ "13.5" of (13, 5)."""
    return ".".join(map(str, number))


def installed(package: str) -> str | None:
    """The version of an installed package; None where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def toolkit() -> Toolkit | None:
    """The compiler and linker that numba-cuda would take: those of the major version of cuda-bindings.

    Packages are asked first; where a system-wide toolkit is used instead, its NVRTC is, which does not say that NVVM is
    there (`nvvm_version` does), while NVVM does not say of which toolkit it is. None where there is neither.
    """
    bindings = installed("cuda-bindings")
    major = parse(bindings)[0] if bindings else max(_COMPILERS)
    compiler = installed(_COMPILERS[major]) if major in _COMPILERS else None
    linker = installed(_LINKERS[major]) if major in _LINKERS else None
    found = parse(compiler) if compiler else _nvrtc_version()
    if found is None:
        return None
    return Toolkit(compiler=found, linker=parse(linker) if linker else _nvjitlink_version())


def nvvm_version() -> Version | None:
    """The version of the IR that NVVM reads, asked of the library that numba-cuda loads; None where there is none."""
    return _asked("nvvm", lambda library: library.ir_version()[:2])


def _nvjitlink_version() -> Version | None:
    return _asked("nvjitlink", lambda library: library.version())


def _nvrtc_version() -> Version | None:
    return _asked("nvrtc", lambda library: library.nvrtcVersion()[1:])


def _asked(library: str, question: Callable[[Any], Iterable[int]]) -> Version | None:
    try:
        major, minor = question(import_module(f"cuda.bindings.{library}"))
    except (ImportError, RuntimeError):  # the second: the library is not to be found
        return None
    return major, minor


def supported_capabilities() -> list[Version]:
    """Compute capabilities that the toolkit compiles for, ascending; [] where there is no toolkit to ask."""
    try:
        from cuda.bindings import nvrtc

        _, numbers = nvrtc.nvrtcGetSupportedArchs()
    except (ImportError, RuntimeError):
        return []
    return sorted((number // 10, number % 10) for number in numbers)


def extra_for(driver: Version) -> str:
    """augpipe's extra whose packages the driver can run."""
    return "cuda13" if driver[0] >= 13 else "cuda12"


def install_command(driver: Version) -> str:
    """What installs all that augpipe needs for this driver."""
    torch = "" if driver[0] >= 13 else f' "torch<{_LAST_TORCH_12}"'
    return f'pip install "augpipe[{extra_for(driver)}]"{torch}'


def torch_command(driver: Version) -> str:
    """What puts a build of torch for this driver in the place of another one."""
    return f"pip uninstall -y torch && {install_command(driver)}"


def toolkit_command(driver: Version) -> str:
    """What installs the newest compiler whose PTX the driver reads."""
    major, minor = driver
    return f'pip install "cuda-toolkit[{_TOOLKIT_EXTRAS[major]}]>={major},<{major}.{minor + 1}"'
