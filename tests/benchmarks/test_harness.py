"""What the scripts of benchmarks/ share: turns, kept runs, commands; and that each script is listed and runs."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import harness
from benchmarks.harness import Bench, Kept, in_turn, ratio, spread

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("pipeline", "gpu", "trainer", "papers", "parity")
SCRIPTS = sorted(
    f"{path.parent.name}.{path.stem}"
    for folder in FOLDERS
    for path in (ROOT / "benchmarks" / folder).glob("*.py")
    if "__main__" in path.read_text()
)
NOT_HERE = ("gpu.check", "papers.evidence", "parity.theirs")
"""They have tests of their own, or are started by another."""
ARGUMENTS = {
    "pipeline.compare": ["--before", ".", "--after", "."],
    "trainer.checkpoints": ["--before", "."],
}


def bench(monkeypatch: pytest.MonkeyPatch, *arguments: str, **options: Any) -> Bench:
    monkeypatch.setattr(sys, "argv", ["script", *arguments])
    return Bench("About.", **options)


def test_the_first_round_is_not_counted_and_contenders_take_turns() -> None:
    ticks, order = iter(range(100)), []
    contenders = {"a": lambda: order.append("a") or 1, "b": lambda: order.append("b") or 2}  # type: ignore[func-returns-value]
    seconds = in_turn(contenders, 2, clock=lambda: float(next(ticks)))
    assert order == ["a", "b"] * 3
    assert seconds == {"a": [1.0, 1.0], "b": [0.5, 0.5]}
    assert ratio(seconds, "a", "b") == 2.0 and spread([1.0, 2.0, 9.0], 10) == {"min": 10, "median": 20, "max": 90}


def test_quick_is_one_round_of_the_smallest_size_and_keeps_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    usual, quick = bench(monkeypatch, rounds=7), bench(monkeypatch, "--quick", rounds=7)
    assert (usual.rounds, usual.pick("all", "some")) == (7, "all")
    assert (quick.rounds, quick.pick("all", "some")) == (1, "some")
    quick.keep("one", {"a": 1})
    bench(monkeypatch, "--no-save").keep("one", {"a": 1})
    assert not any(tmp_path.iterdir())
    usual.keep("one", {"a": 1})
    (path,) = tmp_path.iterdir()
    found = json.loads(path.read_text())
    assert re.fullmatch(r"\d{4}-\d\d-\d\d-one\.json", path.name) and found["a"] == 1
    assert found["benchmark"] == "one" and {"date", "machine", "command", "load_average"} <= set(found)


def test_the_kept_command_has_what_was_asked_for_and_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"names": ("x", "y"), "mbit": (200.0, 1000.0), "steps": 3, "kept": Path, "trial": False}
    plain = bench(monkeypatch, **options)
    assert plain.command.endswith(plain.command.split()[2]) and plain.names == ("x", "y")
    given = ("y", "--mbit", "50", "--steps", "3", "--kept", "/home/me/runs", "--trial")
    assert bench(monkeypatch, *given, **options).command.split()[3:] == [
        "y",
        "--mbit",
        "50.0",
        "--kept",
        "KEPT",
        "--trial",
    ]


def test_a_finished_run_is_not_done_again(tmp_path: Path) -> None:
    kept, made = Kept(tmp_path / "runs"), []
    for _ in range(2):
        assert kept.get("one", lambda: made.append(1) or {"error": 0.5}) == {"error": 0.5}  # type: ignore[func-returns-value]
    assert made == [1] and kept.has("one") and not kept.has("two")


def test_what_a_result_says_of_a_ratio_is_left_out_with_its_contender(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = bench(monkeypatch, "--no-save")
    pairs = {"ours over theirs": ("theirs", "ours"), "over a peer that is not installed": ("peer", "ours")}
    made.report("one", what="", seconds={"ours": [1.0], "theirs": [3.0]}, unit="ms", ratios=pairs)
    said = capsys.readouterr().out
    assert '"ours over theirs": 3.0' in said and "not installed" not in said


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_script_is_listed(folder: str) -> None:
    told = (ROOT / "benchmarks" / folder / "README.md").read_text()
    assert [name for name in SCRIPTS if name.startswith(f"{folder}.") and f"`{name.split('.')[1]}`" not in told] == []
    files = [Path(name).stem for name in re.findall(r"`(\w+(?:\.py)?)`", told)]
    missing = [name for name in files if not (ROOT / "benchmarks" / folder / f"{name}.py").is_file()]
    assert missing == []


@pytest.mark.deep
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [name for name in SCRIPTS if name not in NOT_HERE])
def test_every_script_runs(name: str) -> None:
    """Those that want links, data or peers which are not here leave them out, or say so."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}  # without the tests' own watch: DataLoaders unpickle
    command = [sys.executable, "-m", f"benchmarks.{name}", "--quick", *ARGUMENTS.get(name, [])]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    is_without_data = "Set AUGPIPE_DATA" in done.stderr
    assert done.returncode == 0 or is_without_data, done.stdout[-2000:] + done.stderr[-4000:]
