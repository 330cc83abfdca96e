"""The order of a run, written down as it is decided, so that the run can be repeated: 40 bytes an event."""

import json
import struct
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

from augpipe.datasets.files.atomic import write_atomically
from augpipe.trainer.servers.messages import LeaseName

NO_LEASE = LeaseName(0, 0, 0)
_EVENT = struct.Struct("<BxhIIIqqd")
_ABOUT = "about.json"


class Kind(IntEnum):
    """What an event is; numbers are for good."""

    BEGAN = 1
    """A worker begins a lease with the weights that it has."""
    FETCHED = 2
    """A worker is handed weights, and begins a lease."""
    APPLIED = 3
    """A push is applied; those of one step follow each other and have the same `applied`."""
    LEFT_OUT = 4
    """A lease is done without a push, as something in it was not finite."""
    LEFT = 5
    """A worker has gone; another with its number starts."""
    RESTORED = 6
    """Server number `worker` goes on from what it had written after `pulled` updates, and all workers start again."""
    FENCE = 7
    """No lease is out; all workers start again."""


class Event(NamedTuple):
    """One of them."""

    kind: Kind
    worker: int
    lease: LeaseName
    pulled: int
    """Updates that the worker's weights have seen."""
    applied: int
    """Updates after the event."""
    plateau: float
    """What the plateau schedule multiplies the learning rate by."""


class OrderLog:
    """Appends events to files of a folder; a fence begins a new file, named for the updates before it.

    Args:
        folder: is made where there is none; None: nothing is written down.
    """

    def __init__(self, folder: str | None) -> None:
        self._folder = None if folder is None else Path(folder)
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
        self._file: Any = None

    def begin(self, version: int, about: dict[str, Any] | None = None) -> None:
        """A fence after `version` updates: what follows goes to a file of its own; files of later ones are removed."""
        self.close()
        if self._folder is None:
            return
        for path in self._folder.glob("order-*.log"):
            if version_of(path) >= version:
                path.unlink()
        if about is not None:
            write_atomically(str(self._folder / _ABOUT), json.dumps(about, indent=1).encode())
        self._file = (self._folder / f"order-{version:09}.log").open("ab")

    def write(self, *events: Event) -> None:
        """Append some at once; they are in the file when this returns. Before the first fence nothing is of account."""
        if self._file is None:
            return
        packed = (_EVENT.pack(one.kind, one.worker, *one.lease, one.pulled, one.applied, one.plateau) for one in events)
        self._file.write(b"".join(packed))
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


def forget_before(folder: Path, version: int) -> None:
    """Remove the files of fences before that one, from which no checkpoint is left."""
    for path in folder.glob("order-*.log"):
        if version_of(path) < version:
            path.unlink()


def version_of(path: Path) -> int:
    """Updates before a file's first event."""
    return int(path.stem.removeprefix("order-"))


def read_events(path: Path) -> Iterator[Event]:
    """The events of one file; one that a crash has cut short is left out.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not an order log.
    """
    content = path.read_bytes()
    for start in range(0, len(content) // _EVENT.size * _EVENT.size, _EVENT.size):
        kind, worker, epoch, number, attempt, pulled, applied, plateau = _EVENT.unpack_from(content, start)
        if kind not in Kind._value2member_map_:
            raise ValueError(f"{path} is not an order log: at byte {start} there is no event")
        yield Event(Kind(kind), worker, LeaseName(epoch, number, attempt), pulled, applied, plateau)


def fences(folder: Path) -> list[int]:
    """Updates before each fence of a log, from which a replay may begin."""
    return sorted(version_of(path) for path in folder.glob("order-*.log"))


def read_order(folder: Path, start: int) -> Iterator[list[Event]]:
    """The events from the fence after `start` updates to the end, those of one file at a time.

    A step that a crash has cut short while it was written is left out.

    Raises:
        OSError: a file cannot be read.
        ValueError: there is no such fence, or something is missing from the log.
    """
    versions = [version for version in fences(folder) if version >= start]
    if not versions or versions[0] != start:
        found = ", ".join(map(str, fences(folder))) or "none"
        raise ValueError(
            f"the order log {folder} has no fence after update {start}; it has {found}. Begin at one of those, from "
            "the checkpoint of the same number."
        )
    for version, following in zip(versions, [*versions[1:], None], strict=True):
        path = folder / f"order-{version:09}.log"
        events = list(read_events(path))
        is_cut = path.stat().st_size % _EVENT.size != 0
        if is_cut and events and events[-1].kind is Kind.APPLIED:
            events = [one for one in events if one.kind is not Kind.APPLIED or one.applied != events[-1].applied]
        if events and (events[0].kind is not Kind.FENCE or events[0].applied != version):
            raise ValueError(f"{path} does not begin with the fence after update {version}: its beginning is missing.")
        last = events[-1].applied if events else version
        if following is not None and (is_cut or last != following):
            raise ValueError(
                f"{path} ends after update {last}, and the next file begins after {following}: a part of the log is "
                f"missing between them. Begin at fence {following}."
            )
        yield events


def read_about(folder: Path) -> dict[str, Any]:
    """What was written of the run: its config, and how many threads a worker has."""
    found: dict[str, Any] = json.loads((folder / _ABOUT).read_bytes())
    return found
