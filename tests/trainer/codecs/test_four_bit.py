"""The 4-bit codec: its published levels, payloads made by hand, the nearest level, and what a step sends."""

import math
import struct

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.stats import norm

from augpipe.gpu_ops.codec.four_bit import RUN, byte_of_nibbles, first_nibble, nibble_of, second_nibble
from augpipe.trainer.codecs import codec
from augpipe.trainer.codecs.four_bit import FourBitCodec
from augpipe.trainer.exchange import butterfly, fill_buckets
from augpipe.trainer.exchange.meter import butterfly_bytes

Floats = npt.NDArray[np.float32]


def made(block: int | None = 256) -> FourBitCodec:
    found = codec("nf4", block=block)
    assert isinstance(found, FourBitCodec)
    return found


def test_the_levels_are_the_papers_quantiles() -> None:
    """QLoRA, appendix E: eight quantiles above zero and seven below, even in probability up to an offset."""
    offset = 0.9677083
    above = norm.ppf(np.linspace(offset, 0.5, 9)[:-1])
    below = -norm.ppf(np.linspace(offset, 0.5, 8)[:-1])
    levels = np.sort(np.concatenate([above, below, [0.0]]))
    np.testing.assert_allclose(made().codebook, levels / levels.max(), rtol=2e-6)


def test_the_levels_beside_an_installed_bitsandbytes() -> None:
    functional = pytest.importorskip("bitsandbytes.functional")
    np.testing.assert_array_equal(made().codebook, functional.get_4bit_type("nf4", device="cpu").numpy())


def test_a_payload_by_hand() -> None:
    """Blocks of three: each begins with a byte of its own, and the upper half of its last byte is zero."""
    tested = made(3)
    x = np.array([2.0, -2.0, 0.0, 0.5, 4.0, -2.0, -0.0], np.float32)
    payload = tested.encode(x)
    assert len(payload) == tested.num_bytes(7) == 8 + 3 * 4 + 2 + 2 + 1
    header, scales, codes = payload[:8], payload[8:20], payload[20:]
    assert struct.unpack("<q", header.tobytes()) == (7,)
    assert struct.unpack("<3f", scales.tobytes()) == (2.0, 4.0, 0.0)
    assert codes.tolist() == [0x0F, 0x07, 0xF9, 0x02, 0x07]  # 0.5 of 4 is 0.125, nearer to 0.161 than to 0.080
    decoded = tested.decode(payload)
    np.testing.assert_array_equal(
        decoded, np.float32([2, -2, 0, 4, 4, 4, 0]) * tested.codebook[[15, 15, 7, 9, 15, 2, 7]]
    )


def test_two_codes_share_a_byte_and_come_apart() -> None:
    for first in range(16):
        for second in range(16):
            byte = byte_of_nibbles.py_func(np.int32(first), np.int32(second))
            assert byte == first + 16 * second
            assert first_nibble.py_func(byte) == first and second_nibble.py_func(byte) == second


@pytest.mark.parametrize("block", [1, 2, 7, 64, 255, 256, RUN + 1, 3 * RUN, None])
def test_odd_lengths_and_blocks(block: int | None) -> None:
    """The code of a number, whichever half of a byte it lies in, is the one it has in a block of its own scale."""
    tested = made(block)
    for num in (1, 2, 3, 255, 256, 257, 511, 1000, 3 * RUN + 5):
        x = np.random.default_rng(num).standard_normal(num).astype(np.float32)
        payload = tested.encode(x)
        size = block or num
        blocks = [x[at : at + size] for at in range(0, num, size)]
        assert len(payload) == tested.num_bytes(num) == 8 + sum(4 + math.ceil(len(one) / 2) for one in blocks)
        wanted = []
        for one in blocks:
            scaled = one / np.abs(one).max()
            nearest = np.abs(tested.codebook.astype(np.float64) - scaled.astype(np.float64)[:, None]).argmin(1)
            wanted.append(tested.codebook[nearest] * np.abs(one).max())
        np.testing.assert_array_equal(tested.decode(payload), np.concatenate(wanted))


def test_nearest_levels_around_every_border() -> None:
    """The leaf beside the definition; midway the level nearer to zero."""
    levels = made().codebook.astype(np.float64)
    middles = ((levels[:-1] + levels[1:]) / 2).astype(np.float32)
    x = np.concatenate([middles, *(np.nextafter(middles, np.float32(end)) for end in (-2, 2)), [1.0, -1.0, 0.0]])
    for number in x.astype(np.float32):
        distances = np.abs(levels - np.float64(number))
        nearest = np.flatnonzero(distances == distances.min())
        assert nibble_of.py_func(number) == min(nearest, key=lambda code: abs(levels[code]))
    assert nibble_of.py_func(np.float32(-0.0)) == 7
    decoded = made(None).decode(made(None).encode(np.append(x, 1.0).astype(np.float32))).astype(np.float64)
    distances = np.abs(levels - np.append(x, 1.0)[:, None])
    np.testing.assert_array_equal(np.abs(decoded - np.append(x, 1.0)), distances.min(1))


@pytest.mark.slow
@given(
    x=hnp.arrays(np.float32, st.integers(1, 600), elements=st.floats(width=32, allow_nan=False, allow_infinity=False)),
    block=st.sampled_from([1, 3, 16, 256, 257, None]),
)
def test_the_level_is_the_nearest_and_zero_stays_zero(x: Floats, block: int | None) -> None:
    tested = made(block)
    levels, decoded = tested.codebook.astype(np.float64), tested.decode(tested.encode(x))
    for at in range(0, len(x), block or len(x)):
        numbers, found = (one[at : at + (block or len(x))] for one in (x, decoded))
        absmax = np.abs(numbers).max()
        scaled = (numbers / absmax if absmax else numbers).astype(np.float64)
        distances = np.abs(levels - scaled[:, None])
        tied = np.where(distances == distances.min(1)[:, None], np.abs(levels), np.inf).argmin(1)
        np.testing.assert_array_equal(found, tested.codebook[tied] * absmax)
    assert (decoded[x == 0] == 0).all()


def test_the_bounds_in_the_docstring_are_those_of_the_levels() -> None:
    row = next(line for line in (FourBitCodec.__doc__ or "").splitlines() if line.strip().startswith("nf4 "))
    stated = [float(cell) for cell in row.split()[1:]]
    levels = made().codebook.astype(np.float64)
    for decade, bound in enumerate(stated):
        highest = 10.0**-decade
        scaled = np.linspace(highest / 10 if decade < len(stated) - 1 else 0.0, highest, 20_001)
        scaled = np.concatenate([scaled, -scaled])
        worst = np.abs(levels - scaled[:, None]).min(1).max()
        assert worst <= bound * (1 + 1e-6) <= 1.02 * worst


def test_two_lengths_of_the_same_size_are_kept_apart() -> None:
    tested = made()
    payload = tested.encode(np.ones(99, np.float32))
    assert tested.num_bytes(100) == len(payload) and tested.decode(payload).shape == (99,)
    with pytest.raises(ValueError, match="payload holds 99 numbers and out 100: sizes must agree"):
        tested.decode_into(payload, np.empty(100, np.float32))
    for cut in (payload[:-1], payload[:5], np.full(8, 255, np.uint8)):
        with pytest.raises(ValueError, match="its header does not say that many numbers with nf4, block=256"):
            tested.decode(cut)
    with pytest.raises(ValueError, match="read-only"):
        tested.codebook[0] = 0.5


def test_at_most_a_seventh_of_float32() -> None:
    """With scales and headers: a slice of a bucket of 4 MiB on four ranks, and all of a network."""
    for num in (2**20 // 4, 25_000_000):
        assert made().num_bytes(num) <= 0.14 * 4 * num
        assert made().num_bytes(num) == 8 + 4 * math.ceil(num / 256) + math.ceil(num / 2)


def test_what_a_rank_sends_of_resnet_50() -> None:
    """25.6 million gradients in buckets of 4 MiB on four ranks: by the schedule that runs, and by the formula."""
    torch = pytest.importorskip("torch")
    from augpipe.trainer import model

    with torch.device("meta"):
        parameters = list(model("resnet-50", num_classes=1000).parameters())
    sizes = [parameter.numel() for parameter in parameters]
    assert 25.5e6 < sum(sizes) < 25.6e6
    exempt = [int(parameter.ndim <= 1) for parameter in parameters]
    exchange = butterfly(fill_buckets(sizes, exempt, dict.fromkeys((0, 1), 2**20)), 4)
    num_encoded = sum(size for size, is_exempt in zip(sizes, exempt, strict=True) if not is_exempt)
    num_exempt = sum(sizes) - num_encoded
    for tested, most_mb in ((codec("nf4"), 21.5), (codec("dynamic-tree"), 39.7)):
        size_of = {0: tested.num_bytes, 1: codec("fp32").num_bytes}
        sent = [exchange.bytes_sent(rank, lambda kind, num, size_of=size_of: size_of[kind](num)) for rank in range(4)]
        assert 0.9 * most_mb < max(sent) / 1e6 <= most_mb
        formula = butterfly_bytes(num_encoded, 4, size_of[0]) + butterfly_bytes(num_exempt, 4, size_of[1])
        # a header and a short block in each slice of a bucket
        assert formula <= sum(sent) / 4 <= formula + 2 * 4 * 13 * len(exchange.buckets)
