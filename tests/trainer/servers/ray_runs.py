"""What the tests of runs over Ray share: configs of a few images, the actors' processes, what an order log counts."""

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from augpipe.sampling import epoch_order
from augpipe.trainer.config import RunConfig
from augpipe.trainer.servers.leases import LeasePlan
from augpipe.trainer.servers.order_log import Event, Kind, read_order
from tests.distributed import prepare_runs
from tests.distributed.train_runs import config

NUM_IMAGES = 60
BATCH_SIZE = 2
NUM_STEPS = NUM_IMAGES // BATCH_SIZE
"""In an epoch in which each lease is an update."""


def servers_config(out: Path, photos: Path, servers: dict[str, Any], **tables: Any) -> RunConfig:
    """A config of small-cnn with parameter servers, whose checkpoints are all kept."""
    data = {"batch_size": BATCH_SIZE, "num_threads": 1, **tables.pop("data", {})}
    report = {"sample_ids": False, "tensorboard": False}
    checkpoint = {"keep": 1000, **tables.pop("checkpoint", {})}
    faults = {"timeout_s": 230, **tables.pop("faults", {})}
    return config(
        out,
        photos,
        data=data,
        servers={"workers": 2, **servers},
        report=report,
        checkpoint=checkpoint,
        faults=faults,
        **tables,
    )


def events_of(out: Path) -> list[Event]:
    """All of a run's order log."""
    return [event for events in read_order(out / "order", 0) for event in events]


def times_trained(events: list[Event], plan: LeasePlan) -> Counter[tuple[int, int]]:
    """By (epoch, position in it), how many applied pushes were of it."""
    trained: Counter[tuple[int, int]] = Counter()
    for event in events:
        if event.kind is Kind.APPLIED:
            for place in plan.places(plan.lease(*event.lease)):
                positions = epoch_order.rank_positions(
                    place.first, plan.num_samples, plan.batch_size, place.rank, place.world_size
                )
                trained.update((place.epoch, int(position)) for position in positions)
    return trained


def command_line(pid: int) -> str:
    """A process's own, or what Ray calls an actor's; empty where it has ended."""
    return prepare_runs.command_line(pid).replace(b"\0", b" ").decode(errors="replace").strip()


def actors(kind: str, root: int | None = None) -> list[int]:
    """Processes below one of the actors of a class, oldest first."""
    return sorted(
        pid for pid in prepare_runs.below(root or os.getpid()) if command_line(pid).startswith(f"ray::{kind}")
    )


class Killer:
    """Kills actors with SIGKILL while a run goes on, one after the other, each once the run has gone on since.

    Args:
        out: the run's folder.
        victims: classes of actors, in order.
        num_updates: what has to be counted between two kills.
        then: called once all are dead and the run has gone on.
    """

    def __init__(self, out: Path, victims: list[str], num_updates: int, then: Callable[[], None]) -> None:
        self._pushes = out / "pushes.csv"
        self._victims = victims
        self._num_updates = num_updates
        self._then = then
        self.killed: list[str] = []
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="killer", daemon=True)

    def __enter__(self) -> "Killer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        seen = 0
        for number, kind in enumerate([*self._victims, ""]):
            while not self._ends.is_set():
                now = self._num_rows()
                found = actors(kind) if kind else []
                if now >= seen + self._num_updates and (found or not kind):
                    break
                self._ends.wait(0.05)
            if self._ends.is_set():
                return
            if not kind:
                self._then()
                return
            os.kill(found[number % len(found)], signal.SIGKILL)
            self.killed.append(kind)
            seen = self._num_rows()

    def _num_rows(self) -> int:
        return len(self._pushes.read_bytes().splitlines()) if self._pushes.exists() else 0
