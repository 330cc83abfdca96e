"""Transforms of torchvision, albumentations and timm as recipes, with what differs; none of them is imported."""

from typing import TYPE_CHECKING

from augpipe.recipes.imported import Imported, from_albumentations, from_kornia, from_timm, from_torchvision

__all__ = ["Imported", "from_albumentations", "from_kornia", "from_timm", "from_torchvision"]


if not TYPE_CHECKING:  # a type checker says itself which names there are not

    def __getattr__(name):
        from augpipe.validation.suggest import missing

        raise missing(__name__, name, __all__)


def __dir__() -> list[str]:
    return __all__
