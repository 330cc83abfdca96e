"""How far a command is: what a log holds, and the bar on a terminal, which leaves nothing behind after Ctrl-C."""

import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from augpipe.reports import progress_bar
from augpipe.reports.progress_bar import ProgressBar
from tests.child_path import child_path


class Clock:
    """Stands for `time`; it passes as told."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(progress_bar, "time", made)
    return made


def test_a_log_holds_a_line_every_ten_seconds_and_one_at_the_end(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with ProgressBar("reading", unit="image") as bar:
        bar.update(1000, 2000)  # done by an earlier run
        for done in range(1020, 2001, 20):
            clock.now += 1
            bar.update(done, 2000)
    printed, said = capsys.readouterr()
    first, *_, last, end = said.splitlines()
    assert printed == "" and said.count("\n") == 6
    assert first == "augpipe: reading 1,200/2,000  20 images/s  0:40 left"
    assert last == "augpipe: reading 2,000/2,000  20 images/s  0:00 left"
    assert end == "augpipe: reading took 50.0 s: 1,000 images, 20 images/s"


def test_lines_of_long_stages_are_further_apart(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressBar("reading", 36_000, unit="image") as bar:
        for _ in range(36_000):
            clock.now += 1
            bar.advance()
    assert 50 < capsys.readouterr().err.count("\n") < 150


def test_what_is_short_fails_or_is_not_to_be_told_has_no_line_at_its_end(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    for shows, tells_end, seconds in ((True, True, 1.9), (False, True, 30), (True, False, 9)):
        with ProgressBar("reading", 10, unit="image", shows=shows, tells_end=tells_end) as bar:
            clock.now += seconds
            bar.advance(5)
    failing = ProgressBar("reading", 10, unit="image")
    clock.now += 5
    with pytest.raises(ZeroDivisionError), failing:
        failing.advance(1 // 0)
    assert capsys.readouterr().err == ""


def test_stages_have_rates_of_their_own(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressBar(unit="byte") as bar:
        bar.tell("reading [a]", 0, 4e6)
        clock.now += 2
        bar.tell("reading [a]", 4e6, 4e6)
        bar.tell("comparing", 1e6, 2e6)
        clock.now += 40
        bar.note("a word in between")
        bar.tell("comparing", 2e6, 2e6)
        bar.begin("writing")
        clock.now += 3
        assert bar.text == "0:03"
    assert capsys.readouterr().err.splitlines() == [
        "augpipe: reading [a] took 2.0 s: 4.0 MB, 2 MB/s",
        "augpipe: a word in between",
        "augpipe: comparing 2.0/2.0 MB  0.025 MB/s  0:00 left",
        "augpipe: comparing took 40.0 s: 1.0 MB, 0.025 MB/s",
        "augpipe: writing took 3.0 s",
    ]


@pytest.mark.parametrize("colours", [{}, {"FORCE_COLOR": "1"}])
def test_what_forces_colours_makes_no_terminal_of_a_log(colours: dict[str, str], tmp_path: Path) -> None:
    code = (
        "from augpipe.reports import progress_bar\n"
        "progress_bar.LINE_EVERY_S = 0\n"
        "with progress_bar.ProgressBar('reading', 2, unit='image') as bar: bar.advance()"
    )
    environment = {**os.environ, "PYTHONPATH": child_path(), **colours}
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=environment, check=True
    )
    assert re.fullmatch(r"augpipe: reading 1/2  .*/s  0:00 left\n", ended.stderr) and ended.stdout == ""


@pytest.mark.slow
def test_on_a_terminal_it_is_a_bar_and_ctrl_c_gives_the_cursor_back(tmp_path: Path) -> None:
    """`augpipe sample`, which draws for a minute."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": child_path(), "TERM": "xterm-256color", "COLUMNS": "100"}
    command = [sys.executable, "-m", "augpipe", "sample", str(tmp_path / "made"), "--num", "3000"]
    seen = b""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, env=environment) as process:
        os.close(theirs)
        give_up = time.monotonic() + 60
        while not re.search(rb"images/s +\S*\d:\d\d left", seen) and time.monotonic() < give_up:
            seen += os.read(ours, 4096)
        process.send_signal(signal.SIGINT)
        while True:
            try:
                more = os.read(ours, 4096)
            except OSError:  # the other end is closed
                break
            if not more:
                break
            seen += more
        printed, _ = process.communicate(timeout=30)
    os.close(ours)
    assert process.returncode == 130 and printed == b""
    assert b"\xe2\x94\x81" in seen, "a bar"
    assert seen.count(b"\x1b[?25l") == seen.count(b"\x1b[?25h") == 1
    said = seen.decode().rpartition("\x1b[?25h")[2]
    assert said.strip().endswith("augpipe: interrupted") and "Traceback" not in seen.decode()
