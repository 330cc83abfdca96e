"""Tables of a description's fields, from the same texts as `help()`."""

import re
from typing import Any

from pydantic import BaseModel

from augpipe.validation.documented import given_fields, meanings, type_text, value_text


def prose(text: str) -> str:
    """A docstring's text, in which a star or an angle is no markup, outside of code."""
    return re.sub(r"(`[^`]*`)|([*<])", lambda found: found[1] or "\\" + found[2], text)


def cell(text: str) -> str:
    """Text for a cell of a table."""
    return " ".join(text.replace("|", "\\|").split())


def table(*rows: tuple[str, ...]) -> str:
    """A table of Markdown; the first row is its header."""
    lines = [f"| {' | '.join(map(cell, row))} |\n" for row in rows]
    return "".join([lines[0], "|---" * len(rows[0]), "|\n", *lines[1:]])


def fields_table(kind: Any) -> str:
    """What each field of a class of descriptions means, its type and range, and its default."""
    told = meanings(kind)
    rows = []
    for name, field in given_fields(kind).items():
        value = None if field.is_required() else field.get_default(call_default_factory=True)
        default = f"[its own](#{name})" if isinstance(value, BaseModel) else f"`{value_text(value)}`"
        default = "required" if field.is_required() else default
        rows.append((f"`{name}`", prose(told.get(name) or field.description or ""), type_text(field), default))
    return table(("field", "meaning", "type", "default"), *rows) if rows else ""
