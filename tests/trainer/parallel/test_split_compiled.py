"""Networks with split layers under torch.compile: what is not split is compiled."""

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch._dynamo.testing import CompileCounter

from augpipe.trainer.parallel import cross_entropy, make_mesh, split
from tests.distributed.sync_parallel_cases import batch, conv_net


@pytest.fixture
def one_rank() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.slow
@pytest.mark.usefixtures("one_rank")
@pytest.mark.filterwarnings("ignore::UserWarning")  # torch looks for gradients of what it traces
@pytest.mark.parametrize("logits", ["whole", "split"])
def test_the_convolutions_are_compiled(logits: str) -> None:
    whole, made = conv_net(), split(conv_net(), make_mesh(1), logits=logits)
    counter = CompileCounter()
    images, labels = batch(0, 4)
    for network in (whole, torch.compile(made.model, backend=counter)):
        cross_entropy(network(images), labels).sum().backward()
    torch.testing.assert_close(made.model.features[0].weight.grad, whole.features[0].weight.grad)
    assert counter.op_count >= 3, "convolution, tanh and pooling"
    made.close()
