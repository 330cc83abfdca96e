"""What every codec does: float32 to bytes and back."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from augpipe.trainer.codecs.arrays import Array


@runtime_checkable
class Codec(Protocol):
    """Encodes float32 numbers into a payload of bytes that can be decoded without anything else.

    Values are float32 numpy arrays or torch tensors (CPU, or CUDA: then on the current stream) of any shape, taken as
    one run; payloads are uint8, one-dimensional, of the same kind and on the same device. A codec holds no state: any
    number of threads may use it at a time, and it compares equal to another with the same name and block.

    Numbers that are not finite are never encoded into nonsense. With one scale for a block of numbers the whole block
    decodes to NaN; fp32 and bf16 hand infinities and NaN on one by one.
    """

    @property
    def name(self) -> str:
        """The name that `codec(name)` takes."""
        ...

    @property
    def block(self) -> int | None:
        """Numbers that share a scale; None for one scale for all, or for codecs without scales."""
        ...

    def num_bytes(self, num: int) -> int:
        """Bytes of the payload of `num` numbers; does not depend on the numbers."""
        ...

    def encode(self, x: Array) -> Any:
        """A new payload."""
        ...

    def decode(self, payload: Array) -> Any:
        """(num,) float32, new; `ValueError` for a payload whose length no number of values has."""
        ...

    def encode_into(self, x: Array, payload: Array) -> int:
        """Encode into (num_bytes(num),) `payload`, without allocating; returns how many numbers were not finite.

        On the CPU the GIL is free meanwhile. For CUDA tensors, the count makes the host wait for the stream.
        """
        ...

    def decode_into(self, payload: Array, out: Array, *, add: bool = False) -> None:
        """Decode into `out`, float32 with as many numbers as were encoded; with `add`, add to what it holds."""
        ...

    def encode_slices(self, xs: Sequence[Array], payloads: Sequence[Array]) -> Any:
        """`encode_into` of each `x` and its payload; of CUDA tensors, which lie on one device, in one launch.

        Returns how many numbers were not finite: an int, or for CUDA tensors a tensor, which nothing has waited for.
        """
        ...

    def decode_slices(self, payloads: Sequence[Array], outs: Sequence[Array]) -> None:
        """`decode_into` of each payload and its `out`, likewise."""
        ...

    def add_slices(self, payloads: Sequence[Array], out: Array) -> None:
        """Add what each payload decodes to, in their order, to what `out` holds; likewise."""
        ...

    def error_bound(self, x: Array) -> npt.NDArray[np.float32]:
        """What |decoded - x| is at most, for each number of `x` as one run; NaN in blocks that are not finite."""
        ...
