"""What is written down of any run: metrics.csv, TensorBoard's files, the bar, and a line an epoch."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from augpipe.reports.progress_bar import ProgressBar
from augpipe.trainer.config.tables import RunConfig
from augpipe.trainer.loop.evaluate import Evaluation
from augpipe.trainer.report.metrics import COLUMNS, StepsFile

logger = logging.getLogger("augpipe.trainer")


@dataclass(frozen=True, kw_only=True)
class Pace:
    """What the bar says of the last few steps."""

    loss: float
    images_per_s: float
    exposed_ms: float
    sent_mb: float

    @property
    def text(self) -> str:
        """In one line."""
        return (
            f"loss {self.loss:.3f}  {self.images_per_s:,.0f} img/s  "
            f"waits {self.exposed_ms:.1f} ms  sends {self.sent_mb:.2f} MB a step"
        )


@dataclass(kw_only=True)
class Sums:
    """Over some steps; with parameter servers, over some pushes."""

    num_steps: int = 0
    seconds: float = 0.0
    data_s: float = 0.0
    exposed_s: float = 0.0
    sent_bytes: int = 0
    activation_bytes: int = 0
    loss_sum: float = 0.0
    num_correct: float = 0.0
    num_samples: float = 0.0

    @property
    def loss(self) -> float:
        """The mean over all images."""
        return self.loss_sum / max(self.num_samples, 1.0)

    @property
    def top1(self) -> float:
        """The accuracy: the share of images that were classified correctly."""
        return self.num_correct / max(self.num_samples, 1.0)

    @property
    def images_per_s(self) -> float:
        """0 where no time has passed."""
        return self.num_samples / self.seconds if self.seconds else 0.0

    @property
    def pace(self) -> Pace:
        """What the bar says of them."""
        return Pace(
            loss=self.loss,
            images_per_s=self.images_per_s,
            exposed_ms=1e3 * self.exposed_s / self.num_steps,
            sent_mb=self.sent_bytes / 1e6 / self.num_steps,
        )

    @property
    def cells(self) -> dict[str, float]:
        """What a row of metrics.csv says of them."""
        pace = self.pace
        return {
            "loss": pace.loss,
            "top1": self.top1,
            "images_per_s": pace.images_per_s,
            "data_ms": 1e3 * self.data_s / self.num_steps,
            "exposed_ms": pace.exposed_ms,
            "sent_mb": pace.sent_mb,
            "activations_mb": self.activation_bytes / 1e6 / self.num_steps,
        }


class RunLog:
    """The files and the bar, which only one process of a run has."""

    def __init__(self, config: RunConfig, step: int, *, is_first: bool = True, evaluated: str = "held out") -> None:
        self._num_epochs = config.epochs
        self._is_first = is_first
        self._evaluated = evaluated
        out = Path(config.out)
        self._table = StepsFile(out / "metrics.csv", COLUMNS, step) if is_first else None
        self._board = Board(out / "tensorboard", wanted=is_first and config.report.tensorboard, step=step)
        self._bar = ProgressBar(unit="step", shows=is_first and config.report.progress, tells_end=False)

    def last_step(self, column: str) -> int | None:
        """The step of the earlier run's last row that has a value there; None in other processes."""
        return None if self._table is None else self._table.last_step(column)

    def begin_epoch(self, epoch: int, done: int, total: int) -> None:
        """An epoch begins, of `total` steps, `done` of which are done."""
        self._bar.begin(f"epoch {epoch + 1}/{self._num_epochs}", total, done)

    def advance(self, pace: Pace | None) -> None:
        """One step on."""
        self._bar.advance(more="" if pace is None else pace.text)

    def write(self, row: dict[str, Any]) -> None:
        """A row of metrics.csv."""
        if self._table is not None:
            self._table.write(row)
        self._board.write(row)

    def write_evaluation(self, found: Evaluation, *, step: int, epoch: int, seconds: float, num_skipped: int) -> None:
        """A row for an evaluation, unless the earlier run's last row is the same."""
        told = {"step": step, "eval_loss": found.loss, "eval_top1": found.top1, "eval_top5": found.top5}
        # a run that died between an evaluation and the next checkpoint evaluates once more
        if self._table is None or not self._table.was_told(told, told):
            self.write({"step": step, "epoch": epoch, "seconds": seconds, "skipped": num_skipped} | told)

    def tell_epoch(self, epoch: int, sums: Sums, found: Evaluation | None, more: str = "") -> None:
        """Say in a line how it went."""
        if not self._is_first or not sums.num_samples:
            return
        held_out = "" if found is None else f"; {self._evaluated}: loss {found.loss:.3f}, top-1 {found.top1:.1%}"
        logger.info(
            "epoch %d/%d: loss %.3f, top-1 %.1f%%%s; %s img/s%s",
            epoch + 1,
            self._num_epochs,
            sums.loss,
            100 * sums.top1,
            held_out,
            f"{sums.images_per_s:,.0f}" if sums.seconds else "-",
            more,
        )

    def __enter__(self) -> Self:
        self._bar.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.__exit__(kind, error, trace)
        if self._table is not None:
            self._table.close()
        self._board.close()


class Board:
    """Writes scalars; does nothing where TensorBoard is not installed or not wanted."""

    def __init__(self, folder: Path, *, wanted: bool, step: int) -> None:
        self._writer: Any = _writer(folder, step) if wanted else None

    def write(self, row: Mapping[str, Any]) -> None:
        """A row of metrics.csv."""
        if self._writer is None:
            return
        for name, value in row.items():
            if name not in ("step", "seconds") and isinstance(value, int | float):
                group = "eval" if name.startswith("eval_") else "train"
                self._writer.add_scalar(f"{group}/{name.removeprefix('eval_')}", value, row["step"])

    def close(self) -> None:
        """Write what is left."""
        if self._writer is not None:
            self._writer.close()


def _writer(folder: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:  # an extra, in addition to metrics.csv, which is always written
        return None
    return SummaryWriter(str(folder), purge_step=step + 1)  # it hides that step and all later ones
