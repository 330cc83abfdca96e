"""Nested state as tensors by name and one JSON text, so that a checkpoint holds values and no objects."""

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from augpipe.trainer.tensors.box import Box, BoxAt
from augpipe.trainer.tensors.tensor_file import DTYPES

_TENSOR, _COMPLEX, _TUPLE, _PAIRS, _FLOAT = "$tensor", "$complex", "$tuple", "$pairs", "$float"


class Tensors(dict[str, torch.Tensor]):
    """Copies by name, in memory of their own on the CPU: what happens to the state afterwards does not show."""

    def __init__(self, box_at: BoxAt | None, parts_only: bool) -> None:
        super().__init__()
        self.boxes: dict[str, Box] = {}
        """Where those that are parts lie in the whole tensors."""
        self._box_at = box_at
        self._parts_only = parts_only

    def keep(self, name: str, tensor: torch.Tensor) -> None:
        """Copy a tensor; one of the shape that the part of this name has is that part."""
        box = None if self._box_at is None else self._box_at(name)
        if box is not None and box.sizes == tuple(tensor.shape):
            self.boxes[name] = box
        elif self._parts_only:
            return
        if tensor.dtype not in DTYPES.values() or tensor.layout != torch.strided:
            raise TypeError(f"{name} is a tensor of {tensor.dtype}, {tensor.layout}, which a checkpoint cannot hold.")
        if name in self:
            raise TypeError(f"{name} names two tensors, which a checkpoint cannot hold.")
        self[name] = tensor.detach().to("cpu", copy=True).contiguous()


def flatten(state: Any, box_at: BoxAt | None = None, *, parts_only: bool = False) -> tuple[str, Tensors]:
    """(JSON, tensors by name) of nested dicts, lists, tuples, numbers, texts, None and tensors.

    Args:
        state: what is to be flattened.
        box_at: which tensors are parts, and of what, by their names; None where all are whole.
        parts_only: leave out whole tensors; the JSON is then of no use.

    Raises:
        TypeError: something else is in it; names the place.
    """
    tensors = Tensors(box_at, parts_only)
    return json.dumps(_flattened(state, "", tensors), allow_nan=False), tensors


def restore(data: Any, tensor_of: Callable[[str], torch.Tensor]) -> Any:
    """The inverse of `flatten`, from what its JSON says.

    Raises:
        KeyError, TypeError, ValueError, AttributeError, OverflowError: `flatten` does not write such a JSON.
    """
    if isinstance(data, list):
        return [restore(item, tensor_of) for item in data]
    if not isinstance(data, dict):
        return data
    if _TENSOR in data:
        return tensor_of(data[_TENSOR])
    if _COMPLEX in data:
        return _complex(data[_COMPLEX], tensor_of)
    if _TUPLE in data:
        return tuple(restore(item, tensor_of) for item in data[_TUPLE])
    if _PAIRS in data:
        # a key that was a tuple is one again, since lists cannot be keys
        return {restore(key, tensor_of): restore(value, tensor_of) for key, value in data[_PAIRS]}
    if _FLOAT in data:
        return float(data[_FLOAT])
    return {key: restore(value, tensor_of) for key, value in data.items()}


def _complex(name: str, tensor_of: Callable[[str], torch.Tensor]) -> torch.Tensor:
    pairs = tensor_of(name)
    if pairs.dtype not in (torch.float16, torch.float32, torch.float64) or pairs.shape[-1:] != (2,):
        shape = tuple(pairs.shape)
        raise ValueError(f"{name} is not the two parts of complex numbers: it is {pairs.dtype} of the shape {shape}")
    return torch.view_as_complex(pairs)


def _flattened(state: Any, place: str, tensors: Tensors) -> Any:
    def inner(value: Any, key: object) -> Any:
        return _flattened(value, f"{place}/{key}" if place else str(key), tensors)

    if isinstance(state, torch.Tensor):
        tensors.keep(place, torch.view_as_real(state.resolve_conj()) if state.is_complex() else state)
        return {_COMPLEX if state.is_complex() else _TENSOR: place}
    if isinstance(state, Mapping):
        if all(isinstance(key, str) and not key.startswith("$") for key in state):
            return {key: inner(value, key) for key, value in state.items()}
        pairs = enumerate(state.items())
        return {_PAIRS: [[inner(key, f"{number}.key"), inner(value, number)] for number, (key, value) in pairs]}
    if isinstance(state, tuple):
        return {_TUPLE: [inner(item, number) for number, item in enumerate(state)]}
    if isinstance(state, list):
        return [inner(item, number) for number, item in enumerate(state)]
    if isinstance(state, np.generic) and not isinstance(state.item(), np.generic):
        return inner(state.item(), "")
    if isinstance(state, float) and not math.isfinite(state):
        return {_FLOAT: str(state)}  # JSON has no such numbers
    if state is None or isinstance(state, bool | int | float | str):
        return state
    raise TypeError(f"{place or 'the state'} is a {type(state).__name__}, which a checkpoint cannot hold.")
