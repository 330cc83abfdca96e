"""Robustness: a point is what a plain loop counts, draws are the same at all strengths, and where curves end."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from augpipe import Loader, Recipe, ops, plan, recipes
from augpipe.cli.app import app
from augpipe.datasets.open import open_source
from augpipe.ops.strength import at_strength
from augpipe.trainer.config import load_config
from augpipe.trainer.evaluation import robustness_of, wilson
from augpipe.trainer.evaluation.plots import curves_png
from augpipe.trainer.evaluation.predict import Answers, predict
from augpipe.trainer.evaluation.robustness import USUAL, Curve, Point, Robustness, ops_of, with_op
from augpipe.trainer.loop import Result
from augpipe.trainer.loop.data import evaluation_recipe
from tests.distributed.train_runs import network_of

NUM = 21
BENT = Recipe(name="bent", ops=(ops.ColorCast(max_shift=200, step=None, p=0.1), ops.LensDistortion(kinds=("barrel",))))


@pytest.mark.slow
@torch.no_grad()
def test_points_are_a_plain_loops(
    trained: tuple[Path, Result], other: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, result = trained
    answers = []

    def noting(*arguments: Any, **options: Any) -> Answers:
        answers.append(predict(*arguments, **options))
        return answers[-1]

    monkeypatch.setattr("augpipe.trainer.evaluation.robustness.predict", noting)
    found = robustness_of([out, other], BENT, strengths=(1.5, 0, 1), source=photos)
    assert found.strengths == (0.0, 1.0, 1.5) and found.recipe == "bent"
    names = ("color_cast", "lens barrel")
    assert [(curve.op, curve.run) for curve in found.curves] == [(op, str(one)) for op in names for one in (out, other)]
    for curve in found.curves:  # a shift of 300 levels and a lens of 0.39 are too much
        assert [point.strength for point in curve.points] == [0.0, 1.0]
    assert len(answers) == 2 * 3  # one without an op serves both curves of a run
    model = network_of(out, f"step-{result.step:09}", "common/ema/module.")
    crop, *others = evaluation_recipe(load_config(out / "config.toml").data).ops
    shares = []
    for more, answer in zip(((), (ops.ColorCast(max_shift=200, step=None),), BENT.ops[1:]), answers, strict=False):
        loader = Loader(open_source(photos), Recipe(ops=(crop, *more, *others)), batch_size=NUM, shuffle=False)
        images, labels = next(iter(loader))
        logits = model(images)
        torch.testing.assert_close(torch.from_numpy(answer.log_probs), logits.log_softmax(1), rtol=1e-4, atol=1e-5)
        shares.append(wilson(int((logits.argmax(1) == labels).sum()), NUM))
    assert [point.top1 for point in found.curves[0].points] == [shares[0], shares[1]]
    assert [point.top1 for point in found.curves[2].points] == [shares[0], shares[2]]
    assert np.abs(answers[0].log_probs - answers[1].log_probs).max() > 0.01


def test_draws_are_the_same_at_all_strengths() -> None:
    evaluation = recipes.evaluation(16, 20)
    op = ops_of(Recipe(ops=(ops.Rotate(p=0.3),)))["rotate"]
    rows = [
        plan(with_op(evaluation, at_strength(op, strength)), range(50), sizes=[(24, 28)] * 50).rows["drawn"]["rotate"]
        for strength in (0.5, 1.0, 2.0)
    ]
    degrees = [one["degrees"] for one in rows]
    np.testing.assert_allclose(degrees[0] * 2, degrees[1])
    np.testing.assert_allclose(degrees[2], degrees[1] * 2)
    assert (degrees[1] != 0).all()  # every image, whatever the recipe's p


def test_which_ops_are_looked_at() -> None:
    recipe = Recipe(
        ops=(
            ops.OneOf(ops=(ops.Zoom(), ops.Flip(), ops.Zoom(factor=(0.5, 1.0)), ops.Zoom(p=0.2))),
            ops.LensDistortion(),
            ops.CenterCrop(size=8),
        )
    )
    kinds = ("barrel", "pincushion", "stretch_horizontal", "stretch_vertical")
    assert list(ops_of(recipe)) == ["zoom", "zoom #2", *(f"lens {kind}" for kind in kinds)]
    assert len(ops_of(USUAL)) == 12
    assert list(ops_of(recipes.deep_image(16, (20,))))[:2] == ["color_cast", "vignette"]


def test_the_evaluations_own_ops_stay() -> None:
    evaluation = Recipe(ops=(ops.CenterCrop(size=8), ops.Normalize()), border="reflect")
    made = with_op(evaluation, ops.Rotate())
    assert made.all_views[0].ops == (ops.CenterCrop(size=8), ops.Rotate(), ops.Normalize()) and made.border == "reflect"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"strengths": (1, -1)}, r"strengths=\[1, -1\] must be numbers in 0..100, each once"),
        ({"strengths": (1, 1.0)}, "each once"),
        ({"strengths": ()}, r"strengths=\[\]"),
        (
            {"recipe": recipes.evaluation()},
            "recipe evaluation has no op with a strength. Those that have one: blur",
        ),
        ({"on_error": "ignore"}, "on_error='ignore'"),
    ],
)
def test_mistakes(arguments: dict[str, Any], said: str, trained: tuple[Path, Result]) -> None:
    with pytest.raises(ValueError, match=said):
        robustness_of(trained[0], **arguments)
    with pytest.raises(ValueError, match="runs is empty"):
        robustness_of([])


@pytest.mark.slow
def test_the_plot_has_a_panel_an_op() -> None:
    """For any number of ops and runs; the numbers are looked at by eye."""
    points = (Point(strength=0.0, top1=wilson(9, 10)), Point(strength=2.0, top1=wilson(1, 10)))
    for num in (1, 5):
        curves = [Curve(run=run, op=f"op {op}", draws="", points=points) for op in range(num) for run in ("$a$", "b")]
        assert curves_png(Robustness(recipe="_x_$", strengths=(0.0, 2.0), curves=tuple(curves))).startswith(b"\x89PNG")


@pytest.mark.slow
def test_the_command(trained: tuple[Path, Result], other: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "bent.toml"
    BENT.dump(recipe)
    runs = [str(trained[0]), str(other)]
    options = ["--robustness", str(recipe), "--strengths", "0,0.5,1.5", "--out", str(tmp_path / "out")]
    ended = CliRunner().invoke(app, ["evaluate", *runs, *options])
    assert ended.exit_code == 0, ended.output
    assert "top-1, %, by strength of bent" in ended.output and "robustness.csv, evaluation.html" in ended.output
    rows = list(csv.DictReader((tmp_path / "out/robustness.csv").read_text().splitlines()))
    curves = json.loads((tmp_path / "out/evaluation.json").read_text())["robustness"]["curves"]
    assert [(row["op"], row["run"], float(row["strength"]), float(row["top1"])) for row in rows] == [
        (curve["op"], curve["run"], point["strength"], pytest.approx(point["top1"]["value"], abs=1e-6))
        for curve in curves
        for point in curve["points"]
    ]
    assert len(curves) == 4 and {row["images"] for row in rows} == {str(NUM)}
    page = (tmp_path / "out/evaluation.html").read_text()
    assert "by the strength of each op of bent" in page and len(re.findall("one of 65 strengths", page)) == 1
    alone = CliRunner().invoke(app, ["evaluate", *runs, "--strengths", "1"])
    assert alone.exit_code == 2 and "--strengths goes with --robustness" in alone.output
    flipped = CliRunner().invoke(app, ["evaluate", *runs, "--robustness", "usual", "--flip"])
    assert flipped.exit_code == 2 and "--robustness shows the centre" in flipped.output
    unknown = CliRunner().invoke(app, ["evaluate", *runs, "--robustness", "usuel"])
    assert unknown.exit_code == 2 and "there is no recipe 'usuel'" in unknown.output
