"""How far a command is, on stderr: a bar on a terminal; in a log a line every ten seconds, and one at the end."""

import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from augpipe.validation.plural import count

LINE_EVERY_S = 10.0
"""The least time between two lines of a log."""
LINE_EVERY_SHARE = 0.05
"""The same of the time so far, where that is longer."""
LEAST_S = 2.0
"""What took less than this says nothing at its end."""


class ProgressBar:
    """How much is done, how fast, and how long the rest takes.

    A context manager. On a terminal it is a bar that disappears at the end,
    also after an exception. Elsewhere it is lines of text.
    """

    def __init__(
        self,
        what: str = "",
        total: float | None = None,
        *,
        unit: str = "",
        shows: bool = True,
        tells_end: bool = True,
        refresh_per_second: float = 10.0,
    ) -> None:
        """Nothing is shown before `__enter__`.

        Args:
            what: what is being done, as "reading".
            total: units to do; None where an `update` says it, or nobody knows.
            unit: what is counted, as "image"; of "byte" MB are shown; empty where only time passes.
            shows: False for silence, as of ranks other than the first.
            tells_end: False where the caller says at the end what a log should hold.
            refresh_per_second: of the bar.
        """
        screen = Console(stderr=True, highlight=False)
        # a colour that is forced makes no terminal of a log
        self._is_bar = shows and screen.is_interactive and sys.stderr.isatty()
        self._tells, self._tells_end = shows and not self._is_bar, tells_end
        self._unit = unit
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            _Column(self),
            console=screen,
            transient=True,
            disable=not self._is_bar,
            refresh_per_second=refresh_per_second,
            get_time=time.monotonic,
        )
        self._id = self._progress.add_task("", total=None)
        (self._task,) = self._progress.tasks
        self.begin(what, total)

    def begin(self, what: str, total: float | None = None, done: float = 0.0) -> None:
        """Begin a stage, and end the one before it.

        Args:
            what: what is being done.
            total: as of the bar.
            done: what an earlier run did; no rate counts it.
        """
        self._end_stage()
        self._first, self._more = done, ""
        self._begun = self._counts_from = time.monotonic()
        self._next_line = self._begun + LINE_EVERY_S
        self._task.total = total  # which `reset` leaves as it is where it is None
        self._progress.reset(self._id, description=what, completed=int(done))

    def update(self, done: float, total: float | None = None, *, more: str = "") -> None:
        """Say how much is done.

        The first update with a `total` tells where the stage began: no rate counts what was done by then.

        Args:
            done: units, those of earlier runs included.
            total: units in all, where it was not known before.
            more: what else to show behind the numbers; empty leaves it as it is.
        """
        now = time.monotonic()
        if self._task.total is None and total is not None:
            self._first, self._counts_from = done, now
        self._more = more or self._more
        self._progress.update(self._id, completed=done, total=total)
        if self._tells and now >= self._next_line:
            self._say(f"{self._task.description} {self.text}")
            self._next_line = now + max(LINE_EVERY_S, LINE_EVERY_SHARE * (now - self._begun))

    def advance(self, num: float = 1.0, *, more: str = "") -> None:
        """`num` more units are done."""
        self.update(self._task.completed + num, more=more)

    def tell(self, what: str, done: float, total: float) -> None:
        """`update`, and `begin` where `what` is another than before: for functions with several stages."""
        if what != self._task.description:
            self.begin(what)
        self.update(done, total)

    def note(self, text: str) -> None:
        """A line above the bar."""
        self._progress.stop()
        self._say(text)
        self._progress.start()

    @property
    def text(self) -> str:
        """What is said of the stage: done of all, the rate, and the time that is left."""
        task, parts = self._task, []
        rate = task.speed or self._mean_rate()
        if self._unit and (task.completed or task.total):
            parts.append(self._counted(task.completed, task.total))
            if rate:
                parts.append(self._rate(rate))
        if task.total is not None and rate:
            parts.append(f"{_clock(max(0.0, task.total - task.completed) / rate)} left")
        else:
            parts.append(_clock(time.monotonic() - self._begun))
        return "  ".join([*parts, *([self._more] if self._more else [])])

    def _counted(self, done: float, total: float | None) -> str:
        scale, unit = (1e6, " MB") if self._unit == "byte" else (1.0, "")
        numbers = [f"{number / scale:,.{1 if unit else 0}f}" for number in (done, total) if number is not None]
        return "/".join(numbers) + unit

    def _rate(self, rate: float) -> str:
        rate, unit = (rate / 1e6, "MB") if self._unit == "byte" else (rate, f"{self._unit}s")
        return f"{rate:,.0f} {unit}/s" if rate >= 9.5 else f"{rate:.2g} {unit}/s"

    def _mean_rate(self) -> float:
        passed_s = time.monotonic() - self._counts_from
        return (self._task.completed - self._first) / passed_s if passed_s > 0.0 else 0.0

    def _end_stage(self) -> None:
        """In a log, say what a stage did that took its time."""
        if not (self._tells and self._tells_end and self._task.description):
            return
        passed_s = time.monotonic() - self._begun
        if passed_s >= LEAST_S:
            num, text = self._task.completed - self._first, f"{self._task.description} took {passed_s:.1f} s"
            if self._unit and num > 0:
                counted = self._counted(num, None) if self._unit == "byte" else count(int(num), self._unit)
                text += f": {counted}, {self._rate(self._mean_rate())}"
            self._say(text)

    def _say(self, text: str) -> None:
        print(f"augpipe: {text.strip()}", file=sys.stderr, flush=True)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()
        if kind is None:
            self._end_stage()


class _Column(ProgressColumn):
    """The bar's text, to its right."""

    def __init__(self, bar: ProgressBar) -> None:
        super().__init__()
        self._bar = bar

    def render(self, task: Task) -> Text:
        """One line."""
        return Text(self._bar.text)


def _clock(seconds: float) -> str:
    """`1:02:03`, or `2:03`."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
