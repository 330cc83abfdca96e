"""Augmentation policies that were published, as ops for a recipe of one's own; `augpipe.recipes` has whole recipes."""

from augpipe.policies.automatic import auto_augment, rand_augment, three_augment, trivial_augment_wide
from augpipe.policies.timm import timm

__all__ = ["auto_augment", "rand_augment", "three_augment", "timm", "trivial_augment_wide"]
