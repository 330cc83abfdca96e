"""Messages seen whole: each wrong call of the tests with its answer, in one text a room under tests/golden/messages.

A test that expects an error by `pytest.raises`, or calls `note`, is compared with the room's text, and fails where the
answer is another one, whatever its numbers. `pytest --regenerate-messages` writes the answers of the tests that run,
and drops what is no longer answered in files whose tests all ran: read the change as a diff.
"""

import ast
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = ROOT / "tests/golden/messages"
ROOMS = ("augpipe", "contracts", "datasets", "gpu_ops", "trainer")
PACKAGE = tuple(str(ROOT / name) for name in ("augpipe", "gpu_ops", "datasets", "trainer"))
TEMPORARY = re.escape(tempfile.gettempdir())
MASKS = (
    (re.compile(re.escape(str(ROOT))), "ROOT"),
    (
        re.compile(rf"{re.escape(tempfile.gettempdir())}/(pytest-of-\w+/pytest-\d+/(popen-gw\d+/)?)?[^/\s'\",:;)]+"),
        "TMP",
    ),
    (re.compile(r"(process \d+) on [\w.-]+"), r"\1 on HOST"),
    (re.compile(r"\b0x[0-9a-f]+"), "0x.."),
    (re.compile(r"(127\.0\.0\.1|localhost):\d+"), r"\1:PORT"),
    (re.compile(r"\b((?=[0-9a-f]*[a-f])(?=[0-9a-f]*[0-9])[0-9a-f]{8,}\b|[0-9a-f]{12}(?=…))"), "HEX"),
    (re.compile(r"(There are all_of|Those that have one: blur)(, \w+)+"), r"\1, .."),
)
"""What differs from run to run, from machine to machine or with every op, and what stands for it."""
NUMBER = re.compile(r"\d+")
"""What may differ between two answers that count as one: a text shows one of them."""
LONGEST_CALL = 300

Messages = dict[str, list[str]]
"""Call -> its answers, of one test file."""

_noted: list[tuple[str, str]] = []
"""What the running test has called and been answered."""


def note(call: str, answer: str) -> None:
    """Have an answer compared that no exception carries, as that of a command."""
    _noted.append((call, answer))


def masked(text: str) -> str:
    for pattern, instead in MASKS:
        text = pattern.sub(instead, text)
    return text


@cache
def _statements(path: str) -> list[ast.With]:
    return [node for node in ast.walk(ast.parse(Path(path).read_text())) if isinstance(node, ast.With)]


def call_at(frame: FrameType) -> str:
    """The source of what the `with pytest.raises(...)` that a frame enters has in its block."""
    inside = [
        node
        for node in _statements(frame.f_code.co_filename)
        if any(one.context_expr.lineno <= frame.f_lineno <= (one.context_expr.end_lineno or 0) for one in node.items)
    ]
    text = "; ".join(ast.unparse(line) for line in inside[-1].body) if inside else "?"
    return re.sub(r"\s+", " ", text)[:LONGEST_CALL]


def is_ours(error: BaseException) -> bool:
    """Whether the package raised it itself: what other libraries say changes with their versions."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return at is not None and at.tb_frame.f_code.co_filename.startswith(PACKAGE)


@dataclass
class Run:
    """Which tests of which files ran."""

    collected: set[str] = field(default_factory=set)
    """Ids of the tests that were to run."""
    left_out: set[str] = field(default_factory=set)
    """Files of which some tests were not to run."""
    passed: set[str] = field(default_factory=set)

    def whole(self) -> set[str]:
        """The files whose tests all ran, and passed."""
        files = {nodeid.partition("::")[0] for nodeid in self.collected}
        return files - self.left_out - {nodeid.partition("::")[0] for nodeid in self.collected - self.passed}


class MessagesPlugin:
    """Records what tests expect of errors, and compares it with the rooms' texts."""

    def __init__(self, config: pytest.Config) -> None:
        self._regenerates = bool(config.getoption("--regenerate-messages"))
        self._found: dict[str, Messages] = {}
        self._run = Run()
        self._raises: Callable[..., Any] = pytest.raises
        pytest.raises = self._recording  # type: ignore[assignment]

    def pytest_unconfigure(self) -> None:
        pytest.raises = self._raises  # type: ignore[assignment]

    @contextmanager
    def _recording(self, *kinds: Any, **options: Any) -> Iterator[Any]:
        __tracebackhide__ = True
        frame = sys._getframe(2)
        with self._raises(*kinds, **options) as caught:
            yield caught
        if is_ours(caught.value):
            _noted.append((call_at(frame), str(caught.value)))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Compare what the test has noted; those that take long or draw their cases are left out."""
        _noted.clear()
        result = yield
        path = item.path.relative_to(ROOT).as_posix()
        is_left_out = any(map(item.get_closest_marker, ("slow", "deep", "gpu", "varies")))
        if path.split("/")[1] not in ROOMS or is_left_out or hasattr(getattr(item, "obj", None), "hypothesis"):
            return result
        for call, answer in _noted:
            # a table of calls has each for its id
            shown = item.name.partition("[")[2].removesuffix("]") if call.startswith("eval(call") else call
            self._take(path, masked(shown), masked(answer))
        return result

    def _take(self, path: str, call: str, answer: str) -> None:
        known = golden(room_of(path)).get(path, {}).get(call, [])
        same = [one for one in known if NUMBER.sub("", one) == NUMBER.sub("", answer)]
        if self._regenerates:
            answers = self._found.setdefault(path, {}).setdefault(call, [])
            if NUMBER.sub("", answer) not in [NUMBER.sub("", one) for one in answers]:
                answers.append(same[0] if same else answer)
        elif not same:
            pytest.fail(
                f"{call}\nis answered by\n{answer}\nand {room_of(path).name} has\n{known}\n"
                "If it is as it should be, run the test with --regenerate-messages, and read the change as a diff.",
                pytrace=False,
            )

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        self._run.left_out.update(item.nodeid.partition("::")[0] for item in items)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._run.collected.update(item.nodeid for item in session.items)
        named = [argument for argument in session.config.args if "::" in argument]
        self._run.left_out.update(Path(one.partition("::")[0]).resolve().relative_to(ROOT).as_posix() for one in named)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self._run.passed.add(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["messages"] = self._found
            output["collected"], output["left_out"] = sorted(self._run.collected), sorted(self._run.left_out)
        elif self._regenerates:
            write(self._found, self._run.whole())

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """A process of pytest-xdist has ended."""
        output = getattr(node, "workeroutput", {})
        self._run.collected.update(output.get("collected", ()))
        self._run.left_out.update(output.get("left_out", ()))
        for path, messages in output.get("messages", {}).items():
            merged = self._found.setdefault(path, {})
            for call, answers in messages.items():
                merged[call] = united(merged.get(call, []), answers)


def room_of(path: str) -> Path:
    """The text that has the messages of a test file."""
    return GOLDEN / f"{path.split('/')[1]}.txt"


@cache
def golden(room: Path) -> dict[str, Messages]:
    """Test file -> its messages."""
    found: dict[str, Messages] = {}
    answers: list[str] = []
    for line in room.read_text().splitlines() if room.exists() else ():
        if line.startswith("# "):
            messages = found.setdefault(line[2:], {})
        elif line.startswith("  -> "):
            answers.append(line[5:])
        elif line.startswith("     "):
            answers[-1] += f"\n{line[5:]}"
        elif line:
            answers = messages.setdefault(line, [])
    return found


def united(some: list[str], others: list[str]) -> list[str]:
    """The answers of both, those that differ in numbers only once."""
    known = {NUMBER.sub("", one) for one in some}
    return [*some, *(one for one in others if NUMBER.sub("", one) not in known)]


def write(found: dict[str, Messages], whole_files: set[str]) -> None:
    """Put answers in the place of those that the rooms' texts have.

    Of files that did not run whole what the texts have stays, and new answers join it.
    """
    silent = {path for path in whole_files - set(found) if path.split("/")[1] in ROOMS}
    for room in {room_of(path) for path in [*found, *silent]}:
        whole = {path: messages for path, messages in golden(room).items() if path not in silent}
        for path in (path for path in found if room_of(path) == room):
            kept = {} if path in whole_files else whole.get(path, {})
            whole[path] = kept | {call: united(answers, kept.get(call, [])) for call, answers in found[path].items()}
        lines = []
        for path in sorted(path for path in whole if (ROOT / path).exists()):
            lines.append(f"# {path}\n")
            for call, answers in sorted(whole[path].items()):
                shown = ["  -> " + answer.replace("\n", "\n     ") for answer in sorted(answers)]
                lines.append("\n".join([call, *shown, ""]))
        room.parent.mkdir(parents=True, exist_ok=True)
        room.write_text("\n".join(lines))
