"""From a TOML file and `a.b=c` overrides to a config, and back."""

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from augpipe.recipe import explain
from augpipe.trainer.config.base import Section
from augpipe.trainer.config.run import RunConfig


def load_config(path: str | Path, overrides: Iterable[str] = ()) -> RunConfig:
    """Read a TOML file and apply overrides to it.

    Args:
        path: of the file; its relative paths are seen from the current folder.
        overrides: each as "optim.lr=0.1"; the value is TOML, or a bare string.

    Raises:
        ValueError: the file is no TOML, or a field is unknown or out of range; names field and remedy.
        OSError: the file cannot be read.
    """
    content = Path(path).read_bytes()
    try:
        data = tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not valid TOML: {error}.") from error
    return make_config(data, overrides, name=str(path))


def make_config(data: Mapping[str, Any], overrides: Iterable[str] = (), *, name: str = "config") -> RunConfig:
    """A config of nested dicts and overrides.

    Raises:
        ValueError: a field is unknown or out of range; names field and remedy.
    """
    nested = _copied(data)
    for text in overrides:
        _apply(nested, text)
    try:
        return RunConfig.model_validate(nested)
    except ValidationError as error:
        problems = "\n".join(f"  {line}" for line in explain(error))
        raise ValueError(f"{name}: not a valid config:\n{problems}") from error


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
            data[part] = _value(value.strip(), is_text=inner is str or str in get_args(inner))
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


def _unknown(path: list[str], depth: int, section: type[Section]) -> str:
    prefix = "".join(f"{part}." for part in path[:depth])
    fields = [prefix + field for field in section.model_fields]
    every = [name for name, _ in _names(RunConfig)]
    wanted = ".".join(path[: depth + 1])
    near = difflib.get_close_matches(wanted, fields, n=1) or [name for name in every if name.split(".")[-1] == path[-1]]
    hint = f" Did you mean {near[0]}?" if near else ""
    return f"there is no field {wanted}.{hint} Valid: {', '.join(fields)}."


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
    """As TOML has it; what is no TOML value is a string, so that names and paths need no quotes.

    For a field that `is_text` a date or a number is a name too: out=2026-11-21.
    """
    try:
        found = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    return text if is_text and not isinstance(found, str) else found


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
