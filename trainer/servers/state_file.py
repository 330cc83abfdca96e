"""The state of a server or of the dispatcher as one file of plain arrays and JSON: nothing in it is ever unpickled."""

import io
import os
import re
import struct
from pathlib import Path
from typing import Any
from zipfile import ZIP_STORED, BadZipFile, ZipFile

import numpy as np
import torch

from augpipe.datasets.files.atomic import write_atomically
from augpipe.trainer.checkpoint.tree import flatten, restore
from augpipe.trainer.exchange.objects import parse_json
from augpipe.trainer.tensors.tensor_file import DamagedError, open_file

_JSON = "json"
_HEADER = re.compile(rb"\{'descr': '([<|][biufcU]\d{1,12})', 'fortran_order': False, 'shape': \(([\d, ]*)\), \} *\n")
"""What numpy writes before an array; its own reader takes much else."""


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
    """What was written. No array takes more memory than the file has bytes.

    Raises:
        DamagedError: the file cannot be read, or is not the state of a server; a ValueError.
    """
    try:
        with open_file(path) as file, ZipFile(file) as archive:
            claimed, num_bytes = sum(entry.file_size for entry in archive.infolist()), os.fstat(file.fileno()).st_size
            if claimed > num_bytes:  # seen before anything is read: room is made for what is claimed
                raise ValueError(f"its arrays would have {claimed:,} bytes, and it has {num_bytes:,}")
            text, *names = _array(archive, _JSON).tolist()
            tensors = {name: torch.from_numpy(_array(archive, f"{number:06}")) for number, name in enumerate(names)}
        return restore(parse_json(text), tensors.__getitem__)
    except DamagedError:
        raise
    except (
        *(BadZipFile, OSError, EOFError, struct.error),  # the archive
        *(KeyError, TypeError, ValueError, AttributeError, OverflowError, RuntimeError),  # what is in it
    ) as error:
        raise DamagedError(f"{path} is not the state of a server ({type(error).__name__}: {error})") from error


def _array(archive: ZipFile, name: str) -> np.ndarray[Any, Any]:
    """One array, which is made only if the archive holds as many bytes as its header says."""
    entry = archive.getinfo(f"{name}.npy")
    if entry.compress_type != ZIP_STORED or entry.file_size != entry.compress_size:
        raise ValueError(f"{name} is compressed")
    with archive.open(entry) as file:
        magic, length = file.read(8), int.from_bytes(file.read(2), "little")
        header = _HEADER.fullmatch(file.read(length))
        if magic != b"\x93NUMPY\x01\x00" or header is None:
            raise ValueError(f"{name} is not a plain array")
        dtype, sizes = np.dtype(header[1].decode()), [int(size) for size in header[2].split(b",") if size.strip()]
        data = bytearray(file.read())
    return np.frombuffer(data, dtype).reshape(sizes)
