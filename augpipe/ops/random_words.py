"""Random words and the numbers made from them."""

from typing import Any

import numpy as np
import numpy.typing as npt

from augpipe.gpu_ops.random.philox import integers, uniform

Float = npt.NDArray[np.float64]


class RandomWords:
    """The (n, k) random 32-bit words of one op for n images in an epoch; word 0 decides whether the op is applied."""

    def __init__(self, words: npt.NDArray[np.uint32], epoch: int = 0) -> None:
        self.words = words
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.words)

    def happens(self, position: int, probability: float) -> npt.NDArray[np.bool_]:
        """(n,) true with the given probability; exactly never for 0 and always for 1."""
        return uniform(self.words[:, position]) < probability

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
