"""Links between the pages lead somewhere: to a file that is there, and to a heading that it has."""

import re
import unicodedata
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


def anchor(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    text = re.sub(r"[`*]|\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
    return "".join(
        "-" if letter == " " else letter
        for letter in text
        if letter in " -_" or unicodedata.category(letter)[0] in "LN"
    )


@cache
def anchors(page: Path) -> set[str]:
    tokens = MarkdownIt().parse(page.read_text())
    return {anchor(following.content) for token, following in pairwise(tokens) if token.type == "heading_open"}


def dead_links(text: str, page: Path) -> list[str]:
    """What a page links to and is not there."""
    links = [
        str(child.attrGet("href"))
        for token in MarkdownIt().parse(text)
        for child in token.children or ()
        if child.type == "link_open"
    ]
    dead = []
    for link in links:
        if re.match(r"[a-z]+:", link):
            continue
        path, _, fragment = link.partition("#")
        there = (page.parent / path) if path else page
        if not there.exists() or (fragment and there.suffix == ".md" and fragment not in anchors(there)):
            dead.append(link)
    return dead


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    assert dead_links(page.read_text(), page) == []


def test_a_dead_link_is_found() -> None:
    page = ROOT / "docs/loader.md"
    dead = ["gone.md", "sources.md#no-such-heading", "#no-such-heading"]
    alive = ["sources.md", "#the-first-batch", "https://example.org/x#y", "../README.md"]
    text = "\n".join(f"[x]({link})" for link in [*dead, *alive])
    assert dead_links(text, page) == dead
    assert anchor("What `augpipe bench` measures, 8-bit") == "what-augpipe-bench-measures-8-bit"
