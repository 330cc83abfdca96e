"""What a page of the documentation holds beside its prose: fenced blocks, and names and commands in its sentences."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block."""

    language: str
    """As the fence names it; empty where it names none."""
    text: str
    line: int
    """The page's line where the text begins, counted from 1."""


def page_names() -> list[str]:
    """Every page, by its path in the repository."""
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [str(path.relative_to(ROOT)) for path in found]


def blocks_of(markdown: str) -> list[Block]:
    """The fenced blocks, in their order, within lists and quotations too."""
    return [
        Block(language=token.info.strip(), text=token.content, line=token.map[0] + 2)
        for token in _parse(markdown)
        if token.type == "fence" and token.map is not None
    ]


def code_spans(markdown: str) -> list[str]:
    """The text of each `code span`, in sentences and tables."""
    inline = [token for token in _parse(markdown) if token.type == "inline"]
    return [child.content for token in inline for child in token.children or () if child.type == "code_inline"]


def commands(shell: str) -> Iterator[list[str]]:
    """The words of each command, without what is set before it and without where its output goes."""
    for line in shell.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, ";"]:
            if word in (";", "|", "||", "&&"):
                if words:
                    yield words
                words = []
            elif words or not re.fullmatch(r"\w+=.*|sudo", word):
                words.append(word)


def _parse(markdown: str) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(markdown)
