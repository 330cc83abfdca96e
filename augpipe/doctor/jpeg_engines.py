"""Whether a GPU decodes JPEGs with engines of its own, in the word of nvJPEG, the library that would use them."""

import ctypes
from importlib.metadata import PackageNotFoundError, files
from typing import Any

_PACKAGES = ("nvidia-nvjpeg", "nvidia-nvjpeg-cu12")
_NAMES = ("libnvjpeg.so.13", "libnvjpeg.so.12")
_HARDWARE = 3  # NVJPEG_BACKEND_HARDWARE
_ARCH_MISMATCH, _NOT_SUPPORTED = 7, 9  # what nvJPEG answers where there are no engines


def count_engines(device_id: int) -> tuple[int, int]:
    """(engines, cores of each) of a device; (0, 0) where it has none.

    It initialises CUDA and holds the device's primary context until the process ends: for a process of its own.

    Raises:
        OSError: nvJPEG or the driver is not to be found, or answers with an error.
    """
    library = _nvjpeg()
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


def _nvjpeg() -> Any:
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
