"""Pages, docstrings and messages use the plain words of `INSTEAD`."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT

ANYWHERE = {
    r"beside": "next to, as well as",
    r"anew": "again",
    r"likewise": "also, too, or the fact itself",
    r"(?<!there )(?:is|are|was|were) no (?!longer|more|less|smaller|larger|better|worse|such)": "is not a",
    r"without a word": "silently",
    r"gone on with": "resumed",
}
"""Pattern, in any case -> what to write; in pages, docstrings and messages."""
INSTEAD = ANYWHERE | {
    r"whoever": "everyone who",
    r"of these,? (?:it|only|those|as many)": "a noun: of these photographs",
    r"(?<=\w )but for": "except",
    r"all but": "all except",
    r"what it (?:costs?|holds|bears|lacks|leaves)": "a noun: the cost, the content",
    r"(?:is|are) told of|which a line says": "a line says so",
    r"named rightly|(?:pictures|images) right": "classified correctly, accuracy",
}
"""In pages and messages."""
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
ROOMS = ("augpipe", "gpu_ops", "datasets", "trainer")
MODULES = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]  # links are not followed


def hits(markdown: str, instead: dict[str, str] = INSTEAD) -> list[str]:
    """Each place in the prose, code left out, with what to write there."""
    prose = " ".join(re.sub(r"^ *```.*?^ *```|`[^`]*`", "_", markdown, flags=re.M | re.S).split())
    return [
        f"...{prose[max(0, hit.start() - 30) : hit.end() + 30]}...: instead of {hit[0]!r} write {better}"
        for pattern, better in instead.items()
        for hit in re.finditer(rf"\b(?:{pattern})\b", prose, re.I)
    ]


def texts(module: str) -> Iterator[tuple[int, str, bool]]:
    """Line, text and whether it is a docstring, of each text in the source of a module."""
    tree = ast.parse(module)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value, id(node) in docstrings


def hits_of_module(module: str) -> list[str]:
    return [
        f"line {line}: {hit}"
        for line, text, is_docstring in texts(module)
        if is_docstring or " " in text.strip()  # a text of one word is a name
        for hit in hits(text, ANYWHERE if is_docstring else INSTEAD)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_is_in_plain_words(page: Path) -> None:
    assert hits(page.read_text(encoding="utf-8")) == []


def test_docstrings_and_messages_are_in_plain_words() -> None:
    found = {str(path.relative_to(ROOT)): hits_of_module(path.read_text(encoding="utf-8")) for path in MODULES}
    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    ("planted", "num"),
    [
        ("The index lies beside the file, and is written anew.", 2),
        ("This is no\nloader. Whoever has a list likewise begins here.", 3),
        ("Of these it measures\nas many, all but one, equal but for rounding.", 3),
        ("It is no longer so. There is no loader. Besides, any of these will do, but for a list see `beside`.", 0),
        ("```sh\necho beside anew\n```", 0),
    ],
)
def test_a_planted_sentence_is_found(planted: str, num: int) -> None:
    assert len(hits(planted)) == num


def test_planted_docstrings_and_messages_are_found() -> None:
    module = '''
def begin(beside):
    """Begin anew, beside whoever waits."""  # comments are beside the point
    return f"{beside} is no path, whoever wrote {'anew'}", {"beside": "all but this"}, "a beside"
'''
    found = [line.partition(":")[0] for line in hits_of_module(module)]
    assert found == ["line 3", "line 3", "line 4", "line 4", "line 4", "line 4"]
