"""What the driver writes down of a run with servers: metrics.csv, pushes.csv, the bar, a line an epoch."""

import logging
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

from augpipe.trainer.config.tables import RunConfig
from augpipe.trainer.loop.evaluate import Evaluation
from augpipe.trainer.loop.run_record import Board
from augpipe.trainer.report.metrics import COLUMNS, StepsFile
from augpipe.trainer.report.progress import Bar, Pace
from augpipe.trainer.servers.leases import LeasePlan
from augpipe.trainer.servers.messages import Applied

logger = logging.getLogger("augpipe.trainer")

PUSH_COLUMNS = (
    "step",
    "seconds",
    "epoch",
    "worker",
    "staleness",
    "samples",
    "wait_ms",
    "data_ms",
    "compute_ms",
    "push_ms",
    "sent_mb",
    "got_mb",
)
"""step: updates after it; seconds: since the run began, earlier starts not counted; wait_ms: for the lease and the
weights; the others: of the worker, for the lease's batches, passes and push."""


class ServersRecorder:
    """Writes down each counted push; a step of metrics.csv is an update."""

    def __init__(self, config: RunConfig, plan: LeasePlan, step: int) -> None:
        self._config = config
        self._plan = plan
        out = Path(config.out)
        self._table = StepsFile(out / "metrics.csv", COLUMNS, step)
        self._pushes = StepsFile(out / "pushes.csv", PUSH_COLUMNS, step)
        self._board = Board(out / "tensorboard", wanted=config.report.tensorboard, step=step)
        self._bar = Bar(shows=config.report.progress)
        self._step = step
        self._seconds = 0.0
        self._waiting: list[Applied] = []
        """Since the last row."""
        self._epoch: list[Applied] = []

    def begin_epoch(self, epoch: int, num_done: int) -> None:
        """An epoch begins, or goes on; `num_done` of its samples are trained on."""
        self._epoch = []
        per_update = self._plan.per_batch * self._plan.num_batches
        total = -(-self._plan.num_usable // per_update)
        self._bar.begin_epoch(epoch, self._config.epochs, num_done // per_update, total)

    def heard(self, applied: Iterable[Applied]) -> None:
        """Pushes that were counted since the last call, in their order."""
        for one in applied:
            is_new = one.version > self._step
            if is_new:
                self._step = one.version
                self._seconds += one.step_s
            self._waiting.append(one)
            self._epoch.append(one)
            self._write_push(one)
            if is_new:
                is_due = one.version % self._config.report.log_every == 0
                self._bar.advance(self._write_row() if is_due else None)

    def evaluated(self, found: Evaluation, epoch: int) -> None:
        """An evaluation has ended."""
        self.write_rest()
        row = {
            "step": self._step,
            "epoch": epoch,
            "seconds": self._seconds,
            "skipped": self._epoch[-1].num_left_out if self._epoch else 0,
            "eval_loss": found.loss,
            "eval_top1": found.top1,
            "eval_top5": found.top5,
        }
        if not self._table.was_told(row, ("step", "eval_loss", "eval_top1", "eval_top5")):
            self._table.write(row)
            self._board.write(row)

    def write_rest(self) -> None:
        """A row for the updates since the last one, where there are any."""
        if self._waiting:
            self._write_row()

    def end_epoch(self, epoch: int, found: Evaluation | None) -> None:
        """Say in a line how it went."""
        num = sum(one.outcome.num_samples for one in self._epoch)
        if not num:
            return
        loss = sum(one.outcome.loss_sum for one in self._epoch) / num
        right = sum(one.outcome.num_correct for one in self._epoch) / num
        staleness = sum(one.staleness for one in self._epoch) / len(self._epoch)
        seconds = sum({one.version: one.step_s for one in self._epoch}.values())
        held_out = "" if found is None else f"; held out: loss {found.loss:.3f}, top-1 {found.top1:.1%}"
        logger.info(
            "epoch %d/%d: loss %.3f, top-1 %.1f%%%s; %s img/s, mean staleness %.2f",
            epoch + 1,
            self._config.epochs,
            loss,
            100 * right,
            held_out,
            f"{num / seconds:,.0f}" if seconds else "-",
            staleness,
        )

    def __enter__(self) -> "ServersRecorder":
        self._bar.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.__exit__(kind, error, trace)
        for table in (self._table, self._pushes):
            table.close()
        self._board.close()

    def _write_push(self, one: Applied) -> None:
        outcome = one.outcome
        self._pushes.write(
            {
                "step": one.version,
                "seconds": self._seconds,
                "epoch": one.epoch,
                "worker": one.worker,
                "staleness": one.staleness,
                "samples": outcome.num_samples,
                "wait_ms": 1e3 * outcome.wait_s,
                "data_ms": 1e3 * outcome.data_s,
                "compute_ms": 1e3 * outcome.compute_s,
                "push_ms": 1e3 * outcome.push_s,
                "sent_mb": outcome.sent_bytes / 1e6,
                "got_mb": outcome.got_bytes / 1e6,
            }
        )

    def _write_row(self) -> Pace:
        waiting, self._waiting = self._waiting, []
        outcomes = [one.outcome for one in waiting]
        num, num_samples = len(outcomes), sum(one.num_samples for one in outcomes)
        seconds = sum({one.version: one.step_s for one in waiting}.values())
        pace = Pace(
            loss=sum(one.loss_sum for one in outcomes) / num_samples,
            images_per_s=num_samples / seconds if seconds else 0.0,
            exposed_ms=1e3 * sum(one.wait_s + one.push_s for one in outcomes) / num,
            sent_mb=sum(one.sent_bytes for one in outcomes) / 1e6 / num,
        )
        row: dict[str, Any] = {
            "step": waiting[-1].version,
            "epoch": waiting[-1].epoch,
            "seconds": self._seconds,
            "lr": self._config.optim.lr * waiting[-1].lr,
            "loss": pace.loss,
            "top1": sum(one.num_correct for one in outcomes) / num_samples,
            "images_per_s": pace.images_per_s,
            "data_ms": 1e3 * sum(one.data_s for one in outcomes) / num,
            "exposed_ms": pace.exposed_ms,
            "sent_mb": pace.sent_mb,
            "activations_mb": 0.0,
            "skipped": waiting[-1].num_left_out,
        }
        self._table.write(row)
        self._board.write(row)
        return pace
