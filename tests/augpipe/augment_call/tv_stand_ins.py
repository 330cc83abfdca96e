"""torchvision's tv_tensors as far as they are used here: its classes by name, and `wrap`."""

import sys
from enum import Enum
from types import ModuleType
from typing import Any

import pytest
import torch

NAME = "torchvision.tv_tensors"
Format = Enum("Format", ["XYXY", "XYWH", "CXCYWH", "XYWHR", "CXCYWHR", "XYXYXYXY"])
KEPT = ("format", "canvas_size")


def installed(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module, where `sys.modules` has it for the test."""
    module = ModuleType(NAME)
    for name in ("Image", "BoundingBoxes", "Mask", "KeyPoints"):
        setattr(module, name, type(name, (torch.Tensor,), {"__module__": NAME, "__new__": _new}))
    module.wrap = wrap  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, NAME, module)
    return module


def _new(kind: Any, values: Any, **attributes: Any) -> Any:
    return made(kind, values, values.dtype, **attributes)


def wrap(tensor: torch.Tensor, *, like: Any, **changed: Any) -> Any:
    made = tensor.as_subclass(type(like))
    for name in KEPT:
        if hasattr(like, name):
            setattr(made, name, changed.get(name, getattr(like, name)))
    return made


def made(kind: Any, values: Any, dtype: torch.dtype = torch.float32, **attributes: Any) -> Any:
    tensor = torch.as_tensor(values, dtype=dtype).as_subclass(kind)
    for name, value in attributes.items():
        setattr(tensor, name, value)
    return tensor
