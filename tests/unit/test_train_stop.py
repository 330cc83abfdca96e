"""A signal ends a run however few steps lie between two checkpoints or two ends of epochs."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from augpipe.trainer.loop import run
from augpipe.trainer.loop.step import Step, StepResult
from tests.distributed.train_runs import checkpoints, config, write_photos


@pytest.mark.parametrize(
    "tables",
    [{"checkpoint": {"every_steps": 1}}, {"data": {"batch_size": 8}}],
    ids=["a checkpoint every step", "an epoch of one step"],
)
def test_a_signal_is_heard_after_one_more_step(
    tables: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    num = 0
    inner = Step.run

    def signalled(self: Step, *arguments: Any) -> StepResult:
        nonlocal num
        result = inner(self, *arguments)
        num += 1
        if num == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return result

    monkeypatch.setattr(Step, "run", signalled)
    out = tmp_path / "run"
    result = run(config(out, write_photos(tmp_path, 8), epochs=8, **tables))
    assert result.signal == signal.SIGTERM
    assert result.step in (3, 4)
    assert checkpoints(out)[-1] == f"step-{result.step:09}"
