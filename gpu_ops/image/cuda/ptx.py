"""Every kernel as PTX, for any compute capability and without a device; and the registers and memory it takes there."""

import importlib.util
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from augpipe.gpu_ops.cuda.machine_code import Source, compile_ptx
from augpipe.gpu_ops.image.cuda.fused import FUSED_LAUNCH_BOUNDS, FUSED_SIGNATURE, fused_kernel
from augpipe.gpu_ops.image.cuda.label_maps import LABELS_LAUNCH_BOUNDS, LABELS_SIGNATURE, look_up_labels
from augpipe.gpu_ops.image.cuda.mix import MIX_LAUNCH_BOUNDS, MIX_SIGNATURE, mix_kernel
from augpipe.gpu_ops.image.cuda.pack import PACK_LAUNCH_BOUNDS, PACK_SIGNATURE, pack
from augpipe.gpu_ops.image.cuda.program import (
    FILTER_LAUNCH_BOUNDS,
    FINISH_LAUNCH_BOUNDS,
    FINISH_SIGNATURE,
    filter_kernel,
    finish_kernel,
)
from augpipe.gpu_ops.image.cuda.writing import HELD_AS


@dataclass(frozen=True, kw_only=True)
class KernelSpec:
    """One specialisation of a kernel."""

    held_as: str | None = None
    """Number type of a batch; None for the kernels that pack and that look up label maps."""
    planar: bool = True
    """Whether a batch holds whole channel planes."""
    finishes: bool = False
    """Whether it is the kernel that runs behind the fused one."""
    filters: bool = False
    """Whether it is the kernel of filters between the two."""
    mixes: bool = False
    """Whether it is the kernel that mixes finished images."""
    looks_up_labels: bool = False
    """Whether it is the kernel that looks up label maps."""

    @property
    def name(self) -> str:
        """As in reports: the loop, its number type and layout."""
        if self.held_as is None:
            return "labels" if self.looks_up_labels else "pack_rgbx"
        loop = "mix" if self.mixes else "filter" if self.filters else "finish" if self.finishes else "fused"
        return f"{loop} {self.held_as} {'NCHW' if self.planar else 'NHWC'}"


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What one thread of a kernel takes, as ptxas reports it."""

    registers: int
    spill_bytes: int
    """Stored and loaded because registers ran out."""
    stack_bytes: int
    shared_bytes: int
    """Shared memory of a block, in bytes."""


KERNELS = (
    *(
        KernelSpec(held_as=name, planar=planar, finishes=finishes)
        for finishes in (False, True)
        for name in HELD_AS
        for planar in (True, False)
    ),
    *(KernelSpec(held_as="float32", planar=planar, filters=True) for planar in (True, False)),
    *(KernelSpec(held_as=name, planar=planar, mixes=True) for name in HELD_AS for planar in (True, False)),
    KernelSpec(looks_up_labels=True),
    KernelSpec(),
)
"""Every kernel that can be launched."""


def source_of(spec: KernelSpec) -> Source:
    """What the kernel is compiled from."""
    if spec.looks_up_labels:
        return Source(body=look_up_labels, signature=LABELS_SIGNATURE, launch_bounds=LABELS_LAUNCH_BOUNDS)
    if spec.held_as is None:
        return Source(body=pack, signature=PACK_SIGNATURE, launch_bounds=PACK_LAUNCH_BOUNDS)
    if spec.mixes:
        body = mix_kernel(HELD_AS[spec.held_as], spec.planar)
        return Source(body=body, signature=MIX_SIGNATURE, launch_bounds=MIX_LAUNCH_BOUNDS)
    if spec.filters:
        return Source(body=filter_kernel(spec.planar), signature=FINISH_SIGNATURE, launch_bounds=FILTER_LAUNCH_BOUNDS)
    if spec.finishes:
        body = finish_kernel(HELD_AS[spec.held_as], spec.planar)
        return Source(body=body, signature=FINISH_SIGNATURE, launch_bounds=FINISH_LAUNCH_BOUNDS)
    body = fused_kernel(HELD_AS[spec.held_as], spec.planar)
    return Source(body=body, signature=FUSED_SIGNATURE, launch_bounds=FUSED_LAUNCH_BOUNDS)


def compile_ptx_of(spec: KernelSpec, cc: tuple[int, int]) -> str:
    """The kernel's PTX for a compute capability, say (9, 0); takes a second or so."""
    return compile_ptx(source_of(spec), cc)


def find_ptxas() -> Path | None:
    """NVIDIA's assembler: from its wheels if they are installed, else from PATH."""
    wheels = importlib.util.find_spec("nvidia")
    for folder in (wheels.submodule_search_locations or []) if wheels else []:
        for found in sorted(Path(folder).glob("*/bin/ptxas")):
            return found
    on_path = shutil.which("ptxas")
    return Path(on_path) if on_path else None


def resources(ptx: str, cc: tuple[int, int]) -> tuple[Resources | None, str]:
    """What a kernel takes on a device of this capability, or None and the reason why that cannot be told."""
    ptxas = find_ptxas()
    if ptxas is None:
        return None, "there is no ptxas: pip install nvidia-cuda-nvcc, or put that of a CUDA toolkit on PATH"
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.ptx"
        source.write_text(ptx)
        command = [str(ptxas), "-v", f"-arch=sm_{cc[0]}{cc[1]}", str(source), "-o", str(source.with_suffix(".cubin"))]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return None, f"{ptxas} refuses the PTX: {done.stderr.strip()}"
    spilled = sum(_number(rf"(\d+) bytes spill {kind}", done.stderr) for kind in ("stores", "loads"))
    return Resources(
        registers=_number(r"Used (\d+) registers", done.stderr),
        spill_bytes=spilled,
        stack_bytes=_number(r"(\d+) bytes stack frame", done.stderr),
        shared_bytes=_number(r"(\d+) bytes smem", done.stderr, default=0),
    ), ""


def _number(pattern: str, text: str, default: int | None = None) -> int:
    found = re.search(pattern, text)
    if found is None:
        assert default is not None, text
        return default
    return int(found.group(1))
