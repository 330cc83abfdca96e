"""A list of ops of any kind: how one is read from what a recipe's TOML says."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Union

from pydantic import BaseModel, BeforeValidator, Field, GetCoreSchemaHandler, WrapValidator
from pydantic_core import CoreSchema, core_schema

from augpipe.ops.custom import Custom
from augpipe.ops.op import KINDS, Op
from augpipe.ops.other_names import ANSWERS
from augpipe.validation.models import ListOf, broken
from augpipe.validation.suggest import elsewhere, nearest

MIXES = ("mix_up", "cut_mix", "copy_paste")
"""Kinds that do not act on one image and belong in `Recipe.mixing`."""


class _OfAnyKind:
    """For `Annotated`: an op of one of all kinds. They are looked up when the schema of a description that holds ops is
    made, as groups are ops and hold ops of any kind."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        kinds = tuple(KINDS[name] for name in sorted(KINDS))
        schema: Any = handler.generate_schema(Annotated[Union[kinds], Field(discriminator="op")])  # noqa: UP007
        # written down by its own class: a union would compare all fields, and take what an op has cached for one more
        schema["serialization"] = core_schema.wrap_serializer_function_ser_schema(_own, schema=core_schema.any_schema())
        made: CoreSchema = schema
        return made


def _own(op: Any, serialize: Callable[[Any], Any]) -> Any:
    return serialize(op)


def _is_op(value: Any, validate: Callable[[Any], Any]) -> Any:
    """Refuse a value that is not an op at all, and name its kind; whatever looks like an op is validated as one."""
    if isinstance(value, Custom):
        return value
    if isinstance(value, tuple(KINDS.values())):
        return validate(value)
    if isinstance(value, type) and issubclass(value, Op):
        raise ValueError(f"{value.__name__} is the class. Write {value.__name__}() for an op of it.")
    name = value.get("op") if isinstance(value, Mapping) else value
    if (getattr(value, "op", None) or name) in MIXES:
        raise ValueError(
            "what mixes finished images goes into the recipe's mixing, not its ops. Write mixing=[ops.MixUp()], in "
            'TOML [[mixing]] and op = "mix_up".'
        )
    if isinstance(value, Mapping) and name is None:
        raise ValueError('every op names its kind, as in op = "color_cast".')
    if not isinstance(name, str):
        raise ValueError(
            f"a value of type {type(value).__name__} is not an op. augpipe.ops has {len(KINDS)}, as ops.Flip()."
        )
    if name == "custom":
        raise ValueError(
            "custom calls a function, which a text cannot hold. Load the rest in Python and add it there: "
            "Recipe(ops=[*recipe.ops, ops.Custom(my_step)])."
        )
    if name not in KINDS:
        instead, near = elsewhere(name, ANSWERS), nearest(name, sorted(KINDS))
        hint = f"Did you mean {near!r}?" if near else f"There are {', '.join(sorted(KINDS))}."
        hint = f"In Python write {instead}; augpipe recipe NAME shows a recipe's TOML." if instead else hint
        raise ValueError(f"{name!r} is not an op. {hint}")
    if name is value:
        raise ValueError(
            f'{name!r} is only the name of an op. Write {KINDS[name].__name__}(), in TOML {{op = "{name}"}}.'
        )
    return validate(value)


def is_list(value: Any) -> Any:
    """Say of one op or view, which pydantic would take for the list of its own fields, that it belongs into a list."""
    if isinstance(value, BaseModel):
        raise broken(f"must be a list: {{name}}=[{type(value).__name__}(...)]")
    return value


if TYPE_CHECKING:
    Ops = ListOf[Op]  # whoever writes a function that returns ops need not list their kinds
else:
    Ops = Annotated[ListOf[Annotated[Op, _OfAnyKind(), WrapValidator(_is_op)]], BeforeValidator(is_list)]
