"""What the loader asks of a place that holds images."""

from collections.abc import Sequence
from typing import Any, Protocol, TypeGuard, runtime_checkable

import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[np.uint8]


@runtime_checkable
class Source(Protocol):
    """N images with the sample ids 0..N-1; `read` is called from several threads at once.

    One of JPEGs that knows their sizes without reading them may say so: `SizedSource`.
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

    A loader with two threads or more, no cache and the native backend plans a batch before it reads it, which is
    faster; where a size proves wrong, or the image is large and no JPEG, it is planned anew, which is slower.
    """

    @property
    def knows_sizes(self) -> bool:
        """True; False is as if there were no `size`."""

    def size(self, sample_id: int) -> tuple[int, int]:
        """Height and width, in pixels, as the image shows."""


def is_sized(source: Source) -> TypeGuard[SizedSource]:
    """Whether `source.size` may be asked."""
    return bool(getattr(source, "knows_sizes", False))


def is_source(thing: Any) -> TypeGuard[Source]:
    """Whether `thing` can be handed to a `Loader` as it is."""
    return isinstance(thing, Source)
