"""Options that stand for a field of settings say the field's range, choices and default."""

import inspect
from typing import Any, get_args

import annotated_types
import pytest

from augpipe.cli.prepare import prepare
from augpipe.datasets.prepare.settings import PrepareSettings
from augpipe.validation.arguments import parse_bytes

PARAMETERS = inspect.signature(prepare).parameters
NAMES = [name for name in PrepareSettings.model_fields if name in PARAMETERS]


def values_of(annotation: Any) -> set[Any]:
    """The values of the literals in a type."""
    parts = get_args(annotation)
    return {one for part in parts for one in (values_of(part) or ([] if isinstance(part, type) else [part]))}


def test_all_fields_but_a_limit_are_options() -> None:
    assert set(PrepareSettings.model_fields) - set(NAMES) == {"max_pixels"}


@pytest.mark.parametrize("name", NAMES)
def test_an_option_is_as_its_field(name: str) -> None:
    field, parameter = PrepareSettings.model_fields[name], PARAMETERS[name]
    typed, option = get_args(parameter.annotation)
    if name == "shard_bytes":
        assert parse_bytes(parameter.default) == field.default
        return
    if field.default is False:
        assert parameter.default is False
        return
    shown = ", ".join(field.default) if name == "scales" else str(field.default)
    assert parameter.default is None and option.show_default == shown
    limits = {type(one): one for one in field.metadata}
    for kind, side, given in ((annotated_types.Ge, "ge", option.min), (annotated_types.Le, "le", option.max)):
        assert given == getattr(limits.get(kind), side, None)
    if name != "scales":
        assert values_of(typed) - {None} == values_of(field.annotation)
