"""Descriptions explain themselves: what stands under each field reaches `help()`, signatures and the JSON schema.

Sources are read when somebody asks, so that importing costs nothing.
"""

import ast
import inspect
import sys
import textwrap
import types
import typing
from collections.abc import Callable, Mapping
from functools import cache, reduce
from operator import or_
from typing import TYPE_CHECKING, Any, Literal, dataclass_transform, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel, Field
from pydantic.fields import FieldInfo

if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass
else:
    ModelMetaclass = type(BaseModel)

MOST_CLASSES = 3
"""Classes of a union that are listed; of more, their common class."""
ARGS = "Args:"
WIDTH = 100
"""Letters of a line in `help()`."""


@dataclass_transform(kw_only_default=True, field_specifiers=(Field,))
class Documented(ModelMetaclass):
    """The class of descriptions, which makes their texts when somebody asks for them."""

    @property
    def __doc__(cls) -> str | None:  # type: ignore[override]
        """The class's own text, and an "Args:" part of its fields."""
        text = vars(cls).get("__doc__")
        return None if text is None else with_fields(inspect.cleandoc(text), cls)

    @property
    def __signature__(cls) -> inspect.Signature:
        """The fields by name, with plain types and defaults as values."""
        named = inspect.Parameter.KEYWORD_ONLY
        return inspect.Signature(
            [
                inspect.Parameter(name, named, annotation=plain_type(field.annotation), default=_default(field))
                for name, field in given_fields(cls).items()
            ]
        )

    @__signature__.setter
    def __signature__(cls, pydantics: object) -> None:
        """Pydantic sets one that shows its validators."""


def with_fields(text: str, kind: Any) -> str:
    """A class's text, and what its fields are."""
    told = meanings(kind)
    described = [
        textwrap.fill(
            f"{name} ({type_text(field)}{_default_text(field)}): {told.get(name, '')}",
            width=WIDTH,
            initial_indent=" " * 4,
            subsequent_indent=" " * 8,
        )
        for name, field in given_fields(kind).items()
    ]
    return "\n".join([text, "", ARGS, *described]) if described else text


def given_fields(kind: Any) -> dict[str, FieldInfo]:
    """The fields that a user gives: without the kind that a TOML file names."""
    fields: dict[str, FieldInfo] = kind.model_fields
    return {name: field for name, field in fields.items() if name != "op"}


def summary(doc: str) -> str:
    """A class's text without the part of its fields."""
    return doc.partition(f"\n\n{ARGS}\n")[0]


@cache
def meanings(kind: type[BaseModel]) -> Mapping[str, str]:
    """Field -> the text under it in the source, in one line; empty where there is no source to read."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if base is not BaseModel and issubclass(base, BaseModel):
            found |= _in_module(base.__module__).get(base.__qualname__, {})
    return {name: text for name, text in found.items() if name in kind.model_fields}


@cache
def _in_module(name: str) -> dict[str, dict[str, str]]:
    """Class -> field -> the text under it, of the classes at a module's top."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[name]))
    except (KeyError, OSError, TypeError):  # typed into a console, or installed without its sources
        return {}
    return {node.name: _texts(node) for node in tree.body if isinstance(node, ast.ClassDef)}


def _texts(node: ast.ClassDef) -> dict[str, str]:
    found = {}
    for statement, later in zip(node.body, node.body[1:], strict=False):
        match statement, later:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = " ".join(text.split())
    return found


def plain_type(annotation: Any) -> Any:
    """A type without its checks; a union of many classes is the class that they share."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is typing.Annotated:
        return plain_type(inner[0])
    if origin in (typing.Union, types.UnionType):
        classes = [one for one in inner if isinstance(one, type)]
        if len(classes) == len(inner) > MOST_CLASSES:
            return next(base for base in classes[0].__mro__ if all(issubclass(one, base) for one in classes))
        return reduce(or_, map(plain_type, inner))
    if origin is None or origin is Literal:
        return annotation
    return origin[tuple(one if one is ... else plain_type(one) for one in inner)]


def type_text(field: FieldInfo) -> str:
    """A field's type in a few words, with its range where it has one: "float in 0..1"."""
    limits = {type(limit): limit for limit in field.metadata}
    text, low, high = _words(plain_type(field.annotation)), limits.get(Ge), limits.get(Le)
    if isinstance(low, Ge) and isinstance(high, Le):
        return f"{text} in {low.ge:g}..{high.le:g}"
    named = ((Ge, "ge", "from"), (Gt, "gt", "above"), (Le, "le", "up to"), (Lt, "lt", "below"))
    return " ".join(
        [text, *(f"{word} {getattr(limits[kind], name):.3g}" for kind, name, word in named if kind in limits)]
    )


def _words(annotation: Any) -> str:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " or ".join(map(repr, inner))
    if origin in (typing.Union, types.UnionType):
        return " or ".join(map(_words, inner))
    if origin is tuple and inner[-1] is ...:
        return f"list of {_words(inner[0])}"
    if origin is tuple:
        return f"({', '.join(map(_words, inner))})"
    if origin is Callable:
        return "function"
    return "None" if annotation is types.NoneType else inspect.formatannotation(annotation).rpartition(".")[2]


def _default(field: FieldInfo) -> Any:
    return inspect.Parameter.empty if field.is_required() else field.get_default(call_default_factory=True)


def _default_text(field: FieldInfo) -> str:
    return "" if field.is_required() else f", default {value_text(_default(field))}"


def value_text(value: Any) -> str:
    """A field's value in short: numbers to four digits."""
    if isinstance(value, tuple):
        return f"({', '.join(map(value_text, value))})"
    return f"{value:.4g}" if isinstance(value, float) else repr(value)
