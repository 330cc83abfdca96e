"""A disk too full for another row of metrics.csv does not end a run that a failed checkpoint would not end either."""

import logging
import os
from pathlib import Path

import pytest

from augpipe.trainer.report.metrics import Table, read_rows


def test_rows_wait_for_room(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "metrics.csv"
    table = Table(path, ("step", "loss"), 0)
    number = table._file.fileno()
    disk, full = os.dup(number), os.open("/dev/full", os.O_WRONLY)
    with caplog.at_level(logging.ERROR, logger="augpipe.trainer"):
        for step in range(1, 7):
            os.dup2(full if step in (3, 4) else disk, number)
            table.write({"step": step, "loss": 0.5})
        os.dup2(full, number)
        table.write({"step": 7, "loss": 0.5})
        table.close()
    os.close(disk)
    os.close(full)
    assert [row["step"] for row in read_rows(path)] == ["1", "2", "3", "4", "5", "6"]
    said = [record.getMessage() for record in caplog.records]
    assert said == [f"{path} could not be written: No space left on device; rows of it may be lost"] * 2
