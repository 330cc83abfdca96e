"""Networks of 3×3 convolutions in five parts: Deep Image's 16 and 19 layers, and its scaling network's 11."""

from collections.abc import Sequence

from torch import nn

from augpipe.trainer.models.layers import AveragePool, ConvNet, check_dropout, check_widths, fully_connected, initialise
from augpipe.validation.arguments import as_count

FILTERS = (64, 128, 256, 512, 512)
"""Filters of each part's convolutions (Deep Image, table 2)."""
_GRID = 7
"""Cells a side that the five poolings leave of 224 pixels."""


def deep_image_16(
    *,
    num_classes: int,
    filters: Sequence[int] = FILTERS,
    fc_widths: Sequence[int] = (6144, 6144),
    dropout: float = 0.5,
    in_channels: int = 3,
) -> nn.Module:
    """13 convolutions and 3 fully connected layers ("Deep Image: Scaling up Image Recognition", table 2).

    With 1000 classes it has 212.7M weights, as the paper says, and 17,512 biases. The paper's other models have up to
    1024 filters and fully connected layers of up to 8192. With fc_widths=(4096, 4096) it is VGG's network D, and
    weights of that load.

    Dropout of one half after the first two fully connected layers, ReLU after all layers but the last, 2×2 poolings
    with stride 2 (the fine-grained paper's section 5.1). Deviations: the softmax is left to the loss; images need not
    have 224 pixels, since features are averaged to 7×7.
    """
    return _vgg((2, 2, 3, 3, 3), num_classes, filters, fc_widths, dropout, in_channels)


def deep_image_19(
    *,
    num_classes: int,
    filters: Sequence[int] = FILTERS,
    fc_widths: Sequence[int] = (6144, 6144),
    dropout: float = 0.5,
    in_channels: int = 3,
) -> nn.Module:
    """16 convolutions and 3 fully connected layers (the paper on fine-grained recognition, section 5.1 and figure 8b).

    Deviations, in addition to those of `deep_image_16`: the text gives the number of layers, and figure 8 their widths;
    ours are table 2's, in parts of 2, 2, 4, 4 and 4 convolutions. With fc_widths=(4096, 4096) it is VGG's network E.
    """
    return _vgg((2, 2, 4, 4, 4), num_classes, filters, fc_widths, dropout, in_channels)


def scaling_8conv(
    *,
    num_classes: int,
    filters: Sequence[int] = FILTERS,
    fc_widths: Sequence[int] = (4096, 4096),
    dropout: float = 0.5,
    in_channels: int = 3,
) -> nn.Module:
    """8 convolutions and 3 fully connected layers, with which Deep Image measured how it scales (section 3.3).

    Deviation: the paper gives the numbers of layers alone; parts of 1, 1, 2, 2 and 2 convolutions and all widths are
    those of VGG's network A, which has 8 and 3 too.
    """
    return _vgg((1, 1, 2, 2, 2), num_classes, filters, fc_widths, dropout, in_channels)


def _vgg(
    depths: tuple[int, ...],
    num_classes: int,
    filters: Sequence[int],
    fc_widths: Sequence[int],
    dropout: float,
    in_channels: int,
) -> nn.Module:
    widths = check_widths("fc_widths", fc_widths, 2)
    dropout = check_dropout("dropout", dropout)
    channels = as_count("in_channels", in_channels)
    layers: list[nn.Module] = []
    for depth, width in zip(depths, check_widths("filters", filters, len(depths)), strict=True):
        for _ in range(depth):
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(inplace=True)]
            channels = width
        layers.append(nn.MaxPool2d(2))
    classifier = fully_connected(channels * _GRID**2, widths, num_classes, dropout)
    model = ConvNet(nn.Sequential(*layers), AveragePool(_GRID), classifier)
    initialise(model)
    return model
