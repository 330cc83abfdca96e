"""What rank 0 tells of a run while it goes on: metrics.csv, the bar, TensorBoard, a line an epoch; and sample ids."""

import logging
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from augpipe.trainer.config.tables import RunConfig
from augpipe.trainer.loop.evaluate import Evaluation
from augpipe.trainer.loop.state import Counters
from augpipe.trainer.loop.step import StepResult
from augpipe.trainer.loop.step_totals import StepTotals
from augpipe.trainer.loop.world import World
from augpipe.trainer.report.metrics import COLUMNS, StepsFile, read_rows
from augpipe.trainer.report.progress import Bar, Pace

logger = logging.getLogger("augpipe.trainer")

_SAMPLE_COLUMNS = ("step", "epoch", "sample_ids")


@dataclass(kw_only=True)
class _Sums:
    """Over the steps since the last row."""

    num_steps: int = 0
    seconds: float = 0.0
    data_s: float = 0.0
    exposed_s: float = 0.0
    sent_bytes: int = 0
    activation_bytes: int = 0
    loss_sum: float = 0.0
    num_correct: float = 0.0
    num_samples: float = 0.0


@dataclass(frozen=True, kw_only=True)
class _Done:
    """A step whose totals the other ranks have not confirmed yet."""

    row: dict[str, Any]
    seconds: float
    result: StepResult


class Recorder:
    """Writes down each step once all ranks' sums of it are known, which is one step later."""

    def __init__(self, config: RunConfig, world: World, step: int, evaluated: str = "held out") -> None:
        self._config = config
        self._evaluated = evaluated
        self._world = world
        self.heard_step = step
        """The last step whose sums over all ranks are known."""
        self._first_step = step
        self._waiting: deque[_Done] = deque()
        self._last_row: dict[str, Any] = {}
        self._sums = _Sums()
        self._epoch = _Sums()
        out = Path(config.out)
        self._table = StepsFile(out / "metrics.csv", COLUMNS, step) if world.is_first else None
        self._board = Board(out / "tensorboard", wanted=world.is_first and config.report.tensorboard, step=step)
        self._samples = _open_samples(out, world, step) if config.report.sample_ids else None
        self._bar = Bar(shows=world.is_first and config.report.progress)

    def begin_epoch(self, epoch: int, done: int, total: int) -> None:
        """An epoch begins, of `total` steps, `done` of which are done."""
        if not done:
            self._epoch = _Sums()
        self._bar.begin_epoch(epoch, self._config.epochs, done, total)

    def state_dict(self) -> dict[str, Any]:
        """The sums of the steps that no row or line has told of yet, once all that is under way was heard."""
        return {"since_row": vars(self._sums).copy(), "epoch": vars(self._epoch).copy()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with the sums of the run that is resumed."""
        self._epoch = _Sums(**state["epoch"])
        # the row at a run's end may have come after its last checkpoint
        if self._table is not None and self._table.last_step("loss") < self._first_step:
            self._sums = _Sums(**state["since_row"])

    def after_step(self, result: StepResult, *, epoch: int, seconds: float, lr: float, counters: Counters) -> None:
        """A step of this rank has ended."""
        if self._samples is not None:
            ids = " ".join(map(str, result.sample_ids))
            self._samples.write({"step": counters.step, "epoch": epoch, "sample_ids": ids})
        row = {
            "step": counters.step,
            "epoch": epoch,
            "seconds": counters.seconds,
            "lr": lr,
            "grad_norm": "" if result.report.grad_norm is None else result.report.grad_norm,
            "skipped": counters.num_skipped,
        }
        self._waiting.append(_Done(row=row, seconds=seconds, result=result))

    def heard(self, totals: StepTotals) -> None:
        """What all ranks together did in the step after the last one heard of."""
        done = self._waiting.popleft()
        self.heard_step += 1
        for sums in (self._sums, self._epoch):
            sums.num_steps += 1
            sums.seconds += done.seconds
            sums.data_s += done.result.data_s
            sums.exposed_s += done.result.report.exposed_s
            sent = done.result.report.bytes_sent
            sums.sent_bytes += sum(sent.values())
            sums.activation_bytes += sent.get("activations", 0) + sent.get("deltas", 0)
            sums.loss_sum += totals.loss_sum
            sums.num_correct += totals.num_correct
            sums.num_samples += totals.num_samples
        self._last_row = done.row
        pace = None
        if self.heard_step % self._config.report.log_every == 0:
            pace = self._write_row()
        self._bar.advance(pace)

    def write_rest(self) -> None:
        """A row for the steps since the last one, where there are any: at the run's end, or a stop."""
        if self._sums.num_steps:
            self._write_row()

    def evaluated(self, found: Evaluation, *, epoch: int, counters: Counters) -> None:
        """An evaluation has ended."""
        row = {
            "step": counters.step,
            "epoch": epoch,
            "seconds": counters.seconds,
            "skipped": counters.num_skipped,
            "eval_loss": found.loss,
            "eval_top1": found.top1,
            "eval_top5": found.top5,
        }
        # a run that died between an evaluation and the next checkpoint evaluates once more
        if self._table is None or not self._table.was_told(row, ("step", "eval_loss", "eval_top1", "eval_top5")):
            self._write(row)

    def end_epoch(self, epoch: int, evaluation: Evaluation | None) -> None:
        """Say in a line how it went."""
        sums = self._epoch
        if not self._world.is_first or not sums.num_samples:
            return
        held_out = (
            ""
            if evaluation is None
            else f"; {self._evaluated}: loss {evaluation.loss:.3f}, top-1 {evaluation.top1:.1%}"
        )
        logger.info(
            "epoch %d/%d: loss %.3f, top-1 %.1f%%%s; %s img/s",
            epoch + 1,
            self._config.epochs,
            sums.loss_sum / sums.num_samples,
            100 * sums.num_correct / sums.num_samples,
            held_out,
            f"{sums.num_samples / sums.seconds:,.0f}",
        )

    def __enter__(self) -> "Recorder":
        self._bar.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.__exit__(kind, error, trace)
        for table in (self._table, self._samples):
            if table is not None:
                table.close()
        self._board.close()

    def _write_row(self) -> Pace:
        sums, self._sums = self._sums, _Sums()
        num = max(sums.num_samples, 1.0)
        pace = Pace(
            loss=sums.loss_sum / num,
            images_per_s=sums.num_samples / sums.seconds,
            exposed_ms=1e3 * sums.exposed_s / sums.num_steps,
            sent_mb=sums.sent_bytes / 1e6 / sums.num_steps,
        )
        measured = {
            "loss": pace.loss,
            "top1": sums.num_correct / num,
            "images_per_s": pace.images_per_s,
            "data_ms": 1e3 * sums.data_s / sums.num_steps,
            "exposed_ms": pace.exposed_ms,
            "sent_mb": pace.sent_mb,
            "activations_mb": sums.activation_bytes / 1e6 / sums.num_steps,
        }
        self._write(self._last_row | measured)
        return pace

    def _write(self, row: dict[str, Any]) -> None:
        if self._table is not None:
            self._table.write(row)
        self._board.write(row)


def _open_samples(out: Path, world: World, step: int) -> StepsFile:
    """This rank's table; rank 0 also cuts those of ranks that are no more at the step that the run goes on from."""
    if world.is_first:
        for path in out.glob("samples-rank*.csv"):
            rank = path.stem.removeprefix("samples-rank")
            if rank.isdigit() and int(rank) >= world.size and read_rows(path):
                StepsFile(path, _SAMPLE_COLUMNS, step).close()
    return StepsFile(out / f"samples-rank{world.rank}.csv", _SAMPLE_COLUMNS, step)


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
    except ImportError:  # an extra beside metrics.csv, which is always written
        return None
    return SummaryWriter(str(folder), purge_step=step + 1)  # it hides that step and all later ones
