"""`augpipe doctor`: what of this machine augpipe can use."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from augpipe.cli.common import JsonOption, console, print_json
from augpipe.cli.exit_codes import FAILURE

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from augpipe.doctor import Finding

STYLES = {"ok": "green", "none": "dim", "missing": "yellow", "broken": "bold red"}
MARKS = {"ok": "ok", "none": "-", "missing": "missing", "broken": "broken"}


def doctor(json: JsonOption = False) -> None:
    """Show what augpipe can use on this machine, what is missing, and the command that installs it.

    Every part is tried, not only looked up. Exits with 1 only if
    something is broken that augpipe cannot do without; a missing GPU
    does not count.
    """
    from augpipe.doctor import examine, is_well
    from augpipe.reports.progress_bar import ProgressBar

    with ProgressBar("looking at this machine", unit="part") as bar:
        findings = examine(progress=bar.update)
    if json:
        print_json(as_json(findings))
    else:
        show(findings, console())
    if not is_well(findings):
        raise typer.Exit(FAILURE)


def as_json(findings: "Sequence[Finding]") -> dict[str, Any]:
    """`is_well` is what the exit code says; findings in the order of the report."""
    from augpipe import __version__
    from augpipe.doctor import is_well

    return {
        "augpipe": __version__,
        "is_well": is_well(findings),
        "findings": [finding.to_json() for finding in findings],
    }


def show(findings: "Sequence[Finding]", screen: "Console") -> None:
    """The report: a table a section, and a line on the whole."""
    from rich.table import Table
    from rich.text import Text

    name_width = max(len(finding.name) for finding in findings)
    for title in dict.fromkeys(finding.section for finding in findings):
        screen.print(Text(title, style="bold"))
        made = Table.grid(padding=(0, 2, 0, 0))
        made.add_column(width=max(map(len, MARKS.values())))
        made.add_column(width=name_width)
        made.add_column(overflow="fold")
        for finding in findings:
            if finding.section == title:
                made.add_row(Text(MARKS[finding.status], STYLES[finding.status]), finding.name, _text(finding))
        screen.print(made)
        screen.print()
    screen.print(_summary(findings), soft_wrap=True)


def _text(finding: "Finding") -> "Text":
    from rich.text import Text

    made = Text(finding.text, style="dim" if finding.status == "none" else "")
    if finding.brings:
        made.append(f"\nbrings {finding.brings}")
    if finding.command:
        made.append(f"\n{finding.command}", style="cyan")
    return made


def _summary(findings: "Sequence[Finding]") -> "Text":
    from rich.text import Text

    needed = [finding.name for finding in findings if finding.is_needed and finding.status == "broken"]
    if needed:
        return Text(f"augpipe cannot run here: {', '.join(needed)}", style=STYLES["broken"])
    others = [finding.name for finding in findings if finding.status == "broken"]
    if others:
        return Text(f"augpipe runs here on the CPU; to be mended: {', '.join(others)}", style=STYLES["broken"])
    lacks = [finding.name for finding in findings if finding.status == "missing"]
    if lacks:
        return Text(f"augpipe runs here; it could do more with: {', '.join(lacks)}", style=STYLES["missing"])
    return Text("augpipe runs here, and nothing is missing", style=STYLES["ok"])
