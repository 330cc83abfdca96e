"""How many published recipes are imported, and how many exactly, in either part of the corpus, as the docs say."""

import re
from functools import cache
from pathlib import Path

import pytest

from augpipe import importers
from tests.augpipe.importers.recipes import FRESH, HELD_OUT, SEEN, published

PAGE = Path(__file__).parents[3] / "docs/recipes.md"


@cache
def counts(path: Path) -> tuple[int, int, int]:
    """How many recipes there are, how many are imported as a whole, and of how many all transforms are exact."""
    entries, found = published(path), []
    for entry in entries:
        try:
            found.append(importers.from_text(entry.recipe, version=entry.version or None if path == FRESH else None))
        except ValueError:
            continue
    return len(entries), len(found), sum(all(row.verdict == "exact" for row in one.rows) for one in found)


@pytest.mark.slow
def test_the_docs_say_how_many() -> None:
    told = re.search(
        r"Of (\d+) published recipes, (\d+) are imported as a whole and (\d+) exactly\. "
        r"Of (\d+) others.* now (\d+) and (\d+), of (\d+) drawn later (\d+) and (\d+)",
        " ".join(PAGE.read_text(encoding="utf-8").split()),
    )
    assert told is not None
    assert tuple(map(int, told.groups())) == (*counts(SEEN), *counts(HELD_OUT), *counts(FRESH))


@pytest.mark.parametrize("path", [SEEN, HELD_OUT, FRESH], ids=["seen", "held_out", "fresh"])
def test_as_many_are_imported_as_before(path: Path) -> None:
    num, imported, exact = counts(path)
    least = {SEEN: (0.94, 0.76), HELD_OUT: (0.92, 0.73), FRESH: (0.92, 0.7)}[path]
    assert imported >= least[0] * num and exact >= least[1] * num
