"""The codecs' CUDA kernels in numba's simulator beside the CPU's loops; `test_codecs.py` runs this apart.

The simulator must be chosen before numba is imported, so these tests have a process of their own.
"""

from contextlib import contextmanager

import numpy as np
import pytest

from augpipe.gpu_ops.cuda import codec_launch
from augpipe.gpu_ops.cuda.codec_codes import CHUNK
from augpipe.gpu_ops.cuda.launch import is_simulated
from augpipe.trainer.codecs import codec, cuda, names
from augpipe.trainer.codecs.arrays import Memory
from augpipe.trainer.codecs.base import BaseCodec
from augpipe.trainer.codecs.codebooks import CODEBOOKS
from augpipe.trainer.codecs.eight_bit import codebook_of, lookup_of

assert is_simulated() and CHUNK == 32

CASES = [(1, 7), (31, None), (90, 7), (90, 64), (90, None)]
"""Blocks of less than a chunk, of two chunks, and one that holds all."""


def numbers(num: int, *, broken: bool = False) -> np.ndarray:
    rng = np.random.default_rng(num)
    x = (rng.standard_normal(num) * 10.0 ** rng.uniform(-8, 0, num)).astype(np.float32)
    x[num // 2 : num // 2 + 20] = 0.0
    if broken:
        x[3::40] = [np.nan, np.inf, -np.inf][: len(x[3::40])]
    return x


def payload_for(num_bytes: int, offset: int = 1) -> np.ndarray:
    """Codes may start at any byte."""
    held = np.full(num_bytes + offset + 8, 99, np.uint8)
    start = -held.ctypes.data % 8 + offset
    return held[start : start + num_bytes]


@pytest.mark.parametrize("name", CODEBOOKS)
@pytest.mark.parametrize(("num", "block"), CASES)
@pytest.mark.parametrize("broken", [False, True])
def test_codes(name: str, num: int, block: int | None, broken: bool) -> None:
    tested, x, table = codec(name, block=block), numbers(num, broken=broken), lookup_of(name)
    expected = np.empty(tested.num_bytes(num), np.uint8)
    num_non_finite = tested.encode_into(x, expected)
    cut = codec_launch.Cut(num=num, block=block or num)
    scratch, payload = np.zeros(cut.num_blocks + 1, np.int32), payload_for(len(expected))
    codec_launch.encode_codes(
        x.ctypes.data,
        payload.ctypes.data,
        scratch.ctypes.data,
        cut,
        table.entries.ctypes.data,
        table.first_bucket,
        table.num_buckets,
        0,
    )
    assert scratch[-1] == num_non_finite == (~np.isfinite(x)).sum()
    np.testing.assert_array_equal(payload, expected)
    for add in (False, True):
        out = np.linspace(-1, 1, num, dtype=np.float32)
        wanted = out.copy()
        tested.decode_into(expected, wanted, add=add)
        levels = codebook_of(name).ctypes.data
        codec_launch.decode_codes(payload.ctypes.data, out.ctypes.data, cut, levels, add, 0)
        np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize(("name", "item_bytes"), [("fp32", 4), ("bf16", 2)])
@pytest.mark.parametrize("num", [1, 100])
def test_whole_types(name: str, item_bytes: int, num: int) -> None:
    tested, x = codec(name), numbers(num, broken=True)
    x[: num // 2] *= np.float32(1e38)
    expected = tested.encode(x)
    payload, count = payload_for(len(expected), offset=4), np.zeros(1, np.int32)
    codec_launch.encode_whole(x.ctypes.data, payload.ctypes.data, count.ctypes.data, num, item_bytes, 0)
    np.testing.assert_array_equal(payload, expected)
    assert count[0] == (~np.isfinite(x)).sum()
    for add in (False, True):
        out = np.linspace(-1, 1, num, dtype=np.float32)
        wanted = out.copy()
        tested.decode_into(expected, wanted, add=add)
        codec_launch.decode_whole(payload.ctypes.data, out.ctypes.data, num, item_bytes, add, 0)
        np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize(("num", "block"), [*CASES, (0, None)])
@pytest.mark.parametrize("broken", [False, True])
@pytest.mark.parametrize("factor", [1.0, 1e37])
def test_one_bit(num: int, block: int | None, broken: bool, factor: float) -> None:
    tested = codec("one-bit", block=block)
    x = numbers(num, broken=broken) * np.float32(factor)  # sums of the larger ones are beyond float32
    expected = tested.encode(x)
    cut = codec_launch.Cut(num=num, block=block or max(num, 1))
    scratch, payload = np.zeros(-(-cut.scratch_bytes // 4), np.int32), payload_for(len(expected))
    codec_launch.encode_signs(x.ctypes.data, payload.ctypes.data, scratch.ctypes.data, cut, 0)
    assert scratch[cut.num_blocks] == (~np.isfinite(x)).sum()
    signs_at = 8 + 8 * cut.num_blocks
    np.testing.assert_array_equal(payload[:8], expected[:8])
    np.testing.assert_array_equal(payload[signs_at:], expected[signs_at:])
    means, wanted_means = (one[8:signs_at].copy().view(np.float32) for one in (payload, expected))
    np.testing.assert_allclose(means, wanted_means, rtol=2e-6)
    for add in (False, True):
        out = np.linspace(-1, 1, num, dtype=np.float32)
        wanted = out.copy()
        tested.decode_into(payload.copy(), wanted, add=add)
        codec_launch.decode_signs(payload.ctypes.data, out.ctypes.data, cut, add, 0)
        np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("block", [16, None])
def test_codecs_of_tensors_reach_the_kernels(name: str, block: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The way of a CUDA tensor through a codec, with host memory said to lie on a device."""
    torch = pytest.importorskip("torch")
    tested = codec(name, block=block)
    assert isinstance(tested, BaseCodec)

    @contextmanager
    def no_stream(memory: Memory):
        yield 0

    monkeypatch.setattr(cuda, "current_stream", no_stream)
    monkeypatch.setattr(cuda, "on_device", lambda name, table, memory: table.ctypes.data)

    def as_device(tensor: "torch.Tensor") -> Memory:
        return Memory(tensor, tensor.data_ptr(), len(tensor), 0)

    x = numbers(50, broken=True)
    values, payload = torch.from_numpy(x), torch.empty(tested.num_bytes(50), dtype=torch.uint8)
    assert tested.encode_memory(as_device(values), as_device(payload)) == (~np.isfinite(x)).sum()
    out = torch.full((50,), 2.0)
    tested.decode_memory(as_device(payload), as_device(out), True)
    np.testing.assert_allclose(out.numpy(), tested.decode(tested.encode(x)) + np.float32(2.0), rtol=1e-5)
    if name in ("fp32", "bf16"):
        shifted = as_device(torch.empty(len(payload) + 1, dtype=torch.uint8)[1:])
        with pytest.raises(ValueError, match="on a CUDA device it must be a multiple of"):
            tested.encode_memory(as_device(values), shifted)
