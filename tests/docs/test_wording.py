"""README.md, CONTRIBUTING.md and the pages of docs/ use the plain words of `INSTEAD`."""

import re
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT

INSTEAD = {
    r"beside": "next to, as well as",
    r"anew": "again",
    r"likewise": "also, too, or the fact itself",
    r"whoever": "everyone who",
    r"(?<!there )is no (?!longer|more|less)": "is not a",
    r"of these,? (?:it|only|those|as many)": "a noun: of these photographs",
    r"(?<=\w )but for": "except",
    r"all but": "all except",
    r"without a word": "silently",
    r"what it (?:costs?|holds|bears)": "a noun: the cost, the content",
    r"gone on with": "resumed",
    r"(?:is|are) told of|which a line says": "a line says so",
    r"named rightly|(?:pictures|images) right": "classified correctly, accuracy",
}
"""Pattern, in any case -> what to write."""
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def hits(markdown: str) -> list[str]:
    """Each place in the prose, code left out, with what to write there."""
    prose = " ".join(re.sub(r"^ *```.*?^ *```|`[^`]*`", "_", markdown, flags=re.M | re.S).split())
    return [
        f"...{prose[max(0, hit.start() - 30) : hit.end() + 30]}...: instead of {hit[0]!r} write {better}"
        for pattern, better in INSTEAD.items()
        for hit in re.finditer(rf"\b(?:{pattern})\b", prose, re.I)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_is_in_plain_words(page: Path) -> None:
    assert hits(page.read_text(encoding="utf-8")) == []


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
