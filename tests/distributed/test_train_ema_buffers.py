"""The average's running statistics are each rank's own, and come back so: an evaluation after a resume is the same."""

from pathlib import Path
from typing import Any

import pytest

from augpipe.trainer.report.metrics import read_rows
from tests.distributed.train_runs import run_ranks, settings, write_photos


@pytest.mark.slow
def test_a_resumed_run_evaluates_the_same_average(tmp_path: Path) -> None:
    photos = write_photos(tmp_path, 24)

    def job(name: str, max_steps: int) -> dict[str, Any]:
        # the average takes in step 2 and no later one, so what is evaluated in the end was in the checkpoint
        return settings(
            tmp_path / name,
            photos,
            max_steps=max_steps,
            data={"eval_source": str(photos)},
            ema={"decay": 0.5, "every": 2},
            checkpoint={"every_steps": 2},
        )

    run_ranks(2, tmp_path / "meet", [job("whole", 3), job("resumed", 2)])
    run_ranks(2, tmp_path / "meet again", [job("resumed", 3)])
    last = [read_rows(tmp_path / name / "metrics.csv")[-1] for name in ("whole", "resumed")]
    assert last[0]["step"] == last[1]["step"] == "3"
    assert last[0]["eval_loss"] == last[1]["eval_loss"] != ""
