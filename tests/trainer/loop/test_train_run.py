"""Runs of one rank in this process: checkpoints that are damaged or cannot be written, NaN, precision, reports."""

import errno
import logging
import math
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from typer.testing import CliRunner

from augpipe.cli.app import app
from augpipe.trainer.checkpoint import DamagedError, Saver
from augpipe.trainer.checkpoint.save import Copied
from augpipe.trainer.config import to_toml
from augpipe.trainer.evaluation import evaluate_runs
from augpipe.trainer.loop import NotFiniteError, SaveError, run, training
from augpipe.trainer.loop.evaluate import evaluate
from augpipe.trainer.loop.run_log import RunLog
from augpipe.trainer.loop.training import Training
from augpipe.trainer.loop.world import open_world
from augpipe.trainer.optim.schedule import Plateau
from augpipe.trainer.report.metrics import read_rows
from tests.distributed.train_runs import checkpoints, config, contents, write_photos


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_photos(tmp_path_factory.mktemp("data"), 20)


@pytest.fixture(scope="module")
def finished(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two epochs of five steps, with a checkpoint after each epoch."""
    out = tmp_path_factory.mktemp("finished") / "run"
    result = run(config(out, photos, data={"eval_source": str(photos)}, optim={"lr": 0.02}))
    assert result.step == 10 and result.signal is None and result.evaluation is not None
    assert result.evaluation.num_samples == 20 and result.evaluation.top5 == 1.0
    return out


def weights(out: Path, name: str) -> dict[str, torch.Tensor]:
    return {key: value for key, value in contents(out, name).items() if key.startswith("common/model")}


def test_the_folder_of_a_run(finished: Path) -> None:
    assert {path.name for path in finished.iterdir()} >= {"config.toml", "metrics.csv", "checkpoints"}
    assert checkpoints(finished) == ["step-000000005", "step-000000010"]
    rows = read_rows(finished / "metrics.csv")
    assert [int(row["step"]) for row in rows if row["loss"]] == list(range(1, 11))
    assert [int(row["step"]) for row in rows if row["eval_loss"]] == [5, 10]


def test_the_steps_since_the_last_row_get_one_at_the_end(finished: Path, photos: Path, tmp_path: Path) -> None:
    every = [float(row["loss"]) for row in read_rows(finished / "metrics.csv") if row["loss"]]
    run(config(tmp_path / "run", photos, optim={"lr": 0.02}, report={"log_every": 4}))
    rows = read_rows(tmp_path / "run" / "metrics.csv")
    assert [int(row["step"]) for row in rows] == [4, 8, 10]
    means = [sum(every[first:last]) / (last - first) for first, last in ((0, 4), (4, 8), (8, 10))]
    assert [float(row["loss"]) for row in rows] == pytest.approx(means, rel=1e-4)
    run(config(tmp_path / "short", photos, optim={"lr": 0.02}, report={"log_every": 4}, max_steps=3))
    assert [int(row["step"]) for row in read_rows(tmp_path / "short" / "metrics.csv")] == [3]


def test_the_average_is_what_is_evaluated(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, torch.Tensor]] = []

    def noting(config: Any, world: Any, model: torch.nn.Module, loader: Any) -> Any:
        seen.append({name: value.clone() for name, value in model.named_parameters()})
        return evaluate(config, world, model, loader)

    monkeypatch.setattr("augpipe.trainer.loop.training.evaluate", noting)
    tables = {"data": {"eval_source": str(photos)}, "ema": {"decay": 0.9, "every": 1}, "epochs": 1}
    run(config(tmp_path / "run", photos, **tables))
    saved = contents(tmp_path / "run", "step-000000005")
    (found,) = seen
    for name, value in found.items():
        assert torch.equal(value, saved[f"common/ema/module.{name}"]), name
        assert not torch.equal(value, saved[f"common/model/{name}"]), name


@pytest.mark.parametrize("resumes", [False, True])
def test_an_average_that_was_never_updated_is_not_evaluated(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, resumes: bool
) -> None:
    """It holds the weights that the network was made with: those after the last step are looked at, and it is said."""
    caplog.set_level("INFO")
    held: dict[str, Any] = {"data": {"eval_source": str(photos)}}
    if resumes:
        run(config(tmp_path / "run", photos, epochs=1, **held))
    seen: list[dict[str, torch.Tensor]] = []

    def noting(config: Any, world: Any, model: torch.nn.Module, loader: Any) -> Any:
        seen.append({name: value.clone() for name, value in model.named_parameters()})
        return evaluate(config, world, model, loader)

    monkeypatch.setattr("augpipe.trainer.loop.training.evaluate", noting)
    done = 10 if resumes else 5
    result = run(config(tmp_path / "run", photos, epochs=done // 5, ema={"decay": 0.9, "every": 20}, **held))
    saved = contents(tmp_path / "run", f"step-{done:09}")
    (found,) = seen
    for name, value in found.items():
        assert torch.equal(value, saved[f"common/model/{name}"]), name
    assert "the average of the weights has no update yet" in caplog.text
    assert "the loss has not fallen" not in caplog.text  # there is no plateau schedule
    (one,) = evaluate_runs(tmp_path / "run").results
    assert result.evaluation is not None
    assert (one.weights, one.metrics.top1.value) == ("last", result.evaluation.top1)
    assert one.metrics.loss == pytest.approx(result.evaluation.loss, rel=1e-6)


def test_an_average_begins_with_the_weights_of_the_run_that_it_goes_on_with(photos: Path, tmp_path: Path) -> None:
    run(config(tmp_path / "run", photos, max_steps=5))
    before = contents(tmp_path / "run", "step-000000005")
    run(config(tmp_path / "run", photos, max_steps=6, ema={"decay": 0.9, "every": 20}))
    after = contents(tmp_path / "run", "step-000000006")
    names = [name for name in after if name.startswith("common/ema/module.")]
    assert names
    for name in names:
        assert torch.equal(after[name], before[name.replace("ema/module.", "model/")]), name


def test_a_rank_s_torch_draws_from_another_stream_than_the_first_weights(photos: Path, tmp_path: Path) -> None:
    run(config(tmp_path / "run", photos, seed=3, max_steps=1))
    assert torch.initial_seed() != 3


def test_checkpoints_at_the_ends_of_some_epochs(photos: Path, tmp_path: Path) -> None:
    run(config(tmp_path / "run", photos, epochs=3, checkpoint={"every_epochs": 2}))
    assert checkpoints(tmp_path / "run") == ["step-000000010", "step-000000015"]
    run(config(tmp_path / "none", photos, epochs=2, checkpoint={"every_epochs": 0}))
    assert checkpoints(tmp_path / "none") == ["step-000000010"]  # the run's last


def test_the_bar_counts_updates_and_not_batches(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = []
    monkeypatch.setattr(RunLog, "begin_epoch", lambda self, *numbers: begun.append(numbers))
    for max_steps in (1, 6):  # five batches an epoch: two, two and one
        run(config(tmp_path / "run", photos, max_steps=max_steps, optim={"lr": 0.02, "accumulate": 2}))
    assert begun == [(0, 0, 3), (0, 1, 3), (1, 0, 3)]


def test_each_checkpoint_is_written_once(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the last epoch is the run's last, also while it is still under way."""
    steps, save = [], Saver.save

    def noting(self: Saver, step: int, *parts: Any) -> None:
        steps.append(step)
        save(self, step, *parts)

    monkeypatch.setattr(Saver, "save", noting)
    run(config(tmp_path / "run", photos))
    assert steps == [5, 10]


def test_a_finished_run_is_not_run_again(finished: Path, photos: Path, tmp_path: Path) -> None:
    out = shutil.copytree(finished, tmp_path / "run")
    assert run(config(out, photos, data={"eval_source": str(photos)}, optim={"lr": 0.02})).step == 10
    assert checkpoints(out) == checkpoints(finished)


@pytest.mark.parametrize("damage", ["cut short", "bit flipped", "missing", "no manifest", "values"])
def test_a_damaged_checkpoint_is_refused_and_the_one_before_used(
    finished: Path, photos: Path, tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    out = shutil.copytree(finished, tmp_path / "run")
    newest = out / "checkpoints" / "step-000000010"
    name = {"no manifest": "manifest.json", "values": "rank0.json"}.get(damage, "rank0.safetensors")
    data = bytearray((newest / name).read_bytes())
    if damage in ("missing", "no manifest"):
        (newest / name).unlink()
    elif damage == "cut short":
        (newest / name).write_bytes(data[:-1])
    else:
        data[len(data) // 2] ^= 4
        (newest / name).write_bytes(data)
    with caplog.at_level(logging.WARNING, "augpipe.trainer"):
        assert run(config(out, photos, data={"eval_source": str(photos)}, optim={"lr": 0.02})).step == 10
    (said,) = [text for text in caplog.messages if "refused" in text]
    assert "checkpoint step-000000010 is refused" in said and name in said
    now, before = (weights(folder, "step-000000010") for folder in (out, finished))
    assert all(torch.equal(now[key], before[key]) for key in before)


def test_no_whole_checkpoint_is_an_error(finished: Path, photos: Path, tmp_path: Path) -> None:
    out = shutil.copytree(finished, tmp_path / "run")
    for path in out.glob("checkpoints/*/rank0.safetensors"):
        path.write_bytes(b"")
    with pytest.raises(DamagedError, match=r"none of the 2 checkpoints in .* is whole: .*cut short\?"):
        run(config(out, photos))


def full_disk(monkeypatch: pytest.MonkeyPatch, at_step: int) -> None:
    write = Copied.write

    def failing(self: Copied, folder: Path) -> dict[str, Any]:
        if folder.name == f"step-{at_step:09}.tmp":
            raise OSError(errno.ENOSPC, "No space left on device", str(folder))
        return write(self, folder)

    monkeypatch.setattr(Copied, "write", failing)


def test_checkpoints_are_not_part_of_the_pace(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that goes on in checkpoints and between its readings: 1000 s each, and 1 s."""
    now = 0.0

    def read() -> float:
        nonlocal now
        now += 1
        return now

    save = Training._save

    def saved(self: Training) -> None:
        nonlocal now
        now += 1000
        save(self)

    monkeypatch.setattr(training, "time", SimpleNamespace(perf_counter=read))
    monkeypatch.setattr(Training, "_save", saved)
    out = tmp_path / "run"
    run(config(out, photos, checkpoint={"every_steps": 2, "keep": 9}, report={"log_every": 1}))
    assert len(checkpoints(out)) == 6
    trained = [row for row in read_rows(out / "metrics.csv") if row["loss"]]
    assert [float(row["seconds"]) for row in trained] == list(range(1, 11))
    assert min(float(row["images_per_s"]) for row in trained) > 1


def test_a_full_disk_does_not_end_a_run(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    full_disk(monkeypatch, 5)
    out = tmp_path / "run"
    with caplog.at_level(logging.ERROR, "augpipe.trainer"):
        assert run(config(out, photos, checkpoint={"every_steps": 2, "keep": 9})).step == 10
    (said,) = [text for text in caplog.messages if "was not written" in text]
    assert said.startswith("the checkpoint after step 5 was not written: rank 0: No space left on device (")
    assert said.endswith("The one after step 4 stays valid.")
    assert checkpoints(out) == [f"step-{step:09}" for step in (2, 4, 6, 8, 10)]


def test_a_full_disk_ends_a_run_that_wants_it(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full_disk(monkeypatch, 4)
    options = {"every_steps": 2, "on_failure": "stop", "asynchronous": False}
    with pytest.raises(SaveError, match=r"The last checkpoint is the one after step 2\. Free some room"):
        run(config(tmp_path / "run", photos, checkpoint=options))
    assert checkpoints(tmp_path / "run") == ["step-000000002"]


def test_a_run_whose_last_checkpoint_is_lost_has_not_succeeded(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full_disk(monkeypatch, 10)
    with pytest.raises(SaveError, match=r"ends after step 10, .* The last one is that after step 5\. Free some room"):
        run(config(tmp_path / "run", photos))
    assert checkpoints(tmp_path / "run") == ["step-000000005"]


def nan_in_call(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    calls = []

    def cross_entropy(*arguments: Any, **options: Any) -> torch.Tensor:
        calls.append(1)
        loss: torch.Tensor = F.cross_entropy(*arguments, **options, reduction="none")
        return loss * math.nan if len(calls) == number else loss

    monkeypatch.setattr("augpipe.trainer.loop.step.cross_entropy", cross_entropy)


def test_a_loss_that_is_nan_stops_the_run(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nan_in_call(monkeypatch, 5)
    options = {"checkpoint": {"every_steps": 1, "keep": 9}, "optim": {"lr": 0.02}}
    with pytest.raises(NotFiniteError, match=r"in step 5 .* The last checkpoint is the one after step 4\. Lower"):
        run(config(tmp_path / "run", photos, **options))
    assert checkpoints(tmp_path / "run") == [f"step-{step:09}" for step in range(1, 5)]


def test_a_loss_that_is_nan_can_be_left_out(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nan_in_call(monkeypatch, 5)
    tables = {"faults": {"on_nan": "skip"}, "ema": {"decay": 0.5, "every": 1}}
    assert run(config(tmp_path / "run", photos, **tables)).step == 10
    assert read_rows(tmp_path / "run" / "metrics.csv")[-1]["skipped"] == "1"
    last = weights(tmp_path / "run", "step-000000010")
    assert all(bool(torch.isfinite(value.float()).all()) for value in last.values())
    num_averaged = contents(tmp_path / "run", "step-000000010")["common/ema/n_averaged"]
    assert int(num_averaged) == 9  # a step that moved nothing is none for the average either


def test_the_rate_falls_at_the_ends_of_whole_epochs_and_stays_so_in_a_resumed_run(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that ends within an epoch evaluates too, and once more at the epoch's end, when it goes on."""

    def halving(self: Plateau, loss: float) -> bool:
        self.factor *= 0.5
        return True

    monkeypatch.setattr(Plateau, "update", halving)
    tables = {"schedule": {"name": "plateau"}, "data": {"eval_source": str(photos), "batch_size": 10}, "epochs": 3}
    for max_steps in (3, 6):
        run(config(tmp_path / "run", photos, max_steps=max_steps, optim={"lr": 0.08}, **tables))
    rows = read_rows(tmp_path / "run" / "metrics.csv")
    assert [int(row["step"]) for row in rows if row["eval_loss"]] == [2, 3, 4, 6]
    assert [float(row["lr"]) for row in rows if row["lr"]] == [0.08, 0.08, 0.04, 0.04, 0.02, 0.02]


@pytest.mark.parametrize("amp", ["bf16", "fp16"])
def test_mixed_precision_learns(photos: Path, tmp_path: Path, amp: str) -> None:
    settings = {"optim": {"amp": amp, "lr": 0.05}, "model": {"channels_last": True}, "max_steps": 6, "epochs": 3}
    assert run(config(tmp_path / "run", photos, **settings)).step == 6
    losses = [float(row["loss"]) for row in read_rows(tmp_path / "run" / "metrics.csv") if row["loss"]]
    assert all(math.isfinite(loss) for loss in losses)


def test_only_the_last_layer_trains(finished: Path, photos: Path, tmp_path: Path) -> None:
    torch.save(
        {key.removeprefix("common/model/"): value for key, value in weights(finished, "step-000000010").items()},
        tmp_path / "w.pt",
    )
    model = {"weights": str(tmp_path / "w.pt"), "trainable": "last"}
    run(config(tmp_path / "run", photos, model=model, max_steps=3))
    before, after = weights(finished, "step-000000010"), weights(tmp_path / "run", "step-000000003")
    moved = {key for key in before if not torch.equal(before[key], after[key])}
    assert moved and all("classifier" in key for key in moved)


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"data": {"recipe": "none"}}, r"data\.recipe='none' is not a recipe for training"),
        ({"device": "cuda:7"}, r"cuda:7"),
        (
            {"model": {"name": "mullapudi-mlp", "options": {}}},
            r"model\.name=mullapudi-mlp does not take pictures of 3 x 16 x 16",
        ),
        ({"model": {"options": {"depth": 3}}}, "depth"),
        ({"optim": {"accumulate": 0}}, r"optim\.accumulate"),
        ({"model": {"sync_batchnorm": True}}, "SyncBatchNorm runs on CUDA alone"),
        ({"data": {"eval_source": "elsewhere"}}, "'elsewhere' does not exist"),
    ],
)
def test_what_does_not_fit_is_told(photos: Path, tmp_path: Path, tables: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run(config(tmp_path / "run", photos, **tables))


def test_train_and_report_as_commands(photos: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path, out = tmp_path / "job.toml", tmp_path / "run <1>"
    path.write_text(to_toml(config(out, photos, data={"eval_fraction": 0.3}, epochs=1)))
    ended = CliRunner().invoke(app, ["train", str(path), "--set", "optim.lr=0.01"])
    assert ended.exit_code == 0, ended.output
    assert "done after 1.00 epochs, 4 steps, held out: top-1" in ended.output
    ended = CliRunner().invoke(app, ["report", str(out)])
    assert ended.exit_code == 0, ended.output
    with Image.open(out / "curves.png") as curves:
        assert curves.width > 1000 and len(curves.convert("RGB").getcolors(2**24) or []) > 50
    page = (out / "report.html").read_text()
    assert "Training run run &lt;1&gt;" in page and "lr = 0.01" in page and "data:image/png;base64," in page
    assert "evaluation, best" in page
    ended = CliRunner().invoke(app, ["report", str(photos)])
    assert ended.exit_code == 2 and "is not a training run: it has no metrics.csv" in ended.output


@pytest.mark.parametrize("given", [None, ":16:8"])
def test_a_deterministic_run_asks_cublas_for_the_same(
    given: str | None, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before CUDA starts, and not over what is there; its numbers are those of any run on the CPU."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", given or "")
    if given is None:
        monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    seen: list[str | None] = []

    @contextmanager
    def noting(*arguments: Any) -> Iterator[Any]:
        seen.append(os.environ.get("CUBLAS_WORKSPACE_CONFIG"))
        with open_world(*arguments) as world:
            yield world

    monkeypatch.setitem(run.__globals__, "open_world", noting)
    losses = []
    for deterministic in (False, True):
        try:
            out = tmp_path / str(deterministic)
            run(config(out, photos, deterministic=deterministic, max_steps=2, report={"log_every": 1}))
        finally:
            torch.use_deterministic_algorithms(False)
        losses.append([row["loss"] for row in read_rows(out / "metrics.csv")])
    assert seen == [given, given or ":4096:8"]
    assert losses[0] == losses[1]
