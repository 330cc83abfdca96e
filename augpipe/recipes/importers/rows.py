"""What became of a transform: a row of the table that an import shows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from augpipe.ops import AllOf, Op
from augpipe.ops.op import Beyond
from augpipe.reports.tables import Table


@dataclass(frozen=True, kw_only=True)
class Look:
    """How a transform looks between pixels."""

    interpolation: str
    antialias: bool | None = None
    """Whether shrinking averages; None where the transform does not shrink."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """What became of a transform."""

    name: str
    """The name of the transform in its library."""
    ops: tuple[Op, ...] = ()
    verdict: Literal["exact", "near", "not measured", "left out"] = "not measured"
    """Measured: within one of 256 levels in the mean, with draws alike; other than that; neither; nothing."""
    note: str = ""
    """What differs, or why it is left out."""
    look: Look | None = None
    """How it looks between pixels, if it does."""
    beyond: Beyond | None = None
    """What it shows beyond the image, if it does."""
    holds: bool = False
    """Whether its ops are of transforms that have rows of their own."""
    levels: tuple[float, float] | None = None
    """The mean and the largest difference of pixels, in levels of 256, as far as it was measured."""
    forms: tuple[str, ...] = ()
    """The names that figures of it are kept under."""
    loses_units: bool = False
    """Whether it is left out, and changes or may change what numbers count in behind it."""

    @property
    def became(self) -> str:
        """The ops by name; of a group that is made of one transform, those in it."""
        parts = [op.ops if isinstance(op, AllOf) and not self.holds else (op,) for op in self.ops]
        return ", ".join(op.key for part in parts for op in part)

    def left_out(self, reason: str) -> "Row":
        """The row of a transform that became nothing."""
        return Row(name=self.name, verdict="left out", note=reason)

    def has(self, op: Op) -> bool:
        """Whether an op is one of its own, and not only equal to one."""
        return any(own is op for own in self.ops)

    @property
    def told(self) -> str:
        """What is said of it where a list names it."""
        return f"{self.name}: {self.note}"


def table_of(rows: Sequence[Row]) -> Table:
    """What became of transforms: a name, ops, a verdict (exact, near, not measured, left out), and what differs."""
    cells = [(row.name, row.became or "-", row.verdict, row.note) for row in rows]
    return Table(columns=("transform", "became", "verdict", "what differs"), rows=cells, num_left=4)
