"""A config to begin with: every field with its default, what it means above it."""

import textwrap
from collections.abc import Iterator
from typing import Any

from pydantic_core import PydanticUndefined

from augpipe.trainer.config.base import Section
from augpipe.trainer.config.run import RunConfig

_WIDTH = 110
_LEFT_OUT = "..."


def example() -> str:
    """TOML that loads as it stands; what is left out by default stands there as a comment."""
    lines = [
        "# A training run of augpipe: augpipe train THIS_FILE [--set optim.lr=0.1 ...]",
        "# or on K processes: torchrun --nproc-per-node K -m augpipe.trainer THIS_FILE",
        "",
    ]
    tables = []
    for name, field in RunConfig.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, Section):
            tables.append((name, inner))
        else:
            lines += _entry(name, field)
    for name, section in tables:
        lines += ["", f"[{name}]"]
        for key, field in section.model_fields.items():
            lines += _entry(key, field)
    return "\n".join(lines) + "\n"


def _entry(name: str, field: Any) -> Iterator[str]:
    text = " ".join((field.description or "").split())
    yield from (f"# {line}" for line in textwrap.wrap(text, _WIDTH))
    default = field.get_default(call_default_factory=True)
    if default is PydanticUndefined:
        yield f'{name} = "photos"'
    elif default is None:
        yield f"# {name} = {_LEFT_OUT}"
    else:
        yield f"{name} = {_toml(default)}"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key} = {_toml(item)}' for key, item in value.items())} }}" if value else "{}"
    return repr(value)
