"""Random words and the numbers made from them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.gpu_ops.random.philox import integers, uniform

Float = npt.NDArray[np.float64]


Words = npt.NDArray[np.uint32]


class RandomWords:
    """The (n, k) random 32-bit words of one op for n images; word 0 decides whether the op is applied.

    Args:
        words: (n, k).
        more: (name, number of words) -> the words of a stream of its own, for ops within this op.
        only: (n,) whether the op may be applied at all; None for always.
        epoch: which one is planned, for ops that alternate.
    """

    def __init__(
        self,
        words: Words,
        more: Callable[[str, int], Words] | None = None,
        only: npt.NDArray[np.bool_] | None = None,
        epoch: int = 0,
    ) -> None:
        self.words = words
        self.epoch = epoch
        self._more = more
        self._only = only

    def nested(self, name: str, num_words: int, only: npt.NDArray[np.bool_]) -> "RandomWords":
        """The words of an op within this one, which is applied at most where `only` says."""
        more = self._more
        assert more is not None, "a stream without a name has none within"
        return RandomWords(more(name, num_words), lambda inner, num: more(f"{name}/{inner}", num), only)

    def __len__(self) -> int:
        return len(self.words)

    def happens(self, position: int, probability: float) -> npt.NDArray[np.bool_]:
        """(n,) true with the given probability; exactly never for 0 and always for 1."""
        happens: npt.NDArray[np.bool_] = uniform(self.words[:, position]) < probability
        return happens & self._only if position == 0 and self._only is not None else happens

    def uniform(self, position: int, low: float, high: float) -> Float:
        """(n,) evenly distributed in low..high."""
        numbers: Float = low + (high - low) * uniform(self.words[:, position])
        return numbers

    def integer(self, position: int, num: Any) -> npt.NDArray[np.int64]:
        """(n,) one of 0..num - 1, where `num` is a number or an (n,) array."""
        return integers(self.words[:, position], num)

    def stepped(self, position: int, low: float, high: float, step: float | None) -> Float:
        """(n,) one of low, low + step, .., high; evenly distributed in low..high where `step` is None."""
        if step is None:
            return self.uniform(position, low, high)
        return low + step * self.integer(position, num_steps(low, high, step)).astype(np.float64)

    def normals(self, position: int) -> tuple[Float, Float]:
        """Two times (n,) normal numbers of mean 0 and standard deviation 1, of two words (Box and Muller 1958)."""
        radius = np.sqrt(-2.0 * np.log1p(-uniform(self.words[:, position])))
        angle = 2.0 * np.pi * uniform(self.words[:, position + 1])
        return radius * np.cos(angle), radius * np.sin(angle)


def num_steps(low: float, high: float, step: float) -> int:
    """How many values low, low + step, .., high there are."""
    return round((high - low) / step) + 1


def check_steps(name: str, low: float, high: float, step: float | None) -> None:
    """Raise ValueError where `low`..`high` is no range or is not cut evenly by `step`."""
    if low > high:
        raise ValueError(f"{name}=({low}, {high}) is no range: its first number is the larger one. Swap them.")
    if step is None:
        return
    if step <= 0:
        raise ValueError(
            f"the step of {name} is {step}, and must be above 0. Leave it out (None) for a continuous range."
        )
    count = (high - low) / step
    if abs(count - round(count)) > 1e-6 or (low < high and round(count) == 0):
        raise ValueError(
            f"{name}=({low}, {high}) is not a whole number of steps of {step} wide ({count:.6g} of them). "
            "Choose a step that divides the range, or None for a continuous one."
        )
