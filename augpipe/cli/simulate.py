"""`augpipe simulate`: what a cluster would do with a run's network, batch and strategy."""

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from augpipe.cli.common import JsonOption, print_json


def simulate(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="TOML file of the run.", show_default=False)],
    card: Annotated[
        str, typer.Option(metavar="CARD", help="The cluster: bsc, minwa, nvlink-8, throttled-..., or a TOML file.")
    ] = "minwa",
    ranks: Annotated[
        str | None,
        typer.Option(
            metavar="K,K,...",
            help="Numbers of ranks; with parameter servers, of workers.",
            show_default="of 1,2,4,8,16,32,64 the multiples of parallel.model",
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FIELD=VALUE", help="Override a field of CONFIG, as sync.strategy=lazy."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Draw scaling.png, and timeline.png of one step.", show_default=False),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Predict a run on a cluster: time, waiting, efficiency, bytes and memory of a rank, for each number of ranks.

    Nothing is trained and no image is read: the exchanges of a real run are simulated under a virtual clock, with
    the rates of a card, which describes a cluster. Each rank has the config's batch.
    """
    from augpipe.trainer.launch import check_config, load_torch

    check_config(str(config))
    numbers = None if ranks is None else _numbers(ranks)
    load_torch("simulating")
    from augpipe.reports.progress_bar import ProgressBar
    from augpipe.trainer.config.load import load_config
    from augpipe.trainer.simulate.cluster_card import load_card
    from augpipe.trainer.simulate.prediction import predict, subject_of, table

    run, cluster = load_config(config, overrides or ()), load_card(card)
    if numbers is None:
        numbers = [2**power for power in range(7) if 2**power % run.parallel.model == 0] or [run.parallel.model]
    if run.servers.mode != "off":
        _print_servers(run, cluster, numbers, out, json)
        return
    with ProgressBar("simulating", unit="cluster") as bar:
        found = predict(subject_of(run, cluster), cluster, numbers, bar.update)
    title = f"{run.model.name}, {run.sync.strategy}, {run.sync.codec}"
    if run.parallel.model > 1:
        title += f", layers split among {run.parallel.model}"
    _print(f"{title}, {run.data.batch_size} images a rank, on {cluster.title}", found, table(found).text(), json)
    if out is None:
        return
    from augpipe.trainer.simulate.draw import write_scaling, write_timeline

    out.mkdir(parents=True, exist_ok=True)
    files = [write_scaling(found, title, out / "scaling.png")]
    several = [one for one in found if one.played is not None]
    if several:
        last = several[-1]
        assert last.played is not None
        files.append(write_timeline(last.played, f"{title}, {last.ranks} ranks", out / "timeline.png"))
    if not json:
        print("\n".join(map(str, files)))


def _print_servers(run: Any, cluster: Any, workers: list[int], out: Path | None, json: bool) -> None:
    """The table of a run with parameter servers, by workers."""
    from augpipe.reports.progress_bar import ProgressBar
    from augpipe.trainer.simulate.server_prediction import predict_servers, server_subject, server_table

    if out is not None:
        raise ValueError("--out draws ranks that agree, and servers.mode is on. Leave --out out.")
    wanted = run.servers
    with ProgressBar("simulating", unit="cluster") as bar:
        found = predict_servers(server_subject(run, cluster), workers, bar.update)
    servers = f"{wanted.servers} {'server' if wanted.servers == 1 else 'servers'}, {wanted.mode}, {wanted.codec}"
    title = f"{run.model.name}, {servers}, {run.data.batch_size} images a process, on {cluster.title}"
    _print(title, found, server_table(found).text(), json)


def _print(title: str, found: Sequence[Any], table: str, as_json: bool) -> None:
    """The table; as JSON the fields of each prediction, in their own units."""
    if as_json:
        rows = [
            {field.name: getattr(one, field.name) for field in fields(one) if field.name != "played"}
            | {"efficiency": one.efficiency}
            for one in found
        ]
        print_json({"title": title, "predictions": rows})
    else:
        print(f"{title}\n{table}")


def _numbers(text: str) -> list[int]:
    parts = text.split(",")
    if not all(part.strip().isdecimal() and int(part) for part in parts):
        raise ValueError(f"--ranks {text} must be whole numbers from 1 on with commas between: --ranks 1,2,4,8.")
    return sorted({int(part) for part in parts})
