"""Dense testing is the plain forward at the training size, and the classifier at every window beyond it."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from augpipe.trainer.evaluation import DenseConvNet
from augpipe.trainer.models import build
from augpipe.trainer.models.layers import ConvNet, fully_connected

SMALL = {"filters": (2, 3, 4, 5, 6), "fc_widths": (7, 8)}
NETWORKS: dict[str, tuple[str, dict[str, Any], tuple[int, int], tuple[int, int]]] = {
    "16 layers": ("deep-image-16", SMALL, (224, 224), (1, 1)),
    "19 layers": ("deep-image-19", SMALL, (224, 224), (1, 1)),
    "16 layers, twice the size": ("deep-image-16", SMALL, (448, 448), (2, 2)),
    "alexnet": ("alexnet", {"fc_widths": (7, 8)}, (224, 224), (1, 1)),
    "small": ("small-cnn", {"width": 2, "fc_widths": (5,)}, (96, 96), (12, 12)),
    "small, no square": ("small-cnn", {"width": 2}, (64, 96), (8, 12)),
}
"""Name -> network, options, training size, the pool's window there."""


def network(name: str) -> tuple[ConvNet, DenseConvNet, tuple[int, int]]:
    kind, options, size, cell = NETWORKS[name]
    torch.manual_seed(0)
    plain = build(kind, num_classes=4, **options).eval()
    assert isinstance(plain, ConvNet)
    dense = DenseConvNet(plain, *size).eval()
    assert dense.cell == cell
    return plain, dense, size


def at_every_window(plain: ConvNet, features: Tensor, window: tuple[int, int]) -> Tensor:
    """(N, C, H', W'): pool and classifier applied to each window by itself."""
    windows = features.unfold(2, window[0], 1).unfold(3, window[1], 1)
    rows = [
        [plain.classifier(plain.pool(windows[:, :, i, j]).flatten(1)) for j in range(windows.shape[3])]
        for i in range(windows.shape[2])
    ]
    return torch.stack([torch.stack(row, 2) for row in rows], 2)


@pytest.mark.parametrize("name", NETWORKS)
@torch.no_grad()
def test_dense_is_the_plain_forward_at_the_training_size(name: str) -> None:
    plain, dense, size = network(name)
    images = torch.randn(2, 3, *size)
    found = dense(images)
    assert found.shape == (2, 4, 1, 1)
    torch.testing.assert_close(found[:, :, 0, 0], plain(images), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("more", [(32, 0), (0, 64), (48, 96)])
@torch.no_grad()
def test_dense_is_the_classifier_at_every_window_of_larger_images(name: str, more: tuple[int, int]) -> None:
    plain, dense, (height, width) = network(name)
    images = torch.randn(1, 3, height + more[0], width + more[1])
    found = dense(images)
    expected = at_every_window(plain, plain.features(images), dense.window)
    assert found.shape[2] * found.shape[3] > 1
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_weights_are_those_of_the_network() -> None:
    plain, dense, size = network("small")
    assert {one.data_ptr() for one in dense.parameters()} == {one.data_ptr() for one in plain.parameters()}
    images = torch.randn(1, 3, *size)
    for layer in plain.classifier.modules():
        if isinstance(layer, nn.Linear):
            layer.weight.mul_(2)
            layer.bias.add_(1)
    torch.testing.assert_close(dense(images)[:, :, 0, 0], plain(images), rtol=1e-5, atol=1e-6)


def test_images_below_the_least_are_refused() -> None:
    _, dense, _ = network("small")
    dense.check_scale(95)  # as many cells as 96
    with pytest.raises(ValueError, match=r"94x94 pixels are below the network's least: .* 11x11, .* 12x12\. .* 96 or"):
        dense.check_scale(94)
    with pytest.raises(ValueError, match="below the network's least"):
        dense(torch.zeros(1, 3, 120, 90))


@pytest.mark.parametrize(
    ("made", "size", "said"),
    [
        (lambda: build("resnet-18", num_classes=3), 64, "takes a ConvNet .* is a ResNet"),
        (lambda: build("deep-image-16", num_classes=3, **SMALL), 256, "8x8 features are pooled to 7x7 cells"),
        (lambda: build("deep-image-16", num_classes=3, **SMALL), 64, "2x2 features are pooled to 7x7 cells"),
        (lambda: build("deep-image-16", num_classes=3, **SMALL), 16, "does not take images of 16x16 pixels"),
        (lambda: ConvNet(nn.Conv2d(3, 2, 1), nn.MaxPool2d(2), fully_connected(8, (), 3, 0.0)), 4, "is a MaxPool2d"),
        (
            lambda: ConvNet(nn.Conv2d(3, 2, 1), nn.AdaptiveMaxPool2d((None, 1)), fully_connected(8, (), 3, 0.0)),
            4,
            "a fixed grid",
        ),
        (
            lambda: ConvNet(nn.Conv2d(3, 2, 1), nn.AdaptiveMaxPool2d(1), nn.Sequential(nn.Linear(2, 3), nn.Softmax(1))),
            4,
            "has Softmax",
        ),
    ],
)
def test_networks_that_cannot_be_tested_densely(made: Any, size: int, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        DenseConvNet(made(), size, size)
