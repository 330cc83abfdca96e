"""The demo's last step: two ranks train on the sample images, and must reach a stated accuracy."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from augpipe.cli.common import say
from augpipe.cli.exit_codes import Failure
from augpipe.validation.plural import count

_CONFIG = Path(__file__).with_name("demo_training.toml").read_text(encoding="utf-8")
_TOLD = tomllib.loads(_CONFIG)
NUM_RANKS = 2
EPOCHS: int = _TOLD["epochs"]
WARMUP_SHARE: float = _TOLD["schedule"]["warmup_epochs"] / EPOCHS
EVAL_FRACTION: float = _TOLD["data"]["eval_fraction"]
SIZE_PX: int = _TOLD["data"]["eval_scale"]
SCALES_PX = (96, 112, 128)
BATCH_SIZE: int = _TOLD["data"]["batch_size"]
STATED_ACCURACY = 0.4
"""The share of the held-out images that must be right, with as many as the demo draws by default."""
_OWN_END_S, _END_S = 10.0, 40.0
"""For torchrun to end by itself after Ctrl-C, and when told to: ranks finish a step and write a checkpoint."""

_MODEL = 'name = "small-cnn"\n'
_SPLIT = """\
options = { fc_widths = [512, 512] }  # fully connected layers that are worth splitting

[parallel]  # each rank holds its part of them; features and their error deltas travel in 8 bits
"""
PARALLEL = {"model": 1, "activations": "dynamic-tree", "deltas": "dynamic-tree"}
"""What the `[parallel]` table has of its own, in addition to what the user asks for."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of the training."""

    accuracy: float
    """Share of the held-out images whose class the network names rightly, after the last epoch."""
    sent_mb: float
    """By a rank in a step, in MB."""
    features_mb: float
    """What of it are activations and deltas of split layers."""


def parallel_table(settings: Sequence[str]) -> dict[str, Any]:
    """The `[parallel]` table of the training, of settings like "model=2"; empty where there are none.

    Raises:
        ValueError: a setting is none, or does not suit the demo's ranks; says what to write instead.
    """
    from augpipe.trainer.config import make_config
    from augpipe.trainer.config.tables import ParallelConfig

    if not settings:
        return {}
    fields = list(ParallelConfig.model_fields)
    for setting in settings:
        name, equals, _ = setting.partition("=")
        if not equals or name not in fields:
            raise ValueError(
                f"--parallel {setting}: write FIELD=VALUE, as in --parallel model=2. Fields are {', '.join(fields)}."
            )
    data = {"data": {"source": "photos"}, "parallel": PARALLEL}
    config = make_config(data, [f"parallel.{setting}" for setting in settings], name="--parallel").parallel
    if NUM_RANKS % config.model:
        raise ValueError(
            f"--parallel model={config.model} does not divide the demo's {NUM_RANKS} ranks. Write --parallel model=2, "
            "or 1 to split nothing; with more ranks, run training.toml by torchrun."
        )
    return config.model_dump(exclude_unset=True)


def train_step(
    photos: Path,
    out: Path,
    *,
    num: int,
    classes: int,
    states_accuracy: bool,
    parallel: Mapping[str, Any] | None = None,
) -> dict[Path, str]:
    """Train two ranks on `photos`, draw the curves, and check that they reached the stated accuracy.

    Args:
        photos: the sample dataset of `num` images in `classes` classes.
        out: where training.toml, recipe.toml and the run's folder, run/, go; a run that is there already is removed.
        states_accuracy: whether it is an error if STATED_ACCURACY is not beaten; with fewer images it need not be.
        parallel: the `[parallel]` table: how fully connected layers, which the network has then, are split.

    Returns:
        The files to look at, and what each shows; none where torch or matplotlib is not installed, which is said.

    Raises:
        Failure: training failed, or the stated accuracy was not beaten.
    """
    if find_spec("torch") is None:
        say('6. Training is left out, as it needs torch: pip install "augpipe[torch]"')
        return {}
    num_held = round(num * EVAL_FRACTION)
    config, run = out / "training.toml", out / "run"
    how = "split layers, " if parallel and parallel["model"] > 1 else ""
    say(f"6. Two ranks (processes) train a small network, with {how}lazy updates and 8-bit gradients: {config}")
    passes = count(EPOCHS, "epoch")
    say(f"   {count(num - num_held, 'photograph')}, augmented differently in each of {passes}; {num_held:,} held out")
    write_config(config, photos, run, num=num, parallel=parallel)
    if run.exists():
        shutil.rmtree(run)
    _run_ranks(config)
    outcome = read_outcome(run)
    drawn = _draw(run)
    chance = f"by chance: {1 / classes:.0%}"
    features = f", {outcome.features_mb:.3f} MB of it features and deltas of split layers" if how else ""
    say(f"   Each rank sent {outcome.sent_mb:.2f} MB a step{features}")
    if not states_accuracy:
        say(f"   Held-out photographs: {outcome.accuracy:.1%} right ({chance}; with so few, no more is stated)")
        return drawn
    if outcome.accuracy <= STATED_ACCURACY:
        raise Failure(
            f"{outcome.accuracy:.1%} of the held-out photographs were classified correctly, and the demo promises "
            f"more than {STATED_ACCURACY:.0%} ({chance}): training does not work here as it should. See "
            f"{run / 'metrics.csv'}."
        )
    say(f"   Held-out photographs: {outcome.accuracy:.1%} right (stated: more than {STATED_ACCURACY:.0%}; {chance})")
    return drawn


def write_config(path: Path, photos: Path, run: Path, *, num: int, parallel: Mapping[str, Any] | None = None) -> None:
    """Write the run's config, and the recipe that it names next to it."""
    import tomli_w

    from augpipe import Recipe
    from augpipe.ops import ColorCast, Flip, MultiResolutionCrop, Normalize

    recipe = path.with_name("recipe.toml")
    ops = (ColorCast(), Flip(), MultiResolutionCrop(size=SIZE_PX, scales=SCALES_PX), Normalize())
    Recipe(name="demo", ops=ops).dump(recipe)
    num_trained = num - round(num * EVAL_FRACTION)
    text = _CONFIG.replace("demo/training.toml", shlex.quote(str(path)))
    text = text.replace("out=demo/run-2", shlex.quote(f"out={run.with_name('run-2')}"))
    values = {
        "out": _quoted(run),
        "epochs": EPOCHS,
        "source": _quoted(photos),
        "recipe": _quoted(recipe),
        "batch_size": max(1, min(BATCH_SIZE, num_trained // NUM_RANKS)),  # few images still make a batch
        "warmup_epochs": round(EPOCHS * WARMUP_SHARE, 3),
    }
    for name, value in values.items():
        there = re.search(rf"^{name} = (\S+)", text, re.MULTILINE)
        assert there is not None
        text = f"{text[: there.start(1)]}{value}{text[there.end(1) :]}"
    if parallel:
        text = text.replace(_MODEL, f"{_MODEL}{_SPLIT}{tomli_w.dumps(dict(parallel))}")
    path.write_text(text, encoding="utf-8")


def read_outcome(run: Path) -> Outcome:
    """From metrics.csv of a run that has ended.

    Raises:
        Failure: nothing was evaluated.
    """
    from augpipe.trainer.report.metrics import read_rows

    rows = read_rows(run / "metrics.csv")
    held_out = [float(row["eval_top1"]) for row in rows if row["eval_top1"]]
    if not held_out:
        raise Failure(f"{run / 'metrics.csv'} has no evaluation in it: training ended before its first epoch did.")
    last: dict[str, float] = {}
    for row in rows:
        last |= {name: float(row[name]) for name in ("sent_mb", "activations_mb") if row[name]}
    sent_mb, features_mb = (last.get(name, 0.0) for name in ("sent_mb", "activations_mb"))
    return Outcome(accuracy=held_out[-1], sent_mb=sent_mb, features_mb=features_mb)


def _run_ranks(config: Path) -> None:
    """By torchrun, on a free port; rank 0 shows how it goes on."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={NUM_RANKS}"]
    command += ["-m", "augpipe.trainer", str(config)]
    # threads of torch's own would fight over cores that the ranks and their loaders fill
    process = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"})
    try:
        code = process.wait()
    except BaseException:
        _end(process)
        raise
    if code != 0:
        raise Failure(f"training ended with exit code {code}; what went wrong stands above.")


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Wait for torchrun, which ends its ranks on the Ctrl-C that it heard too; killed at once, it would leave them."""
    try:
        process.wait(_OWN_END_S)
    except subprocess.TimeoutExpired:
        process.terminate()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _draw(run: Path) -> dict[Path, str]:
    from augpipe.trainer.report.curves import write_curves
    from augpipe.trainer.report.page import write_page

    try:
        curves = write_curves(run / "metrics.csv", run / "curves.png")
    except ImportError as error:
        say(f"   No curves: {error}")
        return {}
    page = write_page(run, curves)
    return {curves: "loss and accuracy", page: "the same on a page, with the config"}


def _quoted(path: Path) -> str:
    return json.dumps(str(path), ensure_ascii=False)  # a JSON string is a TOML string as well
