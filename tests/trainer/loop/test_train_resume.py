"""A run that goes on in a folder: what is refused and changes nothing, what may change, what is told of it."""

import logging
import os
import signal
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from torch.amp.grad_scaler import GradScaler

from augpipe.trainer.config import load_config
from augpipe.trainer.loop import run
from augpipe.trainer.loop.run_record import Recorder
from augpipe.trainer.loop.step import Step, StepResult
from augpipe.trainer.report.metrics import read_rows
from tests.distributed.train_runs import checkpoints, config, write_photos


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_photos(tmp_path_factory.mktemp("data"), 8)


def contents(folder: Path) -> dict[str, bytes]:
    """What every file holds but the lock, which says who looked last."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"seed": 1}, "is of a run with seed=0, and the config has seed=1: other photographs"),
        ({"model": {"options": {"width": 3}}}, "is of another network than the config's: size mismatch for "),
        ({"optim": {"name": "adamw"}}, "the state is of an optimizer with the options .* use the one that it was"),
        ({"data": {"shuffle": "sticky"}}, "the state was taken with shuffle=True and this loader has shuffle=sticky"),
        ({"checkpoint": {"resume": "never"}}, 'checkpoints of an earlier run, and checkpoint.resume="never"'),
        ({"data": {"size": 2, "eval_scale": 300}}, "size"),
    ],
    ids=["seed", "network", "optimizer", "order", "resume", "size"],
)
def test_a_refused_run_changes_nothing(photos: Path, tmp_path: Path, tables: dict[str, Any], message: str) -> None:
    run(config(tmp_path / "run", photos, max_steps=1))
    (tmp_path / "run" / "checkpoints" / "step-000000007.tmp").mkdir()
    (tmp_path / "run" / "checkpoints" / "step-000000007.tmp" / "half").write_bytes(b"written")
    before = contents(tmp_path / "run")
    with pytest.raises(ValueError, match=message):
        run(config(tmp_path / "run", photos, max_steps=2, **tables))
    assert contents(tmp_path / "run") == before


def test_what_changed_is_told_from_the_last_start(
    photos: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run(config(tmp_path / "run", photos, max_steps=1))
    with pytest.raises(ValueError, match="another network"):
        run(config(tmp_path / "run", photos, max_steps=2, model={"options": {"width": 3}}))
    caplog.set_level(logging.INFO)
    run(config(tmp_path / "run", photos, max_steps=2, optim={"lr": 0.01}))
    told = [line for line in caplog.messages if line.startswith("changed")]
    assert told == [
        "changed since the last start: max_steps: 1, now 2",
        "changed since the last start: optim.lr: 0.05, now 0.01",
    ]
    assert load_config(tmp_path / "run" / "config.toml").optim.lr == 0.01


def test_a_config_that_cannot_be_read_does_not_end_a_run(
    photos: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run(config(tmp_path / "run", photos, max_steps=1))
    (tmp_path / "run" / "config.toml").write_text("epochs = \n")
    assert run(config(tmp_path / "run", photos, max_steps=2)).step == 2
    (line,) = [line for line in caplog.messages if line.startswith("what changed since the last start is not known")]
    assert "not valid TOML" in line
    assert load_config(tmp_path / "run" / "config.toml").max_steps == 2


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ({"epochs": 1}, "nothing left to do after 1 epoch: raise epochs, or choose another out"),
        ({"epochs": 2}, "nothing left to do after 2 epochs: raise epochs, or choose another out"),
        ({"max_steps": 3}, "nothing left to do after 3 steps: raise max_steps, or choose another out"),
    ],
)
def test_nothing_left_to_do_is_said(
    photos: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, limits: dict[str, int], told: str
) -> None:
    first = run(config(tmp_path / "run", photos, **limits))
    before = contents(tmp_path / "run")
    caplog.set_level(logging.INFO)
    again = run(config(tmp_path / "run", photos, **limits, report={"log_every": 7}))
    assert told in caplog.messages
    assert (again.step, again.epochs_done, again.signal) == (first.step, first.epochs_done, None)
    assert contents(tmp_path / "run") == before


def test_a_finished_run_asked_for_with_other_settings_is_an_error(photos: Path, tmp_path: Path) -> None:
    run(config(tmp_path / "run", photos, max_steps=3))
    before = contents(tmp_path / "run")
    told = (
        r"the run in .*run is done after 3 steps, and its settings were others: max_steps: 3, now 2; "
        r"optim\.lr: 0\.05, now 0\.01\. .*raise max_steps"
    )
    with pytest.raises(ValueError, match=told):
        run(config(tmp_path / "run", photos, max_steps=2, optim={"lr": 0.01}))
    assert contents(tmp_path / "run") == before


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ({"decay_1d": True}, {"decay_1d": False}, r"optim\.decay_1d: True, now False"),
        (
            {"decay_1d": False, "weight_decay": 0.0},
            {"decay_1d": False, "weight_decay": 0.1},
            r"optim\.weight_decay: 0\.0, now 0\.1, with optim\.decay_1d=false",
        ),
    ],
)
def test_other_groups_of_weights_are_told_by_field(
    photos: Path, tmp_path: Path, before: dict[str, Any], after: dict[str, Any], told: str
) -> None:
    run(config(tmp_path / "run", photos, max_steps=1, optim=before))
    with pytest.raises(ValueError, match=rf"{told}.*choose another out"):
        run(config(tmp_path / "run", photos, max_steps=2, optim=after))


def test_more_epochs_are_done(photos: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run(config(tmp_path / "run", photos, epochs=1))
    caplog.set_level(logging.INFO)
    assert run(config(tmp_path / "run", photos, epochs=2)).epochs_done == 2.0
    assert not [line for line in caplog.messages if line.startswith("nothing left")]


@pytest.mark.parametrize(("before", "after"), list(permutations(("sgd", "rmsprop", "adagrad", "adamw"), 2)))
def test_another_optimizer_is_refused(photos: Path, tmp_path: Path, before: str, after: str) -> None:
    run(config(tmp_path, photos, max_steps=1, optim={"name": before}))
    with pytest.raises(ValueError, match=r"the state is of an optimizer with the options .* use the one that it was"):
        run(config(tmp_path, photos, max_steps=2, optim={"name": after}))


@pytest.mark.parametrize("name", ["sgd", "rmsprop"])
@pytest.mark.parametrize("momenta", [(0.0, 0.9), (0.9, 0.0)])
def test_momentum_may_change(name: str, momenta: tuple[float, float], photos: Path, tmp_path: Path) -> None:
    for step, momentum in enumerate(momenta, 1):
        optim = {"name": name, "momentum": momentum}
        assert run(config(tmp_path / "run", photos, max_steps=step, optim=optim)).step == step


def test_fp16_after_full_precision_has_its_scale(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scales = []
    inner = Step.__init__

    def noting(self: Step, *arguments: object) -> None:
        scaler = arguments[-1]
        assert isinstance(scaler, GradScaler)
        scales.append(scaler.get_scale())
        inner(self, *arguments)

    monkeypatch.setattr(Step, "__init__", noting)
    run(config(tmp_path / "run", photos, max_steps=1))
    run(config(tmp_path / "run", photos, max_steps=2, optim={"amp": "fp16"}))
    run(config(tmp_path / "run", photos, max_steps=3))
    assert scales[:2] == [1.0, GradScaler("cpu").get_scale()]


def test_the_second_run_is_refused_and_the_first_goes_on(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []
    inner = Step.run

    def another(self: Step, *arguments: Any) -> StepResult:
        monkeypatch.setattr(Step, "run", inner)
        with pytest.raises(ValueError, match=rf"a run is at work there \(process {os.getpid()} on .*another out\."):
            run(config(tmp_path / "run", photos, max_steps=9))
        tried.append(True)
        return inner(self, *arguments)

    monkeypatch.setattr(Step, "run", another)
    assert run(config(tmp_path / "run", photos, max_steps=2)).step == 2
    assert tried == [True]
    assert run(config(tmp_path / "run", photos, max_steps=3)).step == 3  # it is free again


@pytest.mark.slow
@pytest.mark.parametrize("ends", ["asked to", "killed"])
def test_no_step_is_missing_in_what_is_told_of_a_run_that_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, ends: str
) -> None:
    """An epoch of ten steps with a row every four, ended after the sixth: rows and the epoch's line are of all ten."""
    photos = write_photos(tmp_path, 40)
    tables: dict[str, Any] = {"report": {"log_every": 4}, "epochs": 1}
    tables["checkpoint"] = {"every_steps": 6, "asynchronous": False}
    caplog.set_level(logging.INFO)
    run(config(tmp_path / "whole", photos, **tables))
    whole = [line for line in caplog.messages if line.startswith("epoch 1/1")]
    caplog.clear()
    inner, steps = Step.run, []

    def ending(self: Step, *arguments: Any) -> StepResult:
        steps.append(len(steps) + 1)
        if steps[-1] == (5 if ends == "asked to" else 7):  # it ends after the next one
            if ends == "killed":
                raise ZeroDivisionError
            os.kill(os.getpid(), signal.SIGTERM)
        return inner(self, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(Step, "run", ending)
        if ends == "killed":
            with pytest.raises(ZeroDivisionError):
                run(config(tmp_path / "run", photos, **tables))
        else:
            assert run(config(tmp_path / "run", photos, **tables)).step == 6
            assert [row["step"] for row in read_rows(tmp_path / "run/metrics.csv")] == ["4", "6"]
    run(config(tmp_path / "run", photos, **tables))
    losses = {
        name: {int(row["step"]): float(row["loss"]) for row in read_rows(tmp_path / name / "metrics.csv")}
        for name in ("whole", "run")
    }
    if ends == "asked to":  # what was under way has a row of its own, so that a run that ends there has lost nothing
        of_two = losses["run"].pop(6), losses["run"].pop(8)
        assert sum(of_two) / 2 == pytest.approx(losses["whole"].pop(8), rel=1e-4)
    assert losses["run"] == losses["whole"]
    again = [line for line in caplog.messages if line.startswith("epoch 1/1")]
    assert [line.partition(";")[0] for line in again] == [line.partition(";")[0] for line in whole]


@pytest.mark.slow
def test_steps_are_counted_once_where_the_last_checkpoint_has_a_row(tmp_path: Path) -> None:
    """The checkpoint of step 3 is written before the row of the run's end, which is that of step 3."""
    photos = write_photos(tmp_path, 40)
    tables: dict[str, Any] = {"report": {"log_every": 4}, "epochs": 1, "checkpoint": {"every_steps": 3}}
    run(config(tmp_path / "every", photos, **tables | {"report": {"log_every": 1}}))
    every = {int(row["step"]): float(row["loss"]) for row in read_rows(tmp_path / "every/metrics.csv")}
    run(config(tmp_path / "run", photos, max_steps=3, **tables))
    run(config(tmp_path / "run", photos, **tables))
    rows = {int(row["step"]): float(row["loss"]) for row in read_rows(tmp_path / "run/metrics.csv")}
    assert rows[4] == every[4]
    assert rows[3] == pytest.approx((every[1] + every[2] + every[3]) / 3, rel=1e-4)


def test_an_evaluation_that_is_repeated_has_one_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = config(
        tmp_path / "run",
        write_photos(tmp_path, 16),
        data={"eval_fraction": 0.25},
        checkpoint={"every_steps": 3, "every_epochs": 0, "asynchronous": False},
    )
    evaluated = Recorder.evaluated

    def dying(self: Recorder, *arguments: object, **options: object) -> None:
        evaluated(self, *arguments, **options)
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr(Recorder, "evaluated", dying)
        with pytest.raises(ZeroDivisionError):
            run(made)
    assert checkpoints(tmp_path / "run") == ["step-000000003"]
    run(made)
    rows = read_rows(tmp_path / "run" / "metrics.csv")
    assert [(row["step"], row["eval_loss"] != "") for row in rows] == [
        *((str(step), False) for step in (1, 2, 3)),
        ("3", True),
        *((str(step), False) for step in (4, 5, 6)),
        ("6", True),
    ]
