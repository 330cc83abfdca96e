"""Dense testing: a ConvNet's classifier at every place of the feature map of an image of any size.

The fully connected layers become convolutions on the same weights (Sermanet et al., 2014, "OverFeat"; Deep Image, which
tests so).
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from augpipe.trainer.models.layers import ConvNet

_BY_ELEMENT = (nn.ReLU, nn.Dropout, nn.Identity, nn.Tanh, nn.Sigmoid, nn.GELU, nn.SiLU, nn.LeakyReLU)
"""Layers that do the same to every number, wherever it stands."""


class DenseConvNet(nn.Module):
    """A `ConvNet` that gives a map of logits for images of any size from the training size on, in evaluation mode.

    Its pool becomes the window that each of its cells has at the training size, at stride 1, and the first fully
    connected layer a convolution of as many cells, one window apart. Weights are views of the network's: nothing is
    copied, and a weight that changes changes here.

    Args:
        network: with an adaptive pool, and a classifier of fully connected layers.
        height, width: the training size, in pixels.

    Raises:
        ValueError: the network is of another kind, or its pool has windows of unequal size there.
    """

    def __init__(self, network: nn.Module, height: int, width: int) -> None:
        super().__init__()
        if not isinstance(network, ConvNet) or not isinstance(network.classifier, nn.Sequential):
            raise ValueError(
                f"dense testing takes a ConvNet (features, pool, classifier), and the network is a "
                f"{type(network).__name__}. Leave dense out: other scales and crops take any network."
            )
        self._layers = list(network.classifier)
        unknown = [type(one).__name__ for one in self._layers if not isinstance(one, (nn.Linear, *_BY_ELEMENT))]
        if unknown or not any(isinstance(one, nn.Linear) for one in self._layers):
            raise ValueError(
                f"dense testing takes a classifier of fully connected layers and activations, and this one has "
                f"{', '.join(unknown) or 'none'}. Leave dense out."
            )
        self.network = network
        self.training_px = (height, width)
        self.grid = _grid_of(network.pool)
        """Cells that the classifier sees, down and across."""
        self.cell = self._cell_of(*self._map_of(height, width))
        """Height and width of the pool's window, in cells of the feature map."""

    @property
    def window(self) -> tuple[int, int]:
        """Cells of the feature map that one answer is made of, down and across."""
        return self.grid[0] * self.cell[0], self.grid[1] * self.cell[1]

    def forward(self, images_NCHW: Tensor) -> Tensor:
        """Logits (N, num_classes, H', W'): one answer for each window of the feature map.

        Raises:
            ValueError: the images are so small that no window fits.
        """
        features = self.network.features(images_NCHW)
        self._check_fits(features, images_NCHW)
        pooled = self._pooled(features)
        first = True
        for layer in self._layers:
            if not isinstance(layer, nn.Linear):
                pooled = layer(pooled)
                continue
            grid, spacing = (self.grid, self.cell) if first else ((1, 1), (1, 1))
            kernel = layer.weight.view(layer.out_features, -1, *grid)
            pooled = F.conv2d(pooled, kernel, layer.bias, dilation=spacing)
            first = False
        return pooled

    def check_scale(self, scale: int) -> None:
        """Raise ValueError where images with a short side of `scale` pixels are too small."""
        example = next(self.network.parameters())  # of the first convolution, (out, in, height, width)
        images = torch.zeros((1, example.shape[1], scale, scale), device=example.device, dtype=example.dtype)
        self._check_fits(self._features(images), images)

    def _check_fits(self, features: Tensor, images: Tensor) -> None:
        found, needed = tuple(features.shape[2:]), self.window
        if found[0] < needed[0] or found[1] < needed[1]:
            size, training = "x".join(map(str, images.shape[2:])), "x".join(map(str, self.training_px))
            raise ValueError(
                f"images of {size} pixels are below the network's least: their feature map is {found[0]}x{found[1]}, "
                f"and the classifier sees {needed[0]}x{needed[1]}. Give a scale of {max(self.training_px)} or more, "
                f"as the network was trained on {training}."
            )

    def _pooled(self, features: Tensor) -> Tensor:
        if self.cell == (1, 1):
            return features
        if isinstance(self.network.pool, nn.AdaptiveMaxPool2d):
            return F.max_pool2d(features, self.cell, stride=1)
        return F.avg_pool2d(features, self.cell, stride=1)

    def _cell_of(self, height: int, width: int) -> tuple[int, int]:
        """The pool's window at the training size, whose feature map is `height` x `width`."""
        if height % self.grid[0] or width % self.grid[1]:
            raise ValueError(
                f"dense testing needs a pool whose windows are of one size, and {height}x{width} features are pooled "
                f"to {self.grid[0]}x{self.grid[1]} cells of unequal ones. Leave dense out, or train at a size whose "
                "features divide."
            )
        return height // self.grid[0], width // self.grid[1]

    def _map_of(self, height: int, width: int) -> tuple[int, int]:
        example: Any = next(self.network.parameters())
        features = self._features(
            torch.zeros((1, example.shape[1], height, width), device=example.device, dtype=example.dtype)
        )
        return features.shape[2], features.shape[3]

    @torch.no_grad()
    def _features(self, images: Tensor) -> Tensor:
        """The feature map of black images, whatever mode the network is in."""
        was_training = self.network.training
        self.network.eval()
        try:
            found: Tensor = self.network.features(images)
        except RuntimeError as error:
            size = "x".join(map(str, images.shape[2:]))
            raise ValueError(f"the network does not take images of {size} pixels: {error}. Raise scales.") from error
        finally:
            self.network.train(was_training)
        return found


def _grid_of(pool: nn.Module) -> tuple[int, int]:
    """The cells that an adaptive pool leaves."""
    if not isinstance(pool, nn.AdaptiveMaxPool2d | nn.AdaptiveAvgPool2d):
        raise ValueError(
            f"dense testing knows adaptive maximum and average pools, and this network's is a {type(pool).__name__}. "
            "Leave dense out."
        )
    size: Any = pool.output_size
    rows, columns = (size, size) if isinstance(size, int) else size
    if rows is None or columns is None:
        raise ValueError("dense testing needs a pool of a fixed grid, and this one keeps a side. Leave dense out.")
    return int(rows), int(columns)
