"""`augpipe stats`: what a source holds: sizes, classes, mean and deviation, unusable images, duplicates."""

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from augpipe.cli.common import (
    JsonOption,
    OnError,
    SkipBadOption,
    SourceArgument,
    SplitOption,
    console,
    decimal_bytes,
    opened,
    print_json,
    with_skip_bad,
)
from augpipe.cli.exit_codes import FAILURE
from augpipe.reports.tables import terminal_table
from augpipe.validation.plural import count

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from augpipe.datasets.stats.statistics import Statistics

ROWS = {"height": "height", "width": "width", "short_side": "short side", "aspect": "width / height"}
MOST_CLASSES = 12
"""All of so many are listed; of more, the largest and the smallest."""
MOST_LINES = 5
"""The most that are listed of unusable images, of groups, and of a group's members."""
BAR = 24
"""Letters of the longest bar."""


def stats(
    source: SourceArgument,
    json: JsonOption = False,
    split: SplitOption = None,
    label: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,...",
            help="The column, field or feature that is the label, if its name does not show it; several columns of "
            "numbers with a comma between: x,y.",
        ),
    ] = None,
    plots: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write sizes.png, classes.png and duplicates.png there; needs matplotlib."),
    ] = None,
    duplicates: Annotated[
        bool, typer.Option(help="Look for the same bytes, the same pixels, and (with ImageHash) look-alikes.")
    ] = True,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Threads that read and decode.", show_default="one a core")
    ] = None,
    on_error: Annotated[
        OnError,
        typer.Option(
            "--on-error", help="For a photograph that cannot be used: raise exits with 1 at the end; skip with 0."
        ),
    ] = "raise",
    skip_bad: SkipBadOption = False,
) -> None:
    """Count and measure images: classes, sizes, files, mean and deviation, duplicates, what cannot be used.

    Every image is decoded once. Exits with 1 where one cannot be
    used, after all have been looked at.
    """
    from augpipe.datasets.remote.urls import as_url, shown
    from augpipe.datasets.stats.collect import collect_statistics
    from augpipe.reports.progress_bar import ProgressBar

    on_error = with_skip_bad(on_error, skip_bad)
    if plots is not None:
        _check_plots(plots)
    images = opened(source, split, None if label is None else _label_names(label))
    url = as_url(source)
    with ProgressBar("reading", unit="image") as bar:
        found = collect_statistics(
            images,
            name=str(source) if url is None else shown(url),
            duplicates=duplicates,
            num_threads=workers,
            progress=bar.tell,
        )
    if json:
        print_json(found.to_json())
    else:
        show(found, console())
    if plots is not None:
        from augpipe.datasets.stats.plots import write_plots

        for path in write_plots(found, images, plots):
            print(f"augpipe: wrote {path}", file=sys.stderr)
    if found.sums.num_unusable and on_error == "raise":
        raise typer.Exit(FAILURE)


def show(found: "Statistics", screen: "Console") -> None:
    """The statistics as tables."""
    from rich.text import Text

    screen.print(Text(found.source, style="bold"))
    screen.print(_facts(found))
    if found.sums.num_usable and min(found.sums.channels.std) >= 0.00005:  # what it is printed as must be above 0
        mean, std = _triple(found.sums.channels.mean), _triple(found.sums.channels.std)
        # one line however narrow the screen: TOML wants it so
        screen.print(Text(f'{{op = "normalize", mean = [{mean}], std = [{std}]}}', style="cyan"), soft_wrap=True)
    screen.print()
    for part in (
        *_sizes(found),
        *_classes(found),
        *_label_numbers(found),
        *_objects(found),
        *_unusable(found),
        *_duplicates(found),
    ):
        screen.print(part)


def _facts(found: "Statistics") -> "RenderableType":
    from rich.table import Table

    sums = found.sums
    made = Table.grid(padding=(0, 2, 0, 0))
    made.add_column(no_wrap=True)
    made.add_column(overflow="fold")
    bad = f", of which {sums.num_unusable:,} cannot be used" if sums.num_unusable else ""
    made.add_row("photographs", f"{sums.num:,}{bad}")
    for number, what in enumerate(found.left_out):
        made.add_row("" if number else "left out", what)
    made.add_row("classes", _class_text(found))
    for number, (name, kind) in enumerate(sorted(sums.formats.items(), key=lambda item: -item[1].num)):
        made.add_row(
            "files" if number == 0 else "",
            f"{kind.num:,} {name}, {decimal_bytes(kind.total_bytes)}: {decimal_bytes(kind.least_bytes)} to "
            f"{decimal_bytes(kind.most_bytes)} each",
        )
    made.add_row("gray", f"{sums.num_gray:,}")
    made.add_row("turned by EXIF", f"{sums.num_turned:,}")
    if sums.num_usable:
        mean, std = (_triple(numbers) for numbers in (sums.channels.mean, sums.channels.std))
        made.add_row("mean of R, G, B", mean)
        made.add_row("deviation", f"{std}, over all {sums.channels.num_pixels / 1e6:,.1f} million pixels")
    return made


def _class_text(found: "Statistics") -> str:
    sizes = sorted(found.class_sizes.values())
    if not sizes and found.objects is not None:
        return f"none for whole images; {count(found.objects.num, 'object')}, counted below"
    none = f"{count(found.num_unlabelled, 'photograph')} without a label" if found.num_unlabelled else ""
    if found.label_numbers:
        return f"none: labels of {count(len(found.label_numbers), 'number')} each"
    if not sizes:
        return f"none: {none}" if none else "none"
    each = f"{sizes[0]:,} to " if sizes[0] < sizes[-1] else ""
    text = f"{len(sizes):,}, of {each}{count(sizes[-1], 'photograph')}"
    if found.balance is not None:
        text += f"; balance {found.balance:.3f} (1: all alike)"
    return f"{text}; {none}" if none else text


def _sizes(found: "Statistics") -> "Iterator[RenderableType]":
    if not found.sizes:
        return
    made = terminal_table("sizes in pixels", "", "least", "5 %", "25 %", "median", "75 %", "95 %", "most", left=("",))
    for key, name in ROWS.items():
        made.add_row(name, *(_number(value) for value in found.sizes[key].percentiles))
    made.add_row("megapixels", *(f"{value:.3g}" for value in found.sizes["megapixels"].percentiles))
    yield made
    spread = found.sizes["short_side"]
    filled = [number for number, times in enumerate(spread.counts) if times]
    bars = terminal_table("short side", "pixels", "photographs", "", left=("",))
    for number in range(filled[0], filled[-1] + 1):
        low, high = spread.edges[number], spread.edges[number + 1]
        name = f"{low:g} and more" if high == float("inf") else f"{low:g} to {high - 1:g}"
        bars.add_row(name, f"{spread.counts[number]:,}", _bar(spread.counts[number], max(spread.counts)))
    yield bars


def _classes(found: "Statistics") -> "Iterator[RenderableType]":
    if len(found.class_sizes) >= 2:
        yield _class_table(found.class_sizes, "classes", "photographs")


def _objects(found: "Statistics") -> "Iterator[RenderableType]":
    objects = found.objects
    if objects is None:
        return
    made = terminal_table("objects", "", "number", left=("",))
    made.add_row("objects", f"{objects.num:,}")
    made.add_row("images with objects", f"{objects.num_images:,} of {found.sums.num:,}")
    made.add_row("most in an image", f"{objects.most:,}")
    for name, size in objects.box_sizes.items():
        limit = {"small": " (box below 32x32)", "large": " (box from 96x96)"}.get(name, "")
        made.add_row(f"{name}{limit}", f"{size:,}")
    made.add_row("with an outline", f"{objects.num_outlines:,}")
    made.add_row("crowds", f"{objects.num_crowds:,}")
    made.add_row("labelled key points", f"{objects.num_keypoints:,}")
    yield made
    yield from objects.mended
    if objects.class_sizes:
        yield _class_table(objects.class_sizes, "classes of objects", "objects")


def _class_table(sizes: Mapping[str, int], title: str, noun: str) -> "RenderableType":
    from rich.text import Text

    ordered = sorted(sizes.items(), key=lambda item: -item[1])
    left_out = 0
    if len(ordered) > MOST_CLASSES:
        left_out = len(ordered) - 2 * MOST_LINES
        ordered = ordered[:MOST_LINES] + ordered[-MOST_LINES:]
    made = terminal_table(title, "class", noun, "", left=("class", ""))
    for number, (name, size) in enumerate(ordered):
        if left_out and number == MOST_LINES:
            made.add_row(f"({left_out:,} between)", "", "")
        made.add_row(Text(name), f"{size:,}", _bar(size, ordered[0][1]))
    return made


def _label_numbers(found: "Statistics") -> "Iterator[RenderableType]":
    numbers = found.label_numbers
    if not numbers:
        return
    from rich.text import Text

    made = terminal_table("labels", "number", "least", "mean", "deviation", "most", "not 0", left=("number",))
    for number in numbers[: 2 * MOST_CLASSES]:
        spread = (f"{value:.4g}" for value in (number.least, number.mean, number.std, number.most))
        made.add_row(Text(number.name), *spread, f"{number.num_not_zero:,}")
    more = len(numbers) - 2 * MOST_CLASSES
    if more > 0:
        made.add_row(f"and {more:,} more (--json lists them)", *[""] * 5)
    yield made


def _unusable(found: "Statistics") -> "Iterator[RenderableType]":
    from rich.text import Text

    if not found.sums.num_unusable:
        return
    made = terminal_table("cannot be used", "photograph", "reason", left=("photograph", "reason"))
    for bad in found.sums.unusable[:MOST_LINES]:
        made.add_row(Text(found.short_name(bad.name)), Text(bad.reason))
    more = found.sums.num_unusable - MOST_LINES
    if more > 0:
        made.add_row(f"and {more:,} more", "(--json lists them)")
    yield made


def _duplicates(found: "Statistics") -> "Iterator[RenderableType]":
    from augpipe.datasets.stats.fingerprints import INSTALL

    duplicates = found.duplicates
    if duplicates is None:
        return
    made = terminal_table("duplicates", "", "groups", "too many", "labels contradict", left=("",))
    for kind, num in duplicates.num_extra.items():
        groups = duplicates.of(kind)
        contradicting = sum(group.contradicts for group in groups)
        made.add_row(kind.replace("_", " "), f"{len(groups):,}", f"{num:,}", f"{contradicting:,}")
    yield made
    yield from _groups(found)
    if not duplicates.has_look_alikes:
        from rich.text import Text

        yield Text(f"look-alikes were not looked for, which takes ImageHash: {INSTALL}", style="yellow")


def _groups(found: "Statistics") -> "Iterator[RenderableType]":
    from rich.text import Text

    from augpipe.datasets.stats.duplicates import class_name

    assert found.duplicates is not None
    groups = sorted(found.duplicates.groups, key=lambda group: not group.contradicts)
    if not groups:
        return
    made = terminal_table("groups", "", "photograph", "class", left=("", "photograph", "class"))
    for group in groups[:MOST_LINES]:
        style = "red" if group.contradicts else ""
        about = [group.kind.replace("_", " "), Text("contradicting", style) if group.contradicts else ""]
        for number, member in enumerate(group.members[:MOST_LINES]):
            name = class_name(found.classes, member.label) or "-"
            made.add_row(about[number] if number < 2 else "", Text(found.short_name(member.name)), Text(name, style))
        more = len(group.members) - MOST_LINES
        if more > 0:
            made.add_row("", f"and {more:,} more", "")
        made.add_section()
    more = len(groups) - MOST_LINES
    if more > 0:
        made.add_row("", f"and {count(more, 'group')} more (--json lists them)", "")
    yield made


def _label_names(text: str) -> str | list[str]:
    """The name that --label gives, or the several."""
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise ValueError(
            f"--label {text} has an empty name. Write the columns' names with a comma between: --label x,y."
        )
    return names if names[1:] else names[0]


def _check_plots(folder: Path) -> None:
    """Fail before the work where plots cannot be written after it; makes the folder."""
    from augpipe.reports.figures import check_matplotlib

    if folder.exists() and not folder.is_dir():
        raise ValueError(f"--plots {folder} is a file. Give a folder; it is made where it is missing.")
    check_matplotlib("plots need")
    folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK):
        raise ValueError(f"--plots {folder} cannot be written to: permission denied. Write elsewhere.")


def _bar(size: int, largest: int) -> str:
    return "█" * -(-BAR * size // max(largest, 1))


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) and value >= 10 else f"{value:.3g}"


def _triple(numbers: tuple[float, float, float]) -> str:
    return ", ".join(f"{number:.4f}" for number in numbers)
