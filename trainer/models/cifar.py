"""The convolutional network of the 8-bit paper for CIFAR-10."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from augpipe.trainer.models.layers import ResponseNorm, check_widths, initialise
from augpipe.validation.arguments import as_count

_SMALLEST_PX = 4


def cifar_conv(
    *,
    num_classes: int,
    input_px: int = 32,
    local_channels: Sequence[int] = (64, 32),
    in_channels: int = 3,
) -> nn.Module:
    """Two convolutions, two locally connected layers, one fully connected one (Dettmers, section 3.2).

    Convolutions of 64 filters of 5×5 and 64 of 3×3, each followed by a 3×3 pooling of stride 2 and contrast
    normalisation. Takes images of `input_px` × `input_px` and no others, since local connections share no weights
    between places. With 10 classes and 32 pixels it has 3,607,370 weights and biases.

    Deviations: what the paper leaves open is as in cuda-convnet's network of 13 % error, to which its footnote points:
    3×3 local connections of 64 and 32 channels, normalisation over 9 channels with α = 0.001 and β = 0.75. Weights are
    drawn after He.
    """
    size = as_count("input_px", input_px)
    if size < _SMALLEST_PX:
        raise ValueError(f"input_px={size} is too small for two poolings. Give at least {_SMALLEST_PX}.")
    first, second = check_widths("local_channels", local_channels, 2)
    cells = size // 4
    model = nn.Sequential(
        nn.Conv2d(as_count("in_channels", in_channels), 64, 5, padding=2),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, stride=2, ceil_mode=True),
        _contrast_normalisation(),
        nn.Conv2d(64, 64, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, stride=2, ceil_mode=True),
        _contrast_normalisation(),
        LocallyConnected2d(64, first, 3, height=cells, width=cells),
        nn.ReLU(inplace=True),
        LocallyConnected2d(first, second, 3, height=cells, width=cells),
        nn.ReLU(inplace=True),
        nn.Flatten(),
        nn.Linear(second * cells**2, num_classes),
    )
    initialise(model)
    return model


def _contrast_normalisation() -> nn.Module:
    return ResponseNorm(9, alpha=0.001, beta=0.75, k=1.0)


class LocallyConnected2d(nn.Module):
    """Each of height × width output places has filters and biases of its own; stride 1, the image keeps its size.

    `weight` is (height·width, out_channels, in_channels·kernel²), `bias` (out_channels, height, width); drawn after He
    for a ReLU.
    """

    def __init__(self, in_channels: int, out_channels: int, kernel: int, *, height: int, width: int) -> None:
        super().__init__()
        assert kernel % 2 == 1
        self.kernel = kernel
        fan_in = in_channels * kernel**2
        self.weight = nn.Parameter(torch.empty(height * width, out_channels, fan_in))
        self.bias = nn.Parameter(torch.empty(out_channels, height, width))
        nn.init.normal_(self.weight, std=math.sqrt(2 / fan_in))
        nn.init.zeros_(self.bias)

    def forward(self, images_NCHW: Tensor) -> Tensor:
        """(N, in_channels, height, width) to (N, out_channels, height, width).

        Raises:
            ValueError: the image has another height or width than the layer.
        """
        out_channels, height, width = self.bias.shape
        if images_NCHW.shape[2:] != self.bias.shape[1:]:
            raise ValueError(
                f"locally connected layers were built for {height}×{width} places and got "
                f"{images_NCHW.shape[2]}×{images_NCHW.shape[3]}. Give pictures of the size that input_px says."
            )
        patches_NKP = functional.unfold(images_NCHW, self.kernel, padding=self.kernel // 2)
        sums_PNO = torch.bmm(patches_NKP.permute(2, 0, 1), self.weight.transpose(1, 2))
        return sums_PNO.permute(1, 2, 0).reshape(-1, out_channels, height, width) + self.bias
