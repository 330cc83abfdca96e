"""metrics.csv: a row every few steps and after each evaluation; a resumed run goes on in the same file."""

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

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
    "grad_norm",
    "skipped",
    "eval_loss",
    "eval_top1",
    "eval_top5",
)
"""seconds: of training, those before a resume included; loss, top1, images_per_s: over all ranks since the last row;
data_ms, exposed_ms, sent_mb: a step, on rank 0, spent waiting for batches and for other ranks, and sent to them;
skipped: steps left out so far."""


class Table:
    """A CSV file whose rows begin with a step; opened again after `step` steps, it forgets the rows of later ones."""

    def __init__(self, path: Path, columns: tuple[str, ...], step: int) -> None:
        self._columns = columns
        rows = [row for row in read_rows(path) if int(row["step"]) <= step] if path.exists() else []
        self._file: TextIO = path.open("w", newline="", encoding="utf-8")
        self._writer = csv.DictWriter(self._file, columns, restval="", extrasaction="ignore", lineterminator="\n")
        self._writer.writeheader()
        self._writer.writerows(rows)
        self._file.flush()

    def write(self, row: Mapping[str, Any]) -> None:
        """Append a row; it is in the file when this returns."""
        self._writer.writerow({name: _short(value) for name, value in row.items()})
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a table; one that was cut short by a crash is left out.

    Raises:
        OSError: the file cannot be read.
    """
    text = path.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    return [row for row in csv.DictReader(io.StringIO(whole)) if row["step"] and row["step"].isdigit()]


def _short(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value
