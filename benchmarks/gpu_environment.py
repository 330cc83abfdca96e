"""Section of `gpu_check`: what it runs on, and how fast this device copies."""

import importlib
import platform
import shutil
import subprocess

import torch
from common import machine
from gpu_common import Findings, Run, copy_bandwidth

import augpipe
from augpipe.cuda.device import require_device
from augpipe.cuda.facts import THIS_MACHINE
from augpipe.cuda.versions import installed
from augpipe.workers import num_usable_cores

PACKAGES = (
    *("torch", "numba", "numba-cuda", "llvmlite", "cuda-bindings", "cuda-core", "triton", "torchvision", "kornia"),
    *("nvidia-dali-cuda130", "nvidia-dali-cuda120", "nvidia-nvjpeg", "nvidia-nvimgcodec-cu13", "simplejpeg", "numpy"),
    *("nvidia-nvvm", "nvidia-cuda-nvcc-cu12", "nvidia-cuda-nvrtc", "nvidia-nvjitlink", "pydantic", "pillow"),
)
OPTIONAL = ("nvidia.dali", "torchvision", "kornia", "pytest", "hypothesis", "scipy", "cv2", "tomli_w", "simplejpeg")
SMI_FIELDS = (
    "name,driver_version,memory.total,clocks.max.sm,clocks.max.memory,clocks.sm,clocks.mem,power.limit,temperature.gpu"
)


def run(run: Run, findings: Findings) -> None:
    findings.keep(
        "machine",
        machine() | {"augpipe": augpipe.__version__, "system": platform.platform(), "usable_cores": num_usable_cores()},
    )
    findings.keep("packages", {name: found for name in PACKAGES if (found := installed(name)) is not None})
    tried = {name: _trial_import(name) for name in OPTIONAL}
    findings.keep("imports", {name: version for name, (version, _) in tried.items() if version is not None})
    for name, (version, reason) in tried.items():
        if version is None:
            findings.leave_out(f"what needs {name}", reason)
    findings.keep("torch_cuda", torch.version.cuda)
    with findings.attempt("numba's toolkit"):
        toolkit = THIS_MACHINE.toolkit()
        findings.keep("numba_toolkit", toolkit and {"nvvm": toolkit.compiler, "nvjitlink": toolkit.linker})
    with findings.attempt("what augpipe says of this machine"):
        findings.keep("augpipe_device", str(require_device("cuda")))
    if run.is_simulated:
        findings.leave_out("device", "the simulator has none")
        return
    properties = torch.cuda.get_device_properties(0)
    free, total = torch.cuda.mem_get_info()
    findings.keep(
        "device",
        {
            "name": properties.name,
            "capability": f"{properties.major}.{properties.minor}",
            "multiprocessors": properties.multi_processor_count,
            "l2_bytes": getattr(properties, "L2_cache_size", None),
            "total_bytes": total,
            "free_bytes": free,
            "devices_seen": torch.cuda.device_count(),
        },
    )
    findings.keep("driver_cuda", ".".join(map(str, THIS_MACHINE.driver())))
    with findings.attempt("nvidia-smi"):
        command = ["nvidia-smi", f"--query-gpu={SMI_FIELDS}", "--format=csv,noheader", "-i", "0"]
        said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.strip()
        findings.keep("nvidia_smi", dict(zip(SMI_FIELDS.split(","), map(str.strip, said.split(",")), strict=True)))
    findings.keep("compute_sanitizer", shutil.which("compute-sanitizer"))
    findings.keep("copy", copy_bandwidth())


def _trial_import(name: str) -> tuple[str | None, str]:
    """(version, "") or (None, why not)."""
    try:
        module = importlib.import_module(name)
    except Exception as error:  # a broken installation raises what it likes
        return None, f"import {name}: {type(error).__name__}: {error}"
    return str(getattr(module, "__version__", "there")), ""
