"""Recipes of other libraries, with what differs: of objects, settings and the text of scripts. None is imported."""

from typing import TYPE_CHECKING

from augpipe.recipes.imported import (
    Imported,
    from_albumentations,
    from_hugging_face,
    from_kornia,
    from_object,
    from_text,
    from_timm,
    from_torchvision,
)
from augpipe.recipes.importers.rows import Row

__all__ = [
    "Imported",
    "Row",
    "from_albumentations",
    "from_hugging_face",
    "from_kornia",
    "from_object",
    "from_text",
    "from_timm",
    "from_torchvision",
]


if not TYPE_CHECKING:  # a type checker says itself which names there are not

    def __getattr__(name):
        from augpipe.validation.suggest import missing

        raise missing(__name__, name, __all__)


def __dir__() -> list[str]:
    return __all__
