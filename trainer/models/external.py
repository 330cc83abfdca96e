"""Networks of torchvision and timm by name, where those are installed."""

import difflib
from collections.abc import Iterable
from importlib import import_module
from types import ModuleType
from typing import Any

from torch import nn


def from_torchvision(name: str, *, num_classes: int, **options: Any) -> nn.Module:
    """`torchvision.models.get_model(name, ...)`, with random weights unless `weights` is given.

    Raises:
        ImportError: torchvision is not installed.
        ValueError: it has no classifier of that name.
    """
    models = import_module(f"{_library('torchvision').__name__}.models")
    # the modules below torchvision.models hold its detectors and segmenters, which are not classifiers
    _check_name("torchvision", name, models.list_models(module=models))
    model: nn.Module = models.get_model(name, num_classes=num_classes, **options)
    return model


def from_timm(name: str, *, num_classes: int, **options: Any) -> nn.Module:
    """`timm.create_model(name, ...)`, with random weights unless pretrained=True is given.

    Raises:
        ImportError: timm is not installed.
        ValueError: it has no network of that name.
    """
    timm = _library("timm")
    if not timm.is_model(name):  # it also knows names with a tag after a dot, which its list leaves out
        _check_name("timm", name, timm.list_models())
    model: nn.Module = timm.create_model(name, num_classes=num_classes, **options)
    return model


def _library(library: str) -> ModuleType:
    try:
        return import_module(library)
    except ModuleNotFoundError as error:
        if error.name != library:
            raise  # it is installed, and lacks something itself
        raise ImportError(f"models of {library} need it installed: pip install {library}") from error


def _check_name(library: str, name: str, known: Iterable[str]) -> None:
    known = list(known)
    if name in known:
        return
    near = difflib.get_close_matches(name, known, n=3)
    hint = f"Names near it are {', '.join(near)}." if near else f"{library}.list_models() lists them."
    raise ValueError(f"{library} has no classifier {name!r} among its {len(known)}. {hint}")
