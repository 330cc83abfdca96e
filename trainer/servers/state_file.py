"""The state of a server or of the dispatcher as one file of plain arrays and JSON: nothing in it is ever unpickled."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import torch

from augpipe.datasets.files.atomic import write_atomically
from augpipe.trainer.checkpoint.tree import flatten, restore
from augpipe.trainer.exchange.objects import parse_json

_JSON = "json"


def server_path(folder: Path, index: int) -> Path:
    """Where a server's state lies in a checkpoint's folder."""
    return folder / f"server-{index}.npz"


def dispatcher_path(folder: Path) -> Path:
    """Where the dispatcher's lies."""
    return folder / "dispatcher.npz"


def write_state(path: Path, state: Any) -> None:
    """Write nested dicts, lists, numbers, texts and tensors, at once or not at all.

    Raises:
        OSError: there is no room, or no right to.
    """
    text, tensors = flatten(state)
    arrays: dict[str, Any] = {f"{number:06}": tensor.numpy() for number, tensor in enumerate(tensors.values())}
    content = io.BytesIO()
    np.savez(content, **arrays | {_JSON: np.array([text, *tensors])})
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(str(path), content.getvalue())


def read_state(path: Path) -> Any:
    """What was written.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is none of these.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            text, *names = archive[_JSON].tolist()
            tensors = {name: torch.from_numpy(archive[f"{number:06}"]) for number, name in enumerate(names)}
    except (KeyError, EOFError) as error:
        raise ValueError(f"{path} is no state of a server: {error}") from error
    return restore(parse_json(text), tensors.__getitem__)
