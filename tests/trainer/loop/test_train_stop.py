"""How a run stops and its process ends: signals, errors as lines, ranks that die or were only suspended."""

import logging
import os
import signal
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from torch._C._distributed_c10d import HashStore

from augpipe.errors import DeviceError, SampleError
from augpipe.recipes.recipe import Recipe
from augpipe.trainer.config import make_config, to_toml
from augpipe.trainer.config.tables import DataConfig
from augpipe.trainer.launch import EXIT_FAILURE, EXIT_USAGE, check_config, end_after, launch
from augpipe.trainer.loop import NotFiniteError, SaveError, run
from augpipe.trainer.loop.data import training_recipe
from augpipe.trainer.loop.evaluate import Evaluation
from augpipe.trainer.loop.failures import heartbeat as module
from augpipe.trainer.loop.failures.heartbeat import Heartbeat, PeerError
from augpipe.trainer.loop.step import Step, StepResult
from augpipe.trainer.loop.training import Result
from augpipe.trainer.strategies import SyncError
from tests.distributed.rank_processes import TIMEOUT_S
from tests.distributed.train_processes import started
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
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    result = run(config(out, write_photos(tmp_path, 8), epochs=8, **tables))
    assert result.signal == signal.SIGTERM
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before
    assert result.step in (3, 4)
    assert checkpoints(out)[-1] == f"step-{result.step:09}"


WAITS_IN_STEP_1 = """
import concurrent.futures, runpy, signal, sys, time
from augpipe.trainer.loop.step import Step
pool = concurrent.futures.ThreadPoolExecutor(1)
def waiting(self, *arguments):
    pool.submit(time.sleep, 600)  # as a checkpoint's writer does whose other ranks are gone
    signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGINT)
Step.run = waiting
sys.argv[0] = "augpipe.trainer"
runpy.run_module("augpipe.trainer", run_name="__main__")
"""


@pytest.mark.slow  # a process that imports torch
def test_the_second_ends_it(tmp_path: Path) -> None:
    job = tmp_path / "job.toml"
    job.write_text(to_toml(config(tmp_path / "run", write_photos(tmp_path, 8))))
    with started([(["-c", WAITS_IN_STEP_1, str(job)], {})]) as (process,):
        _, said = process.communicate(timeout=TIMEOUT_S / 2)
    assert process.returncode == 128 + signal.SIGINT
    assert said.endswith("augpipe: interrupted\n") and "Traceback" not in said


def test_a_size_that_no_scale_has_room_for(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(ValueError, match="size=300") as caught:
        training_recipe(DataConfig(source="photos", size=300))
    assert end_after(caught.value) == EXIT_USAGE
    assert capsys.readouterr().err == (
        "augpipe (rank 1): size=300 is larger than 256, the smallest of scales=[256, 512]: a crop cannot exceed the "
        "resized image. Lower size, or raise scales to at least 300.\n"
    )


def test_a_long_file_is_not_a_config_though_it_begins_as_one(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    path.write_bytes(b"#" * 2**20)
    check_config(str(path))
    path.write_bytes(b"#" * (2**20 + 1))
    with pytest.raises(ValueError, match="notes is not a TOML file"):
        check_config(str(path))


INSTALLED = "/home/me/augpipe/.venv/lib/python3.12/site-packages"


def raised_in(path: str) -> None:
    exec(compile("raise ValueError('too deep')", path, "exec"))


@pytest.mark.parametrize(
    ("fails", "code", "is_a_line"),
    [
        (lambda: make_config({}), EXIT_USAGE, True),
        (lambda: Recipe.model_validate({"ops": 3}), EXIT_USAGE, True),
        (lambda: raised_in(f"{INSTALLED}/augpipe/trainer/optim.py"), EXIT_USAGE, True),
        (lambda: raised_in(f"{INSTALLED}/library/core.py"), EXIT_FAILURE, False),
        (lambda: Path("/no/such/file").read_text(), EXIT_FAILURE, True),
        (lambda: import_module("no_such_module"), EXIT_FAILURE, True),
        (lambda: signal.raise_signal(signal.SIGINT), 128 + signal.SIGINT, True),
        (lambda: {}["lost"], EXIT_FAILURE, False),
    ],
)
def test_how_a_process_ends_after_an_error(
    fails: Callable[[], object], code: int, is_a_line: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BaseException) as caught:  # noqa: PT011
        fails()
    assert end_after(caught.value) == code
    said = capsys.readouterr().err
    assert said.startswith("augpipe: ") == is_a_line and ("Traceback" in said) != is_a_line


@pytest.mark.parametrize("kind", [PeerError, NotFiniteError, SaveError, SyncError, SampleError, DeviceError])
def test_errors_of_a_runs_own_are_lines(kind: type[Exception], capsys: pytest.CaptureFixture[str]) -> None:
    error = kind.__new__(kind)
    error.args = ("this is why",)
    assert end_after(error) == EXIT_FAILURE
    assert capsys.readouterr().err == "augpipe: this is why\n"


@pytest.fixture
def bare_logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger("augpipe")
    logger.handlers.clear()
    yield logger
    logger.handlers.clear()


@pytest.mark.parametrize("rank", [None, "0", "1"])
@pytest.mark.parametrize("ended_by", [None, signal.SIGTERM])
def test_rank_0_alone_says_how_it_went_and_all_end_alike(
    rank: str | None,
    ended_by: int | None,
    bare_logger: logging.Logger,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    evaluation = Evaluation(loss=0.5, top1=0.875, top5=1.0, num_samples=8)
    result = Result(out=Path("runs/it"), step=1200, epochs_done=2.5, evaluation=evaluation, signal=ended_by)
    monkeypatch.setattr("augpipe.trainer.loop.run", lambda config: result)
    if rank is None:
        monkeypatch.delenv("RANK", raising=False)
    else:
        monkeypatch.setenv("RANK", rank)
    path = tmp_path / "job.toml"
    path.write_text(to_toml(make_config({"data": {"source": "photos"}})))
    for _ in range(2):  # a second run in this process logs no line twice
        assert launch(str(path), []) == (0 if ended_by is None else 128 + signal.SIGTERM)
    how = "done" if ended_by is None else "stopped by SIGTERM"
    again = "" if ended_by is None else "; the same command goes on from here"
    lines = [
        f"augpipe: {how} after 2.50 epochs, 1,200 steps, held out: top-1 87.5%{again}",
        "augpipe: runs/it/metrics.csv; augpipe report runs/it draws it",
    ]
    assert capsys.readouterr().err.splitlines() == ([] if rank == "1" else lines * 2)
    bare_logger.info("to be seen once")
    bare_logger.warning("a warning")
    expected = ["augpipe (rank 1): a warning"] if rank == "1" else ["augpipe: to be seen once", "augpipe: a warning"]
    assert capsys.readouterr().err.splitlines() == expected


def test_betas_are_looked_at_before_torch_does() -> None:
    with pytest.raises(ValueError, match=r"optim\.betas=\[2, 0\.9\] must be two numbers from 0 to below 1"):
        make_config({"data": {"source": "photos"}}, ["optim.betas=[2, 0.9]"])


class Ring:
    """The heartbeats of two ranks or more, beaten by hand, under a clock that stands still."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, size: int = 2) -> None:
        self.now = 0.0
        monkeypatch.setattr(module.time, "monotonic", lambda: self.now)
        self.store = HashStore()
        self.ranks = [Heartbeat(self.store, rank, size, 8.0) for rank in range(size)]
        self.seen: list[dict[int, tuple[str, float]]] = [{} for _ in range(size)]
        self.num_beats = [0] * size

    def beat(self, rank: int) -> None:
        self.num_beats[rank] += 1
        self.store.set(f"augpipe/alive/{rank}", str(self.num_beats[rank]))
        self.ranks[rank]._look(self.seen[rank])

    @property
    def obituary(self) -> str:
        self.ranks[1]._look(self.seen[1])
        self.ranks[0]._look(self.seen[0])
        return self.ranks[0]._obituary + self.ranks[1]._obituary


@pytest.fixture
def ring(monkeypatch: pytest.MonkeyPatch) -> Ring:
    ring = Ring(monkeypatch)
    for _ in range(3):
        ring.now += 1
        ring.beat(1)
        ring.beat(0)
    return ring


def test_whoever_wakes_first_waits_for_the_others(ring: Ring) -> None:
    ring.now += 60
    ring.beat(0)
    ring.beat(1)
    ring.beat(0)
    assert ring.obituary == ""


@pytest.mark.parametrize("stands_still_s", [0, 60])
def test_a_dead_one_is_found_all_the_same(ring: Ring, stands_still_s: float) -> None:
    ring.now += stands_still_s
    for _ in range(7):
        ring.now += 1
        ring.beat(0)
    assert ring.ranks[0]._obituary == ""
    for _ in range(2):
        ring.now += 1
        ring.beat(0)
    assert ring.ranks[0]._obituary.startswith("rank 1 has died: it has given no sign of life for ")


@pytest.mark.parametrize("dead", [1, 2])
def test_after_a_failed_exchange_every_rank_is_watched(dead: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ring = Ring(monkeypatch, 3)
    ring.ranks[0]._in_doubt = True
    for second in range(10):
        ring.now += 1
        for rank in {0, 1, 2} - ({dead} if second > 1 else set()):
            ring.beat(rank)
    assert ring.ranks[0]._obituary.startswith(f"rank {dead} has died: it has given no sign of life for ")
