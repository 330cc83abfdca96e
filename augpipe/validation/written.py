"""What things are, in a line or a small table, for `repr`."""

import textwrap
from typing import Any

from pydantic import BaseModel

LONGEST_LINE = 100


def written(model: BaseModel) -> str:
    """The Python that makes a description, without fields at their defaults: in a line, or a line each of its parts."""
    parts = [*model.__repr_args__()]
    kind = type(model).__name__
    line = f"{kind}({', '.join(f'{name}={_value(value)}' for name, value in parts)})"
    if len(line) <= LONGEST_LINE and "\n" not in line:
        return line
    return "\n".join([f"{kind}(", *(f"    {name}={_indented(value)}," for name, value in parts), ")"])


def _value(value: Any) -> str:
    if isinstance(value, tuple) and any(isinstance(item, BaseModel) for item in value):
        return f"[{', '.join(map(repr, value))}]"
    return repr(value)


def _indented(value: Any) -> str:
    if isinstance(value, tuple) and any(isinstance(item, BaseModel) for item in value):
        items = textwrap.indent(",\n".join(map(repr, value)), " " * 8)
        return f"[\n{items},\n    ]"
    return textwrap.indent(repr(value), " " * 4).lstrip()


def array_text(value: Any) -> str:
    """An array or tensor without its numbers: "float32 (64, 3, 224, 224) on cuda:0"."""
    device = str(getattr(value, "device", "cpu"))
    dtype = str(value.dtype).removeprefix("torch.")
    return f"{dtype} {tuple(value.shape)}" + ("" if device == "cpu" else f" on {device}")
