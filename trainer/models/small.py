"""A small network for small images and few cores: minutes to train on two."""

from collections.abc import Sequence

from torch import nn

from augpipe.trainer.models.layers import ConvNet, MaximumPool, check_dropout, check_widths, fully_connected, initialise
from augpipe.validation.arguments import as_count


def small_cnn(
    *,
    num_classes: int,
    width: int = 24,
    fc_widths: Sequence[int] = (),
    dropout: float = 0.0,
    in_channels: int = 3,
) -> nn.Module:
    """Four convolutions with batch normalisation, then the greatest value of each filter over all places.

    Of our own making, for images of 64 to 96 pixels with an object somewhere in them; 16 pixels are the least. A 5×5
    convolution of stride 2 with `width` filters, then 3×3 ones with twice, four and six times as many; a 2×2 pooling
    after the first and the second; then fully connected layers of `fc_widths`, if there are any, and the logits. With
    10 classes and the default widths it has 180,130 weights and biases.
    """
    widths = [as_count("width", width) * factor for factor in (1, 2, 4, 6)]
    layers: list[nn.Module] = [
        *_convolution(as_count("in_channels", in_channels), widths[0], kernel=5, stride=2),
        nn.MaxPool2d(2),
        *_convolution(widths[0], widths[1]),
        nn.MaxPool2d(2),
        *_convolution(widths[1], widths[2]),
        *_convolution(widths[2], widths[3]),
    ]
    dropout = check_dropout("dropout", dropout)
    classifier = fully_connected(widths[3], check_widths("fc_widths", fc_widths), num_classes, dropout)
    classifier = nn.Sequential(nn.Dropout(dropout), *classifier)
    model = ConvNet(nn.Sequential(*layers), MaximumPool(), classifier)
    initialise(model)
    return model


def _convolution(in_channels: int, out_channels: int, *, kernel: int = 3, stride: int = 1) -> list[nn.Module]:
    return [
        nn.Conv2d(in_channels, out_channels, kernel, stride=stride, padding=kernel // 2, bias=False),
        nn.BatchNorm2d(out_channels),
        nn.ReLU(inplace=True),
    ]
