"""A checkpoint's list of its files with lengths and SHA-256 sums, by which damage is seen before anything is loaded."""

import hashlib
import json
from pathlib import Path
from typing import Any

from augpipe.datasets.files.atomic import write_atomically

NAME = "manifest.json"
VERSION = 1


class DamagedError(ValueError):
    """A checkpoint is not what was written; the message names the file and what is wrong with it."""


def write_manifest(folder: Path, about: dict[str, Any]) -> None:
    """List all files in `folder`; written last, so a checkpoint without one was never finished.

    Raises:
        OSError: a file cannot be read, or the list not written.
    """
    files = {
        path.name: {"num_bytes": path.stat().st_size, "sha256": _sha256(path)}
        for path in sorted(folder.iterdir())
        if path.name != NAME
    }
    text = json.dumps({"version": VERSION, **about, "files": files}, indent=1)
    write_atomically(str(folder / NAME), text.encode())


def read_manifest(folder: Path) -> dict[str, Any]:
    """The list, itself checked for being one.

    Raises:
        DamagedError: there is none, or it is of no use.
    """
    path = folder / NAME
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())
        version = found["version"]
        num_files = len(found["files"])
    except FileNotFoundError:
        raise DamagedError(f"{folder} has no {NAME}: it was never finished") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DamagedError(f"{path} cannot be read ({type(error).__name__}: {error})") from error
    if version != VERSION:
        raise DamagedError(f"{path} is of version {version}, and this augpipe reads {VERSION}")
    if num_files == 0:
        raise DamagedError(f"{path} lists no files")
    return found


def verify(folder: Path) -> dict[str, Any]:
    """Read every file and compare it with the list, which is returned.

    Raises:
        DamagedError: a file is missing, too short or long, or differs in a bit.
    """
    manifest = read_manifest(folder)
    for name, wanted in manifest["files"].items():
        path = folder / name
        try:
            num_bytes = path.stat().st_size
            if num_bytes != wanted["num_bytes"]:
                raise DamagedError(
                    f"{path} has {num_bytes:,} bytes and should have {wanted['num_bytes']:,}: cut short?"
                )
            if _sha256(path) != wanted["sha256"]:
                raise DamagedError(f"{path} differs from what was written: its SHA-256 sum is another one")
        except OSError as error:
            raise DamagedError(f"{path} cannot be read ({error.strerror or error})") from error
    return manifest


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
