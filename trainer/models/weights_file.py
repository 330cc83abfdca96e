"""Reading the tensors of a weights file without running what may be in it."""

import errno
import pickle
import re
import zipfile
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

_USUAL_KEYS = ("state_dict", "model_state_dict", "model")
"""Under which checkpoints hold the weights among other things."""


def read_state_dict(path: Path, *, key: str | None = None, prefix: str = "") -> dict[str, Tensor]:
    """The tensors by name in a file of torch.save or safetensors, on the CPU.

    They are the file itself, mapped: what is not looked at is not read. (What torch.save wrote before its version 1.6
    is read whole.)

    Raises:
        ValueError: it holds something else, no entry `key`, or nothing with `prefix`; or it is damaged.
        ImportError: a .safetensors file, and safetensors is not installed.
        FileNotFoundError: there is no such file.
    """
    if path.is_dir():
        raise ValueError(f"{path} is a folder. Give the file of weights in it.")
    content = _read_safetensors(path) if path.suffix == ".safetensors" else _read_torch(path)
    tensors = _weights_in(content, path, key)
    if not prefix:
        return tensors
    with_prefix = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
    if not with_prefix:
        raise ValueError(f"{path} has no name that begins with prefix={prefix!r}. It has {_some(tensors)}.")
    return with_prefix


def _read_torch(path: Path) -> Any:
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except pickle.UnpicklingError as error:
        strange = re.search(r"GLOBAL (\S+)", str(error))
        if strange is None:
            raise ValueError(_damaged(path)) from error
        raise ValueError(
            f"{path} holds more than tensors: it asks for {strange[1]}. Loading it could run code that is in it, so it "
            "is refused. Write it again by torch.save(model.state_dict(), path)."
        ) from error
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        raise ValueError(_damaged(path)) from error  # torch looks for the archive's end before the file's beginning
    except (RuntimeError, EOFError, ValueError, KeyError, IndexError, AttributeError, TypeError) as error:
        raise ValueError(_damaged(path)) from error  # what torch raises for other bytes, as they come


def _damaged(path: Path) -> str:
    return f"{path} is not a file of torch.save, or is damaged or cut short. Copy or write it again."


def _read_safetensors(path: Path) -> Any:
    try:
        safetensors = import_module("safetensors.torch")
        errors = import_module("safetensors")
    except ModuleNotFoundError as error:
        raise ImportError(f"{path} needs safetensors: pip install safetensors") from error
    try:
        return safetensors.load_file(path)
    except errors.SafetensorError as error:
        raise ValueError(f"{path} cannot be read as safetensors, {error}. Copy or write it again.") from error


def _weights_in(content: Any, path: Path, key: str | None) -> dict[str, Tensor]:
    if key is not None:
        if not isinstance(content, Mapping) or key not in content:
            raise ValueError(f"{path} has no entry key={key!r}. It has {_some(content)}.")
        content = content[key]
    elif not _is_weights(content) and isinstance(content, Mapping):
        holding = [name for name in _USUAL_KEYS if _is_weights(content.get(name))]
        if len(holding) > 1:
            raise ValueError(f"{path} holds weights under {', '.join(holding)}. Say which by key.")
        if holding:
            content = content[holding[0]]
    if not _is_weights(content):
        raise ValueError(
            f"{path} holds no weights by name: it is {_some(content)}. "
            "Give a file that torch.save(model.state_dict(), path) wrote, or the key of the weights in it."
        )
    return {name: value for name, value in content.items() if isinstance(value, Tensor)}


def _is_weights(content: Any) -> bool:
    """Whether these are names with tensors; a module's extra state may stand among them."""
    return (
        isinstance(content, Mapping)
        and all(isinstance(name, str) for name in content)
        and any(isinstance(value, Tensor) for value in content.values())
        and all(isinstance(value, Tensor) or name.endswith("_extra_state") for name, value in content.items())
    )


def _some(content: Any) -> str:
    if not isinstance(content, Mapping):
        return f"a {type(content).__name__}"
    if not content:
        return "an empty dict"
    names = [str(name) for name in content]
    return "a dict of " + ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
