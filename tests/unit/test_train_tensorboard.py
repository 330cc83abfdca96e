"""TensorBoard gets each row of metrics.csv by name and step where it is installed; elsewhere nothing is amiss."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest

from augpipe.trainer.loop import run
from augpipe.trainer.report.metrics import read_rows
from augpipe.trainer.report.tensorboard import Board
from tests.distributed.train_runs import config, write_photos


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
