"""What a rank writes down of a run while it goes on: steps once all ranks' sums are known, and sample ids."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from augpipe.trainer.config.tables import RunConfig
from augpipe.trainer.loop.evaluate import Evaluation
from augpipe.trainer.loop.run_log import RunLog, Sums
from augpipe.trainer.loop.state import Counters
from augpipe.trainer.loop.step import StepResult
from augpipe.trainer.loop.step_totals import StepTotals
from augpipe.trainer.loop.world import World
from augpipe.trainer.report.metrics import StepsFile, read_rows

_SAMPLE_COLUMNS = ("step", "epoch", "sample_ids")


@dataclass(frozen=True, kw_only=True)
class _Done:
    """A step whose totals the other ranks have not confirmed yet."""

    row: dict[str, Any]
    seconds: float
    result: StepResult


class Recorder:
    """Writes down each step once all ranks' sums of it are known, which is one step later."""

    def __init__(self, config: RunConfig, world: World, step: int, evaluated: str = "held out") -> None:
        self._log_every = config.report.log_every
        self.heard_step = step
        """The last step whose sums over all ranks are known."""
        self._first_step = step
        self._waiting: deque[_Done] = deque()
        self._last_row: dict[str, Any] = {}
        self._sums = Sums()
        self._epoch = Sums()
        self._log = RunLog(config, step, is_first=world.is_first, evaluated=evaluated)
        self._samples = _open_samples(Path(config.out), world, step) if config.report.sample_ids else None

    def begin_epoch(self, epoch: int, done: int, total: int) -> None:
        """An epoch begins, of `total` steps, `done` of which are done."""
        if not done:
            self._epoch = Sums()
        self._log.begin_epoch(epoch, done, total)

    def state_dict(self) -> dict[str, Any]:
        """The sums of the steps that no row or line has told of yet, once all that is under way was heard."""
        return {"since_row": vars(self._sums).copy(), "epoch": vars(self._epoch).copy()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with the sums of the run that is resumed."""
        self._epoch = Sums(**state["epoch"])
        # the row at a run's end may have come after its last checkpoint
        told = self._log.last_step("loss")
        if told is not None and told < self._first_step:
            self._sums = Sums(**state["since_row"])

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
        is_due = self.heard_step % self._log_every == 0
        pace = self._sums.pace if is_due else None
        if is_due:
            self.write_rest()
        self._log.advance(pace)

    def write_rest(self) -> None:
        """A row for the steps since the last one, where there are any: at the run's end, or a stop."""
        if self._sums.num_steps:
            self._log.write(self._last_row | self._sums.cells)
            self._sums = Sums()

    def evaluated(self, found: Evaluation, *, epoch: int, counters: Counters) -> None:
        """An evaluation has ended."""
        self._log.write_evaluation(
            found, step=counters.step, epoch=epoch, seconds=counters.seconds, num_skipped=counters.num_skipped
        )

    def end_epoch(self, epoch: int, evaluation: Evaluation | None) -> None:
        """Say in a line how it went."""
        self._log.tell_epoch(epoch, self._epoch, evaluation)

    def __enter__(self) -> "Recorder":
        self._log.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._log.__exit__(kind, error, trace)
        if self._samples is not None:
            self._samples.close()


def _open_samples(out: Path, world: World, step: int) -> StepsFile:
    """This rank's table; rank 0 also cuts those of ranks that are no more at the step that the run goes on from."""
    if world.is_first:
        for path in out.glob("samples-rank*.csv"):
            rank = path.stem.removeprefix("samples-rank")
            if rank.isdigit() and int(rank) >= world.size and read_rows(path):
                StepsFile(path, _SAMPLE_COLUMNS, step).close()
    return StepsFile(out / f"samples-rank{world.rank}.csv", _SAMPLE_COLUMNS, step)
