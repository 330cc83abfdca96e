"""`augpipe train`: train a network on augmented batches, by a TOML config."""

from pathlib import Path
from typing import Annotated

import typer

from augpipe.cli.exit_codes import Failure


def train(
    config: Annotated[
        Path | None, typer.Argument(metavar="CONFIG", help="TOML file of the run.", show_default=False)
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FIELD=VALUE", help="Override a field, as optim.lr=0.1; may be repeated."),
    ] = None,
    example: Annotated[bool, typer.Option("--example", help="Print a config with every field explained.")] = False,
    replay: Annotated[
        Path | None,
        typer.Option(
            metavar="OUT/order",
            help="Repeat a run with parameter servers, to the bit, from its order.",
            show_default=False,
        ),
    ] = None,
    start: Annotated[
        int | None,
        typer.Option(
            "--from", min=0, metavar="STEP", help="Replay from the last checkpoint before.", show_default=False
        ),
    ] = None,
) -> None:
    """Train a network on augmented batches, in one process or under torchrun in several.

    The same command resumes a run that was stopped. With several processes:
    [cyan]torchrun --nproc-per-node K -m augpipe.trainer CONFIG[/]; through parameter servers:
    [cyan]--set servers.mode=async --set servers.workers=4[/]
    """
    if example:
        from augpipe.trainer.config.load import example as text

        print(text().rstrip("\n"))
        return
    if config is None:
        raise ValueError("train needs a CONFIG: augpipe train --example > run.toml writes one to begin with.")
    if start is not None and replay is None:
        raise ValueError(f"--from {start} says where a replay begins: give --replay OUT/order, too.")
    from augpipe.trainer.launch import launch, launch_replay

    try:
        if replay is not None:
            code = launch_replay(str(config), overrides or (), str(replay), start)
        else:
            code = launch(str(config), overrides or ())
    except RuntimeError as error:
        from augpipe.trainer.exchange.exchange_errors import SyncError
        from augpipe.trainer.loop import NotFiniteError, SaveError
        from augpipe.trainer.servers.dispatcher import RunFailed

        if not isinstance(error, NotFiniteError | SaveError | SyncError | RunFailed):
            raise
        raise Failure(str(error)) from error
    raise typer.Exit(code)
