"""Every codec, whatever the numbers: its stated bound, its nearest level, what is not finite, and its sizes."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from augpipe.trainer.codecs import ErrorFeedback, codec, names
from augpipe.trainer.codecs.eight_bit import EightBitCodec

Floats = npt.NDArray[np.float32]

EIGHT_BIT = ("dynamic-tree", "dynamic-map", "linear", "mantissa", "static-tree")
BLOCKS = st.sampled_from([1, 3, 16, 64, 256, None])

anything = st.floats(width=32, allow_nan=False, allow_infinity=False)
"""Denormal numbers and the largest ones among them."""

arrays = st.one_of(
    hnp.arrays(np.float32, st.integers(0, 300), elements=anything),
    # numbers of one block over all decades of a codebook
    hnp.arrays(np.float32, st.integers(1, 300), elements=st.floats(-20.0, 0.0, width=32)).map(
        lambda powers: (np.float32(2.0) ** powers * np.where(np.arange(len(powers)) % 3, 1, -1)).astype(np.float32)
    ),
)
broken = hnp.arrays(
    np.float32, st.integers(1, 300), elements=st.one_of(anything, st.sampled_from([np.nan, np.inf, -np.inf]))
)


def starts_of(num: int, block: int | None) -> range:
    return range(0, num, block or max(num, 1))


@pytest.mark.parametrize("name", names())
@given(x=arrays, block=BLOCKS)
def test_the_error_is_within_the_stated_bound(name: str, x: Floats, block: int | None) -> None:
    tested = codec(name, block=block)
    payload = np.empty(tested.num_bytes(len(x)), np.uint8)
    assert tested.encode_into(x, payload) == 0
    decoded = tested.decode(payload)
    assert decoded.shape == x.shape and decoded.dtype == np.float32
    error = np.abs(decoded.astype(np.float64) - x)
    assert (error <= tested.error_bound(x)).all()


@pytest.mark.parametrize("name", EIGHT_BIT)
@given(x=arrays, block=BLOCKS)
def test_the_code_is_that_of_the_nearest_level(name: str, x: Floats, block: int | None) -> None:
    assume(len(x))
    tested = codec(name, block=block)
    assert isinstance(tested, EightBitCodec)
    starts = starts_of(len(x), block)
    payload = tested.encode(x)
    scales = payload[: 4 * len(starts)].view(np.float32)
    codes = payload[4 * len(starts) :]
    levels = tested.codebook.astype(np.float64)
    for nth, start in enumerate(starts):
        numbers = x[start : start + (block or len(x))]
        absmax = np.abs(numbers).max()
        assert scales[nth] == absmax
        scaled = (numbers / absmax if absmax else numbers).astype(np.float64)
        distances = np.abs(levels - scaled[:, None])
        taken = levels[codes[start : start + len(numbers)]]
        closest = distances.min(1)
        assert (np.abs(taken - scaled) == closest).all()
        # of two levels as near, the one nearer to zero
        tied = np.where(distances == closest[:, None], np.abs(levels), np.inf).min(1)
        assert (np.abs(taken) == tied).all()


@pytest.mark.parametrize("name", EIGHT_BIT)
def test_nearest_levels_around_every_border(name: str) -> None:
    tested = codec(name, block=None)
    assert isinstance(tested, EightBitCodec)
    levels = np.unique(tested.codebook).astype(np.float64)
    middles = ((levels[:-1] + levels[1:]) / 2).astype(np.float32)
    x = np.concatenate([middles, *(np.nextafter(middles, np.float32(end)) for end in (-2, 2)), [1.0]]).astype(
        np.float32
    )
    decoded = tested.decode(tested.encode(x)).astype(np.float64)
    distances = np.abs(levels - x.astype(np.float64)[:, None])
    np.testing.assert_array_equal(np.abs(decoded - x), distances.min(1))
    nearest = np.where(distances == distances.min(1)[:, None], np.abs(levels), np.inf).min(1)
    np.testing.assert_array_equal(np.abs(decoded), nearest)


@pytest.mark.parametrize("name", names())
@given(x=broken, block=BLOCKS)
def test_what_is_not_finite_is_counted_and_seen_again(name: str, x: Floats, block: int | None) -> None:
    tested = codec(name, block=block)
    payload = np.empty(tested.num_bytes(len(x)), np.uint8)
    is_finite = np.isfinite(x)
    assert tested.encode_into(x, payload) == (~is_finite).sum()
    decoded, bound = tested.decode(payload), tested.error_bound(x)
    if name in ("fp32", "bf16"):
        np.testing.assert_array_equal(decoded[~is_finite], x[~is_finite])
        np.testing.assert_array_equal(np.isfinite(decoded), is_finite)
        return
    for start in starts_of(len(x), block):
        part = slice(start, start + (block or len(x)))
        if is_finite[part].all():
            assert (np.abs(decoded[part].astype(np.float64) - x[part]) <= bound[part]).all()
        else:
            assert np.isnan(decoded[part]).all() and np.isnan(bound[part]).all()


@pytest.mark.parametrize("name", names())
@given(x=st.one_of(arrays, broken), block=BLOCKS)
def test_every_byte_of_a_payload_is_written(name: str, x: Floats, block: int | None) -> None:
    tested = codec(name, block=block)
    first, second = (np.full(tested.num_bytes(len(x)), held, np.uint8) for held in (0x55, 0xAA))
    tested.encode_into(x, first)
    tested.encode_into(x, second)
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("name", names())
@given(x=arrays, block=BLOCKS, offset=st.integers(0, 7), data=st.data())
def test_adding_is_one_float32_addition(
    name: str, x: Floats, block: int | None, offset: int, data: st.DataObject
) -> None:
    tested = codec(name, block=block)
    held = np.empty(tested.num_bytes(len(x)) + offset, np.uint8)
    payload = held[offset:]  # payloads may start anywhere
    tested.encode_into(x, payload)
    before = data.draw(hnp.arrays(np.float32, len(x), elements=st.floats(-1e6, 1e6, width=32)))
    after = before.copy()
    tested.decode_into(payload, after, add=True)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(after, before + tested.decode(payload))
    tested.decode_into(payload, after)
    np.testing.assert_array_equal(after, tested.decode(payload))


@pytest.mark.parametrize("name", names())
@given(num=st.integers(0, 10**7), block=BLOCKS)
def test_a_payload_says_how_many_numbers_it_holds(name: str, num: int, block: int | None) -> None:
    tested = codec(name, block=block)
    size = tested.num_bytes(num)
    assert 0 <= size == tested.num_bytes(num) and tested.num_bytes(num + 1) >= size
    if name in EIGHT_BIT:
        assert size == num + 4 * -(-num // (block or max(num, 1)))
    if num <= 3000:
        zeros = np.zeros(num, np.float32)
        decoded = tested.decode(tested.encode(zeros))
        np.testing.assert_array_equal(decoded, zeros)


@pytest.mark.parametrize("name", ["bf16", "dynamic-tree", "linear", "nf4", "one-bit"])
@given(seed=st.integers(0, 2**32 - 1), num_steps=st.integers(1, 8), block=BLOCKS)
def test_error_feedback_loses_nothing(name: str, seed: int, num_steps: int, block: int | None) -> None:
    tested = codec(name, block=block)
    feedback = ErrorFeedback(tested)
    steps = np.random.default_rng(seed).standard_normal((num_steps, 200)).astype(np.float32)
    payload = np.empty(tested.num_bytes(200), np.uint8)
    received = np.zeros(200)
    for gradient in steps:
        assert feedback.encode_into("layer", gradient, payload) == 0
        received += tested.decode(payload)
    # what arrived and what is still owed make up all that was given, but for rounding in float32
    total = received + feedback.residual("layer")
    np.testing.assert_allclose(total, steps.astype(np.float64).sum(0), atol=1e-5 * num_steps)
