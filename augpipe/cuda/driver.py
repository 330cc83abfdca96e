"""What the NVIDIA driver says of itself, asked without initialising CUDA in this process."""

import ctypes

from augpipe.cuda.versions import Version

LIBRARY = "libcuda.so.1"
_STUB = 34  # CUDA_ERROR_STUB_LIBRARY: the toolkit's library to link against, which stands in for a driver


def driver_version() -> Version:
    """The newest CUDA version that the driver knows; `cuDriverGetVersion` needs neither a context nor `cuInit`.

    Raises:
        OSError: there is no driver; the message is the reason alone.
    """
    library = ctypes.CDLL(LIBRARY)
    number = ctypes.c_int()
    status = library.cuDriverGetVersion(ctypes.byref(number))
    if status == _STUB:
        raise OSError(f"{LIBRARY} is the CUDA toolkit's stub; take its folder out of LD_LIBRARY_PATH")
    if status != 0:
        raise OSError(f"{LIBRARY} answers cuDriverGetVersion with error {status}")
    return number.value // 1000, number.value % 1000 // 10
