"""pushes.csv: what the recorder writes, what the report makes of it."""

import logging
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from augpipe.cli.app import app
from augpipe.trainer.config import make_config
from augpipe.trainer.loop.run_log import RunLog
from augpipe.trainer.report.metrics import read_rows
from augpipe.trainer.report.pushes import html_rows, staleness_counts, totals, training_s, write_pushes
from augpipe.trainer.servers.driver_record import PUSH_COLUMNS, ServersRecorder
from augpipe.trainer.servers.leases import LeasePlan
from augpipe.trainer.servers.messages import Applied, Outcome

ROWS = [
    {"worker": "1", "staleness": "2", "samples": "8", "seconds": "1.5", "wait_ms": "250", "data_ms": "250"}
    | {"compute_ms": "1000", "push_ms": "500", "sent_mb": "0.5", "got_mb": "2"},
    {"worker": "0", "staleness": "0", "samples": "8", "seconds": "3.5", "wait_ms": "0", "data_ms": "0"}
    | {"compute_ms": "100", "push_ms": "0", "sent_mb": "0.5", "got_mb": "2"},
    {"worker": "1", "staleness": "0", "samples": "4", "seconds": "0.5", "wait_ms": "1000", "data_ms": "0"}
    | {"compute_ms": "1000", "push_ms": "0", "sent_mb": "0.25", "got_mb": "0"},
]
PLAN = LeasePlan(num_samples=20, batch_size=8, num_shares=1, group_size=1, num_batches=1, drop_last=False)


def applied(version: int, worker: int, staleness: int, num_samples: int = 8, **options: Any) -> Applied:
    outcome = Outcome(
        loss_sum=2.0 * num_samples,
        num_correct=num_samples // 2,
        num_samples=num_samples,
        is_finite=True,
        wait_s=0.25,
        data_s=0.01,
        compute_s=0.5,
        push_s=0.75,
        sent_bytes=3_000_000,
        got_bytes=500_000,
    )
    made: dict[str, Any] = {"epoch": 0, "lr": 0.5, "step_s": 2.0}
    return Applied(version=version, worker=worker, staleness=staleness, outcome=outcome, **made | options)


def recorder(out: Path, step: int = 0, **report: Any) -> ServersRecorder:
    tables = {"report": {"log_every": 2, "tensorboard": False, "progress": False, **report}}
    config = make_config({"out": str(out), "epochs": 2, "optim": {"lr": 0.1}, "data": {"source": "x"}, **tables})
    out.mkdir(exist_ok=True)
    return ServersRecorder(config, PLAN, step)


def test_totals_of_each_worker() -> None:
    found = totals(ROWS)
    assert list(found) == [0, 1]
    one = found[1]
    assert (one.num_pushes, one.num_samples, one.mean_staleness) == (2, 12, 1.0)
    assert one.seconds == {"compute": 2.0, "data": 0.25, "push": 0.5, "wait": 1.25}
    assert (one.sent_mb, one.got_mb, one.efficiency) == (0.75, 2.0, 0.5)
    assert found[0].efficiency == 1.0
    assert staleness_counts(ROWS) == {0: 2, 2: 1}
    cells = "".join(html_rows(ROWS))
    assert '<tr><td class="n">1</td><td class="n">2</td><td class="n">12</td><td class="n">1.00</td>' in cells
    assert '<td class="n">50%</td><td class="n">31%</td><td class="n">0.8</td><td class="n">2.0</td>' in cells


def test_seconds_of_all_starts_count() -> None:
    assert training_s(ROWS) == 4.0
    assert training_s(ROWS[:2]) == 3.5
    assert training_s([]) == 0.0


def test_a_row_for_each_push_and_one_for_some_updates(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "augpipe.trainer")
    with recorder(tmp_path) as made:
        made.begin_epoch(0, 0)
        made.heard([applied(1, 0, 0), applied(2, 1, 1), applied(2, 0, 3, 4)])
        made.heard([applied(3, 1, 2)])
        made.write_rest()
        made.end_epoch(0, None)
        made.begin_epoch(1, 0)
        made.end_epoch(1, None)  # nothing was trained on
    pushes = read_rows(tmp_path / "pushes.csv")
    assert tuple(pushes[0]) == PUSH_COLUMNS
    assert [(row["step"], row["worker"], row["staleness"], row["samples"]) for row in pushes] == [
        ("1", "0", "0", "8"),
        ("2", "1", "1", "8"),
        ("2", "0", "3", "4"),
        ("3", "1", "2", "8"),
    ]
    assert [float(row["seconds"]) for row in pushes] == [2, 4, 4, 6]
    phases = ("wait_ms", "data_ms", "compute_ms", "push_ms", "sent_mb", "got_mb")
    assert [float(pushes[0][name]) for name in phases] == [250, 10, 500, 750, 3, 0.5]
    rows = read_rows(tmp_path / "metrics.csv")
    assert [int(row["step"]) for row in rows] == [2, 3]
    assert [float(rows[0][name]) for name in ("loss", "top1", "lr", "seconds")] == [2.0, 0.5, 0.05, 4.0]
    (line,) = [one for one in caplog.messages if one.startswith("epoch")]
    assert line == "epoch 1/2: loss 2.000, top-1 50.0%; 5 img/s, mean staleness 1.50"


def test_a_resumed_run_forgets_the_pushes_after_its_checkpoint(tmp_path: Path) -> None:
    with recorder(tmp_path) as made:
        made.heard([applied(1, 0, 0), applied(2, 0, 0), applied(3, 1, 1)])
    with recorder(tmp_path, step=2) as made:
        made.heard([applied(3, 0, 0)])
    assert [(row["step"], row["worker"]) for row in read_rows(tmp_path / "pushes.csv")] == [
        ("1", "0"),
        ("2", "0"),
        ("3", "0"),
    ]


def test_the_bar_counts_updates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those of two synchronous workers, and of uneven leases."""
    begun = []
    monkeypatch.setattr(RunLog, "begin_epoch", lambda self, *numbers: begun.append(numbers))
    with recorder(tmp_path) as made:
        made.begin_epoch(0, 0)
        made.begin_epoch(1, 16)
        for num_samples in (33, 48):  # a third step of one sample, and one of whole shares
            made._plan = LeasePlan(
                num_samples=num_samples, batch_size=8, num_shares=2, group_size=1, num_batches=1, drop_last=False
            )
            made.begin_epoch(0, 32)
    assert begun == [(0, 0, 3), (1, 2, 3), (0, 2, 3), (0, 2, 3)]


@pytest.mark.slow
def test_the_report_of_a_run_with_servers(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    run = tmp_path / "run"
    with recorder(run) as made:
        made.heard([applied(1, 0, 0), applied(2, 1, 1)])
    ended = CliRunner().invoke(app, ["report", str(run)])
    assert ended.exit_code == 0, ended.output
    assert ended.stdout.split() == [str(run / name) for name in ("curves.png", "pushes.png", "report.html")]
    assert (run / "pushes.png").read_bytes().startswith(b"\x89PNG")
    page = (run / "report.html").read_text()
    assert "<h2>Workers</h2>" in page and page.count("data:image/png") == 2

    (run / "pushes.csv").write_text(",".join(PUSH_COLUMNS) + "\n")
    with pytest.raises(ValueError, match="pushes.csv holds no rows yet: no push has been counted."):
        write_pushes(run / "pushes.csv", run / "pushes.png")
