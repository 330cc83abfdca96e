"""Nested state as flat tensors and one JSON text, so that a checkpoint holds no pickled objects of ours."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

_TENSOR, _TUPLE, _PAIRS = "$tensor", "$tuple", "$pairs"


def flatten(state: Any) -> tuple[str, dict[str, torch.Tensor]]:
    """(JSON, tensors by name) of nested dicts, lists, tuples, numbers, texts, None and tensors.

    Tensors are copied to memory of their own on the CPU: what happens to the state afterwards does not show.

    Raises:
        TypeError: something else is in it; names the place.
    """
    tensors: dict[str, torch.Tensor] = {}
    return json.dumps(_flattened(state, "", tensors)), tensors


def restore(text: str, tensors: Mapping[str, torch.Tensor]) -> Any:
    """The inverse of `flatten`; tensors are not copied."""
    return _restored(json.loads(text), tensors)


def _flattened(state: Any, place: str, tensors: dict[str, torch.Tensor]) -> Any:
    if isinstance(state, torch.Tensor):
        tensors[place] = state.detach().to("cpu", copy=True).contiguous()
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
