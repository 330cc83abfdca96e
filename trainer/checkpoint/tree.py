"""Nested state as flat tensors and one JSON text, so that a checkpoint holds no pickled objects of ours."""

import json
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import torch

from augpipe.trainer.checkpoint.parts import BoxAt, PartTensor

_TENSOR, _TUPLE, _PAIRS = "$tensor", "$tuple", "$pairs"


def flatten(
    state: Any, box_at: BoxAt | None = None, *, parts_alone: bool = False
) -> tuple[str, dict[str, torch.Tensor]]:
    """(JSON, tensors by name) of nested dicts, lists, tuples, numbers, texts, None and tensors.

    Tensors are copied to memory of their own on the CPU: what happens to the state afterwards does not show.

    Args:
        state: what is to be flattened.
        box_at: which tensors are parts, and of what; None where all are whole.
        parts_alone: leave out whole tensors; the JSON is then of no use.

    Raises:
        TypeError: something else is in it; names the place.
    """
    tensors = _Tensors(box_at, parts_alone)
    return json.dumps(_flattened(state, "", tensors)), tensors


def restore(text: str, tensors: Mapping[str, torch.Tensor], entries: Collection[str] | None = None) -> Any:
    """The inverse of `flatten`, of a dict also for some of its entries; tensors are not copied."""
    data = json.loads(text)
    if entries is not None:
        data = {name: value for name, value in data.items() if name in entries}
    return _restored(data, tensors)


class _Tensors(dict[str, torch.Tensor]):
    """Copies by place."""

    def __init__(self, box_at: BoxAt | None, parts_alone: bool) -> None:
        super().__init__()
        self._box_at = box_at
        self._parts_alone = parts_alone

    def keep(self, place: str, tensor: torch.Tensor) -> None:
        """Copy a tensor; one of the shape that the part at this place has is that part."""
        box = None if self._box_at is None else self._box_at(place)
        is_part = box is not None and box.sizes == tuple(tensor.shape)
        if self._parts_alone and not is_part:
            return
        copied = tensor.detach().to("cpu", copy=True).contiguous()
        self[place] = PartTensor(copied, box) if box is not None and is_part else copied


def _flattened(state: Any, place: str, tensors: _Tensors) -> Any:
    if isinstance(state, torch.Tensor):
        tensors.keep(place, state)
        return {_TENSOR: place}
    if isinstance(state, Mapping):
        if all(isinstance(key, str) and not key.startswith("$") for key in state):
            return {key: _flattened(value, f"{place}/{key}", tensors) for key, value in state.items()}
        pairs = enumerate(state.items())
        return {
            _PAIRS: [
                [_flattened(key, f"{place}/{number}.key", tensors), _flattened(value, f"{place}/{number}", tensors)]
                for number, (key, value) in pairs
            ]
        }
    if isinstance(state, tuple):
        return {_TUPLE: [_flattened(item, f"{place}/{number}", tensors) for number, item in enumerate(state)]}
    if isinstance(state, list):
        return [_flattened(item, f"{place}/{number}", tensors) for number, item in enumerate(state)]
    if isinstance(state, np.generic):
        return state.item()
    if state is None or isinstance(state, bool | int | float | str):
        return state
    raise TypeError(f"{place or 'the state'} is a {type(state).__name__}, which a checkpoint cannot hold.")


def _restored(data: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    if isinstance(data, dict):
        if _TENSOR in data:
            return tensors[data[_TENSOR]]
        if _TUPLE in data:
            return tuple(_restored(item, tensors) for item in data[_TUPLE])
        if _PAIRS in data:
            # a key that was a tuple is one again, since lists cannot be keys
            return {_restored(key, tensors): _restored(value, tensors) for key, value in data[_PAIRS]}
        return {key: _restored(value, tensors) for key, value in data.items()}
    if isinstance(data, list):
        return [_restored(item, tensors) for item in data]
    return data
