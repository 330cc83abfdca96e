"""Evaluating runs: the trainer's own number, dense and multi-scale views as by hand, ensembles, files, mistakes."""

import csv
import json
import shutil
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn
from typer.testing import CliRunner

from augpipe import Loader, SampleError
from augpipe.cli.app import app
from augpipe.datasets.open import open_source
from augpipe.sources import Subset
from augpipe.trainer.checkpoint import Checkpoint
from augpipe.trainer.config import load_config
from augpipe.trainer.evaluation import TOGETHER, Comparison, Views, evaluate_runs
from augpipe.trainer.evaluation.files import write_files
from augpipe.trainer.evaluation.trained_run import TrainedRun
from augpipe.trainer.evaluation.views import whole_recipe
from augpipe.trainer.loop import Result, run
from augpipe.trainer.loop.data import evaluation_recipe
from tests.distributed.train_runs import config, network_of, write_photos

NUM = 21


@pytest.mark.slow
def test_by_default_it_is_the_trainers_own_number(trained: tuple[Path, Result]) -> None:
    out, result = trained
    assert result.evaluation is not None
    found = evaluate_runs(out)
    (one,) = found.results
    assert (one.step, one.weights, one.metrics.num_samples) == (result.step, "average", NUM)
    assert one.metrics.top1.value == result.evaluation.top1 and 0 < one.metrics.top1.value < 1
    assert one.metrics.top5.value == result.evaluation.top5
    assert one.metrics.loss == pytest.approx(result.evaluation.loss, rel=1e-6)
    assert found.classes == ("c0", "c1", "c2") and found.left_out == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    "views", [Views(scales=(18, 16, 25), flip=True, dense=True), Views(scales=(20,), crops=10), Views(scales=(19, 16))]
)
@torch.no_grad()
def test_views_are_averaged_as_by_hand(
    views: Views, trained: tuple[Path, Result], photos: Path, tmp_path: Path
) -> None:
    out, result = trained
    found = evaluate_runs(out, views)
    model: Any = network_of(out, f"step-{result.step:09}", "common/ema/module.")
    recipe = evaluation_recipe(load_config(out / "config.toml").data)
    source = open_source(photos)
    for number in range(NUM):
        with Image.open(source.name(number)) as image:
            height, width = image.height, image.width
        probabilities = []
        for scale in views.scales:
            size = (height * scale // min(height, width), width * scale // min(height, width))
            loader = Loader(Subset(source, [number]), whole_recipe(recipe, (size,)), batch_size=1)
            whole = next(iter(loader)).images
            top, left = round((size[0] - 16) / 2), round((size[1] - 16) / 2)
            places = [(top, left)]
            if views.crops == 10:
                places += [(i, j) for i in (0, size[0] - 16) for j in (0, size[1] - 16)]
            for seen in (whole, whole.flip(3)) if views.flip or views.crops == 10 else (whole,):
                if views.dense:
                    windows = model.features(seen).unfold(2, 2, 1).unfold(3, 2, 1)
                    answers = [
                        model.classifier(windows[:, :, i, j].amax((2, 3)))
                        for i in range(windows.shape[2])
                        for j in range(windows.shape[3])
                    ]
                    probabilities.append(torch.softmax(torch.stack(answers).mean(0), 1))
                else:
                    crops = [seen[:, :, i : i + 16, j : j + 16] for i, j in places]
                    probabilities += [torch.softmax(model(crop), 1) for crop in crops]
        assert len(probabilities) == views.num_views
        expected = torch.stack(probabilities).mean(0)[0]
        torch.testing.assert_close(torch.from_numpy(np.exp(found.log_probs[number])), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_little_memory_changes_batches_alone(trained: tuple[Path, Result]) -> None:
    views = Views(scales=(18, 25), flip=True, dense=True)
    wide, narrow = evaluate_runs(trained[0], views), evaluate_runs(trained[0], views, memory_mb=1)
    np.testing.assert_allclose(wide.log_probs, narrow.log_probs, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_an_ensemble_is_the_weighted_mean(trained: tuple[Path, Result], other: Path, photos: Path) -> None:
    first, second = evaluate_runs(trained[0]), evaluate_runs(other)
    found = evaluate_runs([trained[0], other], weights=[3, 1], source=photos)
    assert [one.name for one in found.results] == [str(trained[0]), str(other), TOGETHER]
    assert [one.weight for one in found.results] == [0.75, 0.25, 1.0]
    assert [one.weights for one in found.results] == ["average", "last", ""]
    expected = 0.75 * np.exp(first.log_probs) + 0.25 * np.exp(second.log_probs)
    np.testing.assert_allclose(np.exp(found.log_probs), expected, rtol=1e-5)
    for one, alone in zip(found.results, (first, second), strict=False):
        assert one.metrics.loss == alone.last.metrics.loss
    right = int((expected.argmax(1) == found.labels).sum())
    assert found.last.metrics.top1.num_right == right


def test_running_statistics_are_averaged_over_ranks() -> None:
    owns = [{"buffers": {"running_mean": torch.full((2,), value), "steps": torch.tensor(3)}} for value in (1.0, 4.0)]

    class OfThreeRanks(Checkpoint):
        def __init__(self) -> None:
            self.path = Path("checkpoint")

        def of_all_ranks(self, *, entries: Collection[str] | None = None) -> list[dict[str, Any]]:
            return [*owns, {}]

    found = OfThreeRanks().averaged_buffers("buffers")
    assert found.keys() == {"running_mean"} and found["running_mean"].tolist() == [2.5, 2.5]


@pytest.mark.slow
@pytest.mark.parametrize("views", [Views(), Views(scales=(18, 20), dense=True)])
def test_images_that_cannot_be_used(views: Views, trained: tuple[Path, Result], damaged: Path, photos: Path) -> None:
    with pytest.raises(SampleError, match=r"00[34]\.jpg"):
        evaluate_runs(trained[0], views, source=damaged)
    found = evaluate_runs(trained[0], views, source=damaged, on_error="skip")
    reasons = sorted(Path(text.partition(":")[0]).name for text in found.left_out.values())
    assert reasons == ["003.jpg", "004.jpg", "999.jpg"]
    assert not any("the only photograph" in text for text in found.left_out.values())
    sound = evaluate_runs(trained[0], views, source=photos)
    kept = [number for number, name in enumerate(sound.names) if Path(name).name not in reasons]
    assert [Path(name).name for name in found.names] == [Path(sound.names[number]).name for number in kept]
    np.testing.assert_allclose(found.log_probs, sound.log_probs[kept], rtol=1e-4, atol=1e-5)
    assert found.last.metrics.num_samples == NUM - 2


def test_the_files(trained: tuple[Path, Result], other: Path, tmp_path: Path) -> None:
    found = evaluate_runs([trained[0], other])
    paths = {path.name: path for path in write_files(found, tmp_path / "new" / "out")}
    data = json.loads(paths["evaluation.json"].read_text())
    assert [one["run"] for one in data["results"]] == [str(trained[0]), str(other), TOGETHER]
    last, metrics = data["results"][-1], found.last.metrics
    assert last["top1"]["value"] == metrics.top1.value and last["confusion"] == metrics.confusion.tolist()
    assert data["views"]["num_views"] == 1 and data["left_out"] == []
    tables = {
        name: list(csv.DictReader(path.read_text().splitlines()))
        for name, path in paths.items()
        if path.suffix == ".csv"
    }
    assert [float(row["top1"]) for row in tables["summary.csv"]] == pytest.approx(
        [one.metrics.top1.value for one in found.results], abs=1e-6
    )
    assert [row["class"] for row in tables["classes.csv"]] == ["c0", "c1", "c2"]
    assert sum(int(row["images"]) for row in tables["classes.csv"]) == NUM
    assert [[int(row[name]) for name in found.classes] for row in tables["confusion.csv"]] == metrics.confusion.tolist()
    right = [row["class"] == row["named"] for row in tables["predictions.csv"]]
    assert len(right) == NUM and sum(right) == metrics.top1.num_right
    assert right == [row["rank"] == "1" for row in tables["predictions.csv"]]


def fails(said: str, *arguments: Any, **options: Any) -> None:
    with pytest.raises(ValueError, match=said):
        evaluate_runs(*arguments, **options)


def test_mistakes_with_runs(trained: tuple[Path, Result], photos: Path, tmp_path: Path) -> None:
    out, _ = trained
    fails("runs is empty", [])
    fails("nowhere does not exist", tmp_path / "nowhere")
    fails("is not a training run: it has no config.toml", photos)
    (tmp_path / "begun").mkdir()
    shutil.copy(out / "config.toml", tmp_path / "begun")
    fails("begun has no checkpoint yet", tmp_path / "begun")
    fails(r"weights=\[1\] must be 2 numbers above 0", [out, out], weights=[1])
    fails(r"weights=\[1, 0\]", [out, out], weights=[1, 0])
    fails("on_error='ignore'", out, on_error="ignore")
    for scale, views in ((15, Views(scales=(15,))), (12, Views(scales=(16, 12), dense=True))):
        fails(f"{scale}.* below the network's least", out, views)


def test_answers_that_are_no_numbers_are_refused(trained: tuple[Path, Result], monkeypatch: pytest.MonkeyPatch) -> None:
    load = TrainedRun.load_network

    def diverged(self: TrainedRun) -> nn.Module:
        model = load(self)
        with torch.no_grad():
            next(model.parameters()).fill_(torch.nan)
        return model

    monkeypatch.setattr(TrainedRun, "load_network", diverged)
    fails(r"answers are not numbers \(nan\).*Remove .*step-000000012", trained[0])


class Nothing:
    """A source without images."""

    classes = ("c0", "c1", "c2")

    def __len__(self) -> int:
        return 0

    def read(self, sample_id: int) -> bytes:
        raise AssertionError

    def label(self, sample_id: int) -> int:
        raise AssertionError

    def name(self, sample_id: int) -> str:
        raise AssertionError


@pytest.mark.slow
def test_mistakes_with_sources(trained: tuple[Path, Result], tmp_path: Path) -> None:
    out, _ = trained
    two = write_photos(tmp_path, 4, 2)
    assert evaluate_runs(out, source=two).last.metrics.num_samples == 4  # of three classes, one of which is not there
    shutil.copytree(two / "c0", two / "c9")
    fails(r"was trained on 3 classes, and .* has 3 by other names .*'c9'", out, source=two)
    shutil.rmtree(two / "c9")
    (two / "c2").mkdir()
    shutil.copy(two / "c0/000.jpg", two / "c2")
    assert evaluate_runs(out, source=two).last.metrics.num_samples == 5
    (two / "c2").rename(two / "d")
    fails(r"has 3 by other names or in another order \('c0', 'c1', 'd'\)", out, source=two)
    (tmp_path / "folder").mkdir()
    fails("no photograph in .*folder", out, source=tmp_path / "folder")
    fails("the source is empty", out, source=Nothing())
    for name in ("c0/000.jpg", "c1/001.jpg", "c0/002.jpg", "c1/003.jpg", "d/000.jpg"):
        (two / name).write_bytes(b"no image")
    (two / "d").rename(two / "c2")
    for views in (Views(), Views(dense=True)):
        fails("none of 5 photographs can be used: .*not a picture", out, views, source=two, on_error="skip")


@pytest.mark.slow
def test_mistakes_with_ensembles(photos: Path, trained: tuple[Path, Result], tmp_path: Path) -> None:
    tables = {"report": {"tensorboard": False}, "epochs": 1, "max_steps": 1}
    two = write_photos(tmp_path, 8, 2)
    run(config(tmp_path / "two", two, **tables))
    fails("were trained on different classes: 3 and 2", [trained[0], tmp_path / "two"])
    fails("held nothing out of its training", tmp_path / "two")
    for seed in (1, 2):
        held = {"data": {"eval_fraction": 0.3}, "seed": seed}
        run(config(tmp_path / f"seed-{seed}", photos, **tables, **held))
    seeds = [tmp_path / f"seed-{seed}" for seed in (1, 2)]
    fails("held out different photographs", seeds)
    assert isinstance(evaluate_runs(seeds, source=photos), Comparison)


@pytest.mark.slow
def test_the_command(trained: tuple[Path, Result], damaged: Path, tmp_path: Path) -> None:
    out, result = trained
    assert result.evaluation is not None
    ended = CliRunner().invoke(app, ["evaluate", str(out), "--flip", "--scales", "16,20", "--out", str(tmp_path / "o")])
    assert ended.exit_code == 0, ended.output
    assert "centre at 16, 20 px, mirrored too" in ended.output and (tmp_path / "o/predictions.csv").is_file()
    plain = CliRunner().invoke(app, ["evaluate", str(out), "--json"])
    assert json.loads(plain.stdout)["results"][0]["top1"]["value"] == result.evaluation.top1
    bad = CliRunner().invoke(app, ["evaluate", str(out), "--source", str(damaged)])
    assert bad.exit_code == 1 and "Pass --on-error skip" in bad.output
    skipped = CliRunner().invoke(app, ["evaluate", str(out), "--source", str(damaged), "--on-error", "skip"])
    assert skipped.exit_code == 0 and skipped.output.count("augpipe: skipped") == 3
    alone = CliRunner().invoke(app, ["evaluate", str(out), "--compare"])
    assert alone.exit_code == 2 and "--compare takes two runs, and here are 1" in alone.output
    mistakes = {"--scales": ("a", "--scales a"), "--crops": ("3", "crops=3"), "--out": (__file__, "is a file")}
    for option, (value, said) in mistakes.items():
        ended = CliRunner().invoke(app, ["evaluate", str(out), option, value])
        assert ended.exit_code == 2 and said in ended.output, ended.output


@pytest.mark.slow
def test_the_command_compares(
    trained: tuple[Path, Result], other: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["evaluate", str(trained[0]), str(other), "--compare", "--out", str(tmp_path)]
    ended = CliRunner().invoke(app, arguments)
    assert ended.exit_code == 0, ended.output
    assert "McNemar's exact test: p = " in ended.output and "changes.csv, evaluation.html" in ended.output
    changes = json.loads((tmp_path / "evaluation.json").read_text())["changes"]
    counts = [
        changes["both_right"],
        changes["both_wrong"],
        *map(len, (changes["right_to_wrong"], changes["wrong_to_right"])),
    ]
    assert sum(counts) == NUM and counts[2] + counts[3] > 0
    for kind, key in (("right to wrong", "right_to_wrong"), ("wrong to right", "wrong_to_right")):
        assert all(f"{kind}: {name}" in ended.output for name in changes[key][:5])
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    (tmp_path / "evaluation.html").unlink()
    ended = CliRunner().invoke(app, arguments)
    assert (
        ended.exit_code == 0
        and 'no evaluation.html: the page needs matplotlib: pip install "augpipe[plots]"' in ended.output
    )
    assert (tmp_path / "changes.csv").is_file() and not (tmp_path / "evaluation.html").exists()


def test_the_loss_is_torchs(trained: tuple[Path, Result]) -> None:
    found = evaluate_runs(trained[0])
    expected = F.nll_loss(torch.from_numpy(found.log_probs), torch.from_numpy(found.labels))
    assert found.last.metrics.loss == pytest.approx(float(expected), rel=1e-5)
