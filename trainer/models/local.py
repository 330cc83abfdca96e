"""A layer of local connections: a convolution whose weights are not shared between places."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional


class LocallyConnected2d(nn.Module):
    """Each of height × width output places has filters and biases of its own; stride 1, the picture keeps its size.

    `weight` is (height·width, out_channels, in_channels·kernel²), `bias` (out_channels, height, width); drawn after He
    for a ReLU.
    """

    def __init__(self, in_channels: int, out_channels: int, kernel: int, *, height: int, width: int) -> None:
        super().__init__()
        assert kernel % 2 == 1
        self.kernel = kernel
        fan_in = in_channels * kernel**2
        self.weight = nn.Parameter(torch.empty(height * width, out_channels, fan_in))
        self.bias = nn.Parameter(torch.zeros(out_channels, height, width))
        nn.init.normal_(self.weight, std=math.sqrt(2 / fan_in))

    def forward(self, images_NCHW: Tensor) -> Tensor:
        """(N, in_channels, height, width) to (N, out_channels, height, width).

        Raises:
            ValueError: the picture has another height or width than the layer.
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
