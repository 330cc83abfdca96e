"""What the loader asks of a place that holds images."""

from collections.abc import Sequence
from typing import Any, Protocol, TypeGuard, runtime_checkable

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Pixels = npt.NDArray[np.uint8]


@runtime_checkable
class Source(Protocol):
    """N images with the sample ids 0..N-1; `read` is called from several threads at once.

    What more a source may know makes a loader faster: the sizes of its JPEGs (`SizedSource`), one array of all images
    (`StackedSource`), and labels many at a time (`LabelledSource`). One that is made of several says which sample is of
    which (`PartedSource`).
    """

    @property
    def classes(self) -> Sequence[str]:
        """Label -> class name; empty where there are no labels."""

    def __len__(self) -> int: ...

    def read(self, sample_id: int) -> bytes | Pixels:
        """The encoded file, or an uint8 array of shape (H, W, 3), (H, W, 4), (H, W, 1) or (H, W).

        Raises:
            OSError: the file cannot be read; the loader adds the sample's name.
        """

    def label(self, sample_id: int) -> int:
        """The class, or -1 where there is none."""

    def name(self, sample_id: int) -> str:
        """A path or a description, for captions and error messages."""


class SizedSource(Source, Protocol):
    """JPEGs whose sizes are known without reading them.

    A loader with no cache and the native backend plans many samples at once before it reads them, which is faster;
    where a size proves wrong, or the image is large and no JPEG, it is planned anew, which is slower.
    """

    @property
    def knows_sizes(self) -> bool:
        """True; False is as if there were no `size`."""

    def size(self, sample_id: int) -> tuple[int, int]:
        """Height and width, in pixels, as the image shows."""


class StackedSource(Source, Protocol):
    """Images of one size in one array.

    A loader on the CPU with the native backend and no cache renders them from there, a batch at a time.
    """

    @property
    def stack(self) -> Pixels | None:
        """(N, H, W, 1 | 3 | 4) or (N, H, W) uint8: image i is that of sample i; None is as if there were no `stack`."""


class LabelledSource(Source, Protocol):
    """Images whose labels can be looked up many at a time."""

    def labels_of(self, sample_ids: Ints) -> Ints:
        """(B,) int64: what `label` says of each."""


class PartedSource(Source, Protocol):
    """Images of several origins: one that cannot be used is replaced by another of its own."""

    @property
    def num_parts(self) -> int:
        """How many there are."""

    def parts_of(self, sample_ids: Ints) -> Ints:
        """(B,) int64 in 0..num_parts - 1: which part each lies in."""


def num_parts_of(source: Source) -> int:
    """How many parts a source is made of; 1 for one that does not say."""
    num: int = getattr(source, "num_parts", 1)
    return num


def parts_of(source: Source, sample_ids: Ints) -> Ints:
    """(B,) int64: which part of the source each lies in."""
    if hasattr(source, "parts_of"):
        parts: Ints = source.parts_of(sample_ids)
        return parts
    return np.zeros(len(sample_ids), np.int64)


def stack_of(source: Source) -> Pixels | None:
    """(N, H, W, C) uint8 where all images lie in one array, else None."""
    stack: Pixels | None = getattr(source, "stack", None)
    if stack is None:
        return None
    return np.asarray(stack[..., None] if stack.ndim == 3 else stack)


def labels_of(source: Source, sample_ids: Ints) -> Ints:
    """(B,) int64: the classes, -1 where there is none."""
    if hasattr(source, "labels_of"):
        labels: Ints = source.labels_of(sample_ids)
        return labels
    return np.array([source.label(sample_id) for sample_id in sample_ids.tolist()], np.int64)


def sizes_of(source: SizedSource, sample_ids: Ints) -> Ints:
    """(N, 2) heights and widths in pixels; 0 where the source cannot say, or says what is no size."""
    sizes = np.zeros((len(sample_ids), 2), np.int64)
    for row, sample_id in enumerate(sample_ids.tolist()):
        try:
            sizes[row] = [int(side) for side in source.size(sample_id)]
        except (ValueError, OSError, OverflowError):
            continue
    return sizes


def is_sized(source: Source) -> TypeGuard[SizedSource]:
    """Whether `source.size` may be asked."""
    return bool(getattr(source, "knows_sizes", False))


def is_source(thing: Any) -> TypeGuard[Source]:
    """Whether `thing` can be handed to a `Loader` as it is."""
    return isinstance(thing, Source)
