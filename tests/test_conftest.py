"""The tests' own set-up: what is slow is there, and golden messages that nothing gives any more are dropped."""

from pathlib import Path

import pytest

from tests import messages
from tests.conftest import ROOT, SLOW


def test_what_is_slow_is_there() -> None:
    """A file that has moved would run among the quick ones."""
    assert [name for name in SLOW if not (ROOT / name).exists()] == []


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A text of one test file's messages, in which another call stands, too."""
    monkeypatch.setattr(messages, "GOLDEN", tmp_path)
    messages.golden.cache_clear()
    path = tmp_path / "contracts.txt"
    path.write_text("# tests/contracts/test_cache.py\n\nOld()\n  -> gone\n\nStays()\n  -> before\n")
    return path


def test_a_digest_of_decimal_digits_alone_is_masked_too() -> None:
    assert messages.masked("02904896747a… there, 029048967471… asked for") == "HEX… there, HEX… asked for"
    assert messages.masked("max_pixels=2147483647 of 12345678") == "max_pixels=2147483647 of 12345678"


FILE = "tests/contracts/test_cache.py"


def test_calls_that_are_gone_are_dropped_where_a_file_ran_whole(room: Path) -> None:
    messages.write({FILE: {"Stays()": ["now"]}}, {FILE})
    assert room.read_text() == f"# {FILE}\n\nStays()\n  -> now\n"


def test_a_file_whose_tests_are_answered_nothing_any_more_is_dropped(room: Path) -> None:
    messages.write({}, {FILE, "tests/packaging/test_layout.py"})
    assert room.read_text() == ""


def test_answers_of_tests_that_did_not_run_stay(room: Path) -> None:
    messages.write({FILE: {"Stays()": ["now"]}}, set())
    assert room.read_text() == f"# {FILE}\n\nOld()\n  -> gone\n\nStays()\n  -> before\n  -> now\n"


def test_which_files_ran_whole() -> None:
    run = messages.Run()
    for nodeid in ("tests/a.py::one", "tests/a.py::two", "tests/b.py::one", "tests/b.py::two", "tests/c.py::one"):
        run.collected.add(nodeid)
    run.left_out.add("tests/c.py")  # by -k, or as a test was named
    for nodeid in ("tests/a.py::one", "tests/a.py::two", "tests/b.py::one", "tests/c.py::one"):
        run.passed.add(nodeid)
    assert run.whole() == {"tests/a.py"}  # b's other test failed, or was skipped
