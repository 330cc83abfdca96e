"""What the driver writes down of a run with servers: metrics.csv, pushes.csv, the bar, a line an epoch."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType

from augpipe.trainer.config.tables import RunConfig
from augpipe.trainer.loop.evaluate import Evaluation
from augpipe.trainer.loop.run_log import RunLog, Sums
from augpipe.trainer.report.metrics import StepsFile
from augpipe.trainer.servers.leases import LeasePlan
from augpipe.trainer.servers.messages import Applied

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
        self._log = RunLog(config, step)
        self._pushes = StepsFile(Path(config.out) / "pushes.csv", PUSH_COLUMNS, step)
        self._step = step
        self._seconds = 0.0
        self._waiting: list[Applied] = []
        """Since the last row."""
        self._epoch: list[Applied] = []

    def begin_epoch(self, epoch: int, num_done: int) -> None:
        """An epoch begins, or goes on; `num_done` of its samples are trained on."""
        self._epoch = []
        per_update = self._plan.per_batch * self._plan.num_batches
        self._log.begin_epoch(epoch, num_done // per_update, -(-self._plan.num_usable // per_update))

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
                pace = sums_of(self._waiting).pace if is_due else None
                if is_due:
                    self.write_rest()
                self._log.advance(pace)

    def evaluated(self, found: Evaluation, epoch: int) -> None:
        """An evaluation has ended."""
        self.write_rest()
        num_skipped = self._epoch[-1].num_left_out if self._epoch else 0
        self._log.write_evaluation(found, step=self._step, epoch=epoch, seconds=self._seconds, num_skipped=num_skipped)

    def write_rest(self) -> None:
        """A row for the updates since the last one, where there are any."""
        if not self._waiting:
            return
        last = self._waiting[-1]
        about = {"step": last.version, "epoch": last.epoch, "seconds": self._seconds}
        about |= {"lr": self._config.optim.lr * last.lr, "skipped": last.num_left_out}
        self._log.write(about | sums_of(self._waiting).cells)
        self._waiting = []

    def end_epoch(self, epoch: int, found: Evaluation | None) -> None:
        """Say in a line how it went."""
        staleness = sum(one.staleness for one in self._epoch) / max(len(self._epoch), 1)
        self._log.tell_epoch(epoch, sums_of(self._epoch), found, f", mean staleness {staleness:.2f}")

    def __enter__(self) -> "ServersRecorder":
        self._log.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._log.__exit__(kind, error, trace)
        self._pushes.close()

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


def sums_of(applied: Sequence[Applied]) -> Sums:
    """Of some pushes; an update of several takes its time once."""
    outcomes = [one.outcome for one in applied]
    return Sums(
        num_steps=len(outcomes),
        seconds=sum({one.version: one.step_s for one in applied}.values()),
        data_s=sum(one.data_s for one in outcomes),
        exposed_s=sum(one.wait_s + one.push_s for one in outcomes),
        sent_bytes=sum(one.sent_bytes for one in outcomes),
        loss_sum=sum(one.loss_sum for one in outcomes),
        num_correct=sum(one.num_correct for one in outcomes),
        num_samples=sum(one.num_samples for one in outcomes),
    )
