"""Transforms of torchvision, albumentations and timm as ops, with what differs; none of them is imported."""
