"""The fonts of a sheet: Pillow's own, and those of the machine for letters that it lacks."""

import importlib.util
import logging
import os
import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from typing import cast

from PIL import ImageFont

from augpipe.validation.log_once import log_once

OWN = ""
"""The name of Pillow's own font, of Latin letters."""
FALLBACKS = (
    *("NotoSans-Regular.ttf", "DejaVuSans.ttf", "segoeui.ttf", "Arial Unicode.ttf"),
    *("NotoSansCJK-Regular.ttc", "wqy-zenhei.ttc", "DroidSansFallbackFull.ttf", "msyh.ttc", "PingFang.ttc"),
    *("NotoSansKR-Regular.otf", "malgun.ttf", "AppleSDGothicNeo.ttc", "NotoSansArabic-Regular.ttf"),
    *("NotoSansHebrew-Regular.ttf", "NotoSansDevanagari-Regular.ttf", "NotoSansThai-Regular.ttf", "Nirmala.ttf"),
)
"""Fonts of Linux, Windows and macOS that are tried first; Pillow finds those that are installed."""
MATPLOTLIB = ("DejaVuSans.ttf", "STIXGeneral.ttf")
"""Fonts that matplotlib ships, tried next. Its others are mathematical, or draw a box for every letter."""
FOLDERS = ("/usr/share/fonts", "/usr/local/share/fonts", "~/.local/share/fonts", "~/.fonts")
"""Where Linux keeps fonts, as fontconfig has them by default; any font in them is tried last."""

_UNSUITABLE = re.compile("Bold|Italic|Oblique|Light|Thin|Black|Medium|Condensed|LastResort")
"""Of a family the regular font is enough."""
_CJK = ("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO", "IDEOGRAPHIC", "FULLWIDTH", "HALFWIDTH")
"""How Unicode's names of Chinese, Japanese and Korean letters begin."""
_PROBE_PX = 16
"""The size at which a font is asked for a letter."""


@cache
def font(size_px: int, name: str = OWN) -> ImageFont.FreeTypeFont:
    """Pillow's own scalable font, so that a sheet looks the same on every machine; or another one, by name or path.

    Raises:
        ImportError: this Pillow was built without FreeType.
        OSError: that font is not installed.
    """
    return cast(ImageFont.FreeTypeFont, ImageFont.truetype(name, size_px) if name else ImageFont.load_default(size_px))


@cache
def font_of(letters: str) -> str | None:
    """The first font that has all these letters; None where none has."""
    return next((name for name in _candidates() if all(has_letter(letter, name) for letter in letters)), None)


@cache
def has_letter(letter: str, name: str = OWN) -> bool:
    """Whether a font has the letter; for all that it lacks it draws the box of U+FFFF, which is not a letter."""
    if name == OWN and (letter <= "~" or letter.isspace()):
        return True
    if not _opens(name) or unicodedata.category(letter) == "Cs":  # a lone surrogate is a byte that is not text
        return False
    drawn, missing = font(_PROBE_PX, name).getmask(letter), font(_PROBE_PX, name).getmask("\uffff")
    return letter.isspace() or (drawn.size, bytes(drawn)) != (missing.size, bytes(missing))


def package_of(letter: str) -> str | None:
    """The Debian package with a font of this letter's script; None for pictographs and what is not text."""
    if unicodedata.category(letter)[0] not in "LMN":
        return None
    return "fonts-noto-cjk" if unicodedata.name(letter, "").startswith(_CJK) else "fonts-noto-core"


def tell_missing(package: str, letters: str, shown: str) -> None:
    """Log once a process which Debian package draws letters that no font here has."""
    log_once(
        logging.WARNING,
        "No font here has %s: preview sheets show %s. On Debian and Ubuntu, install %s to draw this script.",
        *(letters, shown, package),
        key=package,
    )


@cache
def _candidates() -> tuple[str, ...]:
    """All fonts in the order in which they are tried."""
    return (OWN, *FALLBACKS, *_matplotlib_fonts(), *_machine_fonts())


@cache
def _opens(name: str) -> bool:
    try:
        font(_PROBE_PX, name)
    except OSError:
        return False
    return True


def _matplotlib_fonts() -> Iterator[str]:
    """Paths of the fonts that come with matplotlib, which is not imported for it."""
    spec = importlib.util.find_spec("matplotlib")
    for root in (spec.submodule_search_locations or ()) if spec is not None else ():
        yield from (os.path.join(root, "mpl-data", "fonts", "ttf", name) for name in MATPLOTLIB)


def _machine_fonts() -> list[str]:
    """Paths of the regular fonts in `FOLDERS`, those with serifs or of one width last."""
    found = [
        os.path.join(folder, name)
        for root in FOLDERS
        for folder, _, names in os.walk(os.path.expanduser(root))
        for name in names
        if name.lower().endswith((".ttf", ".otf", ".ttc")) and not _UNSUITABLE.search(name)
    ]
    return sorted(found, key=lambda path: (bool(re.search("Serif|Mono", os.path.basename(path))), path))
