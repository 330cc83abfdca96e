"""Boxes: where a rank's part lies in a tensor of which several ranks have parts."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Box:
    """Where a part lies in a whole tensor."""

    shape: tuple[int, ...]
    """The whole tensor's."""
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    """The part's shape."""

    @classmethod
    def all_of(cls, shape: tuple[int, ...]) -> "Box":
        """The box that is the whole tensor."""
        return cls(shape=shape, offsets=(0,) * len(shape), sizes=shape)

    def common_with(self, other: "Box") -> "Box | None":
        """What two boxes of one tensor have in common."""
        assert self.shape == other.shape
        starts = tuple(map(max, self.offsets, other.offsets))
        stops = (
            min(a + num_a, b + num_b)
            for a, num_a, b, num_b in zip(self.offsets, self.sizes, other.offsets, other.sizes, strict=True)
        )
        sizes = tuple(stop - start for start, stop in zip(starts, stops, strict=True))
        return Box(shape=self.shape, offsets=starts, sizes=sizes) if all(size > 0 for size in sizes) else None

    def within(self, part: Tensor, outer: "Box") -> Tensor:
        """This box of the tensor, a view; `part` holds `outer`, of which this one is a part."""
        for dim, (start, size, first) in enumerate(zip(self.offsets, self.sizes, outer.offsets, strict=True)):
            part = part.narrow(dim, start - first, size)
        return part


BoxAt: TypeAlias = Callable[[str], Box | None]
"""The box that this rank has of a tensor, by its place in the state, as "/model/classifier.0.weight"; None where it has
all of it."""
