"""What a machine must have before augpipe can run on its CUDA devices, and what to do where it has not."""

from augpipe.cuda.driver import LIBRARY
from augpipe.cuda.facts import Facts, Torch
from augpipe.cuda.versions import (
    DRIVER_RELEASES,
    OLDEST_MAJOR,
    OLDEST_NUMBA_CUDA,
    Toolkit,
    Version,
    install_command,
    parse,
    supported_capabilities,
    toolkit_command,
    torch_command,
    written,
)
from augpipe.errors import DeviceError

_ARCH_SPECIFIC = (9, 0)  # from here on numba-cuda compiles for the device's own architecture or not at all
_OLDEST_OF_CUDA_12 = (5, 0)


def check_machine(facts: Facts) -> None:
    """Raise DeviceError for the first thing that keeps augpipe from CUDA devices, whichever one is asked for."""
    try:
        driver = facts.driver()
    except OSError as error:
        raise DeviceError(
            f"there is no NVIDIA driver: {LIBRARY} cannot be used ({error}). Install your GPU's driver (nvidia-smi "
            'lists the GPUs once it works; a container needs --gpus all), or choose device="cpu".'
        ) from error
    if driver[0] < OLDEST_MAJOR:
        raise DeviceError(
            f"the NVIDIA driver knows CUDA up to {written(driver)}, and augpipe needs {OLDEST_MAJOR}.0. Update the "
            f"driver to release {DRIVER_RELEASES[OLDEST_MAJOR]} or newer."
        )
    _check_torch(facts.torch(), driver)
    numba_cuda = facts.numba_cuda()
    if numba_cuda is None:
        raise DeviceError(
            "CUDA kernels need numba-cuda, which is not installed (the CUDA target in numba itself is not enough)",
            install_command(driver),
        )
    if parse(numba_cuda) < OLDEST_NUMBA_CUDA:
        raise DeviceError(
            f"numba-cuda {numba_cuda} is older than {written(OLDEST_NUMBA_CUDA)}. Upgrade it", install_command(driver)
        )
    if facts.nvvm() is None:
        raise DeviceError(
            "numba-cuda compiles kernels with NVVM, and cannot load it: there is no libnvvm, neither from pip nor of a "
            "CUDA toolkit",
            install_command(driver),
        )
    _check_toolkit(facts.toolkit(), driver)


def _check_torch(torch: Torch | None, driver: Version) -> None:
    if torch is None:
        raise DeviceError("CUDA devices need torch, which is not installed", install_command(driver))
    if torch.cuda is None:
        raise DeviceError(f"torch {torch.version} is a build without CUDA. Replace it", torch_command(driver))
    if torch.cuda[0] > driver[0]:
        raise DeviceError(
            f"the NVIDIA driver knows CUDA up to {written(driver)}, and torch {torch.version} is built for "
            f"{written(torch.cuda)}. {_update_driver(torch.cuda[0])}, or replace torch",
            torch_command(driver),
        )


def _check_toolkit(found: Toolkit | None, driver: Version) -> None:
    if found is None:
        raise DeviceError(
            "numba-cuda finds NVVM, and no NVRTC, which says for which GPUs it compiles", install_command(driver)
        )
    compiler, linker = written(found.compiler), found.linker
    if found.compiler[0] > driver[0]:
        raise DeviceError(
            f"the NVIDIA driver knows CUDA up to {written(driver)}, and kernels would be compiled by CUDA {compiler}. "
            f"{_update_driver(found.compiler[0])}, or install the packages for CUDA {driver[0]} in a new environment",
            install_command(driver),
        )
    if linker is not None and linker < found.compiler:
        raise DeviceError(
            f"kernels would be compiled by CUDA {compiler} and linked by nvJitLink {written(linker)}, which reads no "
            "output of newer compilers",
            toolkit_command(linker),
        )
    # nvJitLink makes machine code, which a driver of the same major version runs; PTX must not be newer than the driver
    if linker is None and found.compiler > driver:
        raise DeviceError(
            f"kernels would be compiled to PTX by CUDA {compiler}, and the NVIDIA driver reads that of CUDA "
            f"{written(driver)} and older",
            toolkit_command(driver),
        )


def check_capability(capability: Version, name: str, supported: list[Version] | None = None) -> None:
    """Raise DeviceError where the toolkit does not compile for a device of this compute capability.

    Args:
        capability: (9, 0) of an H100: `torch.cuda.get_device_capability(device)`, which initialises CUDA; so this is
            asked by whoever is about to launch, not by `require_device`.
        name: the device's, for the message.
        supported: capabilities that the toolkit compiles for; None: ask it.
    """
    supported = supported_capabilities() if supported is None else supported
    if not supported:
        return  # no toolkit to ask: numba-cuda says so itself
    if capability < supported[0]:
        reason = f"{name} has compute capability {written(capability)}, and this CUDA compiler begins at "
        reason += written(supported[0])
        if supported[0] <= _OLDEST_OF_CUDA_12:
            raise DeviceError(f"{reason}. Choose another GPU.")
        raise DeviceError(f"{reason}. That of CUDA 12 begins at 5.0; in a new environment", install_command((12, 9)))
    if capability >= _ARCH_SPECIFIC and capability not in supported:
        raise DeviceError(
            f"{name} has compute capability {written(capability)}, which this CUDA compiler does not know yet. A "
            "newer one (and a driver that goes with it) may",
            'pip install --upgrade "cuda-toolkit[nvvm,nvrtc]"',
        )


def _update_driver(major: int) -> str:
    release = DRIVER_RELEASES.get(major)
    return f"Update the driver to release {release} or newer" if release else "Update the driver"
