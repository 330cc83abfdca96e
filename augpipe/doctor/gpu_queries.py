"""What NVIDIA's libraries say of the GPUs: NVML lists them, nvJPEG counts JPEG engines, a tiny kernel is tried."""

import ctypes
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, files
from typing import Any

import numpy as np

LIBRARY = "libnvidia-ml.so.1"
_NAME_BYTES = 96  # NVML_DEVICE_NAME_V2_BUFFER_SIZE; a driver's release fits as well
_PACKAGES = ("nvidia-nvjpeg", "nvidia-nvjpeg-cu12")
_NAMES = ("libnvjpeg.so.13", "libnvjpeg.so.12")
_HARDWARE = 3  # NVJPEG_BACKEND_HARDWARE
_ARCH_MISMATCH, _NOT_SUPPORTED = 7, 9  # what nvJPEG answers where there are no engines
EXPECTED = 42


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU of the machine, whether CUDA_VISIBLE_DEVICES shows it or not."""

    name: str
    """The name that NVIDIA gives it."""
    capability: tuple[int, int]
    """Compute capability: (9, 0) of an H100."""
    total_bytes: int
    """Its memory."""
    free_bytes: int
    """What no process holds."""


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


def list_gpus() -> tuple[str, list[Gpu]]:
    """The driver's release, as "580.65.06", and the GPUs in NVML's order, that of their bus addresses.

    Raises:
        OSError: the library is not to be found, or answers with an error.
    """
    library = ctypes.CDLL(LIBRARY)
    _call(library, "nvmlInit_v2")
    try:
        release = ctypes.create_string_buffer(_NAME_BYTES)
        _call(library, "nvmlSystemGetDriverVersion", release, ctypes.c_uint(_NAME_BYTES))
        num = ctypes.c_uint()
        _call(library, "nvmlDeviceGetCount_v2", ctypes.byref(num))
        return release.value.decode(), [_gpu(library, index) for index in range(num.value)]
    finally:
        _call(library, "nvmlShutdown")


def _gpu(library: Any, index: int) -> Gpu:
    handle = ctypes.c_void_p()
    _call(library, "nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
    name = ctypes.create_string_buffer(_NAME_BYTES)
    _call(library, "nvmlDeviceGetName", handle, name, ctypes.c_uint(_NAME_BYTES))
    major, minor = ctypes.c_int(), ctypes.c_int()
    _call(library, "nvmlDeviceGetCudaComputeCapability", handle, ctypes.byref(major), ctypes.byref(minor))
    memory = _Memory()
    _call(library, "nvmlDeviceGetMemoryInfo", handle, ctypes.byref(memory))
    return Gpu(
        name=name.value.decode(errors="replace"),
        capability=(major.value, minor.value),
        total_bytes=memory.total,
        free_bytes=memory.free,
    )


def _call(library: Any, function: str, *arguments: Any) -> None:
    status = getattr(library, function)(*arguments)
    if status != 0:
        raise OSError(f"{function} of {LIBRARY} answers with error {status}")


def count_engines(device_id: int) -> tuple[int, int]:
    """(engines, cores of each) of a device; (0, 0) where it has none.

    It initialises CUDA and holds the device's primary context until the process ends: for a process of its own.

    Raises:
        OSError: nvJPEG or the driver is not to be found, or answers with an error.
    """
    library = _load_nvjpeg()
    _make_current(device_id)
    handle = ctypes.c_void_p()
    status = library.nvjpegCreateEx(_HARDWARE, None, None, 0, ctypes.byref(handle))
    if status in (_ARCH_MISMATCH, _NOT_SUPPORTED):
        return 0, 0
    _check("nvjpegCreateEx", status)
    engines, cores = ctypes.c_uint(), ctypes.c_uint()
    status = library.nvjpegGetHardwareDecoderInfo(handle, ctypes.byref(engines), ctypes.byref(cores))
    library.nvjpegDestroy(handle)
    _check("nvjpegGetHardwareDecoderInfo", status)
    return engines.value, cores.value


def _load_nvjpeg() -> Any:
    for name in [*_installed(), *_NAMES]:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise OSError(f"nvJPEG is not to be found ({', '.join(_NAMES)})")


def _installed() -> list[str]:
    found: list[str] = []
    for package in _PACKAGES:
        try:
            listed = files(package) or []
        except PackageNotFoundError:
            continue
        found += [str(file.locate()) for file in listed if file.name in _NAMES]
    return found


def _make_current(device_id: int) -> None:
    driver = ctypes.CDLL("libcuda.so.1")
    _check("cuInit", driver.cuInit(0))
    device, context = ctypes.c_int(), ctypes.c_void_p()
    _check("cuDeviceGet", driver.cuDeviceGet(ctypes.byref(device), device_id))
    _check("cuDevicePrimaryCtxRetain", driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    _check("cuCtxSetCurrent", driver.cuCtxSetCurrent(context))


def _check(function: str, status: int) -> None:
    if status != 0:
        raise OSError(f"{function} answers with error {status}")


def launch_kernel() -> None:
    """Run it on the first device that numba-cuda sees; initialises CUDA, so it is for a process of its own.

    Raises:
        RuntimeError: the kernel ran and wrote something else. Whatever numba-cuda raises goes through.
    """
    from numba import cuda

    def write(out):  # type: ignore[no-untyped-def]
        out[0] = EXPECTED

    memory = cuda.device_array(1, np.int32)
    cuda.jit(write)[1, 1](memory)
    found = int(memory.copy_to_host()[0])
    if found != EXPECTED:
        raise RuntimeError(f"a kernel that writes {EXPECTED} left {found}")
