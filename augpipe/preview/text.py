"""Text on a sheet: one font at any size, and those of the machine for letters that it lacks; measured and wrapped."""

import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import groupby
from typing import cast

from PIL import ImageDraw, ImageFont

SEPARATOR = "  ·  "
"""Between the captions of several ops on one line."""
FALLBACKS = (
    *("NotoSans-Regular.ttf", "DejaVuSans.ttf", "segoeui.ttf", "Arial Unicode.ttf"),
    *("NotoSansCJK-Regular.ttc", "wqy-zenhei.ttc", "DroidSansFallbackFull.ttf", "msyh.ttc", "PingFang.ttc"),
    *("NotoSansKR-Regular.otf", "malgun.ttf", "AppleSDGothicNeo.ttc", "NotoSansArabic-Regular.ttf"),
    *("NotoSansHebrew-Regular.ttf", "NotoSansDevanagari-Regular.ttf", "NotoSansThai-Regular.ttf", "Nirmala.ttf"),
)
"""Fonts of Linux, Windows and macOS, of which Pillow finds those that are installed: for names in other scripts."""
OWN = ""
"""The name of Pillow's own font, of Latin letters."""


@cache
def font(size_px: int, name: str = OWN) -> ImageFont.FreeTypeFont:
    """Pillow's own scalable font, so that a sheet looks the same on every machine; or one of `FALLBACKS`.

    Raises:
        ImportError: this Pillow was built without FreeType.
        OSError: that font is not installed.
    """
    return cast(ImageFont.FreeTypeFont, ImageFont.truetype(name, size_px) if name else ImageFont.load_default(size_px))


def legible(text: str) -> str:
    """The text in letters that can be drawn: without accents where the font lacks them, else as \\uXXXX."""
    return "".join(_letter(letter) for letter in text)


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
    plain = unicodedata.normalize("NFKD", letter)[:1]
    if _is_drawn(letter) or not _is_drawn(plain):
        return letter if _font_of(letter) is not None else letter.encode("unicode_escape").decode()
    return plain


def _runs(text: str) -> Iterator[tuple[str, str]]:
    """(font, letters) of the parts of a text."""
    for name, letters in groupby(text, lambda letter: _font_of(letter) or OWN):
        yield name, "".join(letters)


@cache
def _font_of(letter: str) -> str | None:
    """The first font that has a letter; None where none has it."""
    return next((name for name in (OWN, *_installed()) if _is_drawn(letter, name)), None) if letter > "~" else OWN


@cache
def _installed() -> tuple[str, ...]:
    """Those of `FALLBACKS` that Pillow finds."""
    found = []
    for name in FALLBACKS:
        try:
            font(16, name)
        except OSError:
            continue
        found.append(name)
    return tuple(found)


def _is_drawn(letter: str, name: str = OWN) -> bool:
    """Whether a font has the letter; for all that it lacks it draws the box of U+FFFF, which is no letter."""
    drawn, missing = font(16, name).getmask(letter), font(16, name).getmask("\uffff")
    return letter.isspace() or (drawn.size, bytes(drawn)) != (missing.size, bytes(missing))
