"""What the loader asks of a place that holds photographs."""

from collections.abc import Sequence
from typing import Any, Protocol, TypeGuard, runtime_checkable

import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[np.uint8]
Encoded = bytes | memoryview


@runtime_checkable
class Source(Protocol):
    """N photographs with the sample ids 0..N-1; `read` is called from several threads at once."""

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


def content_of(source: Source, sample_id: int) -> Encoded | Pixels:
    """What `source.read` returns; from our own sources that can, without a copy."""
    read = getattr(source, "read_view", source.read)
    content: Encoded | Pixels = read(sample_id)
    return content


def is_source(thing: Any) -> TypeGuard[Source]:
    """Whether `thing` can be handed to a `Loader` as it is."""
    return isinstance(thing, Source)
