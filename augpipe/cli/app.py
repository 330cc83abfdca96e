"""The `augpipe` command: its subcommands, in the order in which a newcomer needs them."""

from typing import Annotated

import typer

from augpipe.cli.bench import bench
from augpipe.cli.checkpoint import checkpoint
from augpipe.cli.demo import demo
from augpipe.cli.doctor import doctor
from augpipe.cli.evaluate import evaluate
from augpipe.cli.exit_codes import Group, epilog
from augpipe.cli.explain import explain
from augpipe.cli.import_recipe import import_recipe
from augpipe.cli.index import index
from augpipe.cli.inspect import inspect
from augpipe.cli.prepare import prepare
from augpipe.cli.preview import preview
from augpipe.cli.recipe import recipe, schema
from augpipe.cli.replay import replay
from augpipe.cli.report import report
from augpipe.cli.sample import sample
from augpipe.cli.simulate import simulate
from augpipe.cli.stats import stats
from augpipe.cli.train import train
from augpipe.cli.verify import verify
from augpipe.cli.warm import warm

app = typer.Typer(
    name="augpipe",
    cls=Group,
    epilog=epilog(""),
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
NAMES: dict[object, str] = {import_recipe: "import"}
"""Commands that are called otherwise than their functions."""
FIRST_COMMANDS = """\
Images to augmented training batches: fast, and always the same ones for the same seed.

  augpipe demo                              see it all at work, on images that it draws
  augpipe preview photos/ --out sheet.png   what a recipe does to your photographs
  augpipe import train.py --out mine.toml   your torchvision, albumentations, timm or kornia recipe
  augpipe bench photos/                     images a second, on this machine
  augpipe train --example > run.toml        a config to train with: augpipe train run.toml"""
for command in (
    demo,
    preview,
    replay,
    inspect,
    recipe,
    schema,
    import_recipe,
    sample,
    stats,
    index,
    prepare,
    verify,
    train,
    evaluate,
    report,
    simulate,
    bench,
    explain,
    doctor,
    warm,
):
    name = NAMES.get(command, command.__name__)
    app.command(name, epilog=epilog(name))(command)
app.add_typer(checkpoint, name="checkpoint")


def _show_version(wanted: bool) -> None:
    if wanted:
        from augpipe import __version__

        print(f"augpipe {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def augpipe(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", "-V", help="Print the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Images to augmented training batches: fast, and always the same ones for the same seed.

    Start with [cyan]augpipe demo[/], or with your own: [cyan]augpipe preview FOLDER --out sheet.png[/]
    """
    if context.invoked_subcommand is None:
        print(FIRST_COMMANDS)
        assert isinstance(context.command, Group)
        others = [name for name in context.command.list_commands(context) if f"augpipe {name} " not in FIRST_COMMANDS]
        print(f"\nAlso: {', '.join(others)}.\nAll of them, with what they do: augpipe --help")


def main() -> None:
    """The command's entry point."""
    app(prog_name="augpipe")
