"""Random words and the numbers made from them."""

import zlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from augpipe.gpu_ops.random.philox import SHIFT_32, checked_draws

Float = npt.NDArray[np.float64]


Words = npt.NDArray[np.uint32]
Int = npt.NDArray[np.int64]


@lru_cache(maxsize=4096)
def stream_id(name: str) -> int:
    """The counter word of an op's stream: its name hashed to 32 bits.

    The name is `kind:place among its kind:view`, with `:sampled` behind it in epochs of a sampler, where positions
    stand in the sample id's place; for an op within another one that op's name comes first.
    """
    return zlib.crc32(name.encode())


class Stream(NamedTuple):
    """Where an op's random words come from, for n images."""

    key: Words
    """(2,) of `philox.seed_key`."""
    epoch: int
    ids: Words
    """(n,) sample ids, or positions in epochs of a sampler."""
    name: str

    def words(self, num_words: int) -> Words:
        """(n, num_words)."""
        op_ids = np.full(len(self.ids), stream_id(self.name), np.uint32)
        return checked_draws(self.key, self.epoch, self.ids, op_ids, num_words)

    def within(self, name: str, rows: Int | slice) -> "Stream":
        """The stream of an op within this one, for some of the images."""
        return Stream(self.key, self.epoch, self.ids[rows], f"{self.name}/{name}")


class RandomWords:
    """The (n, k) random 32-bit words of one op for n images; word 0 decides whether the op is applied.

    Args:
        words: (n, k).
        stream: where those of ops within this op come from.
        epoch: which one is planned, for ops that alternate.
    """

    def __init__(self, words: Words, stream: Stream | None = None, epoch: int = 0) -> None:
        self.words = words
        self.epoch = epoch
        self._stream = stream

    @property
    def stream(self) -> Stream:
        """Where the words come from."""
        assert self._stream is not None, "a stream without a name has none within"
        return self._stream

    def of(self, rows: Int | slice) -> "RandomWords":
        """Those of some of the images."""
        key, epoch, ids, name = self.stream
        return RandomWords(self.words[rows], Stream(key, epoch, ids[rows], name), self.epoch)

    def nested(self, name: str, num_words: int, rows: Int | slice) -> "RandomWords":
        """The words of an op within this one, for some of the images."""
        stream = self.stream.within(name, rows)
        return RandomWords(stream.words(num_words), stream)

    def nested_apart(self, ops: Sequence[tuple[str, int]], rows: Sequence[Int]) -> "list[RandomWords]":
        """The words of several ops within this one, each for images of its own: what `nested` gives, in one call."""
        key, epoch, ids, name = self.stream
        ids = ids[np.concatenate(rows)]
        names = [f"{name}/{inner}" for inner, _ in ops]
        counts = [len(own) for own in rows]
        op_ids = np.repeat(np.array([stream_id(inner) for inner in names], np.uint32), counts)
        words = checked_draws(key, epoch, ids, op_ids, max(num_words for _, num_words in ops))
        made, end = [], 0
        for inner, count in zip(names, counts, strict=True):
            first, end = end, end + count
            made.append(RandomWords(words[first:end], Stream(key, epoch, ids[first:end], inner)))
        return made

    def __len__(self) -> int:
        return len(self.words)

    def happens(self, position: int, probability: float) -> npt.NDArray[np.bool_]:
        """(n,) true with the given probability; exactly never for 0 and always for 1."""
        if probability >= 1.0:
            return np.ones(len(self.words), np.bool_)
        happens: npt.NDArray[np.bool_] = self.uniform(position, 0.0, 1.0) < probability
        return happens

    def uniform(self, position: int | slice | Int, low: float, high: float) -> Float:
        """(n,) evenly distributed in low..high; (n, k) of k positions."""
        # `philox.uniform` without its check
        numbers: Float = low + (high - low) * (self.words[:, position].astype(np.float64) * 2.0**-32)
        return numbers

    def integer(self, position: int | slice | Int, num: Any) -> npt.NDArray[np.int64]:
        """(n,) one of 0..num - 1, where `num` is a number or an (n,) array, from 1 on; (n, k) of k positions."""
        # `philox.integers` without its checks, which take several times as long
        counts = np.asarray(num).astype(np.uint64)
        return ((self.words[:, position].astype(np.uint64) * counts) >> SHIFT_32).astype(np.int64)

    def weighted(self, position: int, num: int, weights: Sequence[float] | None) -> npt.NDArray[np.int64]:
        """(n,) one of 0..num - 1, each as often as its weight says, relative to the others; None: all equally often."""
        shares = np.ones(num) if weights is None else np.array(weights)
        ends = np.cumsum(shares) / shares.sum()
        return np.searchsorted(ends[:-1], self.uniform(position, 0.0, 1.0), side="right")

    def stepped(self, position: int, low: float, high: float, step: float | None) -> Float:
        """(n,) one of low, low + step, .., high; evenly distributed in low..high where `step` is None."""
        if step is None:
            return self.uniform(position, low, high)
        return low + step * self.integer(position, num_steps(low, high, step)).astype(np.float64)

    def normals(self, position: int) -> tuple[Float, Float]:
        """Two times (n,) normal numbers of mean 0 and standard deviation 1, of two words (Box and Muller 1958)."""
        radius = np.sqrt(-2.0 * np.log1p(-self.uniform(position, 0.0, 1.0)))
        angle = 2.0 * np.pi * self.uniform(position + 1, 0.0, 1.0)
        return radius * np.cos(angle), radius * np.sin(angle)


def num_steps(low: float, high: float, step: float) -> int:
    """How many values low, low + step, .., high there are."""
    return round((high - low) / step) + 1


def check_steps(name: str, low: float, high: float, step: float | None) -> None:
    """Raise ValueError where `low`..`high` is not a range or is not cut evenly by `step`."""
    if low > high:
        raise ValueError(f"{name}=({low}, {high}) is not a range: its first number is the larger one. Swap them.")
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
