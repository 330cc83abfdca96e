"""Small templates, with which a card makes paths and labels from what a line or a number says."""

import re
import string
from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator

_FIELD = re.compile(r"[0-9]|line|n|value")
_SPEC = re.compile(r"|basename|first|0[1-9]")


def _checked(template: str) -> str:
    for _, field, spec, conversion in string.Formatter().parse(template):
        if field is None:
            continue
        if not _FIELD.fullmatch(field) or conversion or not _SPEC.fullmatch(spec or ""):
            raise ValueError(
                f"template {template!r} holds a field that is not known. Fields: {{0}}..{{9}} (columns), {{line}}, "
                "{n} (a number from 1), {value}; forms: {1:basename} (what follows the last /), {line:first} (what "
                "precedes the first /), {n:05} (zeros in front)."
            )
    return template


Template = Annotated[str, AfterValidator(_checked)]
"""Text with fields in braces; checked when the card is loaded, so that it reaches no attribute of anything."""


def fill(template: str, values: Mapping[str, str]) -> str:
    """`template` with its fields replaced.

    Raises:
        KeyError: a field that `values` lacks.
    """
    parts = []
    for literal, field, spec, _ in string.Formatter().parse(template):
        parts.append(literal)
        if field is not None:
            parts.append(_formed(values[field], spec or ""))
    return "".join(parts)


def _formed(value: str, spec: str) -> str:
    if spec == "basename":
        return value.rpartition("/")[2]
    if spec == "first":
        return value.partition("/")[0]
    return value.zfill(int(spec)) if spec else value
