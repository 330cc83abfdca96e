"""Text on a sheet: one font at any size, measured and wrapped to a width."""

import unicodedata
from collections.abc import Sequence
from functools import cache
from typing import cast

from PIL import ImageFont

SEPARATOR = "  ·  "
"""Between the captions of several ops on one line."""


@cache
def font(size_px: int) -> ImageFont.FreeTypeFont:
    """Pillow's own scalable font, so that a sheet looks the same on every machine.

    Raises:
        ImportError: this Pillow was built without FreeType.
    """
    return cast(ImageFont.FreeTypeFont, ImageFont.load_default(size_px))


def legible(text: str) -> str:
    """The text in letters that the font has: without accents where it lacks them, and "?" for the rest."""
    return "".join(_letter(letter) for letter in text)


def width_px(text: str, size_px: int) -> float:
    """How wide one line of text is."""
    return font(size_px).getlength(text)


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
    if _is_drawn(letter):
        return letter
    plain = unicodedata.normalize("NFKD", letter)[:1]
    return plain if plain and _is_drawn(plain) else "?"


def _is_drawn(letter: str) -> bool:
    """Whether the font has the letter; for all that it lacks it draws the box of U+FFFF, which is no letter."""
    drawn, missing = font(16).getmask(letter), font(16).getmask("\uffff")
    return letter.isspace() or (drawn.size, bytes(drawn)) != (missing.size, bytes(missing))
