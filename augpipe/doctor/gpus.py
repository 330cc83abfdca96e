"""torch, the NVIDIA driver, the GPUs, and whether a loader can run on them."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from augpipe.cuda.device_name import DeviceError, check_capability, require_device
from augpipe.cuda.driver import LIBRARY
from augpipe.cuda.facts import THIS_MACHINE, Facts
from augpipe.cuda.versions import Version, install_command, supported_capabilities, written
from augpipe.doctor.finding import Finding
from augpipe.doctor.gpu_queries import Gpu, launch_kernel, list_gpus

_GB = 1e9
_NVIDIA, _DISPLAY = "0x10de", "0x03"
BRINGS_TORCH = 'batches as torch tensors: framework="torch", which is the default'
BRINGS_CUDA = 'augmentation on the GPU: device="cuda"'


@dataclass(frozen=True, kw_only=True)
class GpuFacts:
    """Where the report on GPUs comes from; tests put other answers in their place."""

    cuda: Facts = THIS_MACHINE
    """What `require_device` asks."""
    gpus: Callable[[], tuple[str, list[Gpu]]] = list_gpus
    """The driver's release and the GPUs; OSError where they cannot be listed."""
    capabilities: Callable[[], list[Version]] = supported_capabilities
    """What the toolkit compiles for."""
    devices: Callable[[], list[tuple[str, Version]]] = lambda: _devices()
    """Name and compute capability of each device that CUDA shows to this process."""
    launch: Callable[[], None] = launch_kernel
    """Runs a kernel; raises whatever goes wrong."""
    is_on_bus: Callable[[], bool] = lambda: is_nvidia_on_bus()
    """Whether there is an NVIDIA GPU, driver or not."""


def gpus(facts: GpuFacts | None = None) -> list[Finding]:
    """torch first: without a GPU it is the only one of them that matters."""
    facts = facts or GpuFacts()
    try:
        driver: Version | None = facts.cuda.driver()
        reason = ""
    except OSError as error:
        driver, reason = None, str(error)
    found = [_torch(facts, driver)]
    if driver is None:
        return [*found, _no_driver(facts, reason)]
    return [*found, *_listed(facts, driver), *_packages(facts), *_usable(facts)]


def is_nvidia_on_bus(root: Path = Path("/sys/bus/pci/devices")) -> bool:
    """Whether a display or compute controller of NVIDIA is on the PCI bus."""
    for folder in root.glob("*"):
        vendor, kind = folder / "vendor", folder / "class"
        if vendor.is_file() and vendor.read_text().strip() == _NVIDIA and kind.read_text().startswith(_DISPLAY):
            return True
    return False


def _torch(facts: GpuFacts, driver: Version | None) -> Finding:
    found = facts.cuda.torch()
    if found is None:
        command = 'pip install "augpipe[torch]"' if driver is None else install_command(driver)
        return Finding(
            name="torch",
            status="missing",
            text='not installed; framework="numpy" does without',
            brings=BRINGS_TORCH,
            command=command,
        )
    text = f"built for CUDA {written(found.cuda)}" if found.cuda else "built for the CPU"
    data = {"version": found.version, "cuda": written(found.cuda) if found.cuda else None}
    return Finding(name="torch", status="ok", text=f"{found.version}, {text}", data=data)


def _no_driver(facts: GpuFacts, reason: str) -> Finding:
    if not facts.is_on_bus():
        return Finding(name="GPU", status="none", text="no NVIDIA GPU: the native backend runs on the CPU")
    return Finding(
        name="GPU",
        status="missing",
        text=f"an NVIDIA GPU is in this machine, and no driver for it: {LIBRARY} cannot be used ({reason}). Install "
        "the driver, or start the container with its GPUs (--gpus all)",
        brings=BRINGS_CUDA,
    )


def _listed(facts: GpuFacts, driver: Version) -> list[Finding]:
    try:
        release, listed = facts.gpus()
    except OSError as error:
        text = f"knows CUDA up to {written(driver)}; its GPUs cannot be listed: {error}"
        return [Finding(name="driver", status="broken", text=text, data={"cuda": written(driver)})]
    text = f"{release}, knows CUDA up to {written(driver)}"
    found = [Finding(name="driver", status="ok", text=text, data={"release": release, "cuda": written(driver)})]
    for number, gpu in enumerate(listed):
        free, total = gpu.free_bytes / _GB, gpu.total_bytes / _GB
        text = f"{gpu.name}, compute capability {written(gpu.capability)}, {free:.1f} of {total:.1f} GB free"
        data = {
            "name": gpu.name,
            "capability": written(gpu.capability),
            "total_bytes": gpu.total_bytes,
            "free_bytes": gpu.free_bytes,
        }
        found.append(Finding(name=f"GPU {number}", status="ok", text=text, data=data))
    return found


def _packages(facts: GpuFacts) -> list[Finding]:
    numba_cuda, toolkit = facts.cuda.numba_cuda(), facts.cuda.toolkit()
    nvvm = facts.cuda.nvvm()
    if numba_cuda is None or nvvm is None or toolkit is None:
        return []  # the verdict below says so, with the command
    linker = f", linked by nvJitLink {written(toolkit.linker)}" if toolkit.linker else ", linked by the driver"
    text = f"numba-cuda {numba_cuda}, compiled by CUDA {written(toolkit.compiler)} (NVVM IR {written(nvvm)}){linker}"
    data = {
        "numba_cuda": numba_cuda,
        "compiler": written(toolkit.compiler),
        "nvvm_ir": written(nvvm),
        "linker": written(toolkit.linker) if toolkit.linker else None,
    }
    return [Finding(name="CUDA kernels", status="ok", text=text, data=data)]


def _usable(facts: GpuFacts) -> list[Finding]:
    """The verdict."""
    name = 'device="cuda"'
    try:
        require_device("cuda", facts.cuda)
        for gpu, capability in facts.devices():
            check_capability(capability, gpu, facts.capabilities())
    except DeviceError as error:
        torch = facts.cuda.torch()
        lacks = torch is None or torch.cuda is None
        lacks = lacks or None in (facts.cuda.numba_cuda(), facts.cuda.nvvm(), facts.cuda.toolkit())
        return [
            Finding(
                name=name,
                status="missing" if lacks else "broken",
                text=error.reason,
                brings=BRINGS_CUDA,
                command=error.command,
                data={"usable": False},
            )
        ]
    try:
        facts.launch()
    except Exception as error:  # numba's, the driver's, nvJitLink's own kinds: the line says which
        reason = str(error).strip().splitlines() or [""]
        text = f"a kernel that does nothing much fails: {type(error).__name__}: {reason[0]}"
        return [Finding(name=name, status="broken", text=text, brings=BRINGS_CUDA, data={"usable": False})]
    num, visible = facts.cuda.num_devices(), facts.cuda.visible()
    text = "a kernel ran" + (f"; there are {num} devices" if num > 1 else "")
    if visible is not None:
        text += f"; CUDA_VISIBLE_DEVICES={visible} says which GPUs are seen"
    return [Finding(name=name, status="ok", text=text, data={"usable": True, "num_devices": num})]


def _devices() -> list[tuple[str, Version]]:
    import torch

    numbers = range(torch.cuda.device_count())
    return [(torch.cuda.get_device_name(number), torch.cuda.get_device_capability(number)) for number in numbers]
