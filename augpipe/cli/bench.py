"""`augpipe bench`: how fast this machine decodes, augments and loads."""

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from augpipe.cli.common import (
    JsonOption,
    OnErrorOption,
    RecipeOption,
    ScaleOption,
    SeedOption,
    SizeOption,
    SkipBadOption,
    SourceArgument,
    SplitOption,
    console,
    one_recipe,
    opened,
    print_json,
    telling_of_skip,
    warn_of_skipped,
    with_skip_bad,
)
from augpipe.recipes.names import load_recipe
from augpipe.reports.tables import terminal_table
from augpipe.validation.plural import count

if TYPE_CHECKING:
    from rich.console import Console

    from augpipe.bench import Report
    from augpipe.recipes.recipe import Recipe
    from augpipe.sources.protocol import Source

NAMES = {
    "decode": "decode only, whole",
    "decode_region": "decode only, what is looked at",
    "kernel": "kernel only",
    "loader_memory": "loader, from memory",
    "loader_disk": "loader, from disk",
}


def bench(
    source: SourceArgument,
    recipe: RecipeOption = None,
    split: SplitOption = None,
    json: JsonOption = False,
    seconds: Annotated[float, typer.Option(min=0.1, help="About how long to measure.")] = 15.0,
    batch_size: Annotated[int, typer.Option(min=1, help="Batch size of the loader.")] = 64,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads to compare with one thread.", show_default="one a core")
    ] = None,
    seed: SeedOption = 0,
    size: SizeOption = None,
    scale: ScaleOption = None,
    on_error: OnErrorOption = "raise",
    skip_bad: SkipBadOption = False,
) -> None:
    """Measure images per second: decoding whole photographs or only what a recipe needs, the kernel, the whole loader.

    All of them take turns in one run, on one thread and on all; medians are
    shown. Up to 256 images, evenly spread over the source, are held in
    memory; "from disk" reads them again, mostly from the system's file cache.
    """
    chosen = load_recipe(one_recipe(recipe), size, scale)
    images = opened(source, split)
    on_error = with_skip_bad(on_error, skip_bad)
    with telling_of_skip(images, on_error):
        report = run(
            images,
            chosen,
            seconds=seconds,
            batch_size=batch_size,
            num_threads=threads,
            seed=seed,
            on_error=on_error,
        )
    warn_of_skipped(report.skipped)
    if json:
        print_json(report.to_json())
    else:
        show(report, console())


def run(
    source: "Source",
    recipe: "Recipe",
    *,
    seconds: float,
    batch_size: int = 64,
    num_threads: int | None = None,
    seed: int = 0,
    on_error: Literal["raise", "skip"] = "raise",
) -> "Report":
    """Measure behind a progress bar, which goes to stderr."""
    from augpipe.bench import measure
    from augpipe.reports.progress_bar import ProgressBar

    # drawing takes time from what is measured
    with ProgressBar("measuring", unit="image", refresh_per_second=2) as bar:
        return measure(
            source,
            recipe,
            seconds=seconds,
            batch_size=batch_size,
            num_threads=num_threads,
            seed=seed,
            on_error=on_error,
            progress=lambda fraction, num: bar.update(num, num / fraction),
        )


def show(report: "Report", screen: "Console") -> None:
    """The report as a table."""
    most = report.threads[-1]
    several = most > 1
    columns = ["images/s", "1 thread", *([f"{most} threads", "speed-up"] if several else [])]
    made = terminal_table(f"{report.recipe}, batches of {report.batch_size}", *columns, left=("images/s",))
    for what, name in NAMES.items():
        cells = [_rate(report, what, 1)]
        if several:
            cells += [_rate(report, what, most), _ratio(report.rate(what, most), report.rate(what, 1), "x")]
        made.add_row(name, *cells)
    screen.print(made)
    planning, kernel = report.rate("plan", 1), report.rate("kernel", 1)
    assert planning is not None and kernel is not None
    images = count(report.num_images, "photograph")
    ratio = _ratio(report.rate("loader_disk", most), report.rate("decode", most), "")
    region, loader = report.rate("decode_region", 1), report.rate("loader_disk", 1)
    share = f"{loader / region:.0%}" if region and loader else "?"
    facts = report.machine
    kilobytes = f", {report.mean_bytes / 1000:.0f} kB" if report.mean_bytes else ""
    for line in (
        f"planning {1e6 / planning:.2g} µs an image, the kernel {1e3 / kernel:.2g} ms, on one thread",
        f"decoding what is looked at takes {share} of the loader's time on one thread",
        f"the whole loader reaches {ratio} of the rate of decoding photographs whole on {count(most, 'thread')}",
        f"{images}, {report.mean_pixels / 1e6:.2f} megapixels{kilobytes} on average",
        f"{facts['cpu']}, {count(int(str(facts['cores'])), 'core')}, Python {facts['python']}",
    ):
        screen.print(line, soft_wrap=True)


def _rate(report: "Report", what: str, threads: int) -> str:
    rate = report.rate(what, threads)
    assert rate is not None
    return f"{rate:,.0f}"


def _ratio(a: float | None, b: float | None, unit: str) -> str:
    assert a is not None and b is not None
    return f"{a / b:.2f}{unit}" if a / b >= 0.1 else f"{a / b:.2g}{unit}"
