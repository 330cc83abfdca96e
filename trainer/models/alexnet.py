"""AlexNet, on which the 8-bit gradients were tried for ImageNet."""

from collections.abc import Sequence

from torch import nn

from augpipe.trainer.models.layers import (
    AveragePool,
    ConvNet,
    ResponseNorm,
    check_dropout,
    check_widths,
    fully_connected,
    initialise,
)
from augpipe.validation.arguments import as_count, check_choice

_GRID = 6


def alexnet(
    *,
    num_classes: int,
    groups: int = 2,
    fc_widths: Sequence[int] = (4096, 4096),
    dropout: float = 0.5,
    in_channels: int = 3,
) -> nn.Module:
    """5 convolutions and 3 fully connected layers (Krizhevsky et al., 2012, section 3; Dettmers, section 3.3).

    With 1000 classes it has 60,965,224 weights and biases. groups=2 is the paper's split over two GPUs, groups=1 joins
    them. Deviations: one device instead of two; padding makes 224 pixels give the 55×55 cells that the paper counts;
    dropout comes after a fully connected layer's ReLU; features are averaged to 6×6, so that images of any size from
    63 pixels on pass; weights are drawn after He instead of with a standard deviation of 0.01 and biases of 1.
    """
    check_choice("groups", groups, (1, 2))
    layers: list[nn.Module] = [
        nn.Conv2d(as_count("in_channels", in_channels), 96, 11, stride=4, padding=2),
        nn.ReLU(inplace=True),
        _response_normalisation(),
        nn.MaxPool2d(3, stride=2),
        nn.Conv2d(96, 256, 5, padding=2, groups=groups),
        nn.ReLU(inplace=True),
        _response_normalisation(),
        nn.MaxPool2d(3, stride=2),
        nn.Conv2d(256, 384, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.Conv2d(384, 384, 3, padding=1, groups=groups),
        nn.ReLU(inplace=True),
        nn.Conv2d(384, 256, 3, padding=1, groups=groups),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, stride=2),
    ]
    widths = check_widths("fc_widths", fc_widths, 2)
    classifier = fully_connected(256 * _GRID**2, widths, num_classes, check_dropout("dropout", dropout))
    model = ConvNet(nn.Sequential(*layers), AveragePool(_GRID), classifier)
    initialise(model)
    return model


def _response_normalisation() -> nn.Module:
    """Section 3.3's k, n, α and β; torch divides alpha by the size, and the paper does not."""
    return ResponseNorm(5, alpha=5 * 1e-4, beta=0.75, k=2.0)
