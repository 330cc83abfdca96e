"""Transforms of torchvision, albumentations and timm as recipes, with what differs; none of them is imported."""

from augpipe.importers.albumentations import from_albumentations
from augpipe.importers.findings import Imported
from augpipe.importers.timm import from_timm
from augpipe.importers.torchvision import from_torchvision

__all__ = ["Imported", "from_albumentations", "from_timm", "from_torchvision"]
