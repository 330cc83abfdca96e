"""The bar that rank 0 shows: where the run is, how well, how fast, and what the ranks cost each other."""

from dataclasses import dataclass
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


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


class Bar:
    """A progress bar over an epoch on stderr, where that is a terminal; elsewhere a line an epoch says it all."""

    def __init__(self, *, shows: bool) -> None:
        self._console = Console(stderr=True, highlight=False)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[pace]}"),
        )
        self._progress = Progress(
            *columns, console=self._console, transient=True, disable=not (shows and self._console.is_terminal)
        )
        self._task = self._progress.add_task("", total=None, pace="", visible=False)

    def begin_epoch(self, epoch: int, num_epochs: int, done: int, total: int) -> None:
        """Start again at step `done` of an epoch's `total`."""
        self._progress.reset(
            self._task, description=f"epoch {epoch + 1}/{num_epochs}", total=total, completed=done, visible=True
        )

    def advance(self, pace: Pace | None) -> None:
        """One step on."""
        if pace is None:
            self._progress.update(self._task, advance=1)
        else:
            self._progress.update(self._task, advance=1, pace=pace.text)

    def __enter__(self) -> "Bar":
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()
