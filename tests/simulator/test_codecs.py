"""The codecs' CUDA kernels in numba's simulator beside the CPU's loops.

Tensors of the CPU stand for those of a device: they take the way that CUDA tensors take, from the codec on.
"""

from collections.abc import Sequence
from contextlib import contextmanager

import numpy as np
import pytest
import torch

from augpipe.gpu_ops.codec.cuda import launch as codec_launch
from augpipe.gpu_ops.codec.cuda.chunks import CHUNK
from augpipe.gpu_ops.cuda.functions import IS_SIMULATED
from augpipe.trainer.codecs import codec, cuda
from augpipe.trainer.codecs.arrays import Memory, Slice
from augpipe.trainer.codecs.base_codec import Codec
from augpipe.trainer.codecs.codebooks import CODEBOOKS
from augpipe.trainer.exchange import message as wire_module
from augpipe.trainer.exchange.bucket import BucketExchange
from augpipe.trainer.exchange.message import RawWire
from tests.gpu_ops.cuda.bucket_exchange import CUTS, exchange, ranks_of_a_bucket, read_controls, send, set_gradients
from tests.simulator.as_on_a_device import built_on_a_device, used_on_a_device

assert IS_SIMULATED, "run these tests in the simulator's session: NUMBA_ENABLE_CUDASIM=1 pytest"
assert CHUNK == 32

SIZES = (90, 0, 33, 64, 1)
BLOCKS = (7, 32, 64, None)
"""A part of a chunk, and no multiple of eight; a whole chunk; two; and all of a slice, three chunks of the longest."""


@pytest.fixture(autouse=True)
def _host_memory_for_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def no_stream(memory: Memory):
        yield 0

    monkeypatch.setattr(cuda, "current_stream", no_stream)
    monkeypatch.setattr(cuda, "on_device", lambda name, table, memory: table.ctypes.data)


def made(name: str, block: int | None = None) -> Codec:
    found = codec(name, block=block)
    assert isinstance(found, Codec)
    return found


def numbers(num: int, *, broken: bool = False) -> np.ndarray:
    """Seven decades, zeros of both signs, denormal numbers; if `broken`, some that are not finite."""
    rng = np.random.default_rng(num)
    x = (rng.standard_normal(num) * 10.0 ** rng.uniform(-8, 0, num)).astype(np.float32)
    x[num // 2 : num // 2 + 10] = 0.0
    x[num // 2 + 10 : num // 2 + 20] = -0.0
    x[-3:] *= np.float32(1e-38)
    if broken:
        x[3::40] = [np.nan, np.inf, -np.inf][: len(x[3::40])]
    return x


class Run:
    """Parts of one tensor, `gap` items apart, which begin `start` items after a multiple of 64 bytes."""

    def __init__(self, sizes: Sequence[int], like: torch.Tensor, start: int, gap: int = 3) -> None:
        self.held = torch.full((sum(sizes) + len(sizes) * gap + start + 64,), 99, dtype=like.dtype)
        at = -self.held.data_ptr() % 64 // like.element_size() + start
        self.parts = []
        for size in sizes:
            self.parts.append(self.held[at : at + size])
            at += size + gap

    def assert_no_more_than_the_parts_are_written(self) -> None:
        for part in self.parts:
            part.fill_(99)
        assert (self.held == 99).all()


def memories(parts: Sequence[torch.Tensor]) -> list[Memory]:
    return [Memory(part, part.data_ptr(), part.numel(), 0) for part in parts]


def encoded(tested: Codec, xs: Sequence[np.ndarray], start: int) -> tuple[list[np.ndarray], int]:
    """Payloads of all at once, and the count; values and payloads begin `start` items after a multiple of 64 bytes."""
    sizes = [len(x) for x in xs]
    values = Run(sizes, torch.zeros(0), start)
    for part, x in zip(values.parts, xs, strict=True):
        part.copy_(torch.from_numpy(x))
    payloads = Run([tested.num_bytes(size) for size in sizes], torch.zeros(0, dtype=torch.uint8), start)
    slices = zip(memories(values.parts), memories(payloads.parts), strict=True)
    count = int(tested.encode_on_device([Slice(one, (payload,)) for one, payload in slices]))
    found = [part.numpy().copy() for part in payloads.parts]
    payloads.assert_no_more_than_the_parts_are_written()
    return found, count


def assert_decoded_alike(tested: Codec, messages: Sequence[Sequence[np.ndarray]], start: int) -> None:
    """All slices of the first message over what is there; then all messages, one after the other, added to it."""
    sizes = [tested.num_values(Memory(one, 0, len(one), None)) for one in messages[0]]
    for add in (False, True):
        used = messages if add else messages[:1]
        outs = Run(sizes, torch.zeros(0), start)
        wanted = []
        for i, out in enumerate(outs.parts):
            out.copy_(torch.linspace(-1, 1, sizes[i]))
            wanted.append(out.numpy().copy())
            for message in used:
                tested.decode_into(message[i], wanted[i], add=add)
        payloads = [Run([len(one) for one in message], torch.zeros(0, dtype=torch.uint8), start) for message in used]
        for run, message in zip(payloads, used, strict=True):
            for part, one in zip(run.parts, message, strict=True):
                part.copy_(torch.from_numpy(one))
        of_slices = zip(*(memories(run.parts) for run in payloads), strict=True)
        slices = zip(memories(outs.parts), of_slices, strict=True)
        tested.decode_on_device([Slice(out, payload) for out, payload in slices], add)
        for out, one in zip(outs.parts, wanted, strict=True):
            np.testing.assert_array_equal(out.numpy().view(np.int32), one.view(np.int32))
        outs.assert_no_more_than_the_parts_are_written()


@pytest.mark.thinned(2)
@pytest.mark.parametrize("start", [0, 1])
@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("broken", [False, True])
@pytest.mark.parametrize("name", ["dynamic-tree", "nf4"])
def test_codes(name: str, block: int | None, broken: bool, start: int) -> None:
    tested, xs = made(name, block), [numbers(size, broken=broken) for size in SIZES]
    payloads, count = encoded(tested, xs, start)
    assert count == sum((~np.isfinite(x)).sum() for x in xs)
    for payload, x in zip(payloads, xs, strict=True):
        np.testing.assert_array_equal(payload, tested.encode(x))
    others = [tested.encode(-x[::-1].copy()) for x in xs]
    assert_decoded_alike(tested, [payloads, others, payloads], start)


@pytest.mark.parametrize("name", ["dynamic-tree", "bf16", "nf4", "one-bit"])
def test_more_slices_than_a_grid_takes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two at most: five slices take three launches; blocks of two chunks, whose absmax is found before."""
    grids = []
    launch = codec_launch._launch
    monkeypatch.setattr(codec_launch, "MAX_GRID_ROWS", 2)
    monkeypatch.setattr(codec_launch, "_launch", lambda *given: grids.append(given[1]) or launch(*given))
    tested, xs = made(name, None if name == "bf16" else 64), [numbers(size, broken=True) for size in SIZES]
    payloads, count = encoded(tested, xs, 0)
    assert count == sum((~np.isfinite(x)).sum() for x in xs)
    assert_decoded_alike(tested, [payloads, [tested.encode(numbers(size)) for size in SIZES]], 0)
    for payload, x in zip(payloads, xs, strict=True):
        np.testing.assert_allclose(tested.decode(payload), tested.decode(tested.encode(x)), rtol=2e-6)
    assert [grid[1] for grid in grids] == [2, 2, 1] * (3 if name == "bf16" else 4)


@pytest.mark.parametrize("name", [*CODEBOOKS, "nf4"])
@pytest.mark.parametrize("factor", [1e-42, 1.0, 1e37])
def test_every_codebook(name: str, factor: float) -> None:
    """Also of nothing but denormal numbers, and of the largest ones."""
    tested, x = made(name, 32), numbers(70) * np.float32(factor)
    (payload,), count = encoded(tested, [x], 0)
    np.testing.assert_array_equal(payload, tested.encode(x))
    assert count == 0
    assert_decoded_alike(tested, [[payload]], 0)


@pytest.mark.parametrize("name", ["fp32", "bf16"])
@pytest.mark.parametrize("start", [0, 1, 2])
def test_whole_types(name: str, start: int) -> None:
    tested, xs = made(name), [numbers(size, broken=True) for size in SIZES]
    xs[0][50:] *= np.float32(1e38)
    payloads, count = encoded(tested, xs, start)
    assert count == sum((~np.isfinite(x)).sum() for x in xs) > 3
    for payload, x in zip(payloads, xs, strict=True):
        np.testing.assert_array_equal(payload, tested.encode(x))
    assert_decoded_alike(tested, [payloads, [tested.encode(x[::-1].copy()) for x in map(np.nan_to_num, xs)]], start)


@pytest.mark.parametrize("name", ["fp32", "bf16", "linear", "nf4", "one-bit"])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite_is_counted_wherever_it_stands(name: str, value: float) -> None:
    """A thread takes eight numbers, each of them in a register of its own."""
    xs = [np.ones(40, np.float32) for _ in range(8)]
    for place, x in enumerate(xs):
        x[place] = x[32 + place] = value
    tested = made(name, None if name in ("fp32", "bf16") else 8)
    payloads, count = encoded(tested, xs, 0)
    assert count == 16
    assert [tested.encode_into(x, np.empty_like(payload)) for x, payload in zip(xs, payloads, strict=True)] == [2] * 8


@pytest.mark.thinned(2)
@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize(("broken", "factor", "start"), [(False, 1.0, 0), (True, 1.0, 1), (False, 1e37, 0)])
def test_one_bit(block: int | None, broken: bool, factor: float, start: int) -> None:
    tested = made("one-bit", block)
    xs = [numbers(size, broken=broken) * np.float32(factor) for size in SIZES]  # sums of the larger: beyond float32
    payloads, count = encoded(tested, xs, start)
    assert count == sum((~np.isfinite(x)).sum() for x in xs)
    for payload, x in zip(payloads, xs, strict=True):
        wanted, signs_at = tested.encode(x), len(payload) - -(-len(x) // 8)
        np.testing.assert_array_equal(payload[:8], wanted[:8])
        np.testing.assert_array_equal(payload[signs_at:], wanted[signs_at:])
        means, wanted_means = (one[8:signs_at].copy().view(np.float32) for one in (payload, wanted))
        np.testing.assert_allclose(means, wanted_means, rtol=2e-6)
    assert_decoded_alike(tested, [payloads, [tested.encode(-x) for x in xs]], start)


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("sign", [1, -1])
def test_one_bit_of_numbers_of_one_sign(sign: int, block: int | None) -> None:
    """The mean of no numbers is 0."""
    tested, x = made("one-bit", block), sign * (np.abs(numbers(37)) + np.float32(0.5))
    (payload,), _ = encoded(tested, [x], 0)
    means, wanted = (one[8:-5].copy().view(np.float32) for one in (payload, tested.encode(x)))
    assert (means == 0).sum() == len(means) // 2
    np.testing.assert_allclose(means, wanted, rtol=2e-6)


@pytest.mark.parametrize("name", ["nf4", "one-bit"])
def test_a_header_that_says_another_number(name: str) -> None:
    """The host does not read it: what is decoded is NaN."""
    tested = made(name, 32)
    payload, out = torch.from_numpy(tested.encode(numbers(33))), torch.zeros(34)
    tested.decode_on_device([Slice(*memories([out]), tuple(memories([payload])))], False)
    assert tested.num_bytes(34) == len(payload) and out.isnan().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("num_others", [1, 2, 7])
@pytest.mark.parametrize("start", [0, 1])
@pytest.mark.parametrize("has_numba_cuda", [True, False])
def test_the_mean_of_rows_is_that_of_adding_one_after_the_other(
    dtype: torch.dtype, num_others: int, start: int, has_numba_cuda: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit by bit, also of denormal numbers, infinities and NaN, for rows that lie apart; torch does it without ours."""
    monkeypatch.setattr(wire_module, "HAS_NUMBA_CUDA", has_numba_cuda)
    xs = [torch.from_numpy(numbers(37 + i, broken=i == 1)[:37]).to(dtype) for i in range(num_others + 1)]
    wire = RawWire(dtype, torch.float32)
    row_bytes = wire.num_bytes(37) + 64 + -wire.num_bytes(37) % 64
    rows = torch.zeros(num_others, row_bytes, dtype=torch.uint8)
    payloads = wire.view(rows[:, : wire.num_bytes(37)])
    payloads.copy_(torch.stack(xs[1:]))
    wanted = xs[0].float()
    values = Run([37], wanted, start)
    values.parts[0].copy_(wanted)
    wire.mean(payloads, wanted)
    with used_on_a_device() as work:
        wire.mean(payloads, values.parts[0])
    assert len(work.grids) == has_numba_cuda
    np.testing.assert_array_equal(values.parts[0].numpy().view(np.int32), wanted.numpy().view(np.int32))
    values.assert_no_more_than_the_parts_are_written()


def found(unit: BucketExchange) -> tuple[object, ...]:
    kept = unit._wire._feedback.state_dict() if unit.is_encoded else {}
    return (
        unit.values.numpy().tobytes(),
        unit.flags,
        unit.non_finite,
        unit.gathered_non_finite,
        repr(unit.square_sums),  # NaN as well
        [(key, one.numpy().tobytes()) for key, one in sorted(kept.items())],
    )


@pytest.mark.thinned(2)
@pytest.mark.parametrize("residuals", [False, True])
@pytest.mark.parametrize("name", ["fp32", "raw fp64", "bf16", "dynamic-tree", "nf4"])
def test_an_exchange_on_a_device(name: str, residuals: bool) -> None:
    """As on the CPU: values, residuals, norms, flags and counts; the host waits once a step, and launches stay few."""
    on_the_cpu = ranks_of_a_bucket(name, residuals=residuals)
    num_launched = 0
    with built_on_a_device():
        on_a_device = ranks_of_a_bucket(name, residuals=residuals)
    for step in range(3):
        for units in (on_the_cpu, on_a_device):
            set_gradients(units, step)
        exchange(on_the_cpu)
        read_controls(on_the_cpu)
        with used_on_a_device() as work:
            exchange(on_a_device)
        num_launched += len(work.grids)
        read_controls(on_a_device)
        for rank, (unit, wanted) in enumerate(zip(on_a_device, on_the_cpu, strict=True)):
            assert found(unit) == found(wanted)
            assert bool(unit.non_finite) == bool(unit.gathered_non_finite) == (step == 1)
            if name == "fp32" and step != 1:  # what is sent back is what there was
                squares = float(np.square(unit.values[CUTS[rank] : CUTS[rank + 1]].double().numpy()).sum())
                assert unit.square_sums[-1] == pytest.approx(squares)
    # a rank encodes for the others and decodes what they send; an owner adds, encodes and decodes its slice; a residual
    # takes one decoding more of what is encoded; torch copies what is not encoded, and the owner adds it
    of_rank, of_owner = (3, 4) if residuals else (2, 3)
    of_rank, of_owner = {"fp32": (0, 1), "raw fp64": (0, 0)}.get(name, (of_rank, of_owner))
    assert num_launched == 3 * (4 * of_rank + 3 * of_owner)


CUTS_OF = {2: (0, 60, 133), 8: (0, 13, 40, 41, 60, 75, 90, 110, 133)}
"""The slices of a bucket, by the number of ranks."""


@pytest.mark.parametrize(
    ("name", "residuals"),
    [
        ("fp32", False),
        ("raw bf16", False),
        pytest.param("raw fp16", False, marks=pytest.mark.deep),
        pytest.param("dynamic-tree", False, marks=pytest.mark.deep),
        ("dynamic-tree", True),
    ],
)
def test_a_device_does_as_much_for_eight_ranks_as_for_two(name: str, residuals: bool) -> None:
    """Operators and kernels of each stage, on every rank; with the bits of the CPU."""
    done: dict[str, set[int]] = {}
    for cuts in CUTS_OF.values():
        on_the_cpu = ranks_of_a_bucket(name, residuals=residuals, cuts=cuts)
        with built_on_a_device():
            on_a_device = ranks_of_a_bucket(name, residuals=residuals, cuts=cuts)
        for step in range(3):
            for units in (on_the_cpu, on_a_device):
                set_gradients(units, step)
            exchange(on_the_cpu)
            read_controls(on_the_cpu)
            for stage in ("pack_reduce", "reduce", "pack_gather", "unpack_gather"):
                for unit in on_a_device:
                    with used_on_a_device() as work:
                        getattr(unit, stage)()
                    if step:  # the first step makes tables and residuals
                        done.setdefault(stage, set()).add(work.num)
                if stage.startswith("pack"):
                    send(on_a_device, stage.removeprefix("pack_"))
            read_controls(on_a_device)
            assert [found(unit) for unit in on_a_device] == [found(unit) for unit in on_the_cpu]
    assert all(len(counts) == 1 for counts in done.values()), done
