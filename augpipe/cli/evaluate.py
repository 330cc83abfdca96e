"""`augpipe evaluate`: what trained networks know, alone and together, by several views of each image."""

import os
import shutil
import sys
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from augpipe.cli.common import (
    JsonOption,
    OnError,
    SkipBadOption,
    SplitOption,
    console,
    in_options,
    opened,
    print_json,
    warn_of_skipped,
    with_skip_bad,
)
from augpipe.cli.exit_codes import Failure
from augpipe.recipes.names import load_recipe

Number = TypeVar("Number", int, float)


def evaluate(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Folders of training runs; several are averaged.", show_default=False),
    ],
    source: Annotated[
        str | None,
        typer.Option(metavar="SOURCE", help="What to evaluate on.", show_default="what the run held out"),
    ] = None,
    split: SplitOption = None,
    held_out: Annotated[
        bool,
        typer.Option(
            "--held-out",
            help="Evaluate only what the run held out, found in --source by name: for a source that was moved.",
        ),
    ] = False,
    recipe: Annotated[
        str | None,
        typer.Option(
            metavar="RECIPE",
            help="A recipe's name, or a TOML file, that makes the images.",
            show_default="the run's own",
        ),
    ] = None,
    scales: Annotated[
        str | None,
        typer.Option(
            metavar="PX,PX",
            help="Short sides to resize to, as 224,256,320.",
            show_default="the run's own",
        ),
    ] = None,
    flip: Annotated[bool, typer.Option("--flip", help="Show each view mirrored, too.")] = False,
    dense: Annotated[
        bool, typer.Option("--dense", help="Whole images: the fully connected layers are applied at every place.")
    ] = False,
    crops: Annotated[int, typer.Option(metavar="1|10", help="10: corners and centre, mirrored too.")] = 1,
    average: Annotated[
        str, typer.Option(metavar="softmax|logits", help="What is averaged over views and runs.")
    ] = "softmax",
    weights: Annotated[
        str | None,
        typer.Option(metavar="W,W", help="Each run's weight in the average, as 2,1.", show_default="the same for all"),
    ] = None,
    compare: Annotated[
        bool,
        typer.Option("--compare", help="For two runs: what the second one changed, and whether chance explains it."),
    ] = False,
    robustness: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE",
            help="Top-1 against the strength of each op of a recipe: usual, a recipe's name, or a TOML file.",
        ),
    ] = None,
    strengths: Annotated[
        str | None,
        typer.Option(
            metavar="S,S",
            help="Strengths for --robustness; 1 is that of the recipe.",
            show_default="0,0.25,0.5,0.75,1,1.5,2",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write evaluation.html, evaluation.json and CSV tables there.")
    ] = None,
    device: Annotated[str, typer.Option(metavar="NAME", help="auto, cpu, cuda or cuda:N.")] = "auto",
    memory: Annotated[int, typer.Option(min=1, metavar="MB", help="Memory that batches may take (estimated).")] = 1024,
    on_error: Annotated[
        OnError | None,
        typer.Option(
            "--on-error",
            help="For a photograph that cannot be used: raise ends the command; skip leaves it out and lists it.",
            show_default="as the run's config says",
        ),
    ] = None,
    skip_bad: SkipBadOption = False,
    json: JsonOption = False,
) -> None:
    """Evaluate trained networks: top-1 and top-5 with 95 % intervals, classes, confusion, calibration.

    Without options: the numbers of the run's own evaluation. To test as the papers do:
    [cyan]augpipe evaluate RUN --dense --scales 224,256,320 --flip[/]
    """
    from augpipe.errors import SampleError
    from augpipe.reports.progress_bar import ProgressBar
    from augpipe.trainer.launch import load_torch, trainer_on_stderr

    load_torch("evaluating")
    from augpipe.trainer.evaluation import Views, changes_of, evaluate_runs, robustness_of
    from augpipe.trainer.evaluation.files import (
        change_lines,
        change_table,
        robustness_table,
        summary_table,
        to_json,
        write_files,
    )
    from augpipe.trainer.evaluation.page import write_page
    from augpipe.trainer.evaluation.robustness import STRENGTHS, USUAL

    if out is not None and out.exists() and not out.is_dir():
        raise ValueError(f"--out {out} is a file. Give a folder; it is made where it is missing.")
    if compare and len(runs) != 2:
        raise ValueError(f"--compare takes two runs, and here are {len(runs)}. Give the one before and the one after.")
    if strengths is not None and robustness is None:
        raise ValueError("--strengths goes with --robustness. Give the recipe whose ops are looked at, as usual.")
    if robustness is not None and (dense or flip or crops != 1 or scales is not None or recipe is not None):
        raise ValueError(
            "--robustness shows the centre, as the run's own evaluation does. Leave out --dense, --crops, --scales, "
            "--flip and --recipe."
        )
    if held_out and source is None:
        raise ValueError("--held-out goes with --source, which says where the photographs are now. Leave it out.")
    if split is not None and source is None:
        raise ValueError(
            f"--split {split} is a part of --source. Give that, too, or neither for what the run held out."
        )
    bent = None if robustness is None else USUAL if robustness == USUAL.name else load_recipe(robustness)
    sizes = tuple(_numbers("--scales", scales, int))
    views = Views(scales=sizes, flip=flip, dense=dense, crops=crops, average=average)
    kept = None if out is None else out / "partial"
    on_error = with_skip_bad(on_error, skip_bad)
    is_first = os.environ.get("RANK", "0") == "0"  # which tells
    with trainer_on_stderr(), in_options(), ProgressBar(unit="image", shows=is_first) as bar:
        given = source if source is None or split is None else opened(Path(source), split)
        try:
            found = evaluate_runs(
                runs,
                views,
                source=given,
                held_out=held_out,
                recipe=recipe,
                weights=_numbers("--weights", weights, float) or None,
                device=device,
                memory_mb=memory,
                on_error=on_error,
                tell=bar.tell,
                keep=kept,
            )
            curves = None
            if bent is not None:
                curves = robustness_of(
                    runs,
                    bent,
                    strengths=_numbers("--strengths", strengths, float) or STRENGTHS,
                    source=given,
                    held_out=held_out,
                    device=device,
                    memory_mb=memory,
                    on_error=on_error,
                    tell=bar.tell,
                )
        except SampleError as problem:
            hint = "Pass --on-error skip to leave out such photographs."
            raise Failure(f"{problem.name}: {problem.reason.rstrip('.')}. {hint}") from problem
    if not is_first:
        return
    warn_of_skipped(found.left_out)
    changes = changes_of(found) if compare else None
    if json:
        print_json(to_json(found, changes, curves))
    else:
        screen = console()
        screen.print(summary_table(found).terminal(str(views)))
        if changes is not None:
            screen.print(change_table(changes).terminal("what changed"))
            print("\n".join(change_lines(found, changes)))
        if curves is not None:
            screen.print(robustness_table(curves).terminal(f"top-1, %, by strength of {curves.recipe}"))
    if out is not None:
        written = write_files(found, out, changes, curves)
        try:
            written.append(write_page(found, out, changes, curves))
        except ImportError as problem:
            print(f"augpipe: no evaluation.html: {problem}", file=sys.stderr)
        shutil.rmtree(out / "partial", ignore_errors=True)
        if not json:
            print(f"{out}: {', '.join(path.name for path in written)}")


def _numbers(option: str, text: str | None, kind: type[Number]) -> list[Number]:
    try:
        return [] if text is None else [kind(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"{option} {text}: give numbers, separated by commas, as {option} 224,256.") from None
