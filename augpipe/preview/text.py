"""Text on a sheet: made legible with the fonts of this machine, measured, wrapped and drawn."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import groupby

from PIL import ImageDraw

from augpipe.preview.fonts import OWN, font, font_of, has_letter, package_of, tell_missing

SEPARATOR = "  ·  "
"""Between the captions of several ops on one line."""


def legible(text: str) -> str:
    """The text in letters that can be drawn: those that no font has lose their accents, or are written as \\uXXXX.

    A log line names the package that draws them.
    """
    letters = unicodedata.normalize("NFC", text)  # macOS keeps accents of file names apart
    for package, group in groupby(letters, lambda letter: package_of(letter) if font_of(letter) is None else None):
        if package is not None:
            part = "".join(group)
            tell_missing(package, part, "".join(map(_letter, part)))
    return "".join(map(_letter, letters))


def draw(pen: ImageDraw.ImageDraw, at: tuple[int, int], text: str, colour: tuple[int, int, int], size_px: int) -> None:
    """Draw one line of `legible` text whose upper left corner is `at`, letters of all fonts on one baseline."""
    x, baseline = float(at[0]), at[1] + font(size_px).getmetrics()[0]
    for name, part in _runs(text):
        pen.text((x, baseline), part, colour, font=font(size_px, name), anchor="ls")
        x += font(size_px, name).getlength(part)


def width_px(text: str, size_px: int) -> float:
    """How wide one line of `legible` text is."""
    return sum(font(size_px, name).getlength(part) for name, part in _runs(text))


def line_height_px(size_px: int) -> int:
    """From one line's top to the next one's."""
    return round(1.36 * size_px)


def wrap(parts: Sequence[str], size_px: int, limit_px: float) -> list[str]:
    """Lines no wider than `limit_px`, broken between parts where that will do, and else between words."""
    lines: list[str] = []
    for part in parts:
        joined = f"{lines[-1]}{SEPARATOR}{part}" if lines else part
        if lines and width_px(joined, size_px) <= limit_px:
            lines[-1] = joined
        else:
            lines.extend(_by_words(part, size_px, limit_px))
    return lines


def shorten(text: str, size_px: int, limit_px: float) -> str:
    """The text, or its two ends with an ellipsis between where it is too wide."""
    if width_px(text, size_px) <= limit_px:
        return text
    for kept in range(len(text) - 1, 1, -1):
        short = f"{text[: (kept + 1) // 2]}…{text[-(kept // 2) :]}"
        if width_px(short, size_px) <= limit_px:
            return short
    return text[:1]


def _by_words(text: str, size_px: int, limit_px: float) -> list[str]:
    lines: list[str] = []
    for word in text.split(" "):
        joined = f"{lines[-1]} {word}" if lines else word
        if lines and width_px(joined, size_px) <= limit_px:
            lines[-1] = joined
        else:
            lines.append(shorten(word, size_px, limit_px))
    return lines


@cache
def _letter(letter: str) -> str:
    if font_of(letter) is not None:
        return letter
    plain = unicodedata.normalize("NFKD", letter)[:1]
    return plain if has_letter(plain) else letter.encode("unicode_escape").decode()


def _runs(text: str) -> Iterator[tuple[str, str]]:
    """(font, letters) of the parts of a text."""
    placed = [pair for word in re.split(r"(\s+)", text) for pair in zip(_fonts_of(word), word, strict=True)]
    for name, group in groupby(placed, lambda pair: pair[0]):
        yield name, "".join(letter for _, letter in group)


def _fonts_of(word: str) -> list[str]:
    """The font of each letter; one for the whole word where Pillow's own lacks some of it and another has all."""
    is_foreign = any(letter.isalpha() and not has_letter(letter) for letter in word)
    one = font_of(word) if is_foreign else None
    return [(font_of(letter) or OWN) if one is None else one for letter in word]
