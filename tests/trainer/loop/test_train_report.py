"""What is told of a run: rows of metrics.csv, TensorBoard's, the line an epoch, the bar, the curves and the page."""

import logging
import os
import sys
from itertools import count
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest

from augpipe.reports import progress_bar
from augpipe.trainer.config import make_config
from augpipe.trainer.loop import run
from augpipe.trainer.loop.evaluate import Evaluation
from augpipe.trainer.loop.run_log import Board, Pace, RunLog
from augpipe.trainer.loop.run_record import Recorder
from augpipe.trainer.loop.state import Counters
from augpipe.trainer.loop.step import StepResult
from augpipe.trainer.loop.step_totals import StepTotals
from augpipe.trainer.report.metrics import COLUMNS, StepsFile, read_rows
from augpipe.trainer.report.page import write_page
from augpipe.trainer.strategies import StepReport
from tests.distributed.train_runs import config, write_photos


def step_result(exposed_s: float, **options: Any) -> StepResult:
    report = StepReport(
        grad_norm=0.5,
        found_inf=False,
        non_finite=0,
        exposed_s=exposed_s,
        bytes_sent={"gradients": 2_000_000, "activations": 700_000, "deltas": 300_000, "control": 500_000},
    )
    made: dict[str, Any] = {
        "loss_sum": 1.0,
        "num_correct": 1,
        "num_samples": 4,
        "data_s": 0.01,
        "is_finite": True,
        "is_skipped": False,
        "report": report,
        "sample_ids": [1, 2],
    }
    return StepResult(**made | options)


def test_a_row_is_of_its_own_steps_and_of_all_ranks(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Sums over ranks come by the word; what a step costs is this rank's. The epoch's line begins anew with each."""
    config = make_config(
        {"out": str(tmp_path), "epochs": 2, "data": {"source": "x"}, "report": {"log_every": 2, "tensorboard": False}}
    )
    world: Any = SimpleNamespace(is_first=True, rank=0, size=2)
    counters = Counters()
    caplog.set_level(logging.INFO, "augpipe.trainer")
    with Recorder(config, world, 0) as recorder:
        for epoch, loss_sum in enumerate((16.0, 4.0)):
            recorder.begin_epoch(epoch, done=0, total=3)
            for number in range(3):
                counters.step += 1
                counters.seconds += 0.5
                result = step_result(exposed_s=0.002 * number)
                recorder.after_step(result, epoch=epoch, seconds=0.5, lr=0.1 / counters.step, counters=counters)
                recorder.heard(StepTotals(loss_sum=loss_sum, num_correct=2.0, num_samples=8.0))
                assert recorder.heard_step == counters.step
            recorder.end_epoch(epoch, Evaluation(loss=0.25, top1=0.5, top5=1.0, num_samples=8) if epoch else None)
    rows = read_rows(tmp_path / "metrics.csv")
    assert [(row["step"], row["epoch"], float(row["loss"])) for row in rows] == [
        ("2", "0", 2.0),
        ("4", "1", 1.25),
        ("6", "1", 0.5),
    ]
    last = {name: float(rows[-1][name]) for name in COLUMNS if rows[-1][name]}
    assert last == {
        "step": 6,
        "epoch": 1,
        "seconds": 3.0,
        "lr": pytest.approx(0.1 / 6, rel=1e-5),
        "loss": 0.5,
        "top1": 0.25,
        "images_per_s": 16.0,
        "data_ms": 10.0,
        "exposed_ms": 3.0,  # of 2 ms and 4 ms
        "sent_mb": 3.5,
        "activations_mb": 1.0,
        "grad_norm": 0.5,
        "skipped": 0,
    }
    assert caplog.messages == [
        "epoch 1/2: loss 2.000, top-1 25.0%; 16 img/s",
        "epoch 2/2: loss 0.500, top-1 25.0%; held out: loss 0.250, top-1 50.0%; 16 img/s",
    ]


def test_a_log_hears_how_far_a_resumed_epoch_is_where_that_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress_bar, "LINE_EVERY_S", 0.0)
    monkeypatch.setattr(progress_bar, "time", SimpleNamespace(monotonic=count(1.0).__next__))  # asked: a second later
    pace = Pace(loss=0.5, images_per_s=1200.0, exposed_ms=1.5, sent_mb=0.25)
    for progress, is_first in ((False, True), (True, False), (True, True)):
        tables = {"report": {"progress": progress, "tensorboard": False}, "data": {"source": "x"}, "epochs": 3}
        config = make_config({"out": str(tmp_path), **tables})
        with RunLog(config, 4, is_first=is_first) as log:
            log.begin_epoch(1, 4, 9)
            log.advance(None)
            log.advance(pace)
            log.advance(None)
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == (3 if progress and is_first else 0)
    assert lines[1].startswith("augpipe: epoch 2/3 6/9  ")
    assert all(line.endswith("  loss 0.500  1,200 img/s  waits 1.5 ms  sends 0.25 MB a step") for line in lines[1:])


def write_run(folder: Path, *, seconds: float = 3.25, data_ms: float = 2.5) -> Path:
    """Steps 1..28, with an evaluation after every second one; the best is after step 6."""
    table = StepsFile(folder / "metrics.csv", COLUMNS, 0)
    for step in range(1, 29):
        row = {"step": step, "epoch": (step - 1) // 2, "seconds": seconds, "skipped": 3}
        rate = 90_000.0 if step == 1 else 100.0 + step
        told = {"lr": 0.1, "loss": 2.0 / step, "top1": step / 50, "data_ms": data_ms}
        table.write(row | told | {"images_per_s": rate, "sent_mb": step})
        if step % 2 == 0:
            top1 = 0.875 if step == 6 else 0.5 + step / 1000
            table.write(row | {"eval_loss": 1.0, "eval_top1": top1, "eval_top5": 0.975})
    table.close()
    return folder


def test_the_page_says_how_the_run_went(tmp_path: Path) -> None:
    curves = tmp_path / "curves.png"
    curves.write_bytes(b"a picture")
    run = write_run(tmp_path)
    (run / "config.toml").write_text('out = "<b>&"')
    page = write_page(run, curves).read_text()

    def fact(name: str) -> str:
        return page.partition(f"<tr><th>{name}</th><td>")[2].partition("</td>")[0]

    assert fact("steps") == "28" and fact("epochs begun") == "14" and fact("time in training") == "3.2 s"
    assert fact("images a second, all ranks, median") == "116"  # of 102 to 128, and of one row far off
    assert fact("sent by a rank, MB a step") == "28"
    assert fact("evaluation, at the end") == "top-1 52.8%, loss 1.000"
    assert fact("evaluation, best") == "top-1 87.5% after step 6"
    assert fact("steps left out") == "3"
    assert "<pre>out = &quot;&lt;b&gt;&amp;&quot;</pre>" in page
    evaluations = page.partition("<h2>Held-out")[2].split("<tr>")[2:]
    assert len(evaluations) == 12 and "YSBwaWN0dXJl" in page
    first, last = (
        [cell.partition("<")[0] for cell in row.split('<td class="n">')[1:]]
        for row in (evaluations[0], evaluations[-1])
    )
    assert first == ["3", "6", "1.000", "87.5%", "97.5%"] and last == ["14", "28", "1.000", "52.8%", "97.5%"]


@pytest.mark.parametrize(
    ("data_ms", "told"),
    [
        (2.5, "2%"),  # 28 steps of 2.5 ms, of 3.25 s
        (58.0, "50%: augpipe explain SOURCE tells which part of loading is slow"),
    ],
)
def test_the_page_says_how_long_it_waited_for_batches(data_ms: float, told: str, tmp_path: Path) -> None:
    curves = tmp_path / "curves.png"
    curves.write_bytes(b"")
    run = write_run(tmp_path, data_ms=data_ms)
    fact = f"<tr><th>waiting for batches, of the time in training</th><td>{told}</td>"
    assert fact in write_page(run, curves).read_text()


@pytest.mark.parametrize(
    ("seconds", "text"), [(59.25, "59.2 s"), (60.0, "1 min 0 s"), (3599.0, "59 min 59 s"), (7500.0, "2 h 5 min")]
)
def test_the_page_tells_times_in_words(seconds: float, text: str, tmp_path: Path) -> None:
    curves = tmp_path / "curves.png"
    curves.write_bytes(b"")
    assert f"<td>{text}</td>" in write_page(write_run(tmp_path, seconds=seconds), curves).read_text()


def test_the_curves_are_of_the_rows_that_have_a_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = pytest.importorskip("matplotlib.figure")
    from augpipe.trainer.report.curves import write_curves

    drawn: list[Any] = []
    monkeypatch.setattr(figures.Figure, "savefig", lambda self, path, dpi: drawn.append(self))
    write_curves(write_run(tmp_path) / "metrics.csv", tmp_path / "curves.png")
    (figure,) = drawn
    lines = {axis.get_title(loc="left"): [line.get_xydata().tolist() for line in axis.lines] for axis in figure.axes}
    steps = [float(step) for step in range(1, 29)]
    training, held_out = lines["top-1 accuracy, %"]
    assert training == [[step, pytest.approx(2 * step)] for step in steps]
    assert held_out[:3] == [[2.0, pytest.approx(50.2)], [4.0, pytest.approx(50.4)], [6.0, pytest.approx(87.5)]]
    assert [len(line) for line in lines["loss"]] == [28, 14]
    assert lines["learning rate"] == [[[step, pytest.approx(0.1)] for step in steps]]
    assert [x for x, _ in lines["images a second, all ranks"][0]] == steps


def test_rows_wait_for_room(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "metrics.csv"
    table = StepsFile(path, ("step", "loss"), 0)
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


class Writer:
    """Stands in for torch's SummaryWriter; keeps what it gets."""

    made: ClassVar[list["Writer"]] = []

    def __init__(self, log_dir: str, purge_step: int | None = None) -> None:
        self.folder, self.purge_step = log_dir, purge_step
        self.scalars: dict[tuple[str, int], float] = {}
        self.is_closed = False
        self.made.append(self)

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        assert not self.is_closed
        assert self.scalars.get((tag, step), value) == value  # an evaluation repeats its step's epoch
        self.scalars[tag, step] = value

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def writers(monkeypatch: pytest.MonkeyPatch) -> list[Writer]:
    module: Any = ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = Writer
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    monkeypatch.setattr(Writer, "made", [])
    return Writer.made


@pytest.fixture
def without_tensorboard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)  # as where it is not installed
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)


def test_a_run_hands_on_the_rows_of_its_table(writers: list[Writer], tmp_path: Path) -> None:
    photos = write_photos(tmp_path, 12)
    out = tmp_path / "run"
    run(config(out, photos, epochs=1, max_steps=3, data={"eval_fraction": 0.25}))
    (writer,) = writers
    assert writer.folder == str(out / "tensorboard") and writer.is_closed
    expected: dict[tuple[str, int], float] = {}
    for row in read_rows(out / "metrics.csv"):
        names = {name: value for name, value in row.items() if value and name not in ("step", "seconds")}
        for name, value in names.items():
            tag = f"eval/{name[5:]}" if name.startswith("eval_") else f"train/{name}"
            expected[tag, int(row["step"])] = float(value)
    assert {"train/loss", "train/lr", "train/images_per_s", "eval/top1", "eval/loss"} <= {tag for tag, _ in expected}
    assert {step for tag, step in expected if tag == "train/loss"} == {1, 2, 3}
    assert writer.scalars == pytest.approx(expected, rel=1e-5)  # the table has six digits


def test_a_resumed_run_hides_what_came_after_its_checkpoint_alone(writers: list[Writer], tmp_path: Path) -> None:
    """A SummaryWriter hides `purge_step` itself too, and the run does not write that row again."""
    Board(tmp_path, wanted=True, step=4).close()
    assert writers[0].purge_step == 5


def test_whoever_wants_none_gets_none(writers: list[Writer], tmp_path: Path) -> None:
    board = Board(tmp_path / "tensorboard", wanted=False, step=0)
    board.write({"step": 1, "loss": 0.5})
    board.close()
    assert not writers and not (tmp_path / "tensorboard").exists()


@pytest.mark.usefixtures("without_tensorboard")
def test_where_it_is_not_installed_the_table_is_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = config(tmp_path / "run", write_photos(tmp_path, 8), epochs=1, max_steps=1)
    assert made.report.tensorboard  # on, where it is installed
    run(made)
    assert len(read_rows(tmp_path / "run" / "metrics.csv")) == 1
    assert not (tmp_path / "run" / "tensorboard").exists()
    assert "tensorboard" not in "".join(capsys.readouterr()).lower()
