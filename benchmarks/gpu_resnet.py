"""ResNet-50 as in He et al., 2015 (the stride in the 3x3 convolution, as torchvision has it), without torchvision."""

import torch
from torch import nn

STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))
"""Channels within a stage's blocks, blocks, stride of the first one."""

EXPANSION = 4


class Block(nn.Module):
    """1x1, 3x3, 1x1 convolutions around a short cut."""

    def __init__(self, before: int, within: int, stride: int) -> None:
        super().__init__()
        after = within * EXPANSION
        self.body = nn.Sequential(
            *(nn.Conv2d(before, within, 1, bias=False), nn.BatchNorm2d(within), nn.ReLU(inplace=True)),
            *(nn.Conv2d(within, within, 3, stride, 1, bias=False), nn.BatchNorm2d(within), nn.ReLU(inplace=True)),
            *(nn.Conv2d(within, after, 1, bias=False), nn.BatchNorm2d(after)),
        )
        self.short_cut = (
            nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))
            if before != after or stride != 1
            else nn.Identity()
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.short_cut(x))


def resnet50(num_classes: int = 1000) -> nn.Module:
    """25.6 million weights; (B, 3, H, W) in, (B, num_classes) out."""
    layers: list[nn.Module] = [
        *(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1))
    ]
    before = 64
    for within, num_blocks, stride in STAGES:
        for number in range(num_blocks):
            layers.append(Block(before, within, stride if number == 0 else 1))
            before = within * EXPANSION
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, num_classes))
    return nn.Sequential(*layers, *head)
