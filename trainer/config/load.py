"""From a TOML file and `a.b=c` overrides to a config, and back; and one to begin with, every field explained."""

import textwrap
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from augpipe.trainer.config.tables import RunConfig, Section
from augpipe.validation.models import FieldError
from augpipe.validation.suggest import OTHER_NAMES, nearest

_WIDTH = 110
_LEFT_OUT = "..."
_MOST_LETTERS = 130
"""Letters that the names of a table's fields take in a message, at most."""


def load_config(path: str | Path, overrides: Iterable[str] = ()) -> RunConfig:
    """Read a TOML file and apply overrides to it.

    Args:
        path: of the file; its relative paths are seen from the current folder.
        overrides: each as "optim.lr=0.1"; the value is TOML, or a bare string.

    Raises:
        ValueError: the file is not TOML or a recipe, or a field is unknown or out of range; names field and remedy.
        OSError: the file cannot be read.
    """
    content = Path(path).read_bytes()
    try:
        data = tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not valid TOML: {error}.") from error
    if "data" not in data and ("ops" in data or "views" in data):
        raise ValueError(
            f"{path} is a recipe, and a run takes a config. augpipe train --example > run.toml writes one to begin "
            f'with: set recipe = "{path}" below [data] there.'
        )
    return make_config(data, overrides, name=str(path))


def make_config(data: Mapping[str, Any], overrides: Iterable[str] = (), *, name: str = "config") -> RunConfig:
    """A config of nested dicts and overrides.

    Raises:
        ValueError: a field is unknown or out of range; names field and remedy.
    """
    nested = _copied(data)
    for text in overrides:
        _apply(nested, text)
    lines = list(_unknown_names(nested, RunConfig))
    if not lines:
        try:
            return RunConfig.model_validate(nested)
        except FieldError as error:
            lines = error.lines
    problems = "\n".join(f"  {line}" for line in lines)
    raise ValueError(f"{name}: not a valid config:\n{problems}")


def to_toml(config: RunConfig) -> str:
    """The config with every field written out, so that a later default cannot change it; what is None is left out."""
    import tomli_w

    return tomli_w.dumps(_without_none(config.model_dump()))


def differences(old: RunConfig, new: RunConfig) -> list[str]:
    """A line for each field that differs, as "optim.lr: 0.1, now 0.01"."""
    before, after = dict(_flat(old)), dict(_flat(new))
    return [
        f"{name}: {_text(before[name])}, now {_text(value)}" for name, value in after.items() if before[name] != value
    ]


def _apply(data: dict[str, Any], text: str) -> None:
    name, equals, value = text.partition("=")
    path = name.strip().split(".")
    if not equals or not all(path):
        raise ValueError(f"--set {text}: write FIELD=VALUE, as in --set optim.lr=0.1")
    section: type[Section] = RunConfig
    for depth, part in enumerate(path):
        fields = section.model_fields
        if part not in fields:
            raise ValueError(f"--set {text}: {_unknown(path, depth, section)}")
        inner = fields[part].annotation
        is_table = isinstance(inner, type) and issubclass(inner, Section)
        is_last = depth == len(path) - 1
        if is_last:
            if is_table:
                assert isinstance(inner, type) and issubclass(inner, Section)
                raise ValueError(
                    f"--set {text}: {name.strip()} is a table. Name a field of it: "
                    f"{', '.join(f'{name.strip()}.{field}' for field in inner.model_fields)}."
                )
            is_text = inner is str or (get_origin(inner) is not tuple and str in get_args(inner))
            data[part] = _value(value.strip(), is_text=is_text)
        elif is_table:
            assert isinstance(inner, type) and issubclass(inner, Section)
            section, data = inner, _table(data, part, text)
        elif part == "options":
            _table(data, part, text)[".".join(path[depth + 1 :])] = _value(value.strip())
            return
        else:
            raise ValueError(f"--set {text}: {'.'.join(path[: depth + 1])} is a value and has no fields.")


def _table(data: dict[str, Any], name: str, text: str) -> dict[str, Any]:
    found = data.setdefault(name, {})
    if not isinstance(found, dict):
        raise ValueError(f"--set {text}: the config has {name} = {found!r}, where a table belongs.")
    return found


def _unknown_names(data: Mapping[str, Any], section: type[Section], above: tuple[str, ...] = ()) -> Iterator[str]:
    """A line for each field of nested tables that there is none of."""
    for name, value in data.items():
        path = [*above, name]
        if name not in section.model_fields:
            yield _unknown(path, len(above), section)
            continue
        inner = section.model_fields[name].annotation
        if isinstance(inner, type) and issubclass(inner, Section) and isinstance(value, Mapping):
            yield from _unknown_names(value, inner, tuple(path))


def _unknown(path: list[str], depth: int, section: type[Section]) -> str:
    prefix = "".join(f"{part}." for part in path[:depth])
    own = {field: prefix + field for field in section.model_fields}
    every = {name.split(".")[-1]: name for name, _ in reversed(list(_names(RunConfig)))}
    last, other = path[-1], OTHER_NAMES.get(path[-1], path[-1])
    # what is surely meant, in this table or another one; then what is written like it
    near = [names[name] for names in (own, every) for name in (last, other) if name in names]
    near += [names[name] for names in (own, every) if (name := nearest(last, list(names))) is not None]
    hint = f" Did you mean {near[0]}?" if near else ""
    table = f" of {prefix.rstrip('.')}" if prefix else ""
    return f"there is no field {'.'.join(path[: depth + 1])}.{hint} Fields{table}: {_listed(section)}."


def _listed(section: type[Section]) -> str:
    """A table's fields; of many, as many as are read at a glance."""
    names = list(section.model_fields)
    num_shown = len(names)
    while len(", ".join(names[:num_shown])) > _MOST_LETTERS:
        num_shown -= 1
    more = len(names) - num_shown
    return ", ".join(names[:num_shown]) + (f" and {more} more (augpipe train --example has all)" if more else "")


def _names(section: type[Section], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for name, field in section.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, Section):
            yield from _names(inner, f"{prefix}{name}.")
        else:
            yield prefix + name, field


def _flat(section: BaseModel, prefix: str = "") -> Iterable[tuple[str, Any]]:
    for name in type(section).model_fields:
        value = getattr(section, name)
        if isinstance(value, Section):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _value(text: str, *, is_text: bool = False) -> Any:
    """The TOML value; what is none is a string, so that names and paths need no quotes.

    For a field that `is_text` a date or a number is a name too: out=2026-11-21.
    """
    try:
        found = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    return text if is_text and not isinstance(found, (str, dict)) else found


def _text(value: Any) -> str:
    return "left out" if value is None else repr(value)


def _copied(data: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _copied(value) if isinstance(value, Mapping) else value for name, value in data.items()}


def _without_none(data: Any) -> Any:
    if isinstance(data, dict):
        return {name: _without_none(value) for name, value in data.items() if value is not None}
    if isinstance(data, tuple | list):
        return [_without_none(item) for item in data]
    return data


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
        yield f"{name} = {toml_value(default)}"


def toml_value(value: Any) -> str:
    """A value as TOML has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key} = {toml_value(item)}' for key, item in value.items())} }}" if value else "{}"
    return repr(value)
