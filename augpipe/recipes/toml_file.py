"""TOML files of recipes and schedules: written with every field, and read with the place of what is wrong."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from augpipe.ops.op import CONTINUOUS, Op
from augpipe.validation.models import Checked, FieldError

Model = TypeVar("Model", bound=BaseModel)


class TomlFile(Checked):
    """A description that is written to a TOML file."""

    def to_toml(self) -> str:
        """TOML with every field written out, so that a later default cannot change it."""
        import tomli_w  # only here: to augment, a machine without this package needs none of it

        return tomli_w.dumps(_without_none(self.model_dump(), self))

    def dump(self, path: str | Path) -> None:
        """Write it to a TOML file that `load` reads back as an equal one."""
        Path(path).write_text(self.to_toml(), encoding="utf-8")


def read_toml(path: str | Path) -> dict[str, Any]:
    """The content of a TOML file.

    Raises:
        ValueError: it is not TOML.
        OSError: it cannot be read.
    """
    if Path(path).is_dir():
        raise ValueError(
            f"{path} is a folder, and a recipe is a TOML file. augpipe recipe deep_image > my.toml writes one; images "
            "are the source, which comes first: Loader(source, recipe)."
        )
    content = Path(path).read_bytes()
    try:
        return tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not valid TOML: {error}.") from error


def validated(kind: type[Model], data: Mapping[str, Any], path: str | Path, what: str) -> Model:
    """What a TOML file describes; ValueError names the file, the place and the remedy."""
    try:
        return kind.model_validate(data)
    except FieldError as error:
        problems = "\n".join(f"  {line}" for line in error.lines)
        raise ValueError(f"{path}: not a valid {what}:\n{problems}") from error


def _without_none(data: Any, model: Any) -> Any:
    """TOML has no null: leave a None out where it is the default, and write `continuous` where it is not."""
    if isinstance(model, Op) and not model.in_files:
        raise ValueError(
            f"{model.key} is a function of yours, which a TOML file cannot hold. Write the recipe without it, and add "
            "it in Python: Recipe(ops=[*recipe.ops, ops.Custom(my_step)])."
        )
    if isinstance(model, BaseModel):
        fields = type(model).model_fields
        kept = {}
        for name, value in data.items():
            if value is None:
                if fields[name].default is None:
                    continue
                value = CONTINUOUS
            elif name in ("ops", "views", "mixing") and not value:
                continue
            kept[name] = _without_none(value, getattr(model, name))
        return kept
    if isinstance(data, list | tuple):
        return [_without_none(item, part) for item, part in zip(data, model, strict=True)]
    return data
