"""The networks have the papers' layers and numbers of weights, take their images, and are built without memory."""

import re
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import nn

from augpipe.trainer.models import build, names

# weights and biases: of VGG A, D and E, ResNet and AlexNet as published for 1000 classes; the others by hand
NUM_PARAMETERS: list[tuple[str, int, dict[str, Any], int]] = [
    ("deep-image-16", 1000, {"fc_widths": (4096, 4096)}, 138_357_544),
    ("deep-image-19", 1000, {"fc_widths": (4096, 4096)}, 143_667_240),
    ("scaling-8conv", 1000, {}, 132_863_336),
    ("alexnet", 1000, {}, 60_965_224),
    ("resnet-18", 1000, {}, 11_689_512),
    ("resnet-50", 1000, {}, 25_557_032),
    ("resnet-50", 1000, {"stride_on": "1x1"}, 25_557_032),
    ("mnist-mlp", 10, {}, 785 * 1024 + 1025 * 1024 + 1025 * 10),
    ("mullapudi-mlp", 10, {}, 785 * 64 + 65 * 64 + 65 * 10),
    ("cifar-conv", 10, {}, 76 * 64 + 577 * 64 + 64 * (577 * 64 + 577 * 32) + 2049 * 10),
    ("small-cnn", 10, {}, 75 * 24 + 9 * 24 * 48 + 9 * 48 * 96 + 9 * 96 * 144 + 2 * 312 + 1450),
]
IMAGES = {"mnist-mlp": (1, 28, 28), "mullapudi-mlp": (1, 28, 28), "cifar-conv": (3, 32, 32)}
VGG_16_CONVOLUTIONS = [0, 2, 5, 7, 10, 12, 14, 17, 19, 21, 24, 26, 28]


def on_meta(name: str, num_classes: int = 7, **options: Any) -> nn.Module:
    with torch.device("meta"):
        return build(name, num_classes=num_classes, **options)


@pytest.mark.parametrize(("name", "num_classes", "options", "expected"), NUM_PARAMETERS)
def test_a_network_has_its_number_of_weights(
    name: str, num_classes: int, options: dict[str, Any], expected: int
) -> None:
    model = on_meta(name, num_classes, **options)
    assert sum(parameter.numel() for parameter in model.parameters()) == expected


def test_every_network_is_counted() -> None:
    assert {row[0] for row in NUM_PARAMETERS} == set(names())


def test_deep_image_has_the_212_7m_weights_of_table_2() -> None:
    model = on_meta("deep-image-16", 1000)
    layers = [module for module in model.modules() if isinstance(module, nn.Conv2d | nn.Linear)]
    widths = [layer.weight.shape[0] for layer in layers]
    assert widths == [64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512, 6144, 6144, 1000]
    num_weights = sum(layer.weight.numel() for layer in layers)
    assert round(num_weights / 1e6, 1) == 212.7
    assert all(parameter.is_meta for parameter in model.parameters())


def test_deep_image_19_and_the_scaling_network_have_their_layers() -> None:
    for name, num_convolutions in (("deep-image-19", 16), ("scaling-8conv", 8)):
        modules = list(on_meta(name).modules())
        convolutions = [module for module in modules if isinstance(module, nn.Conv2d)]
        assert len(convolutions) == num_convolutions
        assert all(convolution.kernel_size == (3, 3) for convolution in convolutions)
        assert sum(isinstance(module, nn.Linear) for module in modules) == 3
        assert sum(isinstance(module, nn.MaxPool2d) for module in modules) == 5


def test_deep_images_filters_and_widths_are_configurable() -> None:
    model = on_meta("deep-image-16", filters=[8, 8, 16, 16, 1024], fc_widths=[8192, 32], in_channels=1)
    assert model.get_parameter("features.0.weight").shape == (8, 1, 3, 3)
    assert model.get_parameter("classifier.0.weight").shape == (8192, 1024 * 49)
    assert model.get_parameter("classifier.6.weight").shape == (7, 32)


def test_weights_are_named_as_in_the_published_files() -> None:
    vgg = on_meta("deep-image-16").state_dict()
    assert [name for name in vgg if name.endswith("weight")] == [
        *(f"features.{index}.weight" for index in VGG_16_CONVOLUTIONS),
        *(f"classifier.{index}.weight" for index in (0, 3, 6)),
    ]
    resnet = on_meta("resnet-50").state_dict()
    assert len(resnet) == 320
    assert {"bn1.running_var", "layer1.0.downsample.0.weight", "layer4.2.conv3.weight", "fc.bias"} <= set(resnet)


@pytest.mark.parametrize("name", names())
def test_a_network_gives_a_logit_a_class(name: str) -> None:
    shape = IMAGES.get(name, (3, 224, 224))
    assert on_meta(name)(torch.empty(2, *shape, device="meta")).shape == (2, 7)


@pytest.mark.parametrize("name", [name for name in names() if name not in IMAGES])
def test_images_may_have_other_sizes_where_that_is_natural(name: str) -> None:
    assert on_meta(name)(torch.empty(1, 3, 96, 160, device="meta")).shape == (1, 7)


@pytest.mark.parametrize("name", ["alexnet", "deep-image-16", "scaling-8conv"])
def test_averaging_changes_nothing_at_224_pixels(name: str) -> None:
    model = on_meta(name)
    features = model.get_submodule("features")(torch.empty(1, 3, 224, 224, device="meta"))
    assert features.shape[2:] == (6, 6) if name == "alexnet" else (7, 7)
    grid = torch.randn(1, 4, *features.shape[2:])
    torch.testing.assert_close(model.get_submodule("pool")(grid), grid)


@pytest.mark.parametrize("name", ["mnist-mlp", "mullapudi-mlp", "cifar-conv", "resnet-18", "small-cnn"])
def test_new_weights_are_scaled_after_he(name: str) -> None:
    torch.manual_seed(0)
    model = build(name, num_classes=10)  # in training mode, where a residual sum is normalised
    again = torch.manual_seed(0) and build(name, num_classes=10)
    assert all(torch.equal(ours, other) for ours, other in zip(model.parameters(), again.parameters(), strict=True))
    logits = model(torch.randn(64, *IMAGES.get(name, (3, 64, 64))))
    assert 0.1 < logits.std().item() < 10.0  # neither vanished nor exploded on the way


def test_a_layers_deviation_is_hes() -> None:
    torch.manual_seed(0)
    model = build("mnist-mlp", num_classes=1000)
    hidden, head = model.get_parameter("2.weight"), model.get_parameter("8.weight")
    assert hidden.std().item() == pytest.approx((2 / 784) ** 0.5, rel=0.01)
    assert head.std().item() == pytest.approx((1 / 1024) ** 0.5, rel=0.01)
    tanh = build("mullapudi-mlp", num_classes=10).get_parameter("2.weight")
    assert tanh.std().item() == pytest.approx(5 / 3 / 28, rel=0.02)
    local = build("cifar-conv", num_classes=10)
    assert local.get_parameter("8.weight").std().item() == pytest.approx((2 / (9 * 64)) ** 0.5, rel=0.01)
    assert not any(value.any() for key, value in local.named_parameters() if key.endswith("bias"))


@pytest.mark.parametrize(
    ("name", "rates"),
    [
        ("mnist-mlp", [0.2, 0.3, 0.3]),
        ("deep-image-16", [0.5, 0.5]),
        ("mullapudi-mlp", [0.0, 0.5, 0.5]),
        ("alexnet", [0.5, 0.5]),
        ("resnet-50", [0.0]),
    ],
)
def test_dropout_is_the_papers(name: str, rates: list[float]) -> None:
    assert [module.p for module in on_meta(name).modules() if isinstance(module, nn.Dropout)] == rates


def test_alexnets_two_groups_can_be_joined() -> None:
    assert on_meta("alexnet").get_parameter("features.4.weight").shape == (256, 48, 5, 5)
    assert on_meta("alexnet", groups=1).get_parameter("features.4.weight").shape == (256, 96, 5, 5)


def test_names_need_no_torch() -> None:
    script = "import sys, augpipe.trainer.models as m; m.names(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], timeout=60).returncode == 0


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("resnet_50", {}, "model='resnet_50' is not known. Did you mean 'resnet-50'? Choose one of deep-image-16, "),
        ("hal", {}, "model='hal' is not known. Choose one of deep-image-16, "),
        ("small-cnn", {"widht": 3}, "small-cnn has no option widht. Its options are width, fc_widths, dropout"),
        ("small-cnn", {"width": 0}, "width=0 must be at least 1."),
        ("small-cnn", {"fc_widths": 9}, "fc_widths=9 must be a list of numbers, one a layer"),
        ("small-cnn", {"fc_widths": [9, 0]}, "fc_widths[1]=0 must be at least 1."),
        ("small-cnn", {"num_classes": 0}, "num_classes=0 must be at least 1."),
        ("small-cnn", {"dropout": 1.0}, "dropout=1.0 must lie in 0..1, without 1"),
        ("deep-image-16", {"filters": [64]}, "filters=[64] must be a list of 5 numbers"),
        ("mnist-mlp", {"dropout": 0.5}, "dropout=0.5 must be a list of 3 numbers: for the input and both hidden"),
        ("alexnet", {"groups": 3}, "groups=3 is not known. Choose one of 1, 2."),
        ("cifar-conv", {"input_px": 3}, "input_px=3 is too small for two poolings. Give at least 4."),
        ("resnet-50", {"stride_on": "5x5"}, "stride_on='5x5' is not known."),
    ],
)
def test_what_cannot_be_built_is_said(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        on_meta(name, **options)
