"""What the loader hands out."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic

import numpy as np
import numpy.typing as npt
from typing_extensions import TypeVar

from augpipe.planning.plan import Plan

Array = TypeVar("Array", default=Any)
"""What type checkers take images and labels for: a `torch.Tensor`, or an array where framework="numpy"."""


@dataclass(frozen=True, kw_only=True)
class Batch(Generic[Array]):
    """Augmented images with their labels; `images, labels = batch` works."""

    images: Array
    """(B, 3, H, W) or (B, H, W, 3), a torch tensor or numpy array; a tuple of them where the recipe has several views.
    The memory is the holder's: it is used again only when nothing refers to it any more."""
    labels: Array
    """(B,) int64, the classes, -1 where the source has none; (B, k) float32 or int64 of a source whose labels are k
    numbers each, see `source.VectorLabelledSource`. Where the recipe mixes, classes are `MixedLabels`, and k numbers
    the weighted mean of both samples', float32."""
    sample_ids: npt.NDArray[np.int64]
    """(B,) int64: which samples of the source these are."""
    plan: Plan
    """What was drawn for them; `Augment(...)(images, plan=batch.plan)` repeats it, unless the recipe mixes."""

    def __iter__(self) -> Iterator[Array]:
        yield self.images
        yield self.labels

    def __len__(self) -> int:
        return len(self.sample_ids)
