"""What there is of GPUs: NVML lists them, and a tiny kernel is tried."""

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np

LIBRARY = "libnvidia-ml.so.1"
_NAME_BYTES = 96  # NVML_DEVICE_NAME_V2_BUFFER_SIZE; a driver's release fits as well
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
