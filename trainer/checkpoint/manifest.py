"""A checkpoint's list of its files with lengths and SHA-256 sums, by which damage is seen before anything is loaded."""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from augpipe.datasets.files.atomic import write_atomically
from augpipe.trainer.exchange.objects import parse_json
from augpipe.trainer.tensors.tensor_file import MAX_JSON_BYTES, DamagedError, TensorFile, open_file

NAME = "manifest.json"
VERSION = 2
_FILE_NAME = re.compile(r"\.?\w[\w.-]*", re.ASCII)


def rank_paths(folder: Path, rank: int) -> tuple[Path, Path]:
    """Where the tensors lie that a rank wrote, and where all else does."""
    return folder / f"rank{rank}.safetensors", folder / f"rank{rank}.json"


def write_manifest(folder: Path, about: Mapping[str, Any], files: Mapping[str, Any] | None = None) -> None:
    """List files with their lengths and sums, which are read where they are not given; written last, so a checkpoint
    without a list was never finished.

    Raises:
        OSError: a file cannot be read, or the list not written.
    """
    if files is None:
        paths = [path for path in sorted(folder.iterdir()) if path.name != NAME]
        files = {path.name: {"num_bytes": path.stat().st_size, "sha256": _sha256(path)} for path in paths}
    manifest = {"version": VERSION, **about, "files": files}
    text = json.dumps(manifest | {"sha256": _own_sum(manifest)}, indent=1)
    write_atomically(str(folder / NAME), text.encode())


def read_manifest(folder: Path, version: int = VERSION) -> dict[str, Any]:
    """The list, itself checked for being one.

    Raises:
        DamagedError: there is none, it is of another version, or it is of no use.
    """
    path = folder / NAME
    if folder.is_dir() and not path.exists():
        raise DamagedError(f"{folder} has no {NAME}: it was never finished")
    found: dict[str, Any] = read_json(path)
    try:
        files = found["files"].items()
        strange = [name for name, about in files if not _FILE_NAME.fullmatch(name) or not _is_sum(about)]
        # what parameter servers write has not changed since version 1
        written = VERSION if found["version"] == 1 and "servers" in found else found["version"]
        step, world_size = found["step"], 0 if "servers" in found else found["world_size"]
        is_numbered = type(step) is type(world_size) is int and ("servers" in found or world_size > 0)
    except (KeyError, TypeError, AttributeError) as error:
        raise DamagedError(f"{path} cannot be read ({type(error).__name__}: {error})") from error
    if written != version:
        remedy = (
            f". It may be whole: move {folder.parent} to BEFORE, and augpipe checkpoint convert "
            f"BEFORE/{folder.name} {folder.parent} --trust-pickle writes it in today's form"
        )
        if written == VERSION:  # somebody asks for an older one
            raise DamagedError(f"{path} is of version {written}, which needs no conversion")
        known = f"is of version {written!r:.20}, and this augpipe reads {version}"
        raise DamagedError(f"{path} {known}{remedy if written == 1 else ''}")
    if found["version"] == VERSION and found.pop("sha256", None) != _own_sum(found):
        raise DamagedError(f"{path} differs from what was written: its SHA-256 sum is another one")
    if strange or not files or not is_numbered:
        raise DamagedError(f"{path} does not list files of this folder" + (f": {strange[0]!r:.80}" if strange else ""))
    if version == VERSION:
        needed = (path.name for rank in range(world_size) for path in rank_paths(folder, rank))
        lacking = next((name for name in needed if name not in found["files"]), None)
        if lacking is not None:
            raise DamagedError(f"{path} does not list {lacking}")
    return found


def verify(
    folder: Path, version: int = VERSION, progress: Callable[[int, int], None] = lambda done, total: None
) -> dict[str, Any]:
    """Read every file and compare it with the list, which is returned.

    Args:
        folder: the checkpoint's.
        version: that it must have.
        progress: called with the bytes read and those of all files.

    Raises:
        DamagedError: a file is missing, too short or long, differs in a bit, or holds NaN where none may be.
    """
    manifest = read_manifest(folder, version)
    num_read, total = 0, sum(wanted["num_bytes"] for wanted in manifest["files"].values())
    for name, wanted in manifest["files"].items():
        path = folder / name
        progress(num_read, total)
        num_read += wanted["num_bytes"]
        try:
            num_bytes, should = path.stat().st_size, wanted["num_bytes"]
            if num_bytes != should:
                raise DamagedError(f"{path} has {num_bytes:,} bytes and should have {should:,}: cut short?")
            is_tensors, may_hold_nan = path.suffix == ".safetensors", manifest.get("may_hold_nan") is True
            found = TensorFile(path).sha256(may_hold_nan=may_hold_nan) if is_tensors else _sha256(path)
            if found != wanted["sha256"]:
                raise DamagedError(f"{path} differs from what was written: its SHA-256 sum is another one")
        except OSError as error:
            raise DamagedError(f"{path} cannot be read ({error.strerror or error})") from error
    return manifest


def read_json(path: Path) -> Any:
    """The value in a file of a checkpoint.

    Raises:
        DamagedError: it cannot be read, or is too long or too deep.
    """
    with open_file(path) as file:
        try:
            text = file.read(MAX_JSON_BYTES + 1)
            if len(text) > MAX_JSON_BYTES:
                raise ValueError(f"it has more than {MAX_JSON_BYTES:,} bytes")
            return parse_json(text)
        except (OSError, ValueError) as error:
            raise DamagedError(f"{path} cannot be read ({type(error).__name__}: {error})") from error


def _own_sum(manifest: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _is_sum(about: Any) -> bool:
    return type(about["num_bytes"]) is int and isinstance(about["sha256"], str)


def _sha256(path: Path) -> str:
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
