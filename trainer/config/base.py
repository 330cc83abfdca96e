"""What every section of the config is: frozen, keyword-only, and strict about the names of its fields."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from augpipe.ops.base import refuse_unknown


class Section(BaseModel):
    """A table of the TOML file; the docstring under a field is its description wherever one is shown."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True, protected_namespaces=()
    )

    @model_validator(mode="before")
    @classmethod
    def _name_the_unknown(cls, data: Any) -> Any:
        if isinstance(data, Mapping):
            refuse_unknown(cls._title(), data, list(cls.model_fields))
        return data

    @classmethod
    def _title(cls) -> str:
        """How messages name the section."""
        name = cls.__name__.removesuffix("Config").lower()
        return "the config" if name == "run" else f"[{name}]"
