"""Where the checks of a CUDA device learn about this machine; tests put other answers in their place."""

import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass

from augpipe.cuda.driver import driver_version
from augpipe.cuda.versions import Toolkit, Version, installed, nvvm_version, parse, toolkit


@dataclass(frozen=True, kw_only=True)
class Torch:
    """The torch that is installed."""

    version: str
    """As torch writes it: 2.13.0+cpu."""
    cuda: Version | None
    """The CUDA version that it was built for; None: a build without CUDA."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Functions that answer; each is called only when the answers before it were well, so torch may stay unimported."""

    driver: Callable[[], Version]
    """The newest CUDA version that the driver knows; OSError where there is no driver."""
    torch: Callable[[], Torch | None]
    """None where torch is not installed."""
    numba_cuda: Callable[[], str | None]
    """The version of numba-cuda; None where it is not installed."""
    nvvm: Callable[[], Version | None]
    """The version of the IR that NVVM itself says it reads; None where numba-cuda cannot load NVVM."""
    toolkit: Callable[[], Toolkit | None]
    """What numba-cuda would compile with."""
    num_devices: Callable[[], int]
    """Devices that this process may use; torch asks NVML, so that CUDA is not initialised."""
    names: Callable[[], list[str]]
    """Their names, for a message."""
    current: Callable[[], int | None]
    """The index of the current device; None where this process does not use CUDA yet."""
    local_rank: Callable[[], str | None]
    """LOCAL_RANK: torchrun's word for the number of this process on this machine."""
    visible: Callable[[], str | None]
    """CUDA_VISIBLE_DEVICES."""
    simulated: Callable[[], bool]
    """Whether kernels run in numba's CUDA simulator."""


def find_torch() -> Torch | None:
    """The torch that is installed, which is imported to ask it; None where there is none."""
    if importlib.util.find_spec("torch") is None:
        return None
    import torch

    return Torch(version=str(torch.__version__), cuda=parse(torch.version.cuda) if torch.version.cuda else None)


def _num_devices() -> int:
    import torch

    return torch.cuda.device_count()


def _names() -> list[str]:
    import torch

    return [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]


def _current() -> int | None:
    import torch

    return torch.cuda.current_device() if torch.cuda.is_initialized() else None  # type: ignore[no-untyped-call]


def _is_simulated() -> bool:
    from numba import config

    return bool(config.ENABLE_CUDASIM)


THIS_MACHINE = Facts(
    driver=driver_version,
    torch=find_torch,
    numba_cuda=lambda: installed("numba-cuda"),
    nvvm=nvvm_version,
    toolkit=toolkit,
    num_devices=_num_devices,
    names=_names,
    current=_current,
    local_rank=lambda: os.environ.get("LOCAL_RANK"),
    visible=lambda: os.environ.get("CUDA_VISIBLE_DEVICES"),
    simulated=_is_simulated,
)
