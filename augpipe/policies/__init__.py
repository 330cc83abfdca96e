"""Augmentation policies that were published, as ops for a recipe of one's own; `augpipe.recipes` has whole recipes."""

from typing import TYPE_CHECKING

from augpipe.policies.automatic import auto_augment, rand_augment, three_augment, trivial_augment_wide
from augpipe.policies.timm_policies import timm

__all__ = ["auto_augment", "rand_augment", "three_augment", "timm", "trivial_augment_wide"]


if not TYPE_CHECKING:  # a type checker says itself which names there are not

    def __getattr__(name):
        from augpipe.validation.suggest import missing

        raise missing(__name__, name, __all__)


def __dir__() -> list[str]:
    return __all__
