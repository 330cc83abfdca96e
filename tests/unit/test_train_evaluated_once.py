"""A run that dies between an evaluation and the next checkpoint evaluates again, and metrics.csv has it once."""

from pathlib import Path

import pytest

from augpipe.trainer.loop import run
from augpipe.trainer.loop.record import Recorder
from augpipe.trainer.report.metrics import read_rows
from tests.distributed.train_runs import checkpoints, config, write_photos


def test_an_evaluation_that_is_repeated_has_one_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = config(
        tmp_path / "run",
        write_photos(tmp_path, 16),
        data={"eval_fraction": 0.25},
        checkpoint={"every_steps": 3, "every_epochs": 0, "asynchronous": False},
    )
    evaluated = Recorder.evaluated

    def dying(self: Recorder, *arguments: object, **options: object) -> None:
        evaluated(self, *arguments, **options)  # type: ignore[arg-type]
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
