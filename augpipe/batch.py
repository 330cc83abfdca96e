"""What the loader hands out."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Self

import numpy as np
import numpy.typing as npt
from typing_extensions import TypeVar

from augpipe.mixed_labels import MixedLabels
from augpipe.planning.plan import Plan
from augpipe.validation.written import array_text

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

    columns: Mapping[str, Any] = field(default_factory=dict)
    """Further columns of a source that has some, such as a caption -> (B,) values; see `source.ColumnedSource`."""

    def to(self, device: Any, *, non_blocking: bool = False) -> Self:
        """The batch with its images and labels on a device; all else stays on the host.

        Args:
            device: "cuda", "cuda:1", "cpu" or a torch.device.
            non_blocking: as of torch's `Tensor.to`: from page-locked memory the host goes on while it copies.

        Raises:
            ValueError: the batch holds numpy arrays.
        """
        return self._with_each("to", device, non_blocking=non_blocking)

    def pin_memory(self) -> Self:
        """The batch with its images and labels in page-locked memory; a DataLoader with pin_memory=True calls it.

        Raises:
            ValueError: the batch holds numpy arrays.
        """
        return self._with_each("pin_memory")

    def _with_each(self, method: str, *arguments: Any, **options: Any) -> Self:
        def moved(part: Any) -> Any:
            if isinstance(part, np.ndarray):
                raise ValueError(f'the batch holds numpy arrays, which have no {method}. Choose framework="torch".')
            if isinstance(part, MixedLabels):
                return MixedLabels(*map(moved, part))
            if isinstance(part, tuple):
                return tuple(map(moved, part))
            return getattr(part, method)(*arguments, **options)

        return replace(self, images=moved(self.images), labels=moved(self.labels))

    def __iter__(self) -> Iterator[Array]:
        yield self.images
        yield self.labels

    def __repr__(self) -> str:
        views = self.images if isinstance(self.images, tuple) else (self.images,)
        epochs = ", ".join(f"epoch {epoch}" for epoch in np.unique(self.plan.rows["epoch"]))
        given: Any = self.labels
        is_mixed = isinstance(given, MixedLabels)
        labels = f"MixedLabels of {array_text(given.labels)}" if is_mixed else array_text(given)
        return (
            f"Batch of {len(self)}, {epochs or 'empty'}, recipe {self.plan.recipe.name or 'unnamed'!r}: "
            f"images {' and '.join(map(array_text, views))}, labels {labels}"
        )

    def __len__(self) -> int:
        return len(self.sample_ids)
