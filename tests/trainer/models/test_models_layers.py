"""Whole networks and single layers give the numbers that other implementations give from the same weights."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from augpipe.trainer.models import build
from augpipe.trainer.models.cifar import LocallyConnected2d


def with_lively_statistics(model: nn.Module) -> nn.Module:
    """In evaluation mode, with normalisations that are not the identity."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            for tensor in (module.weight.data, module.running_var):
                nn.init.uniform_(tensor, 0.5, 1.5)
            for tensor in (module.bias.data, module.running_mean):
                nn.init.uniform_(tensor, -0.5, 0.5)
    return model.eval()


def plain_resnet(state: dict[str, Tensor], images: Tensor, depths: list[int], stride_on: str) -> Tensor:
    """Table 1 of "Deep Residual Learning" written out in functions; in float64."""

    def convolve(name: str, x: Tensor, stride: int = 1) -> Tensor:
        weight = state[f"{name}.weight"]
        return functional.conv2d(x, weight, stride=stride, padding=weight.shape[-1] // 2)

    def normalise(name: str, x: Tensor) -> Tensor:
        mean, variance = state[f"{name}.running_mean"], state[f"{name}.running_var"]
        scale = state[f"{name}.weight"] / (variance + 1e-5).sqrt()
        return (x - mean[:, None, None]) * scale[:, None, None] + state[f"{name}.bias"][:, None, None]

    x = normalise("bn1", convolve("conv1", images, 2)).relu()
    x = functional.max_pool2d(x, 3, 2, 1)
    for stage, depth in enumerate(depths):
        for index in range(depth):
            block = f"layer{stage + 1}.{index}"
            stride = 2 if index == 0 and stage > 0 else 1
            num = sum(f"{block}.conv{layer}.weight" in state for layer in (1, 2, 3))
            strided = 2 if num == 3 and stride_on == "3x3" else 1
            y = x
            for layer in range(1, num + 1):
                y = convolve(f"{block}.conv{layer}", y, stride if layer == strided else 1)
                y = normalise(f"{block}.bn{layer}", y)
                y = y.relu() if layer < num else y
            if f"{block}.downsample.0.weight" in state:
                x = normalise(f"{block}.downsample.1", convolve(f"{block}.downsample.0", x, stride))
            x = (x + y).relu()
    return x.mean((2, 3)) @ state["fc.weight"].T + state["fc.bias"]


@pytest.mark.parametrize(
    ("name", "options", "depths"),
    [
        ("resnet-18", {}, [2, 2, 2, 2]),
        ("resnet-50", {}, [3, 4, 6, 3]),
        ("resnet-50", {"stride_on": "1x1"}, [3, 4, 6, 3]),
    ],
)
def test_a_resnet_is_that_of_the_paper(name: str, options: dict[str, Any], depths: list[int]) -> None:
    torch.manual_seed(0)
    model = with_lively_statistics(build(name, num_classes=5, **options)).double()
    images = torch.randn(2, 3, 64, 96, dtype=torch.float64)
    with torch.no_grad():
        expected = plain_resnet(dict(model.state_dict()), images, depths, options.get("stride_on", "3x3"))
        torch.testing.assert_close(model(images), expected)


def test_resnet_50_is_that_of_another_library() -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    config = transformers.ResNetConfig(num_labels=5, downsample_in_bottleneck=False)
    torch.manual_seed(0)
    theirs = with_lively_statistics(transformers.ResNetForImageClassification(config)).double()
    ours = build("resnet-50", num_classes=5).double().eval()
    state = {}
    for name, tensor in theirs.state_dict().items():
        state[our_name(name)] = tensor
    ours.load_state_dict(state)
    images = torch.randn(2, 3, 64, 64, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(ours(images), theirs(images).logits)


def our_name(name: str) -> str:
    """The name in our network of a tensor in that of transformers."""
    if name.startswith("classifier"):
        return name.replace("classifier.1", "fc")
    if name.startswith("resnet.embedder"):
        return name.replace("resnet.embedder.embedder.convolution", "conv1").replace(
            "resnet.embedder.embedder.normalization", "bn1"
        )
    parts = name.split(".")  # resnet.encoder.stages.S.layers.B.(layer.L|shortcut).(convolution|normalization).NAME
    block = f"layer{int(parts[3]) + 1}.{parts[5]}"
    is_convolution = parts[-2] == "convolution"
    if parts[6] == "shortcut":
        return f"{block}.downsample.{0 if is_convolution else 1}.{parts[-1]}"
    return f"{block}.{'conv' if is_convolution else 'bn'}{int(parts[7]) + 1}.{parts[-1]}"


def plain_small_cnn(model: nn.Module, x: Tensor) -> Tensor:
    convolutions, norms, (*hidden, head) = (layers(model, kind) for kind in (nn.Conv2d, nn.BatchNorm2d, nn.Linear))
    for index, (convolution, norm) in enumerate(zip(convolutions, norms, strict=True)):
        x = functional.conv2d(x, convolution.weight, stride=2 if index == 0 else 1, padding=2 if index == 0 else 1)
        x = functional.batch_norm(x, norm.running_mean, norm.running_var, norm.weight, norm.bias).relu()
        x = functional.max_pool2d(x, 2) if index < 2 else x
    x = x.amax((2, 3))
    for layer in hidden:
        x = layer(x).relu()
    return head(x)


def plain_cifar_conv(model: nn.Module, x: Tensor) -> Tensor:
    convolutions, locals_, (head,) = (layers(model, kind) for kind in (nn.Conv2d, LocallyConnected2d, nn.Linear))
    for convolution, padding in zip(convolutions, (2, 1), strict=True):
        x = functional.conv2d(x, convolution.weight, convolution.bias, padding=padding).relu()
        x = functional.max_pool2d(x, 3, 2, ceil_mode=True)
        x = functional.local_response_norm(x, 9, alpha=0.001, beta=0.75, k=1.0)
    for local in locals_:
        x = local(x).relu()
    return head(x.flatten(1))


def plain_vgg(model: nn.Module, x: Tensor) -> Tensor:
    convolutions = iter(layers(model, nn.Conv2d))
    for depth in (2, 2, 3, 3, 3):
        for _ in range(depth):
            convolution = next(convolutions)
            x = functional.conv2d(x, convolution.weight, convolution.bias, padding=1).relu()
        x = functional.max_pool2d(x, 2)
    return plain_classifier(model, functional.adaptive_avg_pool2d(x, 7))


def plain_alexnet(model: nn.Module, x: Tensor) -> Tensor:
    for index, convolution in enumerate(layers(model, nn.Conv2d)):
        groups = 2 if index in (1, 3, 4) else 1
        how = {"stride": 4, "padding": 2} if index == 0 else {"padding": 2 if index == 1 else 1, "groups": groups}
        x = functional.conv2d(x, convolution.weight, convolution.bias, **how).relu()
        if index < 2:
            x = functional.local_response_norm(x, 5, alpha=5e-4, beta=0.75, k=2.0)
        x = functional.max_pool2d(x, 3, 2) if index in (0, 1, 4) else x
    return plain_classifier(model, functional.adaptive_avg_pool2d(x, 6))


def plain_classifier(model: nn.Module, x: Tensor, activation: Any = torch.relu) -> Tensor:
    *hidden, head = layers(model, nn.Linear)
    x = x.flatten(1)
    for layer in hidden:
        x = activation(functional.linear(x, layer.weight, layer.bias))
    return head(x)


def plain_mullapudi(model: nn.Module, x: Tensor) -> Tensor:
    return plain_classifier(model, x, torch.tanh)


def layers(model: nn.Module, kind: type[nn.Module]) -> list[Any]:
    return [module for module in model.modules() if isinstance(module, kind)]


@pytest.mark.parametrize(
    ("name", "options", "shape", "plain"),
    [
        ("small-cnn", {"width": 3}, (3, 32, 48), plain_small_cnn),
        ("small-cnn", {"width": 3, "fc_widths": (9, 8)}, (3, 32, 48), plain_small_cnn),
        ("cifar-conv", {"local_channels": (4, 3)}, (3, 32, 32), plain_cifar_conv),
        ("deep-image-16", {"filters": (4, 5, 6, 7, 8), "fc_widths": (9, 8)}, (3, 64, 96), plain_vgg),
        ("alexnet", {"fc_widths": (9, 8)}, (3, 96, 67), plain_alexnet),
        ("mnist-mlp", {"hidden": (9, 8)}, (1, 28, 28), plain_classifier),
        ("mullapudi-mlp", {}, (1, 28, 28), plain_mullapudi),
    ],
)
def test_a_network_is_its_source_written_out_in_functions(
    name: str, options: dict[str, Any], shape: tuple[int, ...], plain: Any
) -> None:
    torch.manual_seed(0)
    model = with_lively_statistics(build(name, num_classes=5, **options)).double()
    for module in model.modules():  # biases begin as 0, which would hide one that is left out
        if isinstance(module, nn.Conv2d | nn.Linear | LocallyConnected2d) and module.bias is not None:
            nn.init.normal_(module.bias)
    images = torch.randn(2, *shape, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(model(images), plain(model, images))


def test_local_connections_are_a_sum_over_each_place_with_its_own_filters() -> None:
    torch.manual_seed(0)
    layer = LocallyConnected2d(2, 3, 3, height=4, width=5)
    nn.init.normal_(layer.bias)
    images = torch.randn(2, 2, 4, 5)
    padded = np.pad(images.numpy(), ((0, 0), (0, 0), (1, 1), (1, 1)))
    weight, bias = layer.weight.detach().numpy(), layer.bias.detach().numpy()
    expected = np.empty((2, 3, 4, 5), np.float32)
    for row in range(4):
        for column in range(5):
            patch = padded[:, :, row : row + 3, column : column + 3].reshape(2, -1)
            expected[:, :, row, column] = patch @ weight[row * 5 + column].T + bias[:, row, column]
    np.testing.assert_allclose(layer(images).detach().numpy(), expected, rtol=1e-5, atol=1e-5)


def test_local_connections_with_one_filter_everywhere_are_a_convolution() -> None:
    torch.manual_seed(0)
    layer = LocallyConnected2d(4, 6, 5, height=7, width=3)
    filters = torch.randn(6, 4, 5, 5)
    with torch.no_grad():
        layer.weight.copy_(filters.flatten(1).expand_as(layer.weight))
    images = torch.randn(3, 4, 7, 3)
    torch.testing.assert_close(layer(images), functional.conv2d(images, filters, padding=2), rtol=1e-4, atol=1e-4)


def test_an_image_of_another_size_is_refused_by_local_connections() -> None:
    model = build("cifar-conv", num_classes=10, input_px=24)
    assert model(torch.zeros(1, 3, 24, 24)).shape == (1, 10)
    with pytest.raises(ValueError, match="built for 6×6 places and got 8×8. Give pictures of the size that input_px"):
        model(torch.zeros(1, 3, 32, 32))


def test_alexnets_response_normalisation_is_the_papers() -> None:
    with torch.device("meta"):
        layers = list(build("alexnet", num_classes=2).modules())
    layer = next(module for module in layers if isinstance(module, nn.LocalResponseNorm))
    a = torch.rand(1, 8, 1, 1, dtype=torch.float64) * 50
    expected = []
    for i in range(8):  # section 3.3, written out
        total = sum(a[0, j, 0, 0].item() ** 2 for j in range(max(0, i - 2), min(7, i + 2) + 1))
        expected.append(a[0, i, 0, 0].item() / (2 + 1e-4 * total) ** 0.75)
    assert layer(a).flatten().tolist() == pytest.approx(expected)
