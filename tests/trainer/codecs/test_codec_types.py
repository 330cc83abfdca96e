"""The codecs beside the papers' examples, bitsandbytes' own levels, torch's casts and payloads made by hand."""

import re
import struct

import numpy as np
import pytest
from numba import njit

from augpipe.gpu_ops.codec import memory as codec_memory
from augpipe.trainer.codecs import codec
from augpipe.trainer.codecs.codebooks import CODEBOOKS
from augpipe.trainer.codecs.eight_bit import EightBitCodec
from augpipe.trainer.codecs.lookup import build_lookup
from tests.trainer.codecs.dynamic_map_levels import LEVELS


def nearest(name: str, value: float) -> float:
    """What a number of a block whose absmax is 1 becomes."""
    return float(codec(name).decode(codec(name).encode(np.array([1.0, value], np.float32)))[1])


@pytest.mark.parametrize(
    ("name", "value", "becomes"),
    [
        ("dynamic-tree", 0.2345678, 0.236719),
        ("dynamic-tree", 0.0000234, 0.000019),
        ("static-tree", 0.2345678, 0.23125),
        ("mantissa", 0.2345678, 0.2),
    ],
)
def test_the_examples_of_the_paper(name: str, value: float, becomes: float) -> None:
    digits = len(repr(becomes)) - 2 if becomes > 1e-3 else 6
    assert round(nearest(name, value), digits) == becomes


def test_the_dynamic_tree_as_its_author_describes_it() -> None:
    levels = CODEBOOKS["dynamic-tree"]()
    positive = levels[levels > 0].astype(np.float64)
    assert len(positive) == 127 and positive[-1] == 1.0  # 126 magnitudes, and the absmax itself
    for decade in range(6):
        within = positive[(positive < 10.0**-decade) & (positive > 10.0 ** -(decade + 1))] * 10.0**decade
        assert len(within) == 2 ** (6 - decade)
        assert (within < 0.45).sum() == (within > 0.45).sum() == len(within) / 2
        for low, high, side in ((0.1, 0.45, within[within < 0.45]), (0.45, 1.0, within[within > 0.45])):
            step = (high - low) / len(side)
            np.testing.assert_allclose(side, low + step * (np.arange(len(side)) + 0.5), rtol=1e-6)


def test_the_dynamic_map_is_that_of_bitsandbytes_to_the_last_bit() -> None:
    np.testing.assert_array_equal(CODEBOOKS["dynamic-map"]().view(np.uint32), LEVELS.view(np.uint32))


def test_the_dynamic_map_beside_an_installed_bitsandbytes() -> None:
    pytest.importorskip("bitsandbytes")
    from bitsandbytes.functional import create_dynamic_map

    np.testing.assert_array_equal(
        CODEBOOKS["dynamic-map"]().view(np.uint32), create_dynamic_map().numpy().view(np.uint32)
    )


def test_linear_and_mantissa() -> None:
    np.testing.assert_array_equal(CODEBOOKS["linear"]()[128:], (np.arange(128) / 127).astype(np.float32))
    levels = CODEBOOKS["mantissa"]()
    expected = sorted({float(f"{whole}e-{n}") for n in range(1, 9) for whole in range(16) if whole * 10.0**-n <= 1.0})
    np.testing.assert_allclose(np.unique(np.abs(levels)), expected, rtol=1e-7)


@pytest.mark.parametrize("name", CODEBOOKS)
def test_every_codebook_is_sorted_and_holds_its_ends(name: str) -> None:
    levels = CODEBOOKS[name]()
    assert levels.shape == (256,) and levels.dtype == np.float32
    assert (np.diff(levels) >= 0).all() and levels[255] == 1.0 and 0.0 in levels
    if name != "dynamic-map":
        np.testing.assert_array_equal(levels, -levels[::-1])


@pytest.mark.parametrize("name", CODEBOOKS)
def test_the_bounds_in_the_docstring_are_those_of_the_levels(name: str) -> None:
    table = EightBitCodec.__doc__ or ""
    row = next(line for line in table.splitlines() if line.strip().startswith(name))
    stated = [float(cell) for cell in row.split()[1:]]
    levels = np.unique(CODEBOOKS[name]()).astype(np.float64)
    for decade, bound in enumerate(stated):
        highest = 10.0**-decade
        scaled = np.linspace(highest / 10 if decade < 6 else 0.0, highest, 20_001)
        scaled = np.concatenate([scaled, -scaled])
        above = np.clip(np.searchsorted(levels, scaled), 1, len(levels) - 1)
        worst = np.minimum(np.abs(levels[above] - scaled), np.abs(levels[above - 1] - scaled)).max()
        assert worst <= bound * (1 + 1e-6) <= 1.02 * worst  # the levels are float32


def test_levels_too_close_for_the_table_are_refused() -> None:
    levels = CODEBOOKS["linear"]()
    levels[200:203] = levels[200] + np.arange(3, dtype=np.float32) * np.float32(1e-4)
    with pytest.raises(ValueError, match="lie closer than 2\\^-6 of their size"):
        build_lookup(levels)


def test_the_payload_of_a_block_by_hand() -> None:
    linear = codec("linear", block=3)
    payload = linear.encode(np.array([2.0, -1.0, 0.0, -4.0], np.float32))
    assert len(payload) == linear.num_bytes(4) == 12
    assert struct.unpack("<2f4B", payload.tobytes()) == (2.0, 4.0, 255, 127 - 63, 128, 0)


def test_the_payload_of_one_bit_by_hand() -> None:
    one_bit = codec("one-bit", block=4)
    x = np.array([1.0, 2.0, -4.0, 3.0, -1.0, -2.0, -6.0, -3.0, 0.0, -0.0], np.float32)
    payload = one_bit.encode(x)
    assert len(payload) == one_bit.num_bytes(10) == 8 + 8 * 3 + 2
    assert struct.unpack("<q6f2B", payload.tobytes()) == (10, 2.0, -4.0, 0.0, -3.0, 0.0, 0.0, 0b00001011, 0b11)
    np.testing.assert_array_equal(one_bit.decode(payload), [2, 2, -4, 2, -3, -3, -3, -3, 0, 0])


def test_bf16_is_torchs_cast_but_for_what_would_become_infinite() -> None:
    torch = pytest.importorskip("torch")
    words = np.arange(0, 2**32, 4099, dtype=np.uint64).astype(np.uint32)
    halves = np.arange(2**16, dtype=np.uint32) << 16
    for low in (0x7FFF, 0x8000, 0x8001, 0):
        words = np.append(words, halves | low)
    words = words.astype(np.uint32)
    x = words.view(np.float32)
    decoded = codec("bf16").decode(codec("bf16").encode(x))
    cast = torch.from_numpy(x).bfloat16().float().numpy()
    same = np.isfinite(cast) | ~np.isfinite(x)
    np.testing.assert_array_equal(decoded[same], cast[same])
    assert (~same).any()
    np.testing.assert_array_equal(decoded[~same], np.copysign(np.float32(3.3895314e38), x[~same]))


def test_fp32_is_the_bytes_themselves() -> None:
    x = np.array([1.5, np.nan, -np.inf, 1e-45], np.float32)
    assert codec("fp32").encode(x).tobytes() == x.tobytes()
    np.testing.assert_array_equal(codec("fp32").decode(codec("fp32").encode(x)).view(np.uint32), x.view(np.uint32))


@pytest.mark.parametrize(("name", "kind"), [("float", "float"), ("half", "i16"), ("byte", "i8")])
def test_the_compiler_is_promised_no_alignment_of_payloads(name: str, kind: str) -> None:
    """They may start anywhere, and a CPU that minds it ends the process where it was told otherwise."""
    load, store = getattr(codec_memory, f"load_{name}"), getattr(codec_memory, f"store_{name}")

    @njit("void(uintp, uintp)")
    def copy(source, target):  # type: ignore[no-untyped-def]
        store(target, 0, load(source, 0))

    (code,) = copy.inspect_llvm().values()
    aligned = re.findall(rf"(load|store) {kind}[ ,].*, align (\d+)", code)
    assert aligned == [("load", "1"), ("store", "1")]
