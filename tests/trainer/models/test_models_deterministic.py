"""Every network trains with torch's deterministic algorithms on CUDA: it has no operation that torch refuses there."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from augpipe.trainer.models import build, names
from augpipe.trainer.models.layers import AveragePool, MaximumPool, ResponseNorm

REFUSED = (
    "_adaptive_avg_pool2d_backward",
    "_adaptive_avg_pool3d_backward",
    "adaptive_max_pool2d_backward",
    "avg_pool3d_backward",
    "fractional_max_pool2d_backward",
    "fractional_max_pool3d_backward",
    "max_unpool2d",
    "max_unpool3d",
    "upsample_linear1d_backward",
    "upsample_bilinear2d_backward",
    "upsample_bicubic2d_backward",
    "upsample_trilinear3d_backward",
    "reflection_pad1d_backward",
    "reflection_pad2d_backward",
    "reflection_pad3d_backward",
    "nll_loss2d_forward",
    "_ctc_loss_backward",
    "put_",
    "histc",
    "bincount",
    "grid_sampler_2d_backward",
    "cumsum",
)
"""What torch.use_deterministic_algorithms lists as raising an error on CUDA, by the operations' names."""

OPTIONS: dict[str, dict[str, Any]] = {
    "deep-image-16": {"filters": (2, 3, 4, 5, 6), "fc_widths": (7, 8)},
    "deep-image-19": {"filters": (2, 3, 4, 5, 6), "fc_widths": (7, 8)},
    "scaling-8conv": {"filters": (2, 3, 4, 5, 6), "fc_widths": (7, 8)},
    "alexnet": {"fc_widths": (7, 8)},
    "small-cnn": {"width": 2},
}
IMAGES = {"mnist-mlp": [(1, 28, 28)], "mullapudi-mlp": [(1, 28, 28)], "cifar-conv": [(3, 32, 32)]}
SIZES = [(3, 64, 64), (3, 96, 80), (3, 224, 224)]


class Operations(TorchDispatchMode):
    """The names of all operations, in this thread."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.names.add(function._schema.name.removeprefix("aten::"))
        return function(*args, **(kwargs or {}))


def operations(layer: nn.Module, images: torch.Tensor) -> set[str]:
    """Of forward, the loss and backward."""
    with Operations() as noted:
        logits = layer(images).flatten(1)
        F.cross_entropy(logits, torch.zeros(len(images), dtype=torch.int64), reduction="none").sum().backward()
    return noted.names


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    ("name", "size"), [(name, size) for name in names() for size in IMAGES.get(name, SIZES)], ids=str
)
def test_a_network_has_a_deterministic_backward(name: str, size: tuple[int, int, int]) -> None:
    torch.manual_seed(0)
    model = build(name, num_classes=3, **OPTIONS.get(name, {}))
    found = operations(model, torch.randn(2, *size))
    assert any("backward" in one for one in found)
    assert not found.intersection(REFUSED)


@pytest.mark.parametrize(
    ("layer", "refused"),
    [
        (nn.AdaptiveAvgPool2d(6), "_adaptive_avg_pool2d_backward"),
        (nn.AdaptiveMaxPool2d(1), "adaptive_max_pool2d_backward"),
        (nn.LocalResponseNorm(5), "avg_pool3d_backward"),
    ],
)
def test_torchs_own_layers_have_none(layer: nn.Module, refused: str) -> None:
    """So that the test above can fail."""
    assert refused in operations(layer, torch.randn(2, 8, 13, 9, requires_grad=True))


def both(ours: nn.Module, torchs: nn.Module, images: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """(ours, torch's) of the values and of the gradient."""
    made = []
    for layer in (ours, torchs):
        given = images.clone(memory_format=torch.preserve_format).requires_grad_()
        values = layer(given)
        torch.manual_seed(1)
        values.backward(torch.randn(values.shape))
        assert given.grad is not None
        made.append((values, given.grad))
    return list(zip(*made, strict=True))


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize(
    ("ours", "torchs", "size"),
    [
        (MaximumPool(), nn.AdaptiveMaxPool2d(1), (12, 8)),
        (AveragePool(7), nn.AdaptiveAvgPool2d(7), (7, 7)),
        (AveragePool(6), nn.AdaptiveAvgPool2d(6), (12, 18)),
        (ResponseNorm(5, alpha=5e-4, k=2.0), nn.LocalResponseNorm(5, alpha=5e-4, k=2.0), (13, 9)),
        (ResponseNorm(9, alpha=1e-3), nn.LocalResponseNorm(9, alpha=1e-3), (8, 8)),
    ],
)
def test_layers_give_torchs_numbers_to_the_last_bit(
    ours: nn.Module, torchs: nn.Module, size: tuple[int, int], layout: torch.memory_format
) -> None:
    torch.manual_seed(0)
    images = (5 * torch.randn(3, 20, *size)).relu().to(memory_format=layout)
    for mine, expected in both(ours, torchs, images):
        assert torch.equal(mine, expected) and mine.stride() == expected.stride()


@pytest.mark.parametrize("size", [(8, 8), (13, 9), (2, 2), (1, 6), (63, 50)])
def test_windows_of_unequal_size_average_as_torchs_do(size: tuple[int, int]) -> None:
    torch.manual_seed(0)
    for mine, expected in both(AveragePool(7), nn.AdaptiveAvgPool2d(7), torch.randn(3, 20, *size)):
        torch.testing.assert_close(mine, expected, rtol=1e-6, atol=1e-6)
