"""The codecs' CUDA kernels: for every supported capability without a device, and in numba's simulator.

`simulated_codecs.py` runs in a process of its own: the simulator must be chosen before numba is imported.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

numba_cuda = pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from augpipe.gpu_ops.cuda import ptx as tools  # noqa: E402 - loads numba.cuda
from augpipe.gpu_ops.cuda.codec_launch import CODEC_KERNELS, compile_ptx_of  # noqa: E402

ROOT = Path(__file__).parents[2]
CAPABILITIES = ((7, 5), (8, 0), (9, 0), (10, 0))
SHARED_BYTES = {"largest_magnitudes": 4 * 128, "partial_sums": 3 * 4 * 128}
LARGEST_NUM_REGISTERS = 64


@pytest.mark.slow
@pytest.mark.parametrize("name", CODEC_KERNELS)
def test_every_kernel_compiles(name: str) -> None:
    for cc in CAPABILITIES:
        ptx = compile_ptx_of(name, cc)
        assert f".target sm_{cc[0]}{cc[1]}" in ptx and ptx.count(".entry") == 1
        assert ".f64" not in ptx  # consumer cards do float64 at 1/64 of the rate
        assert not re.search(r"\bcall\b", ptx)  # all is inlined
        assert ".local" not in ptx  # and in registers
        assert not re.search(r"div\.(approx|full)|\.ftz", ptx)  # the quotient is rounded as the CPU's is
        taken, reason = tools.resources(ptx, cc)
        if taken is None:
            assert reason
            continue
        assert taken.spill_bytes == taken.stack_bytes == 0
        assert taken.shared_bytes == SHARED_BYTES.get(name, 0)
        assert taken.registers <= LARGEST_NUM_REGISTERS


@pytest.mark.slow
def test_kernels_agree_with_the_cpu_in_the_simulator() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    command.append(str(Path(__file__).with_name("simulated_codecs.py")))
    environment = os.environ | {"NUMBA_ENABLE_CUDASIM": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=230, check=False)
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-2000:]}"
    passed = int(done.stdout.rsplit(" passed", 1)[0].split()[-1])
    assert passed > 75 and "skipped" not in done.stdout
