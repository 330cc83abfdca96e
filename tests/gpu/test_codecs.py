"""Codecs of CUDA tensors beside the same codecs on the CPU."""

import numpy as np
import pytest

from augpipe.trainer.codecs import ErrorFeedback, codec, names

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")

from tests.gpu_ops.cuda.bucket_exchange import (  # noqa: E402
    exchange,
    ranks_of_a_bucket,
    read_controls,
    set_gradients,
)


def gradients(num: int) -> "torch.Tensor":
    generator = torch.Generator().manual_seed(num)
    x = torch.randn(num, generator=generator) * 10.0 ** (-8 * torch.rand(num, generator=generator))
    x[num // 2] = float("nan")
    return x


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize(("num", "block"), [(1, 256), (100_003, 256), (100_003, 10_000), (100_003, None)])
def test_the_same_payload_as_on_the_cpu(name: str, num: int, block: int | None) -> None:
    tested, x = codec(name, block=block), gradients(num)
    payload = torch.empty(tested.num_bytes(num), dtype=torch.uint8, device="cuda")
    assert tested.encode_into(x.cuda(), payload) == 1
    wanted = tested.encode(x)
    if name != "one-bit":
        assert torch.equal(payload.cpu(), wanted)
    out = torch.ones(num, device="cuda")
    tested.decode_into(payload, out, add=True)
    np.testing.assert_allclose(out.cpu().numpy(), tested.decode(wanted).numpy() + 1.0, rtol=1e-6, atol=1e-6)
    assert torch.equal(tested.decode(payload).isnan().cpu(), tested.decode(wanted).isnan())


def test_another_stream_and_error_feedback() -> None:
    feedback, alone = ErrorFeedback(codec("dynamic-tree")), ErrorFeedback(codec("dynamic-tree"))
    x = gradients(5000)
    payload, wanted = (
        torch.empty(feedback.codec.num_bytes(5000), dtype=torch.uint8, device=d) for d in ("cuda", "cpu")
    )
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(3):
            assert feedback.encode_into("a", x.cuda(), payload) == alone.encode_into("a", x, wanted) == 1
    assert torch.equal(payload.cpu(), wanted) and torch.equal(feedback.residual("a").cpu(), alone.residual("a"))


def test_values_and_payload_on_two_devices() -> None:
    with pytest.raises(
        ValueError, match="values lie on cuda:0 and the payload on the CPU: both must lie on one device"
    ):
        codec("fp32").encode_into(torch.ones(4, device="cuda"), torch.empty(16, dtype=torch.uint8))


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("block", [256, 4096])
@pytest.mark.parametrize("start", [0, 1])
def test_slices_of_all_sizes_by_one_launch(name: str, block: int, start: int) -> None:
    tested, sizes = codec(name, block=block), [100_003, 0, 256, 1, 8192]
    xs = torch.split(gradients(start + sum(sizes))[start:], sizes)
    values = torch.split(gradients(start + sum(sizes)).cuda()[start:], sizes)
    num_bytes = [tested.num_bytes(size) for size in sizes]
    payloads = torch.split(torch.empty(start + sum(num_bytes), dtype=torch.uint8, device="cuda")[start:], num_bytes)
    assert int(tested.encode_slices(values, payloads)) == 1
    wanted = [tested.encode(x) for x in xs]
    if name != "one-bit":
        assert all(torch.equal(payload.cpu(), one) for payload, one in zip(payloads, wanted, strict=True))
    outs = [torch.empty_like(one) for one in values]
    tested.decode_slices(payloads, outs)
    for out, one in zip(outs, wanted, strict=True):
        torch.testing.assert_close(out.cpu(), tested.decode(one), rtol=1e-5, atol=0.0, equal_nan=True)
    total, expected = torch.ones(sizes[0], device="cuda"), torch.ones(sizes[0])
    tested.add_slices([payloads[0]] * 3, total)
    for _ in range(3):
        expected += outs[0].cpu()
    assert torch.equal(total.nan_to_num(9.0).cpu(), expected.nan_to_num(9.0))


@pytest.mark.parametrize("name", ["fp32", "raw bf16", "raw fp16", "raw fp64", "bf16", "dynamic-tree", "nf4"])
def test_an_exchange_for_which_the_host_waits_once(name: str) -> None:
    on_the_cpu, on_a_gpu = (ranks_of_a_bucket(name, residuals=True, device=device) for device in ("cpu", "cuda"))
    for step in range(3):
        for units in (on_the_cpu, on_a_gpu):
            set_gradients(units, step)
        exchange(on_the_cpu)
        torch.cuda.set_sync_debug_mode("error" if step else "default")  # the first step builds kernels and tables
        try:
            exchange(on_a_gpu)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        for unit, wanted in zip(on_a_gpu, on_the_cpu, strict=True):
            read_controls([unit])
            read_controls([wanted])
            torch.testing.assert_close(unit.values.cpu(), wanted.values, rtol=0.0, atol=0.0, equal_nan=True)
            assert unit.flags == wanted.flags
            assert unit.non_finite == wanted.non_finite and unit.gathered_non_finite == wanted.gathered_non_finite
            assert unit.square_sums == pytest.approx(wanted.square_sums, nan_ok=True)
