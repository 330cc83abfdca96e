"""Tensors of which each rank has a part: saved by several ranks under one name, and read back by these or others."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorProperties
from torch.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType

CHUNK_BYTES = 2**24
"""A tensor is written in chunks of so many bytes, about: torch reads a chunk as a whole, also for a part of it."""


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


class PartTensor(Tensor):
    """What torch.distributed.checkpoint is given for a tensor of which this rank has a part.

    It has the whole tensor's shape, and no memory but the part's.
    """

    part: Tensor
    box: Box

    @staticmethod
    def __new__(cls, part: Tensor, box: Box) -> "PartTensor":
        made: PartTensor = Tensor._make_wrapper_subclass(cls, box.shape, dtype=part.dtype, device=part.device)
        made.part, made.box = part, box
        return made

    def __repr__(self) -> str:  # type: ignore[override]
        return f"PartTensor({self.box})"

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch's types take it for a plain function
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        raise NotImplementedError(f"{function} of a tensor of which this rank has a part alone")

    def __create_write_items__(self, fqn: str, _: object) -> list[WriteItem]:
        return [
            WriteItem(
                index=MetadataIndex(fqn, chunk.offsets),
                type=WriteItemType.SHARD,
                tensor_data=TensorWriteData(
                    chunk=chunk, properties=TensorProperties.create_from_tensor(self.part), size=self.size()
                ),
            )
            for chunk in self.__create_chunk_list__()
        ]

    def __create_chunk_list__(self) -> list[ChunkStorageMetadata]:
        return [
            ChunkStorageMetadata(offsets=torch.Size(box.offsets), sizes=torch.Size(box.sizes)) for box in self._chunks()
        ]

    def __get_tensor_shard__(self, index: MetadataIndex) -> Tensor:
        (found,) = (box for box in self._chunks() if box.offsets == tuple(index.offset or ()))
        return found.within(self.part, self.box)

    def _chunks(self) -> Iterator[Box]:
        """The part in rows that are next to each other; those of one chunk have about as many bytes as are allowed."""
        num_rows, *rest = self.box.sizes
        row_bytes = self.part.nbytes // max(num_rows, 1)
        step = max(CHUNK_BYTES // max(row_bytes, 1), 1)
        first, *others = self.box.offsets
        for row in range(0, num_rows, step):
            yield Box(shape=self.box.shape, offsets=(first + row, *others), sizes=(min(step, num_rows - row), *rest))


def in_chunks(tensor: Tensor) -> Tensor:
    """A whole tensor, so that it is written in chunks where it is large."""
    is_large = tensor.nbytes > CHUNK_BYTES and type(tensor) is Tensor
    return PartTensor(tensor, Box.all_of(tuple(tensor.shape))) if is_large else tensor
