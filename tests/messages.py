"""Messages seen whole: each wrong call of the tests with its answer, in one text a room under tests/golden/messages.

A test that expects an error by `pytest.raises`, or calls `note`, is compared with the room's text, and fails where the
answer is another one, whatever its numbers. `pytest --regenerate-messages` writes the answers of the tests that run:
read the change as a diff. Where a text is removed before, it holds nothing but what its room's tests say today.
"""

import ast
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
    (re.compile(r"\b(?=[0-9a-f]*[a-f])(?=[0-9a-f]*[0-9])[0-9a-f]{8,}\b"), "HEX"),
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


class MessagesPlugin:
    """Records what tests expect of errors, and compares it with the rooms' texts."""

    def __init__(self, config: pytest.Config) -> None:
        self._regenerates = bool(config.getoption("--regenerate-messages"))
        self._found: dict[str, Messages] = {}
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

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["messages"] = self._found
        else:
            write(self._found)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """A process of pytest-xdist has ended."""
        for path, messages in getattr(node, "workeroutput", {}).get("messages", {}).items():
            self._found.setdefault(path, {}).update(messages)


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


def write(found: dict[str, Messages]) -> None:
    """Put answers in the place of those that the rooms' texts have; of tests that did not run the texts stay."""
    for room in {room_of(path) for path in found}:
        whole = dict(golden(room))
        for path in (path for path in found if room_of(path) == room):
            whole[path] = whole.get(path, {}) | found[path]
        lines = []
        for path in sorted(path for path in whole if (ROOT / path).exists()):
            lines.append(f"# {path}\n")
            for call, answers in sorted(whole[path].items()):
                shown = ["  -> " + answer.replace("\n", "\n     ") for answer in sorted(answers)]
                lines.append("\n".join([call, *shown, ""]))
        room.parent.mkdir(parents=True, exist_ok=True)
        room.write_text("\n".join(lines))
