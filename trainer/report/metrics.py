"""metrics.csv: a row every few steps and after each evaluation; a resumed run goes on in the same file."""

import csv
import io
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TextIO

from augpipe.datasets.files.atomic import write_atomically
from augpipe.reports.tables import short

logger = logging.getLogger("augpipe.trainer")

COLUMNS = (
    "step",
    "epoch",
    "seconds",
    "lr",
    "loss",
    "top1",
    "images_per_s",
    "data_ms",
    "exposed_ms",
    "sent_mb",
    "activations_mb",
    "grad_norm",
    "skipped",
    "eval_loss",
    "eval_top1",
    "eval_top5",
)
"""seconds: of training steps, those before a resume included; loss, top1, images_per_s: of all ranks' steps since the
last training row, without evaluations and saving, which count with parameter servers;
data_ms, exposed_ms, sent_mb: a step, on rank 0, spent waiting for batches and for other ranks, and sent to them;
activations_mb: what split layers sent of that, activations and error deltas;
skipped: steps left out so far."""


class StepsFile:
    """A CSV file whose rows begin with a step; opened again after `step` steps, it forgets the rows of later ones."""

    _is_full = False

    def __init__(self, path: Path, columns: tuple[str, ...], step: int) -> None:
        self._columns = columns
        rows = [row for row in read_rows(path) if int(row["step"]) <= step] if path.exists() else []
        kept = io.StringIO(newline="")
        writer = _writer(kept, columns)
        writer.writeheader()
        writer.writerows(rows)
        write_atomically(str(path), kept.getvalue().encode())  # a kill amid it leaves the rows that there were
        self._file: TextIO = path.open("a", newline="", encoding="utf-8")
        self._writer = _writer(self._file, columns)
        self._kept_last = rows[-1] if rows else {}
        self._kept_steps = {name: int(row["step"]) for row in rows for name in columns if row.get(name)}

    def write(self, row: Mapping[str, Any]) -> None:
        """Append a row; it is in the file when this returns, except for a full disk, which is logged: then it waits in
        the file's buffer for there to be room, and the training goes on."""
        try:
            self._writer.writerow({name: short(value) for name, value in row.items()})
            self._file.flush()
        except OSError as error:
            self._failed(error)
        else:
            self._is_full = False

    def was_told(self, row: Mapping[str, Any], names: Iterable[str]) -> bool:
        """Whether the last row of the earlier run has the same values under these names."""
        return all(self._kept_last.get(name) == str(short(row[name])) for name in names)

    def last_step(self, column: str) -> int:
        """The step of the earlier run's last row that has a value there; 0 where none has."""
        return self._kept_steps.get(column, 0)

    def close(self) -> None:
        """Close the file."""
        try:
            self._file.close()
        except OSError as error:
            self._failed(error)

    def _failed(self, error: OSError) -> None:
        if not self._is_full:  # once, and not again for each row
            logger.error("%s could not be written: %s; rows of it may be lost", self._file.name, error.strerror)
        self._is_full = True


def read_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a table; one that was cut short by a crash is left out.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is another table.
    """
    text = path.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    reader = csv.DictReader(io.StringIO(whole))
    if reader.fieldnames and "step" not in reader.fieldnames:
        raise ValueError(
            f"{path} is not a table of a run: it has no column named step. Move it, or choose another out."
        )
    return [row for row in reader if row["step"] and row["step"].isdigit()]


def _writer(file: TextIO, columns: tuple[str, ...]) -> "csv.DictWriter[str]":
    return csv.DictWriter(file, columns, restval="", extrasaction="ignore", lineterminator="\n")
