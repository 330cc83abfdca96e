"""Two runs at once in one folder would take each other's checkpoints and rows away: the second is refused."""

import os
from pathlib import Path
from typing import Any

import pytest

from augpipe.trainer.loop import run
from augpipe.trainer.loop.step import Step, StepResult
from tests.distributed.train_runs import config, write_photos


def test_the_second_run_is_refused_and_the_first_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photos = write_photos(tmp_path, 8)
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
