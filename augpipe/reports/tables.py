"""A table of texts and numbers: on a terminal, on a page of HTML, as plain text or as CSV."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import rich.table


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows under headings."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    """A cell is what `str` makes of it; CSV has six digits of a float."""
    num_left: int = 0
    """So many of the first columns are texts; the others are numbers, which end at one edge."""

    def terminal(self, title: str) -> "rich.table.Table":
        """For a terminal; `rich.text.Text` keeps its style, and other cells are shown letter by letter."""
        from rich.text import Text

        made = terminal_table(title, *self.columns, left=tuple(self.columns[: self.num_left]))
        for row in self.rows:
            made.add_row(*(cell if isinstance(cell, Text) else Text(str(cell)) for cell in row))
        return made

    def html(self) -> str:
        """For a page."""
        kinds = ["" if place < self.num_left else ' class="n"' for place in range(len(self.columns))]
        lines = [
            "".join(f"<{tag}{kind}>{escape(str(cell))}</{tag}>" for kind, cell in zip(kinds, row, strict=True))
            for tag, row in (("th", self.columns), *(("td", row) for row in self.rows))
        ]
        return "<table>" + "\n".join(f"<tr>{line}</tr>" for line in lines) + "</table>"

    def text(self) -> str:
        """Lines of plain text, all columns but those of texts aligned to the right."""
        lines = [[str(cell) for cell in row] for row in (self.columns, *self.rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        aligns = ["<" if place < self.num_left else ">" for place in range(len(widths))]
        return "\n".join(
            "   ".join(f"{cell:{align}{width}}" for cell, align, width in zip(line, aligns, widths, strict=True))
            for line in lines
        )

    def csv(self) -> str:
        """A line for each row, below the headings."""
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows([short(cell) for cell in row] for row in self.rows)
        return text.getvalue()


def short(value: Any) -> Any:
    """A float in six digits, as CSV files have them; anything else as it is."""
    return f"{value:.6g}" if isinstance(value, float) else value


def terminal_table(title: str, *columns: str, left: tuple[str, ...] = ()) -> "rich.table.Table":
    """A table for a terminal, to be filled row by row; its columns are numbers, except those named in `left`."""
    from rich import box
    from rich.table import Table

    made = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, title_style="bold")
    for column in columns:
        made.add_column(column, justify="left" if column in left else "right", overflow="fold")
    return made
