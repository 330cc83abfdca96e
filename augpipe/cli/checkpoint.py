"""`augpipe checkpoint convert`: checkpoints of older versions, and weights for other programs."""

from pathlib import Path
from typing import Annotated

import typer

from augpipe.cli.exit_codes import Group, epilog

checkpoint = typer.Typer(cls=Group, help="Write a run's checkpoint in another form.")


@checkpoint.callback()
def _checkpoint() -> None:
    """Write a run's checkpoint in another form."""


@checkpoint.command(epilog=epilog("checkpoint"))
def convert(
    source: Annotated[
        Path,
        typer.Argument(metavar="CHECKPOINT", help="Its folder, RUN/checkpoints/step-000000500.", show_default=False),
    ],
    out: Annotated[
        Path,
        typer.Argument(
            metavar="OUT",
            help="OUT.safetensors or OUT.pt: only the network's weights. Else a folder, for a checkpoint of an older "
            "version: OUT/step-000000500 in today's form.",
            show_default=False,
        ),
    ],
    ema: Annotated[bool, typer.Option("--ema", help="The moving average of the weights.")] = False,
    trust_pickle: Annotated[
        bool,
        typer.Option(
            "--trust-pickle",
            help="Read a checkpoint of version 1, which holds a pickle: its author can run code on this machine.",
        ),
    ] = False,
) -> None:
    """Write the weights of a checkpoint to one file, or convert a checkpoint of an older augpipe to today's form.

    augpipe checkpoint convert RUN/checkpoints/step-000000500 resnet.safetensors
    """
    from augpipe.reports.progress_bar import ProgressBar
    from augpipe.trainer.launch import load_torch

    load_torch("converting")
    from augpipe.trainer.checkpoint import Checkpoint, version_1
    from augpipe.trainer.checkpoint.manifest import verify
    from augpipe.trainer.evaluation.weights import write_weights

    if (source / "checkpoints").is_dir():
        raise ValueError(f"{source} is the folder of a run. Name one of the checkpoints in {source / 'checkpoints'}.")
    if out.suffix in (".safetensors", ".pt"):
        if not out.parent.is_dir():
            raise ValueError(f"there is no folder {out.parent} for OUT={out}. Make it first.")
        with ProgressBar(f"checking {source}", unit="byte") as bar:
            manifest = verify(source, progress=bar.update)
        if "servers" in manifest:
            raise ValueError(
                f"{source} is of a run with parameter servers, which keep their weights as arrays in .npz files: "
                "see docs/servers.md."
            )
        with ProgressBar(f"writing {out}"):
            write_weights(Checkpoint(source), out, averaged=ema)
        print(out)
        return
    if ema:
        raise ValueError(f"--ema is for weights alone, and OUT={out} is a folder. Give a .safetensors or .pt file.")
    if not trust_pickle:
        raise ValueError(
            f"OUT={out} is a folder, for a checkpoint of version 1. That holds a pickle: its author can run code "
            "on this machine. Add --trust-pickle if you trust them, or give a .safetensors or .pt file for weights."
        )
    with ProgressBar(f"writing {out}"):
        made = version_1.convert(source, out)
    print(made)
