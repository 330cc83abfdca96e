"""Residual networks of 18 and 50 layers; modules are named as in torchvision, so that its weights load."""

from collections.abc import Sequence
from typing import Literal

from torch import Tensor, nn

from augpipe.trainer.models.layers import check_dropout, initialise
from augpipe.validation.arguments import as_count, check_choice

StrideOn = Literal["3x3", "1x1"]
_WIDTHS = (64, 128, 256, 512)


def resnet_18(*, num_classes: int, dropout: float = 0.0, in_channels: int = 3) -> nn.Module:
    """18 layers of basic blocks (He et al., 2015, "Deep Residual Learning", table 1).

    With 1000 classes it has 11,689,512 weights and biases. Deviation: shortcuts that change width or size are 1×1
    convolutions (the paper's option B); `dropout` before the classifier is off unless asked for.
    """
    return ResNet(BasicBlock, (2, 2, 2, 2), num_classes, "3x3", dropout, in_channels)


def resnet_50(
    *, num_classes: int, stride_on: StrideOn = "3x3", dropout: float = 0.0, in_channels: int = 3
) -> nn.Module:
    """50 layers of bottlenecks (He et al., 2015, table 1), which the BSC report trains.

    With 1000 classes it has 25,557,032 weights and biases. Deviation: a block that halves the image does so in its
    3×3 convolution, as torchvision's weights expect; stride_on="1x1" does it in the first 1×1, as the paper does.
    `dropout` before the classifier is off unless asked for.
    """
    check_choice("stride_on", stride_on, ("3x3", "1x1"))
    return ResNet(Bottleneck, (3, 4, 6, 3), num_classes, stride_on, dropout, in_channels)


class BasicBlock(nn.Module):
    """Two 3×3 convolutions with a shortcut."""

    expansion = 1

    def __init__(self, in_channels: int, width: int, stride: int, stride_on: StrideOn) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, width, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = _shortcut(in_channels, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        total: Tensor = self.relu(y + (x if self.downsample is None else self.downsample(x)))
        return total


class Bottleneck(nn.Module):
    """1×1, 3×3 and 1×1 convolutions, the last four times as wide, with a shortcut."""

    expansion = 4

    def __init__(self, in_channels: int, width: int, stride: int, stride_on: StrideOn) -> None:
        super().__init__()
        first, second = (stride, 1) if stride_on == "1x1" else (1, stride)
        out_channels = width * self.expansion
        self.conv1 = nn.Conv2d(in_channels, width, 1, stride=first, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=second, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, out_channels, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(out_channels)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _shortcut(in_channels, out_channels, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        total: Tensor = self.relu(y + (x if self.downsample is None else self.downsample(x)))
        return total


class ResNet(nn.Module):
    """A 7×7 convolution, four stages of blocks, the average over all places, a linear layer."""

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        depths: Sequence[int],
        num_classes: int,
        stride_on: StrideOn,
        dropout: float,
        in_channels: int,
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(as_count("in_channels", in_channels), 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        channels = 64
        for stage, (width, depth) in enumerate(zip(_WIDTHS, depths, strict=True)):
            blocks: list[nn.Module] = []
            for index in range(depth):
                blocks.append(block(channels, width, 2 if stage > 0 and index == 0 else 1, stride_on))
                channels = width * block.expansion
            self.add_module(f"layer{stage + 1}", nn.Sequential(*blocks))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.dropout = nn.Dropout(check_dropout("dropout", dropout))
        self.fc = nn.Linear(channels, num_classes)
        initialise(self)

    def forward(self, images_NCHW: Tensor) -> Tensor:
        """Logits (N, num_classes) of float images (N, C, H, W) of any size."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(images_NCHW))))
        for stage in range(1, len(_WIDTHS) + 1):
            x = self.get_submodule(f"layer{stage}")(x)
        logits: Tensor = self.fc(self.dropout(self.avgpool(x).flatten(1)))
        return logits


def _shortcut(in_channels: int, out_channels: int, stride: int) -> nn.Module | None:
    """What brings a block's input to its output's shape; None where it has it."""
    if stride == 1 and in_channels == out_channels:
        return None
    return nn.Sequential(
        nn.Conv2d(in_channels, out_channels, 1, stride=stride, bias=False), nn.BatchNorm2d(out_channels)
    )
