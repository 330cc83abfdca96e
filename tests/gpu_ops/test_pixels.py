"""Packing to four bytes; rounding to 16 bits: numpy's float16 and torch's bfloat16, bit by bit."""

import numpy as np
import numpy.typing as npt
import pytest
import torch

from augpipe.gpu_ops.image.pixels import narrow, pack_rgbx, widen

RNG = np.random.default_rng(0)
HALVES = np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float32).view(np.uint32)

BITS = {
    "any": RNG.integers(0, 2**32, 2_000_000, dtype=np.uint32),
    "float16s, halves between two, and next to them": (
        HALVES[:, None].astype(np.int64) + np.array([-0x1001, -0x1000, -0xFFF, -1, 0, 1, 0xFFF, 0x1000, 0x1001])
    ).astype(np.uint32),
    "float16's subnormal numbers and below": RNG.integers(100 << 23, 115 << 23, 1_000_000, dtype=np.uint32),
    "float32's subnormal numbers": RNG.integers(0, 1 << 23, 10_000, dtype=np.uint32),
}


def test_images_are_packed_wherever_their_bytes_are() -> None:
    image = np.random.default_rng(1).integers(0, 256, (5, 7, 4), np.uint8)
    whole = np.pad(image, ((2, 1), (3, 4), (0, 0)))[2:7, 3:10]
    for given in (
        image,
        image[..., :3],
        image[..., 1:],
        image[..., :1],
        image[:, ::-1],
        image[::2],
        whole,
        whole[..., :3],
    ):
        packed = np.zeros((*given.shape[:2], 4), np.uint8)
        pack_rgbx(given, packed)
        expected = given if given.shape[2] >= 3 else np.repeat(given, 3, axis=2)
        np.testing.assert_array_equal(packed[..., :3], expected[..., :3])
        assert (packed[..., 3] == 255).all()


@pytest.mark.parametrize("bits", BITS.values(), ids=BITS)
def test_float16_is_what_numpy_rounds_to(bits: npt.NDArray[np.uint32]) -> None:
    values = bits.ravel().view(np.float32)
    out = np.empty(len(values), np.float16)
    narrow(values, out)
    with np.errstate(all="ignore"):
        expected = values.astype(np.float16)
    assert np.array_equal(np.isnan(out), np.isnan(expected))
    is_number = ~np.isnan(expected)
    assert np.array_equal(out.view(np.uint16)[is_number], expected.view(np.uint16)[is_number])


@pytest.mark.parametrize("bits", BITS.values(), ids=BITS)
def test_bfloat16_is_what_torch_rounds_to(bits: npt.NDArray[np.uint32]) -> None:
    values = bits.ravel().view(np.float32)
    values = values[~np.isnan(values)]  # no pixel is one
    out = np.empty(len(values), np.uint16)
    narrow(values, out)
    assert np.array_equal(out.view(np.int16), torch.from_numpy(values).to(torch.bfloat16).view(torch.int16).numpy())


def test_what_is_rounded_is_widened_exactly() -> None:
    values = np.arange(2**16, dtype=np.uint16).view(np.float16)
    out = np.empty(2**16, np.float32)
    widen(values, out)
    assert np.array_equal(out, values.astype(np.float32), equal_nan=True)
    torch_values = torch.from_numpy(np.arange(2**16, dtype=np.uint16).view(np.int16)).view(torch.bfloat16)
    widen(np.arange(2**16, dtype=np.uint16), out)
    assert np.array_equal(out, torch_values.float().numpy(), equal_nan=True)
