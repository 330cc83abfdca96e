"""Codecs of CUDA tensors beside the same codecs on the CPU."""

import numpy as np
import pytest

from augpipe.trainer.codecs import ErrorFeedback, codec, names

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")


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
