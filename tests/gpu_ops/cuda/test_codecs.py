"""The codecs' CUDA kernels compile for every supported capability, without a device."""

import re

import pytest

numba_cuda = pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from augpipe.gpu_ops.codec.cuda.launch import CODEC_KERNELS, compile_ptx_of  # noqa: E402
from augpipe.gpu_ops.image.cuda import ptx as tools  # noqa: E402 - loads numba.cuda

CAPABILITIES = ((7, 5), (8, 0), (9, 0), (10, 0))
NUM_SHUFFLES = {
    "largest_magnitudes": 5,
    "encode_codes": 5,
    "encode_nibbles": 5,
    "encode_signs": 20,
    "join_partials": 20,
}
"""Five for each number that a warp reduces; other kernels need none."""
VECTORS = {
    "largest_magnitudes": {("ld.global.nc.", 128)},
    "encode_codes": {("ld.global.nc.", 128)},
    "decode_codes": {("ld.global.", 128), ("st.global.", 128)},
    "encode_bfloat16": {("ld.global.nc.", 128), ("st.global.", 64)},
    "decode_bfloat16": {("ld.global.nc.", 64), ("ld.global.", 128), ("st.global.", 128)},
    "encode_nibbles": {("ld.global.nc.", 128)},
    "decode_nibbles": {("ld.global.", 128), ("st.global.", 128)},
    "encode_signs": {("ld.global.nc.", 128)},
    "join_partials": set(),
    "decode_signs": {("ld.global.", 128), ("st.global.", 128)},
    "add_rows": set(),
}
"""Bits that one instruction moves: four numbers, or four bfloat16. Four codes of eight bits are one uint32."""
LARGEST_NUM_REGISTERS = 64


@pytest.mark.slow
@pytest.mark.parametrize(
    "capabilities",
    [pytest.param(CAPABILITIES[2:3], id="sm_90"), pytest.param(CAPABILITIES, id="all", marks=pytest.mark.deep)],
)
@pytest.mark.parametrize("name", CODEC_KERNELS)
def test_every_kernel_compiles(name: str, capabilities: tuple[tuple[int, int], ...]) -> None:
    for cc in capabilities:
        ptx = compile_ptx_of(name, cc)
        assert f".target sm_{cc[0]}{cc[1]}" in ptx and ptx.count(".entry") == 1
        assert ".f64" not in ptx  # consumer cards do float64 at 1/64 of the rate
        assert not re.search(r"\bcall\b", ptx)  # all is inlined
        assert ".local" not in ptx  # and in registers
        assert not re.search(r"div\.(approx|full)|\.ftz", ptx)  # the quotient is rounded as the CPU's is
        assert not re.search(r"(div|rem)\.[su]64", ptx)  # some hundred instructions each
        assert ptx.count("shfl.sync.bfly") == NUM_SHUFFLES.get(name, 0)
        assert not re.search(r"\bbar(rier)?\.", ptx) and ".shared" not in ptx  # warps do not wait for each other
        moved = re.findall(r"((?:ld|st)\.global\.(?:nc\.)?)v(\d)\.[a-z](\d\d)", ptx)
        assert {(how, int(num) * int(bits)) for how, num, bits in moved} == VECTORS[name]
        taken, reason = tools.resources(ptx, cc)
        if taken is None:
            assert reason
            continue
        assert taken.spill_bytes == taken.stack_bytes == taken.shared_bytes == 0
        assert taken.registers <= LARGEST_NUM_REGISTERS
